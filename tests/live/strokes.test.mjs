// node --test tests/live
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';
import {GRID, SIDE, bitmap, blocks, bounds, greys, ink, raster, upright}
  from '../../nbs/site/live/strokes.js';

const drawn = JSON.parse(readFileSync(new URL('../../nbs/live/drawn.json', import.meta.url)));
const points = [...bitmap([])].map((_, i) => [Math.floor(i / SIDE), i % SIDE]);
const inked = (found, test) => points.filter(([row, column], i) => found[i] && test(row, column));

test('ink is counted in blocks of 4 by 4', () => {
  const found = new Uint8Array(SIDE * SIDE);
  for (const [row, column] of [[0, 0], [3, 3], [4, 3], [31, 31]]) found[row * SIDE + column] = 1;
  const counted = blocks(found);
  assert.equal(counted.length, GRID * GRID);
  assert.deepEqual([counted[0], counted[8], counted[63]], [2, 1, 1]);
  assert.equal(counted.reduce((a, b) => a + b), 4);
  assert.ok(blocks(found.fill(1)).every(grey => grey === 16));
});

test('a digit fills the height, is at most 20 columns wide before it is set upright', () => {
  for (const {digit, strokes} of drawn) {
    const found = raster(strokes, 4);
    assert.ok(inked(found, row => row === 0).length && inked(found, row => row === 31).length);
    assert.equal(inked(found, (_, column) => column < 6 || column > 25).length, 0, digit);
  }
});

test('thickness follows the ink, not the pen', () => {
  for (const {digit, strokes} of drawn) {
    const found = ink(bitmap(strokes));
    assert.ok(found > 256 && found < 412, `${digit}: ${found}`);  // NIST's limits
  }
});

test('where and how large it is drawn changes nothing', () => {
  for (const {strokes} of drawn.slice(0, 10)) {
    const moved = strokes.map(stroke => stroke.map(([x, y]) => [x / 4 + 20, y / 4 + 64]));
    assert.deepEqual(greys(moved), greys(strokes));
  }
});

test('a slanted line is set upright', () => {
  const slanted = new Uint8Array(SIDE * SIDE);
  for (let row = 0; row < SIDE; row++) slanted[row * SIDE + 24 - Math.floor(row / 2)] = 1;
  const columns = new Set(inked(upright(slanted), () => true).map(([, column]) => column));
  assert.ok(columns.size <= 2, `${[...columns]}`);
  assert.equal(ink(upright(slanted)), SIDE);
  assert.equal(ink(upright(new Uint8Array(SIDE * SIDE))), 0);
});

test('nothing, a dot, a level and an upright line', () => {
  assert.ok(greys([]).every(grey => grey === 0) && greys([[]]).every(grey => grey === 0));
  assert.deepEqual(bounds([[[1, 5]], [[3, 2], [0, 4]]]), [0, 2, 3, 5]);
  for (const strokes of [[[[50, 50]]], [[[10, 50], [90, 50]]], [[[50, 10], [50, 90]]]]) {
    const found = greys(strokes);
    assert.ok(found.every(grey => grey >= 0 && grey <= 16) && Math.max(...found) > 0);
  }
  const one = greys([[[50, 10], [50, 90]]]);  // a stroke stays a stroke
  assert.ok([0, 7].every(row => one[row * GRID] === 0 && one[row * GRID + 7] === 0));
});
