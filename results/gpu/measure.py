"""What a GPU does, in parts of a few minutes: python results/gpu/measure.py PART --out DIR

Each part writes OUT/measured_PART.csv row by row, the most important first; what the file has is
left out, and after SECONDS no row is begun. `--prepare` runs the rows once in eight processes
instead, which fills the caches of the compilers: do it before anything is timed. `--together`
compiles eight rows in as many processes, and measures them one after the other. `--device cpu
--small` tries a part at tiny sizes. Nothing is downloaded. PART is one of

checks     kernels, data, means and networks are right, and steps do not wait
means      causal means and attention: ms forward, with backward, in a CUDA graph, of kernels alone
networks   images a second, compiled in CUDA graphs, and eager, of ours and of DeiT
trainings  attnfree_train: examples a second, share of a bare loop, seconds until it has ended
bytes      the next byte of a text, early and late
tiles      forms of the kernels for images
"""
import argparse, math, multiprocessing, os, queue, re, signal, subprocess, sys
import tempfile, threading, time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch.nn import functional as F

from attnfree.biased_mean import band_mean, full_mean
from attnfree.weighted_mean import plain_mean

ROOT = Path(__file__).resolve().parents[2]
BF16, F32 = torch.bfloat16, torch.float32
DTYPES = {'float32': F32, 'bfloat16': BF16, 'float16': torch.float16}


class Row(NamedTuple):
    "Something to measure."
    keys: dict       # What it is
    make: object     # Called without arguments, makes the work: a function, or several by name
    measure: object  # Called with the work, returns a dict of results


# How long it takes

def wait(device): torch.cuda.synchronize() if device == 'cuda' else None


def milliseconds(work, device, seconds=0.2):
    "The median of three times of a call, many calls in a row, after three that are not counted."
    for _ in range(3): work()  # a CUDA graph is recorded in the second
    def once(calls):
        wait(device)
        begin = time.perf_counter()
        for _ in range(calls): work()
        wait(device)
        return (time.perf_counter() - begin)/calls
    first = once(1)
    if first > 0.5: return 1e3*first
    calls = max(3, min(2000, int(seconds/first)))
    return 1e3*sorted(once(calls) for _ in range(3))[1]


def in_a_graph(work):
    "The same for a call that is recorded in a CUDA graph, without Python."
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        for _ in range(3): work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph): work()
    return milliseconds(graph.replay, 'cuda')


def kernels(work, calls=3):
    "Milliseconds of each kernel of a call, and how many are started."
    from torch.profiler import ProfilerActivity, profile
    work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(calls): work()
        torch.cuda.synchronize()
    def own(event):
        "Without the names that PyTorch gives to parts of a program."
        named = event.key.startswith(('Optimizer.', '## '))
        return not named and not getattr(event, 'is_user_annotation', False)
    events = [event for event in found.key_averages()
              if 'CUDA' in str(event.device_type) and own(event)]
    return ({event.key: event.self_device_time_total/calls/1e3 for event in events},
            sum(event.count for event in events)//calls)


def timed(works, device, graph=False):
    "Times of functions by name; on a GPU memory, kernels, and times in a graph too."
    found = {f'{name}_ms': milliseconds(work, device) for name, work in works.items()}
    if device == 'cpu': return found
    for name, work in works.items() if graph else ():
        try: found[f'{name}_graph_ms'] = in_a_graph(work)
        except Exception as error: print('no graph:', type(error).__name__, error)
    last = [*works.values()][-1]
    torch.cuda.reset_peak_memory_stats()
    times, launches = kernels(last)
    memory = torch.cuda.max_memory_allocated()/1e9
    return found | dict(kernels_ms=sum(times.values()), launches=launches, GB=memory)


# Is it right

def mean_functions():
    "Causal means by name: functions of keys, values and options; and the shape of their biases."
    def local(k, v, w, **options): return band_mean(k, v, w, 31, **options)
    def sides(k, v, w, **options): return band_mean(k, v, w, 4, 4, **options)
    def full(k, v, w, **options): return full_mean(k, v, w, causal=True, **options)
    return {'AFT-simple': (partial(plain_mean, causal=True), None),
            'AFT-local-32': (local, lambda n: (1, n, 32)),
            'AFT-conv': (sides, lambda n: (4, n, 9)), 'AFT-full': (full, lambda n: (n, n))}


def check_mean(name, dtype, n, device):
    "A mean and its gradients against the same in float64."
    function, shape = mean_functions()[name]
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, n, 64), (2, n, 64)] + ([shape(n)] if shape else [])
    inputs = [torch.randn(s, generator=generator).to(device) for s in shapes]
    given = [t.to(DTYPES[dtype]) for t in inputs[:2]] + inputs[2:]
    results = []
    for tensors, kernel in ((given, device == 'cuda'), ([t.double() for t in given], False)):
        tensors = [t.detach().requires_grad_() for t in tensors]
        y = function(*tensors, kernel=kernel)
        results.append((y, *torch.autograd.grad(y, tensors, y.detach().cos())))
    errors = [((a.double() - b).abs().max()/b.abs().max()).item() for a, b in zip(*results)]
    worst = torch.tensor(errors).max().item()  # NaN if one of them is
    assert worst < (1e-4 if dtype == 'float32' else 3e-2), f'an error of {worst:.1e}'
    return dict(worst=worst)


def smallest(name):
    "A network of a registered name with random numbers, and a batch for it."
    from attnfree.language import create_model as words, model_names
    from attnfree.mixer import randomise
    from attnfree.vision import create_model
    torch.manual_seed(0)
    if name in model_names():
        return randomise(words(name), std=0.05), torch.randint(16, (2, 32))
    network = create_model(name, in_chans=3, num_classes=10)
    return randomise(network, std=0.05), torch.randn(2, 3, 8, 8)


def check_network(name, dtype, device):
    "A network forward and backward on a device, against itself on the processor in float32."
    model, x = smallest(name)
    model.eval()
    with torch.no_grad(): expected = model(x)
    model, x = model.to(device), x.to(device)
    half = dtype != 'float32'
    with torch.autocast(device, DTYPES[dtype] if half else None, enabled=half): y = model(x)
    y.float().square().mean().backward()
    worst = ((y.float().cpu() - expected).abs().max()/expected.abs().max()).item()
    assert worst < (1e-3 if dtype == 'float32' else 0.1), f'a difference of {worst:.1e}'
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    return dict(worst=worst)


def check_no_waiting(name, device):
    "Three training steps, the last of which must not wait for the GPU."
    from attnfree.measure.count import training_step
    model, x = smallest(name)
    classes = torch.zeros(2, dtype=torch.long, device=device)
    step = training_step(model.to(device), x.to(device), classes)
    for _ in range(2): step()
    if device == 'cuda': torch.cuda.set_sync_debug_mode('error')
    try: step()
    finally:
        if device == 'cuda': torch.cuda.set_sync_debug_mode('default')
    return {}


def check_kernels(name, device):
    "Kernels are built and right: else the means fall back on PyTorch's operations, with a warning."
    from attnfree.kernels.proofs import agrees
    assert device == 'cpu' or agrees(name, device)
    return {}


def check_data(name, task, device):
    "Batches that are looked up on a device, without waiting, are those of items one by one."
    from attnfree.data.datasets import create_dls
    from attnfree.run.imports import import_file
    import_file(str(ROOT/'results/gpu/noise.py'))
    loaders = [create_dls(name, task, bs=32).train for _ in range(2)]
    for loader in loaders: loader.device, loader.data_on = torch.device(device), 'gpu'
    loaders[1].table = lambda: None
    assert loaders[0].table().device.type == device
    for epoch in range(2):
        found = iter(loaders[0])
        batches = [next(found)]  # the order of the epoch is waited for
        if device == 'cuda': torch.cuda.set_sync_debug_mode('error')
        try: batches += [next(found) for _ in range(3)]
        finally:
            if device == 'cuda': torch.cuda.set_sync_debug_mode('default')
        for one, other in zip(batches, loaders[1]):
            for a, b in zip(one, other): assert torch.equal(torch.Tensor(a), torch.Tensor(b))
    return dict(batches=2*len(batches))


KERNELS = ['prefix_mean', 'window_mean', 'matrix_mean', 'grid_mean', 'spatial_gate']
# not digits' classes: fastai warps them by torch.linalg.solve, which waits
DATA = [('noise', 'classification'), ('digits', 'pixels'), ('text', 'lm'), ('recall', 'recall')]
CHECKED = ['ff_micro_patch2_8', 'gmlp_micro_patch2_8', 'amlp_micro_patch2_8', 'lavit_micro_8',
           'aft_simple_micro_patch2_8', 'aft_full_micro_patch2_8', 'aft_local_micro_patch2_8',
           'aft_conv_micro_patch2_8', 'vit_micro_patch2_8']
WORDS = [f'pixels_{mixer}_micro_8' for mixer in ('aft_simple', 'aft_full', 'aft_local', 'aft_conv',
                                                 'gmlp', 'amlp', 'attention')]


def checks(device, small):
    def row(keys, check, *given):
        return Row(keys, lambda: partial(check, *given, device), lambda check: check())
    n = 70 if small else 301
    for name in KERNELS:
        yield row(dict(check='kernels', name=name, dtype='float32'), check_kernels, name)
    for name, task in DATA:
        yield row(dict(check='data', name=f'{name}-{task}', dtype='float32'), check_data, name,
                  task)
    for name in mean_functions():
        for dtype in DTYPES:
            yield row(dict(check='mean', name=name, dtype=dtype), check_mean, name, dtype, n)
    for name in CHECKED:
        yield row(dict(check='no_waiting', name=name, dtype='float32'), check_no_waiting, name)
    for name in CHECKED + WORDS:
        for dtype in ('float32', 'bfloat16') if small else DTYPES:
            yield row(dict(check='network', name=name, dtype=dtype), check_network, name, dtype)


# Means

def passes(function, inputs):
    "Forward alone, and with backward."
    def both():
        y = function(*inputs)
        return torch.autograd.grad(y, inputs, y.detach())
    return dict(forward=torch.no_grad()(lambda: function(*inputs)), both=both)


def attention(q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rwkv(k, v):
    "flash-linear-attention's RWKV-4: with w = u = 0 it is the causal AFT-simple."
    from fla.ops.rwkv4 import fused_recurrent_rwkv4
    state = torch.zeros(len(k), 3, 1, k.shape[-1], device=k.device)
    w, u = (torch.zeros(k.shape[-1], device=k.device) for _ in range(2))
    return fused_recurrent_rwkv4(w, u, k, v, state)[0]


def make_mean(name, b, n, d, device):
    "A mean, or attention with heads of 64, of bfloat16."
    def random(*shape, dtype=BF16):
        return torch.randn(*shape, device=device).to(dtype).requires_grad_()
    if name == 'flash':
        return passes(attention, [random(b, max(1, d//64), n, min(d, 64)) for _ in range(3)])
    if name == 'RWKV-4': return passes(rwkv, [random(b, n, d) for _ in range(2)])
    function, shape = mean_functions()[name]
    inputs = [random(b, n, d), random(b, n, d)]
    return passes(function, inputs + ([random(*shape(n), dtype=F32)] if shape else []))


def means(device, small):
    tokens, d = (256, 64) if small else (65_536, 1024)
    names = ['AFT-simple', 'AFT-local-32', 'flash', 'AFT-full', 'AFT-conv']
    for n in (64, 256) if small else (1024, 256, 4096, 16_384, 65_536):
        for name in names + ['RWKV-4']*(device == 'cuda'):
            if n > dict([('AFT-full', 16_384), ('AFT-conv', 4096)]).get(name, n): continue  # slow
            yield Row(dict(name=name, b=tokens//n, n=n, d=d),
                      partial(make_mean, name, tokens//n, n, d, device),
                      partial(timed, device=device, graph=True))


# Networks

NETWORKS = ['deit_small_patch16_224', 'attnfree_aft_full_small_patch16_224',
            'attnfree_aft_conv_small_patch16_224_k11_h16', 'attnfree_gmlp_s16_224',
            'attnfree_ff_tiny_patch16_224', 'deit_tiny_patch16_224', 'attnfree_lavit_t',
            'attnfree_amlp_s16_224', 'attnfree_lavit_s', 'pvt_v2_b1']
TINY = ['attnfree_ff_micro_patch2_8', 'attnfree_lavit_micro_8']


def make_network(name, work, mode, batch, device):
    "A step of a network, bf16 autocast, channels last, on images that are on the device already."
    import timm
    import attnfree.vision  # registers our names
    from attnfree.measure.count import inference, training_step
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    model = timm.create_model(name).to(device, memory_format=torch.channels_last)
    images = torch.randn(batch, *model.pretrained_cfg['input_size'], device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    classes = torch.arange(batch, device=device) % model.num_classes
    if mode == 'graphs': model.compile(dynamic=False, mode='reduce-overhead')
    if work == 'inference': return dict(inference=inference(model, images, BF16))
    return dict(training=training_step(model, images, classes, BF16))


def time_network(works, mode, batch, device):
    "Its rate, and what torch.compile made of it."
    from torch._dynamo.utils import counters
    found = timed(works, device, graph=mode == 'eager' and 'inference' in works)
    if mode == 'graphs': found.pop('GB', None)  # a graph has memory of its own
    return dict(images_s=batch*1e3/next(iter(found.values()))) | found | dict(
        graphs=counters['stats']['unique_graphs'], skipped=counters['inductor']['cudagraph_skips'],
        breaks=sum(counters['graph_break'].values()))


def networks(device, small):
    batch = 4 if small else 128
    for mode in ('eager',) if small else ('graphs', 'eager'):
        for work in ('training', 'inference'):
            for name in TINY if small else NETWORKS:
                yield Row(dict(name=name, work=work, mode=mode, batch=batch),
                          partial(make_network, name, work, mode, batch, device),
                          partial(time_network, mode=mode, batch=batch, device=device))


# Trainings

def noise_folder(folder):
    "JPEGs of 500 by 375 pixels: what loads and trains photographs, without photographs."
    import numpy as np
    from PIL import Image
    for i in range(1000):
        file = Path(folder)/f'class{i % 10}'/f'{i}.jpg'
        file.parent.mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((500, 375)).save(file)
    return folder


def command(options, limit, interrupt=None):
    "Run attnfree_train; exit code, seconds from its last line (or the signal) to its end, lines."
    words = [sys.executable, '-W', 'ignore', '-u', '-m', 'attnfree.train', *map(str, options)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               cwd=ROOT)
    killer = threading.Timer(limit, process.kill)
    killer.start()
    lines, last, stopped = [], time.monotonic(), None
    def stop(): process.send_signal(signal.SIGINT)
    for line in process.stdout:
        lines.append(line.rstrip())
        last = time.monotonic()
        if interrupt and interrupt in line and stopped is None:
            stopped = threading.Timer(2, stop)  # in the middle of the next epoch
            stopped.start()
    code = process.wait()
    killer.cancel()
    return code, time.monotonic() - last, lines


def rate_of(run):
    "Examples a second: the median of all rows but the first, in which a training gets going."
    for name in 'steps', 'metrics':
        file = run/f'{name}.csv'
        rates = pd.read_csv(file)['images/s'][1:] if file.exists() else []
        if len(rates): return rates.median()
    return math.nan


def train(options, workers, limit, interrupt=None):
    "What a training does: its rate, that of a bare loop on one batch, and how it ends."
    options, begin = [*options, '--workers', workers], time.monotonic()
    code, _, lines = command([*options, '--loader'], 2*limit/3)  # the training has the rest
    bare = ' '.join(lines)
    found = {name: float(match[1].replace(',', '')) if match else math.nan for name, match in
             (('loader_s', re.search(r'delivers ([\d,]+)', bare)),
              ('bare_s', re.search(r'trains on ([\d,]+)', bare)))}
    wrong = [f'--loader: exit code {code}: ' + ' / '.join(lines[-3:])] if code else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)/'run'
        left = limit - (time.monotonic() - begin)
        code, after, lines = command([*options, '--no_draw', '--out', out], left, interrupt)
        rate = rate_of(out)
    if code != (0 if interrupt is None else 128 + signal.SIGINT):
        wrong.append(f'exit code {code}: ' + ' / '.join(lines[-3:]))
    if after > 3: wrong.append('it does not end within three seconds')
    return dict(examples_s=rate, share=rate/found['bare_s'], ends_after_s=after, **found,
                wrong='; '.join(wrong))


def trainings(device, small):
    def row(name, options, workers=0, limit=60, **how):
        words = [word for part in options.split() for word in (
            ('--set', part) if '=' in part else (part,))]
        def make():
            given = [str(noise_folder(tempfile.mkdtemp()))
                     if word == 'FOLDER' else word for word in words]
            return partial(train, given, workers, limit, **how)
        return Row(dict(name=name, workers=workers, options=options), make, lambda work: work())
    images = ('--import results/gpu/noise.py --recipe cifar10 data=noise bs=512 epochs=4 '
              'model=aft_conv_nano_patch4_32 precision=bf16')
    photographs = ('--data imagenet --path FOLDER model=aft_full_small_patch16_224 size=224 bs=16 '
                   'epochs=3 precision=bf16')
    texts = '--data text --task lm model=lm_aft_local_mini_256 bs=64 steps=300 precision=bf16'
    if small:
        images, texts = '--data digits epochs=2', '--data text --task lm bs=2 steps=3 size=16 ' \
            'valid_examples=2 warmup_steps=1 model=lm_aft_local_mini_256'
        photographs = ('--data imagenet --path FOLDER model=aft_conv_nano_patch4_32 size=32 bs=32 '
                       'epochs=2 train_examples=128 valid_examples=32')
    if not small: yield row('images, CUDA graphs', images + ' compile=graphs', limit=90)
    yield row('texts', texts)
    if not small: yield row('images, compiled', images + ' compile=true', limit=90)
    yield row('photographs', photographs, 2 if small else 8)
    yield row('images', images)
    yield row('interrupted', photographs.replace('epochs=', 'epochs=9'), 2 if small else 8,
              interrupt='epoch 1 of')


# Bytes, and tiles

def make_bytes(name, position, batch, device):
    "The next byte of each text, after `position` bytes."
    from attnfree.measure.sequences import decoder, state_at
    model = decoder(name, position + 1).to(device)
    state = state_at(model, position, batch)
    ids = torch.zeros(batch, dtype=torch.long, device=device)
    return dict(step=torch.inference_mode()(lambda: model.step(ids, state)))


def bytes_late(device, small):
    for position in (10, 50) if small else (100_000, 10_000, 1000, 10):
        for name in ('Transformer', 'AFT-local-32', 'AFT-simple'):
            batch = 2 if small else 8
            yield Row(dict(name=name, position=position),
                      partial(make_bytes, name, position, batch, device),
                      partial(timed, device=device))


TILES = [(64, 64, 8, 1), (32, 64, 4, 1), (32, 64, 8, 1), (32, 64, 4, 2), (32, 64, 8, 2),
         (64, 64, 8, 2), (64, 128, 8, 1), (32, 128, 8, 1), (128, 64, 8, 1), (64, 64, 4, 1)]
PRODUCTS = [(128, 64, 8, 2), (128, 64, 8, 3), (128, 64, 8, 4), (64, 64, 4, 3), (64, 64, 4, 4),
            (128, 64, 4, 3), (128, 32, 8, 4), (128, 32, 8, 5), (64, 32, 4, 4), (64, 64, 8, 3)]


def make_tile(case, tile, product, device):
    "Forward and backward of a mean or a gate of 128 images, by kernels of a form."
    from attnfree.kernels import grid_mean, spatial_gate
    form = dict(zip(('C', 'M', 'num_warps', 'num_stages'), tile))
    grid_mean.MEANS = grid_mean.GRADIENTS = {  # warps: by the channels
        name: value for name, value in form.items() if name != 'num_warps'}
    spatial_gate.GATES = spatial_gate.GRADIENTS = form
    grid_mean.PRODUCTS = spatial_gate.PRODUCTS = dict(
        zip(('T', 'BK', 'num_warps', 'num_stages'), product))
    def random(*shape, dtype=BF16):
        return torch.randn(*shape, device=device).to(dtype).requires_grad_()
    if case == 'gate':
        given = [random(128, 196, 2*768), random(128, 196, 768, dtype=F32),
                 random(1, 196, 196, dtype=F32), random(1, 196, dtype=F32)]
        return passes(lambda z, *rest: spatial_gate.gate_tokens(z[:, :, :768], *rest), given)
    groups, n = (16, 196) if case == 'heads' else (1, 197)
    given = [random(128, n, groups if case == 'heads' else 384), random(128, n, 384),
             random(groups, n, n, dtype=F32), random(128, n, 384)]
    return passes(lambda k, v, w, q: grid_mean.grid_mean(k, v, w, None, q), given)


def tiles(device, small):
    def measure(works):
        names = 'grid', 'weig', 'gate', 'matr'
        return {name: ms for name, ms in kernels(works['both'], 5)[0].items() if name[:4] in names}
    if device == 'cpu': return  # kernels alone
    for case in ('grid', 'heads', 'gate'):
        for tile, product in zip(TILES, PRODUCTS):
            yield Row(dict(case=case, tile=str(tile), product=str(product)),
                      partial(make_tile, case, tile, product, device), measure)


PARTS = dict(checks=checks, means=means, networks=networks, trainings=trainings, bytes=bytes_late,
             tiles=tiles)


# Rows

def named(keys): return ' '.join(f'{key}={value}' for key, value in keys.items())


def told(problem): return f'{type(problem).__name__}: {problem}'.replace('\n', ' ')[:300]


def still_missing(rows, file):
    "The rows that a file does not have, with their numbers."
    done = {*pd.read_csv(file)['row']} if file.exists() else set()
    return [(number, row) for number, row in enumerate(rows) if named(row.keys) not in done]


def add_row(file, keys, result, error, seconds, device):
    "Append a row to a file, and print it."
    from attnfree.training.processes import machine_name
    table = pd.read_csv(file) if file.exists() else pd.DataFrame()
    line = dict(row=named(keys), **keys, **result, error=error, seconds=round(seconds, 1),
                machine=machine_name(device), date=date.today().isoformat())
    table = pd.concat([table, pd.DataFrame([line])], ignore_index=True)
    table.to_csv(file, index=False, float_format='%.6g')
    shown = {k: v if isinstance(v, str) else f'{v:.4g}' for k, v in result.items()}
    print(named(keys), error or named(shown), flush=True)


def run_rows(rows, file, seconds, device):
    "Measure what is missing in a file until the time is up; returns how many rows are missing."
    end, missing = time.monotonic() + seconds, 0
    for _, (keys, make, measure) in still_missing(rows, file):
        begin = time.monotonic()
        if begin > end:
            missing += 1
            continue
        try: result, error = measure(make()), ''
        except Exception as problem: result, error = {}, told(problem)  # the next one may work
        add_row(file, keys, result, error, time.monotonic() - begin, device)
        if 'CUDA error' in error:  # nothing else on the card succeeds in this process
            os.execv(sys.executable, [sys.executable, *sys.argv, '--seconds',
                                      str(max(0, end - time.monotonic()))])
        if device == 'cuda': torch.cuda.empty_cache()
    return missing


LATE = 75  # exit code


def compile_and_wait(part, number, device, small, end, compiled, turn, found):
    "Compile a row, wait until the others have, or until the end, and measure with nothing beside."
    torch.set_num_threads(1)
    row, begin = [*PARTS[part](device, small)][number], time.monotonic()
    late = threading.Timer(end - begin, os._exit, [LATE])  # nothing may compile beside the others
    late.start()
    try:
        work = row.make()
        for _ in range(3):
            for call in work.values(): call()
        wait(device)
        measure = partial(row.measure, work)
    except Exception as problem:
        error = told(problem)
        def measure(): raise RuntimeError(error)
    late.cancel()
    try: compiled.wait(max(0, end - time.monotonic()))
    except threading.BrokenBarrierError: pass  # one has ended
    with turn:
        try: result, error = measure(), ''
        except Exception as problem: result, error = {}, told(problem)
    found.put((number, result, error, time.monotonic() - begin))


def run_together(part, file, seconds, device, small):
    "Measure what is missing, eight rows at a time, each in a process of its own."
    os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '2'
    context, end, took = multiprocessing.get_context('spawn'), time.monotonic() + seconds, 0
    rows = still_missing(PARTS[part](device, small), file)
    while rows and end - time.monotonic() > took:
        begin, some, rows = time.monotonic(), dict(rows[:8]), rows[8:]
        compiled, turn, found = context.Barrier(len(some)), context.Lock(), context.Queue()
        started = {number: context.Process(target=compile_and_wait, args=(
            part, number, device, small, end, compiled, turn, found)) for number in some}
        for process in started.values(): process.start()
        last = None
        while some and time.monotonic() < (last or end) + 30:
            try: number, *measured = found.get(timeout=1)
            except queue.Empty:
                alive = sum(process.is_alive() for process in started.values())
                if not alive: break
                if compiled.n_waiting == alive: compiled.abort()  # for one that has ended
                continue
            add_row(file, some.pop(number).keys, *measured, device)
            took, last = took or time.monotonic() - begin, time.monotonic()
        for number, row in some.items():
            code = started[number].exitcode
            if code in (None, 0, LATE): print('not measured:', named(row.keys), flush=True)
            else: add_row(file, row.keys, {}, f'exit code {code}', 0, device)
        for process in started.values(): process.kill()
    return len(still_missing(PARTS[part](device, small), file))


def prepare(part, number, device, small):
    "Run a row once, in a process of its own: what it compiles is kept."
    torch.set_num_threads(1)
    work = [*PARTS[part](device, small)][number].make()
    for call in work.values() if isinstance(work, dict) else [work]: call()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('part', nargs='+', choices=PARTS)
    parser.add_argument('--out', type=Path, required=True, help='folder for the csv files')
    parser.add_argument('--seconds', type=float, default=240, help='after these no row is begun')
    parser.add_argument('--device', choices=['cuda', 'cpu'], default='cuda')
    parser.add_argument('--small', action='store_true', help='tiny sizes, for a test run')
    parser.add_argument('--prepare', action='store_true', help='only fill the compilers\' caches')
    parser.add_argument('--together', action='store_true', help='compile eight rows at a time')
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.prepare:
        for part in args.part:
            file = args.out/f'measured_{part}.csv'
            rest = file, args.seconds, args.device
            missing = (run_together(part, *rest, args.small) if args.together
                       else run_rows(PARTS[part](args.device, args.small), *rest))
            print(f'{missing} rows of {part} are missing', flush=True)
        return
    rows = [(part, i) for part in args.part if part != 'trainings'
            for i, _ in enumerate(PARTS[part](args.device, args.small))]
    context, processes = multiprocessing.get_context('spawn'), min(8, os.cpu_count() or 1)
    pool, end = ProcessPoolExecutor(processes, mp_context=context), time.monotonic() + args.seconds
    jobs = [(name, pool.submit(prepare, *name, args.device, args.small)) for name in rows]
    for name, job in jobs:
        try: job.result(max(0, end - time.monotonic()))
        except Exception as error:
            print('not prepared', *name, type(error).__name__, flush=True)
    workers = [*pool._processes.values()]
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers: worker.kill()  # time is up
    print(f'{len(rows)} rows prepared', flush=True)


if __name__ == '__main__': main()
