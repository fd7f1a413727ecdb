"""What becomes of each family as a graph: the table behind nbs/results/08_graphs.ipynb.

    python results/graphs/graphs.py                    # all, about two hours of one core
    python results/graphs/graphs.py --only gmlp lavit  # names that contain one of these
    python results/graphs/graphs.py --check onnx       # some checks, anew

A row in graphs.csv for each network and check: `works`, what is to be said of it, seconds, and the
versions. Rows that are there and of these versions are not made again, so it can be stopped at any
time. Each check runs in a process of its own: a crash is a row, too. Images are scored by the
board's digits networks, so that int8 can be measured; the other networks have random weights.
"""
import argparse, csv, importlib.metadata, multiprocessing, os, re, sys, tempfile, time, warnings
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE/'graphs.csv'
FIELDS = 'network', 'check', 'works', 'note', 'seconds', 'versions'
LIBRARIES = 'attnfree', 'torch', 'onnx', 'onnxscript', 'onnxruntime', 'torchao'
LIMIT = 600 # seconds for one check


def versions():
    "Of the libraries that decide."
    def of(name):
        try: return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError: return '-'
    return ' '.join(f'{name}={of(name)}' for name in LIBRARIES)


def networks():
    "Name of each network: the smallest of its family, without variants (`…_8_ar`)."
    from attnfree.language import model_names as words
    from attnfree.vision import model_names as images
    pictures = [name for name in images() if re.fullmatch('.*_micro_(patch2_)?8', name)]
    texts = [name for name in words() if name.startswith('mlm_') and name.endswith('_mini_128')]
    sequences = [name for name in words() if re.fullmatch('pixels_.*_micro_8', name)]
    return pictures + texts + sequences + [*CONVERTED]


CONVERTED = { # networks of timm's with less attention: name there, small sizes, layers that attend
    'less_attention_deit': ('deit_tiny_patch16_224', 2, dict(
        img_size=32, patch_size=8, embed_dim=32, depth=4, num_heads=2)),
    'less_attention_pvt': ('pvt_v2_b0', (None, None, None, 1), dict(
        depths=(1, 1, 1, 3), embed_dims=(8, 16, 32, 64), num_heads=(1, 2, 4, 4))),
    'less_attention_swin': ('swin_tiny_patch4_window7_224', (2, 2), dict(
        img_size=32, window_size=2, embed_dim=16, depths=(2, 4), num_heads=(2, 4)))}


def converted(name):
    "A small network of timm's with less attention, and the size of its images."
    import timm
    from attnfree.less_attention.plugin import with_less_attention
    original, keep, arguments = CONVERTED[name]
    network = timm.create_model(original, num_classes=10, **arguments)
    if 'img_size' in arguments: return with_less_attention(network, keep), arguments['img_size']
    return with_less_attention(network, keep, img_size=64), 64


def build(name):
    "The network, an example of three, and one of one."
    import torch
    from attnfree.learner import load
    from attnfree.mixer import randomise
    from attnfree.language import create_model as language_model
    torch.manual_seed(0)
    if name in CONVERTED:
        model, size = converted(name)
        return randomise(model, std=0.1).eval(), *(torch.randn(b, 3, size, size) for b in (3, 1))
    kept = HERE.parent/'board'/'weights'/'digits'
    found = [*kept.glob(f'model={name}*')]
    if found: return load(found[0])[0].eval(), torch.randn(3, 1, 8, 8), torch.randn(1, 1, 8, 8)
    model = randomise(language_model(name), std=0.05).eval()
    n, size = model.stem.grid[0], model.stem.words.num_embeddings
    return model, torch.randint(1, size, (3, n)), torch.randint(1, size, (1, n))


def close(found, expected, within=1e-5):
    "Raise unless both agree within a share of the largest; return the share."
    error = ((found.float() - expected.float()).abs().max()/expected.abs().max()).item()
    if not error <= within: raise AssertionError(f'differs by {error:.1e} of the largest score')
    return f'within {error:.0e}'


def scores_and_gradients(model, call, x):
    "What a training step computes."
    model.zero_grad()
    y = call(x)
    y.float().square().mean().backward()
    return y.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def compiled(model, **options):
    import torch
    return torch.compile(model, fullgraph=True, **options)


def check_eager(model, batch, one):
    import torch
    with torch.no_grad(): return close(model(batch)[:1], model(batch[:1]))


def check_inductor(model, batch, one):
    import torch
    with torch.no_grad(): return close(compiled(model)(batch), model(batch))


def _training(model, batch, within=1e-4):
    import torch
    for part in model.modules(): # dropout draws other numbers in a graph
        if hasattr(part, 'p') and isinstance(part.p, float): part.p = 0.
        if hasattr(part, 'drop_prob'): part.drop_prob = 0.
        if isinstance(getattr(part, 'drop', None), float): part.drop = 0.
    model.train()
    y, slopes = scores_and_gradients(model, model, batch)
    z, found = scores_and_gradients(model, compiled(model), batch)
    said = close(z, y, within)
    largest = max(slope.abs().max() for slope in slopes.values())
    errors = torch.stack([(found[name] - slopes[name]).abs().max() for name in slopes])
    worst = (errors.max()/largest).item()  # NaN if one of them is
    if not worst <= 10*within:
        raise AssertionError(f'gradients differ by {worst:.1e} of the largest')
    return f'{said}, gradients {worst:.0e}'


def check_inductor_training(model, batch, one): return _training(model, batch)


def check_inductor_checkpointing(model, batch, one):
    model.set_grad_checkpointing()
    return _training(model, batch)


def check_inductor_bf16(model, batch, one):
    import torch
    with torch.autocast('cpu', torch.bfloat16): return _training(model, batch, within=0.05)


def check_inductor_dynamic(model, batch, one):
    import torch
    graph = compiled(model, dynamic=True)
    with torch.no_grad():
        graph(batch)
        return close(graph(torch.cat([batch, batch])), model(torch.cat([batch, batch])))


def exported(model, batch):
    import torch
    with torch.no_grad():
        return torch.export.export(model, (batch,), dynamic_shapes=({0: torch.export.Dim('b')},))


def check_export(model, batch, one):
    "Saved, loaded, run with another batch."
    import torch
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        torch.export.save(exported(model, batch), f'{folder}/model.pt2')
        return close(torch.export.load(f'{folder}/model.pt2').module()(one), model(one))


def check_aoti(model, batch, one):
    "A package of compiled code, without Python."
    import torch
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        file = torch._inductor.aoti_compile_and_package(exported(model, batch),
                                                        package_path=f'{folder}/model.pt2')
        return close(torch._inductor.aoti_load_package(file)(one), model(one))


def onnx_file(model, batch, folder):
    import torch
    file = f'{folder}/model.onnx'
    torch.onnx.export(exported(model, batch), (batch,), file, dynamo=True, verbose=False)
    return file


def by_onnxruntime(file, x, dtype='float32'):
    import onnxruntime, torch
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=['CPUExecutionProvider'])
    values = x.numpy() if x.dtype == torch.long else x.numpy().astype(dtype)
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: values})[0])


def check_onnx(model, batch, one):
    import torch
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        return close(by_onnxruntime(onnx_file(model, batch, folder), one), model(one))


def check_onnx_float16(model, batch, one):
    "The network in float16, exported and run."
    import torch
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        expected, half = model(one), model.half()
        small = batch.half() if batch.is_floating_point() else batch
        return close(by_onnxruntime(onnx_file(half, small, folder), one, 'float16'), expected, 0.05)


def held_out():
    from attnfree.data import create_dls
    import torch
    images, labels = next(iter(create_dls('digits', bs=360).valid))
    return images.as_subclass(torch.Tensor), labels.as_subclass(torch.Tensor)


def _accuracy(call):
    images, labels = held_out()
    return 100*(call(images).argmax(1) == labels).float().mean().item()


def _before_and_after(model, call, batch, one):
    import torch
    with torch.no_grad():
        if batch.shape[1:] == (1, 8, 8): # digits
            before, after = _accuracy(model), _accuracy(call)
            if after < before - 5: raise AssertionError(f'digits {before:.1f} % -> {after:.1f} %')
            return f'digits {before:.1f} % -> {after:.1f} %'
        return close(call(one), model(one), 0.1)


def check_int8_torchao(model, batch, one):
    "Weights in int8, activations quantised as they come."
    from copy import deepcopy
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    small = deepcopy(model)
    quantize_(small, Int8DynamicActivationInt8WeightConfig())
    return _before_and_after(model, small, batch, one)


def check_int8_onnxruntime(model, batch, one):
    from onnxruntime.quantization import quantize_dynamic
    import torch
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        quantize_dynamic(onnx_file(model, batch, folder), f'{folder}/int8.onnx',
                         op_types_to_quantize=['MatMul', 'Gemm'])
        return _before_and_after(model, lambda x: by_onnxruntime(f'{folder}/int8.onnx', x), batch,
                                 one)


def check_jit_trace(model, batch, one):
    import torch
    with torch.no_grad(): return close(torch.jit.trace(model, (batch,))(one), model(one))


def check_functional_call(model, batch, one):
    import torch
    weights = {name: 1.1*p.detach() for name, p in model.named_parameters()}
    with torch.no_grad():
        found = torch.func.functional_call(model, weights, (batch,))
        for name, p in model.named_parameters(): p.copy_(weights[name])
        return close(found, model(batch))


def check_vmap(model, batch, one):
    "Gradients for each example, by torch.func."
    import torch
    weights = {name: p.detach() for name, p in model.named_parameters()}
    def loss(weights, x):
        return torch.func.functional_call(model, weights, (x[None],)).float().square().mean()
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, batch)
    slopes = torch.func.grad(loss)(weights, batch[1])
    for name, slope in slopes.items():
        torch.testing.assert_close(each[name][1], slope, atol=1e-4, rtol=1e-3)
    return 'gradients of each example'


def check_double_backward(model, batch, one):
    import torch
    parameters = [*model.parameters()]
    loss = model(batch).float().square().mean()
    slopes = torch.autograd.grad(loss, parameters, create_graph=True)
    sum(slope.square().sum() for slope in slopes).backward()
    if not all(p.grad is None or p.grad.isfinite().all() for p in parameters):
        raise AssertionError('some are not finite')
    return ''


def check_fx(model, batch, one):
    "timm's feature extraction by torch.fx; optional inputs, which texts have, it cannot trace."
    import torch
    from timm.layers import create_feature_extractor
    class OfTokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
        def forward(self, x): return self.model.forward_features(x)
    with torch.no_grad():
        parts, last = dict(model.named_modules()), ('body.norm', 'norm', 'stages.3')
        name = next(name for name in last if name in parts)
        traced = create_feature_extractor(OfTokens().eval(), {f'model.{name}': 'tokens'})
        return close(traced(one)['tokens'], model.forward_features(one))


CHECKS = {name.removeprefix('check_'): check for name, check in globals().items()
          if name.startswith('check_')}


def run(network, check, answers):
    "What one process does: one check of one network."
    warnings.simplefilter('ignore')
    import logging
    logging.disable(logging.ERROR)
    begin = time.perf_counter()
    try: works, note = True, CHECKS[check](*build(network))
    except BaseException as error:
        works, note = False, f'{type(error).__name__}: {" ".join(str(error).split())[:200]}'
    answers.put((works, note, time.perf_counter() - begin))


def answer(network, check):
    "Whether it works, a note, and the seconds; by a process of its own."
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['attnfree.learner', 'attnfree.language', 'attnfree.vision'])
    answers = context.Queue()
    process = context.Process(target=run, args=(network, check, answers))
    process.start()
    begin = time.perf_counter()
    while time.perf_counter() - begin < LIMIT:
        try: return answers.get(timeout=1)
        except Exception:
            if not process.is_alive(): return False, f'ends with exit code {process.exitcode}', 0
    process.kill()
    return False, f'takes over {LIMIT} s', LIMIT


def read():
    "The rows that are there, by network and check."
    if not FILE.exists(): return {}
    with open(FILE, newline='') as lines:
        return {(row['network'], row['check']): row for row in csv.DictReader(lines)}


def write(rows):
    part = FILE.with_suffix('.part')
    with open(part, 'w', newline='') as lines:
        writer = csv.DictWriter(lines, FIELDS, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows.values())
    os.replace(part, FILE)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='*', default=[''], help='parts of names of networks')
    parser.add_argument('--check', nargs='*', choices=CHECKS, help='these checks, made anew')
    args = parser.parse_args()
    now = versions()
    for network in networks():
        if not any(part in network for part in args.only): continue
        for check in args.check or CHECKS:
            rows = read()
            row = rows.get((network, check))
            if row and row['versions'] == now and not args.check: continue
            works, note, seconds = answer(network, check)
            rows[network, check] = dict(network=network, check=check, works=works, note=note,
                                        seconds=round(seconds, 1), versions=now)
            write(rows)
            print(f"{network:28} {check:24} {'works' if works else 'FAILS'}  {note}", flush=True)


if __name__ == '__main__': main()
