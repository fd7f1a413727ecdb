"""What the tables h100_*.csv were read off: python results/gpu/h100.py means|networks|tiles

Run as PART=compile first, in several processes, to fill the caches of compilers (`networks I`
takes one network). Prints a line as it is measured; the last numbers are of the GPU alone. Put
in order after 2026-11-27, and not run on a GPU in this form: AFT-conv's causal mean, RWKV-4's of
flash-linear-attention, means of 197 tokens and two more tiles were measured that day too.
"""
import os, sys, time

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from attnfree.biased_mean import band_mean, full_mean
from attnfree.kernels import grid_mean, spatial_gate
from attnfree.weighted_mean import plain_mean

BF16, F32 = torch.bfloat16, torch.float32
NETWORKS = ['deit_small_patch16_224', 'attnfree_aft_full_small_patch16_224',
            'attnfree_aft_conv_small_patch16_224_k11_h16', 'attnfree_gmlp_s16_224',
            'attnfree_ff_tiny_patch16_224', 'deit_tiny_patch16_224', 'attnfree_lavit_t']
TILES = [(64, 64, 8, 1), (32, 64, 4, 1), (32, 64, 8, 1), (32, 64, 4, 2), (32, 64, 8, 2),
         (64, 64, 8, 2), (64, 128, 8, 1), (32, 128, 8, 1), (128, 64, 8, 1), (64, 64, 4, 1)]
PRODUCTS = [(128, 64, 8, 2), (128, 64, 8, 3), (128, 64, 8, 4), (64, 64, 4, 3), (64, 64, 4, 4),
            (128, 64, 4, 3), (128, 32, 8, 4), (128, 32, 8, 5), (64, 32, 4, 4), (64, 64, 8, 3)]


def random(*shape, dtype=BF16):
    return torch.randn(*shape, device='cuda').to(dtype).requires_grad_()


def passes(function, *inputs):
    "Functions without arguments: forward alone, forward and backward."
    def backward():
        y = function(*inputs)
        return torch.autograd.grad(y, inputs, y.detach())
    return torch.no_grad()(lambda: function(*inputs)), backward


def means():
    "`(what, tokens, passes)`: causal means of 65,536 tokens of 1,024 channels in all."
    for b, n in ((64, 1024), (256, 256), (16, 4096), (4, 16_384), (1, 65_536)):
        def keys(): return random(b, n, 1024), random(b, n, 1024)
        yield 'AFT-simple', n, passes(lambda k, v: plain_mean(k, v, causal=True), *keys())
        band = random(1, n, 32, dtype=F32)
        yield 'AFT-local-32', n, passes(lambda k, v, w: band_mean(k, v, w, 31), *keys(), band)
        if n <= 16_384:
            w = random(n, n, dtype=F32)
            yield 'AFT-full', n, passes(lambda k, v, w: full_mean(k, v, w, causal=True),
                                        *keys(), w)
        def attention(q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        yield 'flash', n, passes(attention, *(random(b, 16, n, 64) for _ in range(3)))


def network(name, work, compiled):
    "A step of a network on 128 images of 224 pixels, bf16 autocast, channels last."
    import timm

    import attnfree.vision  # registers our names
    from attnfree.measure.count import inference, training_step
    model = timm.create_model(name).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(128, 3, 224, 224, device='cuda').contiguous(memory_format=torch.channels_last)
    classes = torch.arange(128, device='cuda')
    if compiled: model.compile(dynamic=False)
    if work == 'inference': return inference(model, x, BF16)
    return training_step(model, x, classes, BF16)


def images(case):
    "Forward and backward of a mean or a gate of 128 images."
    d = 384
    if case == 'gate':
        z, read = random(128, 196, 2*768), random(128, 196, 768, dtype=F32)
        given = random(1, 196, 196, dtype=F32), random(1, 196, dtype=F32)
        return passes(lambda z, *rest: spatial_gate.gate_tokens(z[:, :, :768], *rest),
                      z, read, *given)[1]
    groups, n = (16, 196) if case == 'heads' else (1, 197)
    keys = random(128, n, groups if case == 'heads' else d)
    given = random(groups, n, n, dtype=F32), random(128, n, d)
    return passes(lambda k, v, w, q: grid_mean.grid_mean(k, v, w, None, q),
                  keys, random(128, n, d), *given)[1]


def milliseconds(work, seconds=0.2):
    "The median of three times of a call, many calls in a row, after three that are not counted."
    for _ in range(3): work()
    torch.cuda.synchronize()
    def once(calls):
        begin = time.perf_counter()
        for _ in range(calls): work()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin)/calls
    calls = max(3, min(50, int(seconds/once(1))))
    return 1e3*sorted(once(calls) for _ in range(3))[1]


def in_a_graph(work):
    "The same for a call that is recorded in a CUDA graph, without Python."
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        for _ in range(3): work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph): work()
    return milliseconds(graph.replay)


def kernels(work, calls=3):
    "Milliseconds of each kernel of a call."
    work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(calls): work()
        torch.cuda.synchronize()
    return {event.key: event.self_device_time_total/calls/1e3 for event in found.key_averages()
            if 'CUDA' in str(event.device_type) and '#' not in event.key}  # '#': of the optimiser


def main(part, only=None):
    compile_only = os.environ.get('PART') == 'compile'
    if part == 'means':
        for what, n, (forward, both) in means():
            if compile_only: both()
            else: print(what, n, *map(milliseconds, (forward, both)),
                        *map(in_a_graph, (forward, both)), sum(kernels(both).values()), flush=True)
    if part == 'networks':
        for name in NETWORKS if only is None else [NETWORKS[int(only)]]:
            for work in ('inference', 'training'):
                for compiled in (False, True):
                    step = network(name, work, compiled)
                    step()
                    if compile_only: continue
                    found = milliseconds(step), sum(kernels(step).values())
                    if work == 'inference': found += in_a_graph(step),
                    print(name, work, compiled, round(128e3/found[0]), *found, flush=True)
    if part == 'tiles':
        for case in ('grid', 'heads', 'gate'):
            for tile, product in zip(TILES, PRODUCTS):
                form = dict(zip(('C', 'M', 'num_warps', 'num_stages'), tile))
                grid_mean.MEANS = grid_mean.GRADIENTS = {  # warps: by the channels
                    name: value for name, value in form.items() if name != 'num_warps'}
                spatial_gate.GATES = spatial_gate.GRADIENTS = form
                grid_mean.PRODUCTS = spatial_gate.PRODUCTS = dict(
                    zip(('T', 'BK', 'num_warps', 'num_stages'), product))
                found = kernels(images(case), 5)
                print(case, tile, product, {name: value for name, value in found.items()
                                            if name[:4] in ('grid', 'weig', 'gate', 'matr')})


if __name__ == '__main__': main(*sys.argv[1:])
