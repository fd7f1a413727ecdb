// node --test tests/live
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {Decoder, Steps, Window, before, generator, glyph, picture, pictures, sample, stateSize,
        stored} from '../../nbs/site/live/steps.js';

// What is in the state each time that a token is chosen, by the page's window.
function read(longest, start, count) {
  const window_ = new Window(longest, start), contexts = [];
  let state = [], text = [...start];
  for (let i = 0; i < count; i++) {
    for (let one; (one = window_.next());) {
      if (one.restart) state = [];
      state.push(one.token);
    }
    assert.equal(window_.seen, state.length);
    contexts.push([...state]);
    text.push(100 + i);
    window_.add(100 + i);
  }
  return {contexts, text};
}

test('the window slides as in generate: past the last position, to the last half', () => {
  for (const [longest, given] of [[8, 3], [8, 8], [8, 9], [8, 20], [7, 1], [1, 1], [2, 5]]) {
    const start = Array.from({length: given}, (_, i) => i);
    const {contexts, text} = read(longest, start, 30), half = Math.max(1, Math.floor(longest / 2));
    let held = given > longest ? half : given;  // as many tokens as generate has in its state
    contexts.forEach((context, i) => {
      assert.deepEqual(context, text.slice(given + i - held, given + i));
      held = held + 1 > longest ? half : held + 1;
    });
  }
});

test('a step hands its state on, and calls the graph once', async () => {
  const calls = [], about = {state: [{name: 'seen', kind: 'int64', shape: [1], first: 0},
    {name: 'keys', kind: 'float32', shape: [1, 2], first: -3}]};
  const run = async ({ids, seen, keys}) => {
    calls.push([Number(ids.data[0]), Number(seen.data[0]), ...keys.data]);
    return {scores: {data: [0.5]}, 'new.seen': {data: BigInt64Array.of(seen.data[0] + 1n)},
            'new.keys': {data: keys.data.map(key => key + 1)}, 'new.more': {}};
  };
  const steps = new Steps({run, about, tensor: (kind, data, shape) => ({kind, data, shape})});
  for (const token of [7, 8]) assert.deepEqual(await steps.step(token), [0.5]);
  steps.restart();
  await steps.step(9);
  assert.deepEqual(calls, [[7, 0, -3, -3], [8, 1, -2, -2], [9, 0, -3, -3]]);
  assert.deepEqual(Object.keys(steps.state), ['seen', 'keys']);
});

test('the size of a state, and of a cache as far as it is in use', () => {
  const state = [{kind: 'int64', shape: [1]}, {kind: 'float32', shape: [1, 31, 128]}];
  assert.equal(stateSize({state, longest: 256}), 4 * 31 * 128);
  assert.equal(stateSize({state, longest: 256}, 3), 4 * 31 * 128);
  const cache = [{kind: 'float32', shape: [1, 2, 256, 64]}];
  assert.equal(stateSize({state: cache, longest: 256}), 4 * 2 * 256 * 64);
  assert.equal(stateSize({state: cache, longest: 256}, 3), 4 * 2 * 3 * 64);
});

test('random numbers are the same for the same seed, and even', () => {
  const draw = seed => Array.from({length: 4000}, generator(seed));
  const one = draw(1);
  assert.deepEqual(one, draw(1));
  assert.notDeepEqual(one.slice(0, 5), draw(2).slice(0, 5));
  assert.ok(one.every(number => number >= 0 && number < 1));
  const tenths = new Array(10).fill(0);
  for (const number of one) tenths[Math.floor(10 * number)]++;
  assert.ok(tenths.every(count => count > 320 && count < 480), tenths.join());
});

test('samples follow the scores and the temperature', () => {
  assert.equal(sample([1, 3, 3, -1], 0, null), 1);  // the first of equals
  const random = generator(3), shares = (scores, temperature) => {
    const counts = scores.map(() => 0);
    for (let i = 0; i < 20000; i++) counts[sample(scores, temperature, random)]++;
    return counts.map(count => count / 20000);
  };
  const scores = [0, Math.log(2), Math.log(5)];
  for (const [temperature, expected] of [[1, [1, 2, 5]], [0.5, [1, 4, 25]]]) {
    const total = expected.reduce((a, b) => a + b), found = shares(scores, temperature);
    found.forEach((share, i) => assert.ok(Math.abs(share - expected[i] / total) < 0.015));
  }
  assert.equal(sample([1000, 0], 0.01, random), 0);  // nothing overflows
  assert.equal(sample([-1e30, 5], 1, () => 0.9999999999999999), 1);
});

test('bytes become text with the last byte of a character', () => {
  const decoder = new Decoder(), bytes = [...new TextEncoder().encode('aü€😀')];
  assert.deepEqual(bytes.map(byte => decoder.push(byte)),
                   ['a', '', 'ü', '', '', '€', '', '', '', '😀']);
  const broken = new Decoder();
  assert.equal([0xff, 0xe2, 0x82, 0x41, 0xef, 0xbb, 0xbf, 0xc3].map(byte =>
    broken.push(byte)).join('') + broken.end(), '��A\ufeff�');
  assert.deepEqual([10, 32, 65, 200].map(glyph), ['↵', '·', 'A', '▫']);
});

test('a state is drawn by channels, empty where there is no token yet', () => {
  const data = Float32Array.from({length: 12}, (_, i) => i);  // 3 tokens of 4 channels
  const options = {scale: 10, every: 2, filled: token => token > 0};
  const close = (found, expected) => expected.forEach((number, i) => Number.isNaN(number) ?
    assert.ok(Number.isNaN(found[i])) : assert.ok(Math.abs(found[i] - number) < 0.005));
  const window_ = picture({data, shape: [1, 3, 4]}, options);
  assert.deepEqual([window_.rows, window_.columns], [2, 3]);
  close(window_.numbers, [NaN, 0.4, 0.8, NaN, 0.6, 1]);
  const heads = picture({data, shape: [1, 2, 3, 2]}, options);  // 2 heads of 2 channels
  close(heads.numbers, [NaN, 0.2, 0.4, NaN, 0.8, 1]);
  const older = before({top: [1, 0], total: [3, 0], weight: [2, 0], count: 2},
                       {scales: {keys: 2, values: 3}, every: 2});
  close(older.keys.numbers, [0.5]);
  close(older.values.numbers, [0.5]);

  const about = {longest: 256, every: 4, scales: [{keys: 10, values: 10}], state: ['keys', 'values']
    .map(name => ({name: `blocks.0.${name}`, kind: 'float32', shape: [1, 3, 4]})) };
  const sums = Object.fromEntries(['top', 'total', 'weight'].map(name =>
    [`blocks.0.earlier.${name}`, {data: [1, 1, 1, 1]}]));
  const [block] = pictures({about, seen: 1,
    state: {'blocks.0.keys': {data}, 'blocks.0.values': {data}, ...sums}});
  close(block.keys.numbers, [NaN, NaN, 0.8]);  // the newest at the right
  close(block.before.values.numbers, [NaN]);

  const numbers = btoa(String.fromCharCode(128, 127, 129, 0));
  const view = {rows: 2, columns: 2, numbers};
  close(stored([{keys: view, values: view, before: null}])[0].keys.numbers, [NaN, 1, -1, 0]);
});
