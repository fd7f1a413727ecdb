// node --test tests/live
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {VARIANTS, biases, means, offset, setBias, weights} from '../../nbs/site/live/aft.js';

// Numbers that look random and are the same each time.
function numbers(count, seed) {
  const found = [];
  for (let i = 0; i < count; i++) {
    seed = (seed * 16807) % 2147483647;
    found.push(seed / 1073741823.5 - 1);
  }
  return found;
}
function example(width = 4, reach = 2) {
  const n = width * width, all = numbers(n * n, 3);
  return {width, reach, kernel: numbers((2 * width - 1) ** 2, 5),
          free: Array.from({length: n}, (_, t) => all.slice(t * n, (t + 1) * n))};
}
const close = (a, b) => assert.ok(Math.abs(a - b) < 1e-12, `${a} is not ${b}`);

test('weights are positive, sum to 1, and follow keys and biases', () => {
  const found = weights([0, 1, 2], [0.5, 0, -2]);
  close(found.reduce((a, b) => a + b), 1);
  close(found[1] / found[0], Math.exp(0.5));
  close(found[2] / found[0], Math.exp(-0.5));
  assert.deepEqual(weights([1000, 0], [0, 0]).map(Number.isFinite), [true, true]);
});

test('a mean of equal values is that value, for every variant', () => {
  for (const variant of VARIANTS)
    for (const mean of means(numbers(16, 7), biases(variant, example()), new Array(16).fill(0.3)))
      close(mean, 0.3);
});

test('what the biases of a variant are', () => {
  const state = example(), {free} = state;
  assert.ok(biases('simple', state).flat().every(bias => bias === 0));
  assert.deepEqual(biases('full', state), free);
  const local = biases('local', state);
  assert.equal(local[5][6], free[5][6]);   // next to it
  assert.equal(local[5][7], 0);            // two to the right: outside a window of 2
  const conv = biases('conv', state);
  assert.equal(conv[5][6], conv[0][1]);    // the same offset
  assert.equal(conv[5][6], state.kernel[offset(0, 1, 4)]);
  assert.equal(conv[0][15], 0);
});

test('a dragged bias changes what the variant shares', () => {
  const state = example();
  assert.equal(setBias('simple', state, 5, 6, 2), false);
  assert.equal(setBias('local', state, 5, 7, 2), false);
  assert.equal(setBias('full', state, 5, 7, 2), true);
  assert.equal(biases('full', state)[5][7], 2);
  assert.notEqual(biases('full', state)[0][2], 2);
  assert.equal(setBias('conv', state, 5, 6, 3), true);
  for (const [t, other] of [[5, 6], [0, 1], [14, 15]])
    assert.equal(biases('conv', state)[t][other], 3);
});
