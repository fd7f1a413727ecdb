// A text that a network continues one byte at a time: which byte is read next, the state that goes
// from one step to the next, the choice of the next byte, and bytes as text. Nothing here draws.

// What is read next, by the rule of attnfree's `generate`: past `longest` tokens the state starts
// afresh, from the last half of them.
export class Window {
  constructor(longest, start) {
    this.longest = longest;
    this.half = Math.max(1, Math.floor(longest / 2));
    this.known = [...start].slice(start.length > longest ? -this.half : 0);
    this.unread = [...this.known];
    this.seen = 0;  // tokens in the state
  }

  // The next token to read, and whether from the first state; null when it is time to choose one.
  next() {
    if (!this.unread.length) return null;
    return {token: this.unread.shift(), restart: this.seen++ === 0};
  }

  // A token was chosen: it is read next, or the window slides first.
  add(token) {
    this.known = [...this.known, token].slice(-this.longest);
    this.unread = [token];
    if (this.seen + 1 <= this.longest) return;
    this.unread = this.known.slice(-this.half);
    this.seen = 0;
  }
}

// A step graph that keeps its state. `run` is a session's, `tensor(kind, data, shape)` makes what
// it takes, `about` lists the state's parts: {name, kind, shape, first}.
export class Steps {
  constructor({run, tensor, about}) {
    Object.assign(this, {run, tensor, about});
    this.restart();
  }

  // Forget all tokens.
  restart() {
    this.state = Object.fromEntries(this.about.state.map(({name, kind, shape, first}) => {
      const size = shape.reduce((a, b) => a * b, 1);
      const data = kind === 'int64' ? new BigInt64Array(size).fill(BigInt(first)) :
        new Float32Array(size).fill(first);
      return [name, this.tensor(kind, data, shape)];
    }));
  }

  // Read one token: one call of the graph. Resolves to the scores of the next.
  async step(token) {
    const ids = this.tensor('int64', BigInt64Array.of(BigInt(token)), [1]);
    const found = await this.run({ids, ...this.state});
    for (const name of Object.keys(this.state)) this.state[name] = found[`new.${name}`];
    return found.scores.data;
  }
}

// Bytes of memory that a state takes, and with `seen` what a cache uses of it: the slots that are
// filled, of the axis that is as long as the window.
export function stateSize({state, longest}, seen = longest) {
  return state.filter(({kind}) => kind !== 'int64').reduce((sum, {shape}) =>
    sum + 4 * shape.reduce((a, b) => a * (b === longest ? seen : b), 1), 0);
}

// Random numbers from 0 up to 1, the same for the same seed (mulberry32).
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// A token by its scores; temperature 0 takes the most likely one, the first of equals.
export function sample(scores, temperature, random) {
  let best = 0;
  for (let i = 1; i < scores.length; i++) if (scores[i] > scores[best]) best = i;
  if (temperature === 0) return best;
  const raised = Array.from(scores, score => Math.exp((score - scores[best]) / temperature));
  let left = random() * raised.reduce((a, b) => a + b, 0);
  for (let i = 0; i < raised.length; i++) {
    left -= raised[i];
    if (left < 0) return i;
  }
  return best;
}

// Bytes that arrive one by one, as text: a character appears with its last byte, and what is not
// UTF-8 becomes a �.
export class Decoder {
  constructor() { this.decoder = new TextDecoder('utf-8', {ignoreBOM: true}); }
  push(byte) { return this.decoder.decode(Uint8Array.of(byte), {stream: true}); }
  end() { return this.decoder.decode(); }
}

// What a byte looks like on its own.
export function glyph(byte) {
  if (byte === 10) return '↵';
  if (byte === 32) return '·';
  return byte > 32 && byte < 127 ? String.fromCharCode(byte) : '▫';
}

// A part of the state as a picture: columns are tokens, rows every `every`-th channel, numbers from
// -1 to 1 by `scale`, NaN where there is no token yet. Shapes: (1, tokens, channels), or with heads
// (1, heads, tokens, channels of a head).
export function picture({data, shape}, {scale, every, filled}) {
  const [heads, tokens, width] = shape.length === 4 ? shape.slice(1) : [1, ...shape.slice(1)];
  const rows = Math.floor(heads * width / every), numbers = new Float32Array(rows * tokens);
  for (let row = 0; row < rows; row++) {
    const channel = row * every, head = Math.floor(channel / width);
    for (let token = 0; token < tokens; token++) {
      const value = data[(head * tokens + token) * width + channel % width];
      numbers[row * tokens + token] = filled(token) ? squeezed(value, scale) : NaN;
    }
  }
  return {rows, columns: tokens, numbers};
}

// All `count` tokens before the window, as one: its key is the logarithm of their mean weight, its
// value their weighted mean. Pictures of one column; empty where there is no such token.
export function before({top, total, weight, count}, {scales, every}) {
  const rows = Math.floor(top.length / every);
  const column = (number, scale) => ({rows, columns: 1, numbers: Float32Array.from({length: rows},
    (_, row) => count > 0 ? squeezed(number(row * every), scale) : NaN)});
  return {keys: column(i => top[i] + Math.log(weight[i] / count), scales.keys),
          values: column(i => total[i] / weight[i], scales.values)};
}

const squeezed = (value, scale) => Math.max(-1, Math.min(1, value / scale));

// Pictures of all blocks: [{keys, values, before}], `before` null for a cache.
export function pictures({state, about, seen}) {
  const shapes = Object.fromEntries(about.state.map(({name, shape}) => [name, shape]));
  return about.scales.map((scales, block) => {
    const data = name => state[`blocks.${block}.${name}`].data;
    const shape = name => shapes[`blocks.${block}.${name}`];
    const tokens = shape('keys').at(-2), slides = tokens < about.longest;
    const filled = slides ? token => token >= tokens - seen : token => token < seen;
    const view = name => picture({data: data(name), shape: shape(name)},
                                 {scale: scales[name], every: about.every, filled});
    const sums = slides && {top: data('earlier.top'), total: data('earlier.total'),
                            weight: data('earlier.weight'), count: seen - tokens};
    return {keys: view('keys'), values: view('values'),
            before: sums ? before(sums, {scales, every: about.every}) : null};
  });
}

// Pictures as they are stored: a byte for each number, -128 for none, in base64.
export function stored(blocks) {
  const one = ({rows, columns, numbers}) => {
    const bytes = Uint8Array.from(atob(numbers), letter => letter.charCodeAt(0));
    return {rows, columns, numbers: Float32Array.from(new Int8Array(bytes.buffer), byte =>
      byte === -128 ? NaN : byte / 127)};
  };
  return blocks.map(({keys, values, before}) => ({keys: one(keys), values: one(values), before:
    before && {keys: one(before.keys), values: one(before.values)}}));
}
