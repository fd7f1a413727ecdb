// Watch it write: a published language model continues a text byte by byte in the reader's browser,
// and its state is drawn as it changes; attention with a cache reads the same text for comparison.
// Looks for <div class="writer"> with a stored example in it, and fills it.
import {loadNetwork, loadRuntime} from './runtime.js';
import {Decoder, Steps, Window, generator, glyph, pictures, sample, stateSize, stored}
  from './steps.js';

const FRAME = 45;      // ms of work before the page draws
const PATIENCE = 4096; // bytes for one press of the button
const LATELY = 256;    // bytes that a speed is measured over
const BEFORE = 3;      // columns of the tokens before the window, drawn wider than the others
const KINDS = {aft: 'AFT-local', attention: 'attention'};
// Colours of -127 to 127: blue, nothing, orange.
const COLOURS = Uint32Array.from({length: 255}, (_, i) => {
  const part = (i - 127) / 127, [red, green, blue] = part > 0 ? [217, 95, 2] : [40, 120, 200];
  const bytes = Uint8Array.of(red, green, blue, 18 + 237 * Math.abs(part) ** 0.8);
  return new Uint32Array(bytes.buffer)[0];
});

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const kilobytes = bytes => `${Math.round(bytes / 1000).toLocaleString('en')} kB`;
const megabytes = bytes => `${(bytes / 1e6).toFixed(1)} MB`;

// Keys above, values below, and at the left what came before the window.
function drawBlock(canvas, {keys, values, before}) {
  const lead = before ? BEFORE + 1 : 0, gap = 2;
  const width = lead + keys.columns, height = keys.rows + gap + values.rows;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const put = ({rows, columns, numbers}, left, top, wide) => {
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns * wide; column++) {
      const value = numbers[row * columns + Math.floor(column / wide)];
      if (value === value)  // not NaN: there is a token
        pixels[(top + row) * width + left + column] = COLOURS[Math.round(127 * value) + 127];
    }
  };
  put(keys, lead, 0, 1);
  put(values, lead, keys.rows + gap, 1);
  if (before) {
    put(before.keys, 0, 0, BEFORE);
    put(before.values, 0, keys.rows + gap, BEFORE);
  }
  context.putImageData(image, 0, 0);
}

// What stands on the page: its parts, by name.
function layout(root) {
  const text = root.querySelector('.writer-text'), parts = {text};
  const make = (name, tag, attributes, ...children) =>
    parts[name] = element(tag, attributes, ...children);
  parts.prompted = text.querySelector('.writer-prompt');
  parts.written = text.querySelector('.writer-written');
  make('prompt', 'textarea', {rows: 2, spellcheck: 'false',
                              'aria-label': 'what the text begins with'});
  make('write', 'button', {type: 'button', class: 'writer-write'}, 'write');
  make('again', 'button', {type: 'button', title: 'from the prompt, with other random numbers'},
       'start again');
  make('temperature', 'input', {type: 'range', min: 0, max: 1.5, step: 0.05, value: 0.7});
  make('temperatureSaid', 'output', {}, '0.70');
  make('along', 'input', {type: 'checkbox'});
  parts.along.checked = true;
  make('said', 'p', {class: 'writer-said', role: 'status'});
  text.tabIndex = 0;
  text.setAttribute('role', 'region');
  text.setAttribute('aria-label', 'the text');

  make('letters', 'div', {class: 'writer-letters', 'aria-hidden': 'true'},
       element('span', {}, 'older'));
  for (const kind of Object.keys(KINDS)) {
    make(kind, 'figure', {class: `writer-state writer-${kind}`});
    make(`${kind}Title`, 'figcaption', {});
    parts[kind].append(parts[`${kind}Title`]);
    if (kind === 'aft') parts[kind].append(parts.letters);
  }
  make('numbers', 'table', {class: 'writer-numbers'});
  parts.numbers.innerHTML = '<thead><tr><th></th>' + Object.values(KINDS).map(name =>
    `<th scope="col">${name}</th>`).join('') + '</tr></thead><tbody></tbody>';
  const row = (name, title) => parts.numbers.tBodies[0].append(
    element('tr', {}, element('th', {scope: 'row'}, title), ...Object.keys(KINDS).map(kind =>
      make(`${name}.${kind}`, 'td', {}, '–'))));
  row('speed', 'bytes per second');
  row('step', 'one step');
  row('size', 'state now');

  root.replaceChildren(
    element('label', {class: 'writer-begin'}, 'The text begins with', parts.prompt),
    element('div', {class: 'writer-bar'}, parts.write, parts.again,
            element('label', {}, 'temperature ', parts.temperature, ' ', parts.temperatureSaid),
            element('label', {}, parts.along, ' attention reads along')),
    parts.said, element('div', {class: 'writer-both'}, text, parts.aft),
    element('div', {class: 'table-scroll'}, parts.numbers), parts.attention);
  return parts;
}

export function build(root) {
  const parts = layout(root), canvases = {aft: [], attention: []};
  const opened = parts.prompted.textContent;
  let abouts = null, networks = null, loading = null, blocked = false;
  let phase = 'example', running = Promise.resolve(), turn = 0, seed = +(root.dataset.seed ?? 1);
  let window_ = null, random = null, decoder = null, recent = [], spent = null;
  let times = [], compared = [], totals = {aft: 0, attention: 0};  // times of steps, in ms
  let values = [], scores = null, along = true;
  let clock = [];  // when the last bytes came, since the button was pressed
  parts.prompt.value = opened;

  function say(text) { if (parts.said.textContent !== text) parts.said.textContent = text; }

  function show(next) {
    phase = root.dataset.phase = next;
    const labels = {writing: 'stop', waiting: 'stop', stopped: 'go on'};
    parts.write.textContent = labels[phase] ?? 'write';
    root.classList.toggle('writer-busy', phase === 'writing');
  }

  // The state, from the networks or from the stored example, and its size.
  function drawState(kind, blocks, seen) {
    blocks.forEach((block, number) => {
      let canvas = canvases[kind][number];
      if (!canvas) {
        canvas = canvases[kind][number] = element('canvas', {role: 'img', 'aria-label':
          `${KINDS[kind]}, block ${number + 1}: keys above, values below`});
        parts[kind].append(element('div', {class: 'writer-block'},
                                   element('span', {}, `block ${number + 1}`), canvas));
      }
      drawBlock(canvas, block);
    });
    const about = abouts[kind], full = stateSize(about), now = stateSize(about, seen);
    const most = Math.max(...Object.values(abouts).map(one => stateSize(one)));
    const cell = parts[`size.${kind}`];
    cell.replaceChildren(kilobytes(now), element('div', {class: 'writer-size',
      style: `width:${(100 * now / most).toFixed(1)}%`}));
    root.dataset[`${kind}Size`] = now;
    parts[`${kind}Title`].innerHTML = now === full && kind === 'aft' ?
      `<b>The state of AFT-local</b>: ${kilobytes(full)}, however long the text is` :
      `<b>The cache of attention</b>: ${kilobytes(now)} for ${seen} bytes` + (now === full ?
      ', full' : `, ${kilobytes(full)} for ${about.longest}`) +
      '<span class="writer-resting">; it rests in this window</span>';
  }

  function drawLetters(bytes) {
    const columns = abouts.aft.state.find(part => part.name === 'blocks.0.keys').shape.at(-2);
    while (parts.letters.children.length <= columns) parts.letters.append(element('span'));
    for (let i = 0; i < columns; i++) {
      const byte = bytes[bytes.length - columns + i];
      parts.letters.children[i + 1].textContent = byte === undefined ? '' : glyph(byte);
    }
  }

  function drawExample() {
    for (const kind of Object.keys(KINDS))
      drawState(kind, stored(abouts[kind].example.blocks), abouts[kind].example.seen);
    drawLetters(new TextEncoder().encode(opened + parts.written.textContent));
    for (const kind of Object.keys(KINDS)) parts[`speed.${kind}`].textContent = 'not measured yet';
  }

  function drawAttention(seen = abouts.attention.longest) {
    const {attention: {state}} = networks, about = abouts.attention;
    drawState('attention', pictures({state, about, seen}), seen);
  }

  function draw() {
    drawState('aft', pictures({state: networks.aft.state, about: abouts.aft, seen: window_.seen}),
              window_.seen);
    if (along) drawAttention(window_.seen);
    drawLetters(recent);
    parts.attention.classList.toggle('writer-rests', !along);
    // A byte takes more than one step where the text is read again: for both networks alike.
    const sum = (those, name) => those.reduce((total, time) => total + time[name], 0);
    const perByte = sum(times, 'steps') / times.length;
    for (const kind of Object.keys(KINDS)) {
      const those = kind === 'aft' ? times : compared;
      if (those.length < 8) continue;
      const step = sum(those, kind) / sum(those, 'steps'), speed = 1000 / (step * perByte);
      root.dataset[`${kind}Speed`] = speed.toFixed(1);
      parts[`speed.${kind}`].textContent = Math.round(speed).toLocaleString('en');
      parts[`step.${kind}`].textContent = `${step.toFixed(2)} ms`;
    }
    root.dataset.written = values.length;
    root.dataset.seen = window_.seen;
    const pace = clock.length < 8 ? 0 : 1000 * (clock.length - 1) / (clock.at(-1) - clock[0]);
    if (pace) root.dataset.pace = pace.toFixed(1);
    const again = window_.unread.length > 1 && values.length ?
      ' The window is full: the last half of the text is read again.' : '';
    if (phase === 'writing')
      say(`${values.length.toLocaleString('en')} bytes written` +
          (pace ? `, ${Math.round(pace)} a second on this page.` : '.') + again);
  }

  // One step of each network; then, when all is read, the choice of the next byte.
  async function advance() {
    const {token, restart} = window_.next();
    if (restart) {
      recent = [];
      if (along && values.length) drawAttention();  // full, before it starts afresh
      along = totals.attention <= totals.aft;  // it takes half of the time at most
    }
    along &&= parts.along.checked;
    spent ??= {aft: 0, attention: 0, steps: 0, along};
    spent.along &&= along;
    for (const kind of along ? ['aft', 'attention'] : ['aft']) {
      if (restart) networks[kind].restart();
      const before = performance.now(), found = await networks[kind].step(token);
      const took = performance.now() - before;
      spent[kind] += took;
      totals[kind] += took;
      if (kind === 'aft') scores = found;
    }
    spent.steps++;
    recent.push(token);
    if (recent.length > 64) recent.shift();
    if (window_.unread.length) return;
    const chosen = sample(scores, +parts.temperature.value, random);
    if (values.length) {
      for (const list of spent.along ? [times, compared] : [times])
        if (list.push(spent) > LATELY) list.shift();
    }
    spent = null;
    if (clock.push(performance.now()) > LATELY) clock.shift();
    values.push(chosen);
    window_.add(chosen);
    parts.written.append(decoder.push(chosen));
  }

  // Write until somebody stops it, a few milliseconds for each picture of the screen.
  async function writing() {
    clock = [];
    const last = values.length + PATIENCE;
    while (phase === 'writing') {
      const until = performance.now() + FRAME;
      const follow = parts.text.scrollHeight - parts.text.scrollTop - parts.text.clientHeight < 40;
      do await advance();
      while (phase === 'writing' && values.length < last && performance.now() < until);
      draw();
      if (follow) parts.text.scrollTop = parts.text.scrollHeight;
      if (values.length >= last) stop();
      await new Promise(requestAnimationFrame);
    }
  }

  function stop() {
    show('stopped');
    say(`Stopped after ${values.length.toLocaleString('en')} bytes: go on, or change the text.`);
  }

  function begin() {
    const start = [...new TextEncoder().encode(parts.prompt.value)];
    if (!start.length) {
      show('ready');
      return say('Type at least one character for the text to begin with.');
    }
    window_ = new Window(abouts.aft.longest, start);
    random = generator(seed);
    decoder = new Decoder();
    [values, times, compared, spent] = [[], [], [], null];
    totals = {aft: 0, attention: 0};
    root.values = values;  // for readers of the page by script, such as the tests
    parts.prompted.textContent = parts.prompt.value;
    parts.written.textContent = '';
    goOn();
  }

  function goOn() {
    show('writing');
    running = writing().catch(error => {
      show('ready');
      say(`The network stopped: ${error.message}`);
    });
  }

  // After what is running has ended, unless something else was asked for meanwhile.
  async function then(action) {
    const mine = ++turn;
    if (phase === 'writing') show('stopped');
    if (!networks) {
      show('waiting');
      if (!await load()) return;
    }
    await running;
    if (mine === turn) action();
  }

  function load() {
    loading ??= (async () => {
      try {
        say('Loading the runtime and the networks …');
        await described;
        if (!abouts) throw new Error('The networks are not there.');
        const ort = await loadRuntime();
        const tensor = (kind, data, shape) => new ort.Tensor(kind, data, shape), made = {};
        for (const kind of Object.keys(KINDS)) {
          const session = await loadNetwork(new URL(abouts[kind].file, import.meta.url));
          made[kind] = new Steps({run: feeds => session.run(feeds), tensor, about: abouts[kind]});
        }
        networks = made;
        if (phase === 'example') show('ready');
        const size = Object.values(abouts).reduce((sum, about) => sum + about.size, 0);
        say(`The networks are here (${megabytes(size)}): press write. Until then, ` +
            'you see an example that the network wrote before.');
        return true;
      } catch (error) {
        show('blocked');
        for (const kind of Object.keys(KINDS)) parts[`speed.${kind}`].textContent = 'not available here';
        say(`${error.message} What you see is a stored example that the network wrote before.`);
        loading = null;
        return false;
      }
    })();
    return loading;
  }

  parts.write.addEventListener('click', () => {
    if (phase === 'writing') { turn++; stop(); }
    else if (phase === 'waiting') { turn++; show(networks ? 'ready' : 'example'); }
    else then(phase === 'stopped' ? goOn : begin);
  });
  parts.again.addEventListener('click', () => { seed++; then(begin); });
  parts.prompt.addEventListener('input', () => {
    if (phase === 'writing') { turn++; stop(); }
    if (phase === 'stopped') show('ready');
  });
  parts.prompt.addEventListener('keydown', event => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) then(begin);
  });
  parts.temperature.addEventListener('input', () => {
    parts.temperatureSaid.textContent = (+parts.temperature.value).toFixed(2);
  });

  show('example');
  say('An example that the network wrote before; the networks load when you scroll here.');
  const described = fetch(new URL('writer.json', import.meta.url)).then(answer => answer.json())
    .then(found => { abouts = found; if (!networks) drawExample(); }).catch(() => {});
  const observer = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    observer.disconnect();
    load();
  });
  observer.observe(root);
}

if (typeof document !== 'undefined')
  for (const root of document.querySelectorAll('.writer')) build(root);
