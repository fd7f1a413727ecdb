// node --test tests/live
// What draws has tests in a browser; here, that it waits for a page.
import assert from 'node:assert/strict';
import {test} from 'node:test';

for (const name of ['aft_knobs', 'digit', 'explain', 'writer'])
  test(`${name}.js does nothing without a document, and has something to build`, async () => {
    const found = await import(`../../nbs/site/live/${name}.js`);
    assert.equal(typeof found.build, 'function');
  });
