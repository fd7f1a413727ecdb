"""Writes the networks that run on the site's live pages, as published, and their runtime into a
folder.

    python .ci/live.py FOLDER             # all files
    python .ci/live.py FOLDER writer.json # only these, by their names

`.ci/docs.py` calls it between nbdev_proc_nbs and Quarto, with _proc/site/live, where the pages'
scripts are. A page adds its files to FILES: a name, and a function that writes that file. The
runtime, onnxruntime-web, is fetched by npm, kept in ATTNFREE_NPM, and compared with its checksums.
"""
import argparse, base64, hashlib, html, json, os, re, shutil, subprocess, tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DIGITS = [f'{mixer}_micro_patch2_8' for mixer in (
    'ff', 'gmlp', 'amlp', 'aft_simple', 'aft_full', 'aft_local', 'aft_conv', 'vit')]
DIGITS.append('lavit_micro_8')
WRITERS = {'aft': 'lm_aft_local_mini_256', 'attention': 'lm_attention_mini_256'}
RUNTIME = 'onnxruntime-web', '1.30.0'
SHA256 = {  # of its files that the pages load
    'ort.wasm.bundle.min.mjs': '11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90',
    'ort-wasm-simd-threaded.wasm':
        '3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2'}
EVERY = {'aft': 4, 'attention': 8}  # of the channels, one in so many is drawn


@cache
def runtime():
    "The folder of the runtime's files, fetched once; `OSError` where it cannot be or is another."
    name = '-'.join(RUNTIME)
    kept = Path(os.environ.get('ATTNFREE_NPM', Path(tempfile.gettempdir())/'attnfree_npm'))
    folder = kept/name
    if not folder.exists(): fetch(name, folder)
    for file, expected in SHA256.items():
        found = hashlib.sha256((folder/'package/dist'/file).read_bytes()).hexdigest()
        if found != expected: raise OSError(f'{folder}: {file} is another, its SHA-256 is {found}')
    return folder/'package/dist'


def fetch(name, folder):
    "Fetch the runtime by npm."
    npm = shutil.which('npm')
    if npm is None: raise OSError(f'npm is not there: it fetches {name}, which runs the networks')
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        try: done = subprocess.run([npm, 'pack', '--silent', '@'.join(RUNTIME)], cwd=new, text=True,
                                   capture_output=True, timeout=300)
        except subprocess.TimeoutExpired: raise OSError('npm took longer than 300 s') from None
        if done.returncode: raise OSError(f'npm has no {name}: {done.stderr.strip()[-200:]}')
        shutil.unpack_archive(Path(new)/f'{name}.tgz', Path(new)/'all')
        try: (Path(new)/'all').rename(folder)
        except OSError: pass  # another process was first


def of_runtime(file):
    "A file of the runtime, beside its licence."
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(runtime()/file.name, file)
    shutil.copyfile(ROOT/'.ci/onnxruntime-web.txt', file.with_name('LICENSE.txt'))


def writer(kind, file):
    "One step of the published language model of this kind, as a graph."
    from attnfree.learner import load
    from attnfree.run.export import export_step
    model, _ = load(f'{WRITERS[kind]}.enwik8')
    export_step(model.eval(), file, half=True)


def example():
    "The stored example of the page: its prompt, and what the network wrote."
    cells = json.loads((ROOT/'nbs/live/02_writer.ipynb').read_text(encoding='utf-8'))['cells']
    text = ''.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
    found = [re.search(rf'<span class="writer-{part}">(.*?)</span>', text, re.DOTALL)[1]
             for part in ('prompt', 'written')]
    return [html.unescape(part) for part in found]


def packed(view, scale, every, empty=None):
    "Every so many channels of `view`, `(tokens, channels)`, as bytes; -128 marks empty tokens."
    numbers = np.rint(127*np.clip(view[:, ::every]/scale, -1, 1)).astype(np.int8)
    if empty is not None: numbers[empty] = -128
    data = base64.b64encode(np.ascontiguousarray(numbers.T).tobytes()).decode()
    return dict(rows=numbers.shape[1], columns=len(numbers), numbers=data)


def pictures(steps, every):
    "The state of `steps` as the page draws it, and the scale of each block's colours."
    blocks, scales = [], []
    for number in range(sum(name.endswith('.keys') for name in steps.names)):
        start = f'blocks.{number}.'
        part = {name.removeprefix(start): value[0] for name, value in steps.state.items()
                if name.startswith(start)}
        older, block, scale = as_token(part, steps.read), {}, {}
        for name in ('keys', 'values'):
            view = part[name]
            if view.ndim == 3: view = view.transpose(1, 0, 2).reshape(view.shape[1], -1)  # of heads
            places = np.arange(len(view))
            empty = places < len(view) - steps.read if older else places >= steps.read
            scale[name] = round(float(np.quantile(np.abs(view[~empty]), 0.98)), 3)
            block[name] = packed(view, scale[name], every, empty)
        before = {name: packed(view[None], scale[name], every) for name, view in older.items()}
        blocks.append(block | dict(before=before or None))
        scales.append(scale)
    return blocks, scales


def as_token(part, read):
    "All tokens before the window as one: the logarithm of their mean weight, and their mean."
    if 'earlier.top' not in part: return {}
    top, total, weight = (part[f'earlier.{name}'] for name in ('top', 'total', 'weight'))
    return dict(keys=top + np.log(weight/(read - len(part['keys']))), values=total/weight)


def writer_about(file):
    "What the page must know of its networks, and their states after the stored example."
    from attnfree.run.export import OnnxSteps
    prompt, written = example()
    read = (prompt + written).encode()
    networks = {}
    for kind, name in WRITERS.items():
        graph = file.with_name(f'writer_{kind}.onnx')
        if not graph.exists(): writer(kind, graph)
        steps = OnnxSteps(graph)
        seen = len(read)
        while seen > steps.longest: seen -= steps.longest - steps.longest//2 + 1
        first = json.loads(steps.metadata['first'])
        state = [dict(name=i.name, kind='int64' if 'int64' in i.type else 'float32', shape=i.shape,
                      first=first[i.name])
                 for i in steps.session.get_inputs() if i.name != 'ids']
        for byte in read[-seen:]: steps.step([byte])
        blocks, scales = pictures(steps, EVERY[kind])
        networks[kind] = dict(name=name, file=graph.name, size=graph.stat().st_size, state=state,
                              longest=steps.longest, every=EVERY[kind], scales=scales,
                              example=dict(seen=seen, blocks=blocks))
    file.write_text(json.dumps(networks), encoding='utf-8')


def digits(name, file):
    "A published network for digits, in pieces."
    from sklearn.datasets import load_digits
    from attnfree.data.images import image_tensor
    from attnfree.learner import load
    from attnfree.live.pieces import export_pieces
    model, config = load(f'{name}.digits')
    data, image = config['data'], (load_digits().images[0]*255/16).astype('uint8')
    about = dict(name=name, classes=[*map(str, data['classes'])], mean=data['mean'],
                 std=data['std'])
    export_pieces(model, file, image_tensor(image, data), half=True, about=about)


def explained(file):
    "The page that shows what attnfree.live.explain makes."
    from sklearn.datasets import load_digits
    from attnfree.live.explain import explain
    examples = [(image*255/16).round().astype('uint8') for image in load_digits().images[:10]]
    explain('aft_conv_micro_patch2_8', examples, file, half=True, runtime='./runtime/',
            title='AFT-conv reads digits: a page made by attnfree.live.explain')


FILES = {f'digits_{name}.safetensors': partial(digits, name) for name in DIGITS} | {
    'writer_aft.onnx': lambda file: writer('aft', file),
    'writer_attention.onnx': lambda file: writer('attention', file),
    'writer.json': writer_about,
    'explained.html': explained,
    'runtime/ort.wasm.bundle.min.mjs': of_runtime,
    'runtime/ort-wasm-simd-threaded.wasm': of_runtime,
}


def write(folder, names=None):
    "Write the files of these names, all by default, into `folder`; yields each path."
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or FILES:
        FILES[name](folder/name)
        yield folder/name


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path)
    parser.add_argument('names', nargs='*', metavar='NAME', help=', '.join(FILES))
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in FILES]:
        parser.error(f"{', '.join(unknown)}: no such file; there are {', '.join(FILES)}")
    for path in write(args.folder, args.names):
        print(f'{path}: {path.stat().st_size:,} bytes')
