// Draw a digit: nine networks read it while you draw, and show what a position reads in each layer.
// Looks for <div class="digit-live"> and fills it with stored results; when the reader comes near,
// it loads the networks and the runtime.
import {greys as toGreys} from './strokes.js';
import {EXAMPLES, FIRST, STORED} from './digit_stored.js';
import {loadRuntime} from './runtime.js';
import {openNetwork, softmax, tokenAt} from './pieces.js';

const SIDE = 8, SPAN = 100;  // positions of a digit's side; units of the pad that is drawn on
const LONGEST = 40;          // milliseconds after which the browser may paint
const NETWORKS = {
  ff_micro_patch2_8: ['FF-only', 'fixed weights over all positions', 'ff.html'],
  gmlp_micro_patch2_8: ['gMLP', 'fixed weights, as a gate', 'sgu.html'],
  amlp_micro_patch2_8: ['aMLP', 'gMLP and a tiny attention', 'sgu.html'],
  aft_simple_micro_patch2_8: ['AFT-simple', 'one mean for all positions', 'aft/variants.html'],
  aft_full_micro_patch2_8: ['AFT-full', 'a bias for each pair', 'aft/variants.html'],
  aft_local_micro_patch2_8: ['AFT-local', 'biases nearby only', 'aft/variants.html'],
  aft_conv_micro_patch2_8: ['AFT-conv', 'the same kernel everywhere', 'aft/conv.html'],
  lavit_micro_8: ['LaViT', 'attention, maps reused', 'less_attention/layer.html'],
  vit_micro_patch2_8: ['Attention', 'each position compares all', 'attention.html'],
};
const COLOURS = {
  light: {paper: [255, 255, 255], ink: [24, 28, 33], some: [253, 174, 97], most: [165, 15, 21],
          mark: '#0b6bcb', own: [11, 107, 203],
          pen: '#1f4e79'},
  dark: {paper: [29, 33, 39], ink: [232, 236, 240], some: [178, 64, 24], most: [255, 224, 130],
         mark: '#5db4ff', own: [93, 180, 255],
         pen: '#8cc0f5'},
};
const ARROWS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// What does not change is not laid out again.
const write = (place, text) => { if (place.textContent !== text) place.textContent = text; };
const theme = () => COLOURS[document.body.classList.contains('quarto-dark') ? 'dark' : 'light'];
const mixed = (from, to, part) =>
  from.map((value, i) => Math.round(value + (to[i] - value) * part));
const rgb = parts => `rgb(${parts.join(',')})`;
// What is read, 0 to 1: from paper over the middle colour to the strongest.
const heat = (part, {paper, some, most}) =>
  rgb(part < 0.5 ? mixed(paper, some, 2 * part) : mixed(some, most, 2 * part - 1));

// Stored maps are bytes, 255 for the most that one token reads of another.
const unpacked = ({reads, top}) =>
  Float32Array.from(atob(reads), byte => byte.charCodeAt(0) / 255 * top);

// The most that a token reads of another; what it keeps of itself is not in scale.
function strongest(reads) {
  const n = Math.sqrt(reads.length);
  return reads.reduce((most, value, i) => i % (n + 1) ? Math.max(most, value) : most, 1e-9);
}

const frame = () => new Promise(done => requestAnimationFrame(done));
const idle = () => new Promise(done =>
  globalThis.requestIdleCallback ? requestIdleCallback(done, {timeout: 200}) : setTimeout(done, 1));

// Fits a canvas to its size on the screen; draws in units of `span` by `span`. Sizes are kept, as
// to ask for one makes the browser lay out the page.
let sizes = new WeakMap();
function context(canvas, span) {
  if (!sizes.has(canvas)) sizes.set(canvas, canvas.clientWidth);
  const pixels = Math.max(1, Math.round(sizes.get(canvas) * (globalThis.devicePixelRatio || 1)));
  if (canvas.width !== pixels) canvas.width = canvas.height = pixels;
  const found = canvas.getContext('2d');
  found.setTransform(pixels / span, 0, 0, pixels / span, 0, 0);
  return found;
}

// A square of values by rows, as colours.
function paintSquare(canvas, values, colour) {
  const side = Math.sqrt(values.length), drawn = context(canvas, side);
  const sharp = canvas.width / side;  // edges on whole pixels, so that no seam shows
  drawn.setTransform(1, 0, 0, 1, 0, 0);
  values.forEach((value, i) => {
    const left = Math.round(i % side * sharp), top = Math.round(Math.floor(i / side) * sharp);
    drawn.fillStyle = colour(value, i);
    drawn.fillRect(left, top, Math.round((i % side + 1) * sharp) - left,
                   Math.round((Math.floor(i / side) + 1) * sharp) - top);
  });
  return drawn;
}

// A frame around a position of a square of `side` by `side`.
function outline(canvas, column, row, side, colour, thin = 1) {
  const drawn = canvas.getContext('2d'), cell = canvas.width / side;
  const width = Math.max(1, thin * Math.max(2, canvas.width / 40));
  drawn.setTransform(1, 0, 0, 1, 0, 0);
  drawn.lineWidth = width;
  drawn.strokeStyle = colour;
  drawn.strokeRect(column * cell + width / 2, row * cell + width / 2, cell - width, cell - width);
}

// One network's part of the page: what it reads the digit as, bars, and maps of its layers.
function makeCard(name, select) {
  const [title, says, page] = NETWORKS[name], about = STORED[name];
  const guess = element('b', {class: 'digit-guess'}), sure = element('span', {class: 'digit-sure'});
  const bars = EXAMPLES.map((_, digit) => element('i', {'data-digit': digit}));
  const map = element('canvas', {class: 'digit-map', role: 'img'});
  const strip = about.layers.map((_, layer) => {
    const canvas = element('canvas', {}), button = element(
      'button', {type: 'button', 'aria-label': `${title}: layer ${layer + 1}`}, canvas);
    button.addEventListener('click', () => select.layer(layer));
    return {button, canvas};
  });
  const caption = element('span', {class: 'digit-layer'});
  const wide = `--columns: ${Math.ceil(strip.length / 2)}`;
  const root = element('section', {class: 'digit-card', 'data-network': name, 'aria-label': title},
    element('header', {}, element('div', {}, element('a', {href: `../mixers/${page}`}, title),
                                  element('small', {}, says)),
            element('div', {class: 'digit-read'}, guess, sure)),
    element('div', {class: 'digit-bars', 'aria-hidden': 'true'}, ...bars),
    element('div', {class: 'digit-maps'}, map,
            element('div', {}, element('div', {class: 'digit-strip', style: wide},
                                       ...strip.map(({button}) => button)), caption)));
  const card = {name, title, root, guess, sure, bars, map, strip, caption, network: null,
                layers: about.layers, maps: about.layers.map(unpacked), fresh: [], scores: null};
  const point = event => {
    const box = map.getBoundingClientRect();
    select.position((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  map.addEventListener('pointermove', point);
  map.addEventListener('pointerdown', point);
  return card;
}

const shownLayer = (card, layer) => Math.min(layer, card.layers.length - 1);

function paintScores(card) {
  const likely = softmax(card.scores), best = likely.indexOf(Math.max(...likely));
  write(card.guess, `${best}`);
  write(card.sure, `${Math.round(100 * likely[best])} %`);
  card.bars.forEach((bar, digit) => {
    const part = likely[digit].toFixed(2);
    if (bar.style.getPropertyValue('--part') !== part) bar.style.setProperty('--part', part);
    if (bar.classList.contains('best') !== (digit === best)) bar.classList.toggle('best');
  });
  card.root.dataset.scores = Array.from(card.scores, score => score.toFixed(5)).join(' ');
  return best;
}

function paintMaps(card, {row, column, layer}) {
  const colours = theme(), chosen = shownLayer(card, layer);
  const paint = (canvas, index) => {
    const about = card.layers[index], reads = card.maps[index], [h, w] = about.grid;
    const token = tokenAt((column + 0.5) / SIDE, (row + 0.5) / SIDE, about);
    const n = h * w + about.prefix, top = strongest(reads);
    const mine = Array.from(reads.subarray(token * n, (token + 1) * n));
    const place = token - about.prefix;  // what a token keeps of itself is not in scale
    const own = rgb(mixed(colours.paper, colours.own, 0.3));
    paintSquare(canvas, mine.slice(about.prefix), (value, i) =>
      i === place ? own : heat(Math.min(1, value / top), colours));
    outline(canvas, place % w, Math.floor(place / w), w, colours.mark);
    return mine;
  };
  card.strip.forEach(({button, canvas}, index) => {
    paint(canvas, index);
    button.classList.toggle('chosen', index === chosen);
  });
  const mine = paint(card.map, chosen), {grid: [h, w]} = card.layers[chosen];
  card.root.classList.toggle('stale', !card.fresh[chosen]);
  card.map.setAttribute('aria-label', `${card.title}, layer ${chosen + 1}: what row ${row + 1}, ` +
                        `column ${column + 1} reads, ${h} by ${w}`);
  card.caption.textContent = `layer ${chosen + 1} of ${card.layers.length}, ${h} × ${w}`;
  card.root.dataset.layer = chosen;  // for readers of the page by script, such as the tests
  card.root.dataset.fresh = Boolean(card.fresh[chosen]);
  card.root.dataset.reads = mine.map(value => value.toFixed(6)).join(' ');
}

export function build(root) {
  const state = {strokes: [], example: FIRST, greys: EXAMPLES[FIRST], row: 2, column: 4, layer: 1,
                 pen: null, drawing: false};
  const cards = [];
  let version = 0, working = false, live = false, redraws = 0;

  // ---- what is seen
  const surface = (name, says) => element('canvas', {
    class: `digit-${name}`, tabindex: 0, role: 'application', 'aria-label': says});
  const pad = surface('pad', 'Draw a digit. Arrow keys move the pen, space puts it down and ' +
    'lifts it, Backspace takes back the last stroke, Delete clears, a digit shows an example.');
  const seen = surface('seen', 'What the networks see, 8 by 8. Arrow keys choose the position ' +
    'whose reading is shown.');
  const said = element('p', {class: 'digit-said', role: 'status'});
  const note = element('p', {class: 'digit-note', role: 'status'});
  const most = Math.max(...Object.values(STORED).map(({layers}) => layers.length));
  const slider = element('input', {type: 'range', min: 1, max: most, step: 1});
  const sliderLabel = element('span');
  const examples = EXAMPLES.map((greys, digit) => {
    const canvas = element('canvas', {});
    const button = element('button', {type: 'button', 'aria-label': `a stored ${digit}`,
                                      title: `a stored ${digit}`, 'data-example': digit}, canvas);
    button.addEventListener('click', () => showExample(digit));
    return {button, canvas, greys};
  });
  const legend = element('div', {class: 'digit-legend'}, element('i', {class: 'own'}),
                         'token', element('i', {class: 'scale'}), 'it reads more');
  const clear = element('button', {type: 'button'}, 'clear');
  const undo = element('button', {type: 'button'}, 'undo');

  function paintPad() {
    const colours = theme(), drawn = context(pad, SPAN);
    drawn.fillStyle = rgb(colours.paper);
    drawn.fillRect(0, 0, SPAN, SPAN);
    if (state.example !== null) {
      paintSquare(pad, state.greys, grey =>
        rgb(mixed(colours.paper, colours.ink, grey / 16 * 0.28)));
      context(pad, SPAN);
    }
    drawn.lineCap = drawn.lineJoin = 'round';
    drawn.lineWidth = 8;
    drawn.strokeStyle = colours.pen;
    for (const stroke of state.strokes) {
      drawn.beginPath();
      stroke.forEach(([x, y], i) => i ? drawn.lineTo(x, y) : drawn.moveTo(x, y));
      if (stroke.length === 1) drawn.lineTo(...stroke[0]);
      drawn.stroke();
    }
    if (state.example !== null || !state.strokes.length) {
      drawn.fillStyle = rgb(colours.ink);
      drawn.font = '6.5px system-ui, sans-serif';
      drawn.textAlign = 'center';
      drawn.fillText(state.example !== null ? 'draw over it' : 'draw a digit', SPAN / 2, 96);
    }
    if (document.activeElement === pad && state.pen) {
      drawn.lineWidth = 1.2;
      drawn.strokeStyle = colours.mark;
      drawn.beginPath();
      drawn.arc(...state.pen, state.drawing ? 2.5 : 4.5, 0, 2 * Math.PI);
      drawn.stroke();
    }
  }

  function paintSeen() {
    const colours = theme();
    paintSquare(seen, state.greys, grey => rgb(mixed(colours.paper, colours.ink, grey / 16)));
    const patch = at => Math.floor(at / 2);  // most networks' tokens are patches of 2 by 2
    outline(seen, patch(state.column), patch(state.row), SIDE / 2, colours.mark, 0.3);
    outline(seen, state.column, state.row, SIDE, colours.mark);
    root.dataset.position = `${state.row} ${state.column}`;
  }

  function paintExamples() {
    const colours = theme();
    for (const [digit, {button, canvas, greys}] of examples.entries()) {
      paintSquare(canvas, greys, grey => rgb(mixed(colours.paper, colours.ink, grey / 16)));
      button.classList.toggle('chosen', digit === state.example);
    }
  }

  function sum() {  // what the nine say, in a sentence
    const votes = new Map();
    for (const card of cards) {
      const best = paintScores(card);
      votes.set(best, [...votes.get(best) ?? [], card.title]);
    }
    const [first, ...others] = [...votes].sort((a, b) => b[1].length - a[1].length);
    const rest = others.map(([digit, names]) => `; ${names.join(', ')} a ${digit}`).join('');
    write(said, !state.greys.some(Boolean) ? 'Nothing is drawn: they guess.' :
      `${first[1].length} of ${cards.length} read a ${first[0]}${rest}.`);
    root.dataset.redraws = ++redraws;
  }

  const paintAllMaps = () => { for (const card of cards) paintMaps(card, state); };
  function paintAll() {
    sizes = new WeakMap();
    paintPad();
    paintSeen();
    paintExamples();
    sum();
    paintAllMaps();
  }

  // ---- what the networks do: scores first, then maps while nothing newer has come
  function changed() {
    version++;
    root.dataset.idle = false;
    for (const card of cards) {
      card.fresh = [];
      card.root.classList.add('stale');
    }
    paintPad();
    paintSeen();
    if (!live && state.example === null)
      write(said, 'The networks are loading: below is still the stored digit.');
    if (live && !working) work();
  }

  async function work() {
    working = true;
    let done = -1;
    while (done !== version) {
      const mine = version, newer = () => version !== mine;
      const pixels = Float32Array.from(state.greys, grey => grey / 16), found = [];
      let begun = performance.now();
      for (const card of cards) {
        found.push(await card.network.run(pixels));
        if (performance.now() - begun < LONGEST) continue;
        await frame();  // a slow machine: what is drawn shall follow the pen
        begun = performance.now();
      }
      cards.forEach((card, i) => { card.scores = found[i].scores; });
      sum();
      await frame();
      if (!newer()) await readLayers(found, newer);
      done = mine;
    }
    working = false;
    root.dataset.idle = true;
  }

  async function readLayers(found, newer) {
    const patient = async () => { await idle(); return !newer(); };
    for (;;) {  // the layer that is shown first; the slider may move meanwhile
      const missing = (card, layer) => layer < card.layers.length && !card.fresh[layer];
      const wanted = cards.filter(card => missing(card, shownLayer(card, state.layer)));
      let card = wanted[0], layer = card && shownLayer(card, state.layer);
      if (!card) {
        card = cards.find(one => one.layers.some((_, index) => missing(one, index)));
        if (!card) return;
        layer = card.layers.findIndex((_, index) => missing(card, index));
      }
      const reads = await card.network.reads(found[cards.indexOf(card)], layer, patient);
      if (!reads || newer()) return;
      card.maps[layer] = Float32Array.from(reads);
      card.fresh[layer] = true;
      paintMaps(card, state);
    }
  }

  // ---- what the reader does
  function showExample(digit) {
    Object.assign(state, {example: digit, strokes: [], greys: EXAMPLES[digit], drawing: false});
    paintExamples();
    if (!live) for (const card of cards) card.scores = STORED[card.name].scores[digit];
    if (!live) sum();
    changed();
  }

  function drawn() {
    if (state.example !== null) { state.example = null; paintExamples(); }
    const greys = toGreys(state.strokes);
    if (greys.every((grey, i) => grey === state.greys[i])) { paintPad(); return; }
    state.greys = greys;
    changed();
  }

  function begin(point) {
    if (state.example !== null) { state.strokes = []; state.example = null; paintExamples(); }
    state.strokes.push([point]);
    drawn();
  }

  function extend(points) {
    const stroke = state.strokes.at(-1);
    for (const point of points) {
      const [x, y] = stroke.at(-1);
      if (Math.hypot(point[0] - x, point[1] - y) >= 1) stroke.push(point);
    }
    drawn();
  }

  const within = value => Math.max(0, Math.min(SPAN, value));
  const onPad = event => {
    const box = pad.getBoundingClientRect(), scale = SPAN / box.width;
    return [within((event.clientX - box.left) * scale), within((event.clientY - box.top) * scale)];
  };
  let pointer = null;
  pad.addEventListener('pointerdown', event => {
    if (root.dataset.state === 'blocked') return;
    pointer = event.pointerId;
    pad.setPointerCapture(pointer);
    state.pen = null;
    begin(onPad(event));
  });
  pad.addEventListener('pointermove', event => {
    if (event.pointerId !== pointer) return;
    const parts = event.getCoalescedEvents?.() ?? [];
    extend((parts.length ? parts : [event]).map(onPad));
  });
  for (const end of ['pointerup', 'pointercancel'])
    pad.addEventListener(end, () => { pointer = null; });

  const takeBack = () => { state.strokes.pop(); state.drawing = false; drawn(); };
  const empty = () => { state.strokes = []; state.drawing = false; drawn(); };
  clear.addEventListener('click', empty);
  undo.addEventListener('click', takeBack);
  pad.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (root.dataset.state === 'blocked') return;
    if (ARROWS[event.key]) {
      const [down, right] = ARROWS[event.key], [x, y] = state.pen ?? [50, 20];
      state.pen = [within(x + 5 * right), within(y + 5 * down)];
      if (state.drawing) extend([state.pen]);
      else paintPad();
    } else if (event.key === ' ' || event.key === 'Enter') {
      state.pen ??= [50, 20];
      state.drawing = !state.drawing;
      if (state.drawing) begin(state.pen);
      else paintPad();
    } else if (event.key === 'Backspace') takeBack();
    else if (event.key === 'Delete' || event.key === 'Escape') empty();
    else if (/^[0-9]$/.test(event.key)) showExample(+event.key);
    else return;
    event.preventDefault();
  });
  pad.addEventListener('focus', () => {
    if (pointer === null) state.pen ??= [50, 20];
    paintPad();
  });
  pad.addEventListener('blur', () => { state.drawing = false; paintPad(); });

  const select = {
    position(x, y) {
      const at = part => Math.max(0, Math.min(SIDE - 1, Math.floor(part * SIDE)));
      if (at(y) === state.row && at(x) === state.column) return;
      Object.assign(state, {row: at(y), column: at(x)});
      paintSeen();
      paintAllMaps();
    },
    layer(layer) {
      state.layer = layer;
      slider.value = layer + 1;
      sliderLabel.textContent = ` layer ${layer + 1}`;
      paintAllMaps();
    },
  };
  const point = event => {
    const box = seen.getBoundingClientRect();
    select.position((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  seen.addEventListener('pointermove', point);
  seen.addEventListener('pointerdown', point);
  seen.addEventListener('keydown', event => {
    if (!ARROWS[event.key]) return;
    const [down, right] = ARROWS[event.key];
    select.position((state.column + right + 0.5) / SIDE, (state.row + down + 0.5) / SIDE);
    event.preventDefault();
  });
  slider.addEventListener('input', () => select.layer(slider.value - 1));

  // ---- the page
  for (const name of Object.keys(NETWORKS)) {
    const card = makeCard(name, select);
    card.scores = STORED[name].scores[FIRST];
    card.fresh = card.layers.map(() => true);
    cards.push(card);
  }
  const labelled = (canvas, title, hint) =>
    element('figure', {}, canvas, element('figcaption', {}, element('b', {}, title), `: ${hint}`));
  root.replaceChildren(
    element('div', {class: 'digit-top'},
      labelled(pad, 'Draw here', 'with a mouse, a finger or the keyboard'),
      labelled(seen, 'What the networks see', 'point at a token to see what it reads'),
      element('div', {class: 'digit-side'},
        element('div', {class: 'digit-buttons'}, clear, undo),
        element('div', {class: 'digit-examples', role: 'group', 'aria-label': 'stored digits'},
                ...examples.map(({button}) => button)),
        element('label', {class: 'digit-slider'}, slider, sliderLabel), legend, said, note)),
    element('div', {class: 'digit-cards'}, ...cards.map(({root: card}) => card)));
  root.dataset.state = 'stored';
  root.dataset.idle = true;
  note.textContent = 'A stored digit with stored results; the networks load when you come near.';
  select.layer(state.layer);
  paintAll();
  new MutationObserver(paintAll).observe(document.body, {attributeFilter: ['class']});
  new ResizeObserver(paintAll).observe(root);

  async function load() {
    root.dataset.state = 'loading';
    let there = 0;
    const say = () => { note.textContent = `Loading the networks: ${there} of ${cards.length}.`; };
    say();
    try {
      const files = cards.map(async card => {
        const answer = await fetch(new URL(`digits_${card.name}.safetensors`, import.meta.url));
        if (!answer.ok) throw new Error(`The network ${card.title} could not be loaded.`);
        return answer.arrayBuffer();
      });
      const [ort, ...buffers] = await Promise.all([loadRuntime(), ...files]);
      for (const [i, card] of cards.entries()) {
        card.network = await openNetwork(ort, buffers[i]);
        there++;
        say();
        await frame();
      }
      live = true;
      root.dataset.state = 'live';
      note.textContent = 'All nine networks run in your browser; nothing you draw leaves it.';
      changed();
    } catch (error) {
      root.dataset.state = 'blocked';
      note.textContent = `${error.message} What you see are a stored digit and stored results; ` +
                         'pointing at its tokens and the slider work.';
      for (const {button} of examples) button.disabled = true;
      for (const button of [clear, undo]) button.disabled = true;
      showExample(FIRST);
      for (const card of cards) card.fresh = card.layers.map(() => true);
      paintAllMaps();
      root.dataset.idle = true;
    }
  }
  const watcher = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    watcher.disconnect();
    load();
  }, {rootMargin: '200px'});
  watcher.observe(root);
}

if (typeof document !== 'undefined')
  for (const root of document.querySelectorAll('.digit-live')) build(root);
