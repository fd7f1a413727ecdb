// A network in pieces, as attnfree.live.explain writes it: scores, and what each token reads in a layer.
// The runtime (onnxruntime-web) is handed in, so that this file needs no browser.

// The graphs and what is said of them in a file of safetensors.
export function readPack(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true)), start = 8 + length;
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const {__metadata__: said, ...tensors} = head;
  const graphs = Object.fromEntries(Object.entries(tensors).map(([name, {data_offsets: [from, to]}]) =>
    [name, new Uint8Array(buffer, start + from, to - from)]));
  return {meta: JSON.parse(said.network), graphs};
}

// Pixels from 0 to 1, channel by channel, as the network was trained on them.
export function normalized(pixels, {mean, std, image: [channels]}) {
  const size = pixels.length / channels;
  return Float32Array.from(pixels, (value, i) => {
    const channel = Math.floor(i / size);
    return (value - mean[channel]) / std[channel];
  });
}

export function softmax(scores) {
  const top = Math.max(...scores), parts = Array.from(scores, score => Math.exp(score - top));
  const total = parts.reduce((a, b) => a + b, 0);
  return parts.map(part => part / total);
}

// Copies of n tokens of d numbers, from `first` to before `last`: in copy j, token j is the mean token.
export function disturbed(tokens, n, first, last) {
  const d = tokens.length / n, mean = new Float32Array(d), copies = new Float32Array((last - first) * n * d);
  for (let i = 0; i < tokens.length; i++) mean[i % d] += tokens[i] / n;
  for (let j = first; j < last; j++) {
    copies.set(tokens, (j - first) * n * d);
    copies.set(mean, (j - first) * n * d + j * d);
  }
  return copies;
}

// How far each token of `changed`, copies of n tokens, is from that of `base`: [copy * n + token].
export function distances(changed, base, n) {
  const d = base.length / n, found = new Float32Array(changed.length / d);
  for (let row = 0; row < found.length; row++) {
    let sum = 0;
    for (let i = 0; i < d; i++) sum += (changed[row * d + i] - base[(row % n) * d + i]) ** 2;
    found[row] = Math.sqrt(sum);
  }
  return found;
}

// The token of a layer that lies at a place of the image, from 0 to 1 from the left and from the top.
export function tokenAt(x, y, {grid: [h, w], prefix}) {
  const within = (at, side) => Math.max(0, Math.min(side - 1, Math.floor(at * side)));
  return prefix + within(y, h) * w + within(x, w);
}

// A network that runs: `buffer` holds what attnfree.live.pieces.export_pieces wrote.
export async function openNetwork(ort, buffer) {
  const {meta, graphs} = readPack(buffer), sessions = {};
  for (const [name, graph] of Object.entries(graphs))
    sessions[name] = await ort.InferenceSession.create(graph, {executionProviders: ['wasm']});
  let last = Promise.resolve();
  const inTurn = task => (last = last.then(task, task));  // a session runs one thing at a time

  async function step({graph, feeds, fetches}, values) {
    const given = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, values[value]]));
    const found = await inTurn(() => sessions[graph].run(given));
    return Object.fromEntries(Object.entries(fetches).map(([name, value]) => [value, found[name]]));
  }

  // Scores for an image, `pixels` from 0 to 1, and all values on the way.
  async function run(pixels) {
    let values = {image: new ort.Tensor('float32', normalized(pixels, meta), [1, ...meta.image])};
    for (const part of meta.steps) values = {...values, ...await step(part, values)};
    const scores = values.scores.data;
    return {scores, probabilities: softmax(scores), values};
  }

  // What each token of a layer reads: [t * n + j], how far the output of token t moves when token j
  // of the input is replaced by the mean token. `more` is asked before each part, and false ends it.
  async function reads({values}, layer, more = () => true) {
    const {step: index, input, output, grid, prefix} = meta.layers[layer], part = meta.steps[index];
    const n = grid[0] * grid[1] + prefix, all = new Float32Array(n * n), most = 64;
    for (let first = 0; first < n; first += most) {
      if (!await more()) return null;
      const end = Math.min(n, first + most), count = end - first, given = {};
      for (const name of Object.values(part.feeds)) {
        const {data, dims: [, ...dims]} = values[name];
        const copies = name === input ? disturbed(data, n, first, end) :
          Float32Array.from({length: count * data.length}, (_, i) => data[i % data.length]);
        given[name] = new ort.Tensor('float32', copies, [count, ...dims]);
      }
      const found = distances((await step(part, given))[output].data, values[output].data, n);
      for (let j = first; j < end; j++)
        for (let t = 0; t < n; t++) all[t * n + j] = found[(j - first) * n + t];
    }
    return all;
  }
  return {meta, run, reads};
}
