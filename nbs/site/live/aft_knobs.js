// Turn the knobs of AFT: keys and position biases that are dragged, and what follows from them.
// Looks for <div class="aft-knobs"> and fills it; no library, nothing is loaded.
import {VARIANTS, biases, means, position, setBias, weights} from './aft.js';

const WIDTH = 8, N = WIDTH * WIDTH, CELL = 20, LIMIT = 4;
// A seven of scikit-learn's digits (images[7]), grey values of 0 to 16.
const DIGIT = [0, 0, 7, 8, 13, 16, 15, 1, 0, 0, 7, 7, 4, 11, 12, 0, 0, 0, 0, 0, 8, 13, 1, 0,
  0, 4, 8, 8, 15, 15, 6, 0, 0, 2, 11, 15, 15, 4, 0, 0, 0, 0, 0, 16, 5, 0, 0, 0,
  0, 0, 9, 15, 1, 0, 0, 0, 0, 0, 13, 5, 0, 0, 0, 0];
const PANELS = {
  values: {title: 'values v', hint: 'click: the token that reads', drawn: 'grey'},
  keys: {title: 'keys k', hint: 'drag up or down', drawn: 'signed'},
  biases: {title: 'biases w of that token', hint: 'drag up or down', drawn: 'signed'},
  weights: {title: 'weights of that token', hint: 'they sum to 1', drawn: 'red'},
  means: {title: 'mean that each token reads', hint: '', drawn: 'grey'},
};

function fresh() {
  const near = (down, right) => 2.5 * Math.exp(-(down * down + right * right) / 2);
  const free = Array.from({length: N}, (_, t) => Array.from({length: N}, (_, other) => {
    const [row, column] = position(t, WIDTH), [otherRow, otherColumn] = position(other, WIDTH);
    return near(otherRow - row, otherColumn - column);
  }));
  const side = 2 * WIDTH - 1;
  const kernel = Array.from({length: side * side}, (_, i) =>
    near(Math.floor(i / side) - WIDTH + 1, i % side - WIDTH + 1));
  return {width: WIDTH, variant: 'conv', reach: 3, token: 27, free, kernel,
          keys: Array.from({length: N}, (_, i) => i === 4 ? 2 : 0), values: DIGIT.map(grey => grey / 16)};
}

function colour(drawn, value, top) {
  if (drawn === 'grey') { const grey = Math.round(255 - 225 * value); return `rgb(${grey},${grey},${grey})`; }
  const part = Math.min(1, Math.abs(value) / top), pale = Math.round(250 - 190 * part);
  return value >= 0 ? `rgb(${Math.round(250 - 40 * part)},${pale},${pale})` : `rgb(${pale},${pale},250)`;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function build(root) {
  let state = fresh(), cursor = 27, dragged = null;
  const canvases = {}, formula = {};
  const said = element('p', {class: 'knobs-said', role: 'status'});

  function computed() {
    const all = biases(state.variant, state);
    return {values: state.values, keys: state.keys, biases: all[state.token],
            weights: weights(state.keys, all[state.token]),
            means: means(state.keys, all, state.values)};
  }

  function draw() {
    const shown = computed();
    for (const [name, canvas] of Object.entries(canvases)) {
      const context = canvas.getContext('2d'), numbers = shown[name];
      const top = name === 'weights' ? Math.max(...numbers) : LIMIT;
      numbers.forEach((value, i) => {
        const [row, column] = position(i, WIDTH);
        context.fillStyle = colour(PANELS[name].drawn, value, top);
        context.fillRect(column * CELL, row * CELL, CELL, CELL);
      });
      const mark = (token, style, width) => {
        const [row, column] = position(token, WIDTH);
        context.strokeStyle = style;
        context.lineWidth = width;
        context.strokeRect(column * CELL + 1.5, row * CELL + 1.5, CELL - 3, CELL - 3);
      };
      if (name !== 'keys') mark(state.token, '#111', 3);
      if (document.activeElement === canvas) mark(cursor, '#0a7', 2);
    }
    // for readers of the page by script, such as the tests
    root.dataset.weights = shown.weights.map(weight => weight.toFixed(6)).join(' ');
    root.dataset.means = shown.means.map(mean => mean.toFixed(6)).join(' ');
    const widest = shown.weights.indexOf(Math.max(...shown.weights));
    said.textContent = `Token ${position(state.token, WIDTH)} gives most weight, ` +
      `${shown.weights[widest].toFixed(3)}, to token ${position(widest, WIDTH)} and reads ` +
      `${shown.means[state.token].toFixed(3)}.`;
  }

  function light(part) {
    for (const [name, spans] of Object.entries(formula))
      for (const span of spans) span.classList.toggle('lit', name === part);
  }

  function change(name, token, difference) {
    const limited = value => Math.max(-LIMIT, Math.min(LIMIT, value));
    if (name === 'values') { state.token = token; light('v'); }
    if (name === 'keys') { state.keys[token] = limited(state.keys[token] + difference); light('k'); }
    if (name === 'biases') {
      const old = biases(state.variant, state)[state.token][token];
      const could = setBias(state.variant, state, state.token, token, limited(old + difference));
      light('w');
      draw();
      if (!could) said.textContent = state.variant === 'simple' ? 'AFT-simple has no biases.' :
        'Outside of the window the bias is 0: widen it, or take AFT-full.';
      return;
    }
    draw();
  }

  const tokenAt = (canvas, event) => {
    const box = canvas.getBoundingClientRect(), scale = WIDTH / box.width;
    const place = at => Math.max(0, Math.min(WIDTH - 1, Math.floor(at * scale)));
    return place(event.clientY - box.top) * WIDTH + place(event.clientX - box.left);
  };

  const panels = element('div', {class: 'knobs-panels'});
  for (const [name, {title, hint}] of Object.entries(PANELS)) {
    const canvas = element('canvas', {width: WIDTH * CELL, height: WIDTH * CELL, 'data-panel': name,
                                      role: 'img', 'aria-label': `${title}, 8 by 8. ${hint}`});
    canvases[name] = canvas;
    if (['values', 'keys', 'biases'].includes(name)) {
      canvas.tabIndex = 0;
      canvas.setAttribute('role', 'application');
      canvas.addEventListener('pointerdown', event => {
        cursor = tokenAt(canvas, event);
        dragged = {name, token: cursor, y: event.clientY};
        canvas.setPointerCapture(event.pointerId);
        change(name, cursor, 0);
      });
      canvas.addEventListener('pointermove', event => {
        if (!dragged || dragged.name !== name) return;
        if (name === 'values') dragged.token = tokenAt(canvas, event);
        const difference = (dragged.y - event.clientY) / 25;
        dragged.y = event.clientY;
        change(name, dragged.token, difference);
      });
      canvas.addEventListener('pointerup', () => { dragged = null; });
      canvas.addEventListener('pointercancel', () => { dragged = null; });
      canvas.addEventListener('keydown', event => {
        const [row, column] = position(cursor, WIDTH);
        const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
        if (moves[event.key]) {
          const within = at => Math.max(0, Math.min(WIDTH - 1, at));
          const [down, right] = moves[event.key];
          cursor = within(row + down) * WIDTH + within(column + right);
          if (name === 'values') change(name, cursor, 0);
          else draw();
        } else if (event.key === '+' || event.key === '=') change(name, cursor, 0.5);
        else if (event.key === '-') change(name, cursor, -0.5);
        else return;
        event.preventDefault();
      });
      canvas.addEventListener('focus', draw);
      canvas.addEventListener('blur', draw);
    }
    panels.append(element('figure', {}, canvas,
                          element('figcaption', {}, element('b', {}, title), ` ${hint}`)));
  }

  const choice = element('select', {'aria-label': 'variant of AFT'});
  for (const variant of VARIANTS) choice.append(element('option', {value: variant}, `AFT-${variant}`));
  const reach = element('input', {type: 'range', min: 1, max: WIDTH, step: 1});
  const reachLabel = element('span');
  const settle = () => {
    choice.value = state.variant;
    reach.value = state.reach;
    reach.disabled = ['simple', 'full'].includes(state.variant);
    reachLabel.textContent = state.variant === 'conv' ?
      ` kernel of ${2 * state.reach - 1} by ${2 * state.reach - 1}` : ` window of ${state.reach}`;
    draw();
  };
  choice.addEventListener('change', () => { state.variant = choice.value; light('w'); settle(); });
  reach.addEventListener('input', () => { state.reach = +reach.value; light('w'); settle(); });
  const again = element('button', {type: 'button'}, 'start again');
  again.addEventListener('click', () => { state = fresh(); light(''); settle(); });

  const part = name => {
    const span = element('span', {'data-part': name});
    span.innerHTML = {k: 'k<sub>t′</sub>', w: 'w<sub>t,t′</sub>', v: 'v<sub>t′</sub>'}[name];
    (formula[name] ??= []).push(span);
    return span;
  };
  const line = element('p', {class: 'knobs-formula'}, 'mean', element('sub', {}, 't'), ' = Σ exp(', part('k'), ' + ',
                       part('w'), ') ', part('v'), ' / Σ exp(', part('k'), ' + ', part('w'), ')');
  root.replaceChildren(line, element('div', {class: 'knobs-bar'}, choice,
                       element('label', {}, reach, reachLabel), again), panels, said);
  settle();
}

if (typeof document !== 'undefined')
  for (const root of document.querySelectorAll('.aft-knobs')) build(root);
