// One network: an image that the reader changes, its scores, and what a token reads in every layer.
// attnfree.live.explain puts this, pieces.js and runtime.js into one page with the network and examples.
import {loadRuntime} from './runtime.js';
import {openNetwork, tokenAt} from './pieces.js';

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Pixels from 0 to 1, channel by channel, of a picture's bytes, four for each pixel; and back.
export function planes(bytes, channels) {
  const size = bytes.length / 4;
  return Float32Array.from({length: channels * size}, (_, i) =>
    bytes[(i % size) * 4 + Math.floor(i / size)] / 255);
}
export function picture(pixels, channels) {
  const size = pixels.length / channels, bytes = new Uint8ClampedArray(size * 4);
  for (let i = 0; i < size; i++) {
    for (let c = 0; c < 3; c++) bytes[4 * i + c] = Math.round(255 * pixels[(c % channels) * size + i]);
    bytes[4 * i + 3] = 255;
  }
  return bytes;
}

// Paint a square around a place (0 to 1 from the left and the top): all pixels that it touches.
export function paint(pixels, [channels, h, w], x, y, side, value) {
  const span = (at, length) => {
    const edge = place => Math.max(0, Math.min(length, Math.floor(place * length + 0.5)));
    const first = Math.min(length - 1, edge(at - side / 2));
    return [first, Math.max(first + 1, edge(at + side / 2))];
  };
  const [top, bottom] = span(y, h), [left, right] = span(x, w);
  for (let c = 0; c < channels; c++)
    for (let row = top; row < bottom; row++)
      for (let column = left; column < right; column++)
        pixels[(c * h + row) * w + column] = value[c];
}

// What a token reads of the others in red; its own change, which the residual makes large, is left out.
export function drawMap(canvas, moved, token, {grid: [h, w], prefix}) {
  const context = canvas.getContext('2d'), cell = Math.max(2, Math.floor(160 / Math.max(h, w)));
  canvas.width = w * cell;
  canvas.height = h * cell;
  const most = Math.max(1e-12, ...moved.filter((_, j) => j !== token && j >= prefix));
  for (let i = 0; i < h * w; i++) {
    const part = i + prefix === token ? 0 : Math.min(1, moved[i + prefix] / most);
    context.fillStyle = `rgb(${Math.round(255 - 60 * part)},${Math.round(247 - 220 * part)},${Math.round(240 - 205 * part)})`;
    context.fillRect((i % w) * cell, Math.floor(i / w) * cell, cell, cell);
  }
  if (token < prefix) return;
  const at = token - prefix, line = Math.max(1, cell / 8);
  context.strokeStyle = '#111';
  context.lineWidth = line;
  context.strokeRect((at % w) * cell + line / 2, Math.floor(at / w) * cell + line / 2, cell - line, cell - line);
}

// Fill `root`: `network` gives the file of pieces (an ArrayBuffer, or a promise of it) when asked;
// `stored` is what the first example gives, drawn until the network runs.
export function build(root, {meta, examples, stored, network}) {
  const [channels, h, w] = meta.image, shown = Math.max(1, Math.round(320 / Math.max(h, w)));
  let pixels, original, x = stored.at[0], y = stored.at[1], front = false, open = null;
  let wanted = 0, maps = [], busy = false, painting = false;

  const said = element('p', {class: 'explain-said', role: 'status'}, 'The network is being loaded; these are stored results.');
  const canvas = element('canvas', {width: w * shown, height: h * shown, tabindex: 0, role: 'application',
    'aria-label': 'The image. Arrow keys choose a token, the space bar paints it.'});
  const mode = element('select', {'aria-label': 'what a pointer does'},
    element('option', {value: 'look'}, 'look: point at a token'), element('option', {value: 'paint'}, 'paint'));
  const brush = channels === 3 ? element('input', {type: 'color', 'aria-label': 'colour'}) :
    element('input', {type: 'range', min: 0, max: 1, step: 0.05, 'aria-label': 'brightness'});
  const side = element('input', {type: 'range', min: 0.02, max: 0.3, step: 0.01, value: 0.13, 'aria-label': 'width of the brush'});
  const again = element('button', {type: 'button'}, 'as it was');
  const prefix = element('button', {type: 'button', 'aria-pressed': 'false'}, 'class token');
  const bars = element('ol', {class: 'explain-bars'}), layers = element('div', {class: 'explain-layers'});
  const drawn = meta.layers.map(({name, grid, prefix}) => {
    const map = element('canvas', {role: 'img'});
    layers.append(element('figure', {}, map, element('figcaption', {}, `${name}, ${grid[0]} × ${grid[1]}`)));
    return map;
  });
  if (channels === 3) brush.value = '#' + meta.mean.map(m => Math.round(255 * Math.min(1, Math.max(0, m))).toString(16).padStart(2, '0')).join('');
  else brush.value = 1;

  const colour = () => channels === 3 ? [1, 3, 5].map(i => parseInt(brush.value.slice(i, i + 2), 16) / 255) : [+brush.value];
  const tokenOf = layer => front && layer.prefix ? 0 : tokenAt(x, y, layer);

  function drawImage() {
    if (!pixels) return;
    const small = new OffscreenCanvas(w, h), context = canvas.getContext('2d');
    small.getContext('2d').putImageData(new ImageData(picture(pixels, channels), w, h), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    const [{grid: [rows, columns]}] = meta.layers, width = canvas.width / columns, height = canvas.height / rows;
    if (front && meta.layers[0].prefix) return;
    const row = Math.min(rows - 1, Math.floor(y * rows)), column = Math.min(columns - 1, Math.floor(x * columns));
    for (const [style, line] of [['#fff', 5], ['#d00', 3]]) {
      context.strokeStyle = style;
      context.lineWidth = line;
      context.strokeRect(column * width + 1, row * height + 1, width - 2, height - 2);
    }
  }
  function drawScores(probabilities) {
    const order = probabilities.map((p, i) => [p, i]).sort((a, b) => b[0] - a[0]).slice(0, 10);
    bars.replaceChildren(...order.map(([p, i]) => {
      const bar = element('span', {class: 'explain-bar', style: `width: ${(100 * p).toFixed(1)}%`});
      return element('li', {}, element('b', {}, meta.classes[i] ?? `class ${i}`), element('span', {class: 'explain-track'}, bar),
                     element('span', {class: 'explain-share'}, `${(100 * p).toFixed(1)} %`));
    }));
  }
  function drawMaps() {
    root.dataset.at = JSON.stringify([x, y]);
    meta.layers.forEach((layer, i) => {
      const token = tokenOf(layer), n = layer.grid[0] * layer.grid[1] + layer.prefix;
      if (!maps[i]) return;
      const moved = maps[i].slice(token * n, (token + 1) * n);
      drawMap(drawn[i], moved, token, layer);
      drawn[i].setAttribute('aria-label', `${layer.name}: what token ${token} reads`);
      drawn[i].dataset.moved = Array.from(moved, value => value.toPrecision(7)).join(' ');
    });
    drawImage();
  }
  const breath = () => new Promise(done => setTimeout(done));

  async function update() {
    wanted++;
    delete root.dataset.done;
    drawImage();
    if (!open || busy) return;
    busy = true;
    try {
      for (let done = -1; done !== wanted;) {
        const now = done = wanted, seen = await open.run(pixels);
        maps = maps.map(() => null);
        drawScores(seen.probabilities);
        root.dataset.pixels = Array.from(pixels, value => value.toPrecision(7)).join(' ');  // for tests
        root.dataset.scores = Array.from(seen.scores, score => score.toPrecision(7)).join(' ');
        await breath();
        for (let i = 0; i < meta.layers.length && now === wanted; i++) {
          said.textContent = `Disturbing the tokens of ${meta.layers[i].name} …`;
          maps[i] = await open.reads(seen, i, async () => { await breath(); return now === wanted; });
          if (maps[i]) drawMaps();
        }
        if (now === wanted) {
          said.textContent = 'The network runs in this page: point at the image, or paint.';
          root.dataset.done = now;
        }
      }
    } finally { busy = false; }
  }

  function place(event) {
    const box = canvas.getBoundingClientRect(), within = at => Math.max(0, Math.min(0.9999, at));
    x = within((event.clientX - box.left) / box.width);
    y = within((event.clientY - box.top) / box.height);
    front = false;
    prefix.setAttribute('aria-pressed', 'false');
  }
  function stroke() {
    paint(pixels, meta.image, x, y, +side.value, colour());
    update();
  }
  canvas.addEventListener('pointerdown', event => {
    canvas.setPointerCapture(event.pointerId);
    painting = mode.value === 'paint';
    place(event);
    if (painting) stroke();
    drawMaps();
  });
  canvas.addEventListener('pointermove', event => {
    if (painting) { place(event); stroke(); }
    else if (mode.value === 'look') { place(event); drawMaps(); }
  });
  for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, () => { painting = false; });
  canvas.addEventListener('keydown', event => {
    const [{grid: [rows, columns]}] = meta.layers;
    const move = {ArrowUp: [0, -1 / rows], ArrowDown: [0, 1 / rows], ArrowLeft: [-1 / columns, 0], ArrowRight: [1 / columns, 0]}[event.key];
    const centre = (at, count) => (Math.min(count - 1, Math.max(0, Math.floor(at * count))) + 0.5) / count;
    if (move) {
      front = false;
      x = centre(x + move[0], columns);
      y = centre(y + move[1], rows);
      drawMaps();
    } else if (event.key === ' ') {
      x = centre(x, columns);
      y = centre(y, rows);
      paint(pixels, meta.image, x, y, 1 / Math.max(rows, columns), colour());
      update();
    } else return;
    event.preventDefault();
  });
  again.addEventListener('click', () => { pixels = original.slice(); update(); });
  prefix.addEventListener('click', () => {
    front = !front;
    prefix.setAttribute('aria-pressed', String(front));
    drawMaps();
  });

  async function decoded(url) {
    const image = new Image();
    image.src = url;
    await image.decode();
    const small = new OffscreenCanvas(w, h).getContext('2d');
    small.drawImage(image, 0, 0);
    return planes(small.getImageData(0, 0, w, h).data, channels);
  }
  async function take(url) {
    original = await decoded(url);
    pixels = original.slice();
    await update();
  }
  const choice = element('div', {class: 'explain-examples'}, ...examples.map((url, i) => {
    const button = element('button', {type: 'button', 'aria-label': `example ${i + 1}`}, element('img', {src: url, alt: ''}));
    button.addEventListener('click', () => take(url));
    return button;
  }));

  root.replaceChildren(
    element('div', {class: 'explain-left'}, canvas,
            element('div', {class: 'explain-tools'}, mode, element('label', {}, channels === 3 ? 'colour ' : 'brightness ', brush),
                    element('label', {}, 'width ', side), again, ...meta.layers.some(layer => layer.prefix) ? [prefix] : []),
            choice, bars),
    element('div', {class: 'explain-right'},
            element('p', {}, 'What moves the framed token, layer by layer: how far its output goes when each other token of the ' +
                    'layer is replaced by the mean token. The reddest is the strongest of a layer.'), layers, said));

  async function begin() {
    await take(examples[0]);
    drawScores(stored.probabilities);
    meta.layers.forEach((layer, i) => {
      const n = layer.grid[0] * layer.grid[1] + layer.prefix, token = tokenOf(layer);
      maps[i] = new Float32Array(n * n);
      maps[i].set(stored.moved[i], token * n);
    });
    drawMaps();
    try {
      open = await openNetwork(await loadRuntime(), await network());
      root.dataset.ready = 'yes';
      await update();
    } catch (error) {
      said.textContent = `${error.message} These are stored results of the first example.`;
      root.dataset.ready = 'no';
    }
  }
  return begin();
}
