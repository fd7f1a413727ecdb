// The runtime of the live pages: onnxruntime-web's WebAssembly build, which .ci/live.py puts beside
// this file, loaded once a page needs it. One thread, so that no page needs special headers.

export const FOLDER = new URL('runtime/', import.meta.url).href;
const SCRIPT = 'ort.wasm.bundle.min.mjs', BINARY = 'ort-wasm-simd-threaded.wasm';

// A file's bytes; a plain error where there is none.
export async function bytesOf(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} answers ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

let loading = null, failures = 0;

// The module of onnxruntime-web, ready for sessions; a second call gets the same one. Rejects with
// a message for the reader; the next call tries again.
export function loadRuntime() {
  loading ??= load().catch(cause => {
    loading = null;
    failures++;
    throw new Error('The runtime could not be loaded (blocked, or no connection), so the networks ' +
                    'cannot run here.', {cause});
  });
  return loading;
}

async function load() {
  const again = failures ? `#${failures}` : '';  // a module that failed is not asked for again
  const [ort, binary] = await Promise.all([import(FOLDER + SCRIPT + again),
                                           bytesOf(FOLDER + BINARY)]);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = binary;
  ort.env.logLevel = 'error';
  return ort;
}

// A network's file as a session of the runtime.
export async function loadNetwork(url) {
  const [ort, bytes] = await Promise.all([loadRuntime(), bytesOf(url)]);
  return ort.InferenceSession.create(bytes, {executionProviders: ['wasm']});
}
