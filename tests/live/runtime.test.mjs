// node --test tests/live
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {FOLDER, bytesOf, loadRuntime} from '../../nbs/site/live/runtime.js';

test('a file that is not there is named', async () => {
  globalThis.fetch = async () => ({ok: false, status: 404});
  await assert.rejects(bytesOf('a.onnx'), {message: 'a.onnx answers 404'});
  globalThis.fetch = async () => ({ok: true, arrayBuffer: async () => new Uint8Array([1, 2]).buffer});
  assert.deepEqual([...await bytesOf('a.onnx')], [1, 2]);
});

test('a runtime that is blocked is said plainly, and asked for again', async () => {
  const asked = [];
  globalThis.fetch = async url => { asked.push(url); throw new TypeError('blocked'); };
  for (let i = 0; i < 2; i++)
    await assert.rejects(loadRuntime(), /could not be loaded/);
  assert.equal(asked.length, 2);
  assert.ok(asked.every(url => url.startsWith(FOLDER) && FOLDER.endsWith('/site/live/runtime/')));
});
