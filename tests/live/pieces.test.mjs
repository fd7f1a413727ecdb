// node --test tests/live
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {disturbed, distances, normalized, openNetwork, readPack, softmax,
        tokenAt} from '../../nbs/site/live/pieces.js';

// A file of safetensors with one graph of three bytes for each name.
function pack(network, names) {
  const tensors = Object.fromEntries(names.map((name, i) =>
    [name, {dtype: 'U8', shape: [3], data_offsets: [3 * i, 3 * i + 3]}]));
  const head = new TextEncoder().encode(JSON.stringify({
    __metadata__: {network: JSON.stringify(network)}, ...tensors}));
  const buffer = new ArrayBuffer(8 + head.length + 3 * names.length), bytes = new Uint8Array(buffer);
  new DataView(buffer).setBigUint64(0, BigInt(head.length), true);
  bytes.set(head, 8);
  names.forEach((_, i) => bytes.fill(i + 1, 8 + head.length + 3 * i, 11 + head.length + 3 * i));
  return buffer;
}

test('a pack is read: what is said, and the bytes of each graph', () => {
  const {meta, graphs} = readPack(pack({name: 'é'}, ['a', 'b']));
  assert.equal(meta.name, 'é');
  assert.deepEqual(Object.fromEntries(Object.entries(graphs).map(([name, graph]) => [name, [...graph]])),
                   {a: [1, 1, 1], b: [2, 2, 2]});
});

test('pixels are normalised channel by channel', () => {
  const found = normalized([0, 1, 0, 1], {mean: [0.5, 0], std: [0.5, 2], image: [2, 1, 2]});
  assert.deepEqual([...found], [-1, 1, 0, 0.5]);
});

test('probabilities sum to one, for large scores too', () => {
  const found = softmax([1000, 1000, -1000]);
  assert.deepEqual(found, [0.5, 0.5, 0]);
});

test('in copy j, token j is the mean token', () => {
  const found = disturbed(new Float32Array([1, 2, 3, 4, 5, 9]), 3, 1, 3);
  assert.deepEqual([...found], [1, 2, 3, 5, 5, 9, 1, 2, 3, 4, 3, 5]);
});

test('distances are those of whole tokens', () => {
  const found = distances(new Float32Array([3, 4, 0, 0, 0, 0, 0, 1]), new Float32Array(4), 2);
  assert.deepEqual([...found], [5, 0, 0, 1]);
});

test('a place of the image is a token, at its edges too', () => {
  const layer = {grid: [2, 4], prefix: 1};
  assert.equal(tokenAt(0, 0, layer), 1);
  assert.equal(tokenAt(1, 1, layer), 8);
  assert.equal(tokenAt(0.3, 0.6, layer), 6);
});

// A runtime whose block adds the first token to each other one, and whose head sums all numbers.
const ort = {
  Tensor: class { constructor(type, data, dims) { Object.assign(this, {type, data, dims}); } },
  InferenceSession: {create: async ([kind]) => ({run: async given => {
    const [{data, dims}] = Object.values(given);
    if (kind === 1) return {x: new ort.Tensor('float32', data, [1, 3, 1])};
    if (kind === 3) return {s: new ort.Tensor('float32', [data.reduce((a, b) => a + b)], [1, 1])};
    return {y: new ort.Tensor('float32', data.map((value, i) =>
      i % 3 ? value + data[i - i % 3] : value), dims)};
  }})},
};

test('a network runs piece by piece, and what a token reads is found by disturbing it', async () => {
  const network = await openNetwork(ort, pack({
    mean: [0], std: [1], image: [1, 1, 3],
    steps: [{graph: 'stem', feeds: {i: 'image'}, fetches: {x: 'in.0.0'}},
            {graph: 'block', feeds: {x: 'in.0.0'}, fetches: {y: 'out.0.0'}},
            {graph: 'head', feeds: {y: 'out.0.0'}, fetches: {s: 'scores'}}],
    layers: [{step: 1, input: 'in.0.0', output: 'out.0.0', grid: [1, 3], prefix: 0}],
  }, ['stem', 'block', 'head']));
  const found = await network.run([3, 0, 0]);
  assert.deepEqual([...found.scores], [9]);
  // the mean is 1: token 0 moves by 2 and takes the others along, these move by 1 alone
  assert.deepEqual([...await network.reads(found, 0)], [2, 0, 0, 2, 1, 0, 2, 0, 1]);
  assert.equal(await network.reads(found, 0, () => false), null);
});
