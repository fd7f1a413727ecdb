// node --test tests/live
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {paint, picture, planes} from '../../nbs/site/live/explain.js';

test('pixels of a picture go channel by channel, and back', () => {
  const bytes = [255, 0, 51, 255, 0, 255, 102, 255];
  const pixels = planes(bytes, 3);
  assert.deepEqual([...pixels].map(value => Math.round(255 * value)), [255, 0, 0, 255, 51, 102]);
  assert.deepEqual([...picture(pixels, 3)], bytes);
  assert.deepEqual([...picture(new Float32Array([1, 0.2]), 1)], [255, 255, 255, 255, 51, 51, 51, 255]);
});

test('paint colours a square, at least one pixel, and nothing outside of the image', () => {
  const pixels = new Float32Array(2 * 4 * 4);
  paint(pixels, [2, 4, 4], 0.5, 0.5, 0.5, [1, 2]);
  assert.deepEqual([...pixels.slice(0, 16)], [0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
  assert.deepEqual([...pixels.slice(16)], [0, 0, 0, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 0, 0, 0]);
  const small = new Float32Array(16);
  paint(small, [1, 4, 4], 0.99, 0.99, 0.01, [1]);
  paint(small, [1, 4, 4], 0, 0, 0.01, [1]);
  assert.deepEqual([small.reduce((a, b) => a + b), small[0], small[15]], [2, 1, 1]);
});
