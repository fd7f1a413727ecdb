"""Kernels for a GPU: what a processor can prove, by Triton's interpreter and without data."""
import json, os, subprocess, sys
from types import SimpleNamespace
from unittest.mock import patch

import pytest, torch
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close

from attnfree import weighted_mean
from attnfree.language import create_model
from attnfree.mixer import randomise
from attnfree.weighted_mean import plain_mean

pytest.importorskip('triton')
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')


def interpreted(source):
    "What a program prints as json, with kernels interpreted."
    environment = {**os.environ, 'TRITON_INTERPRET': '1'}
    run = subprocess.run([sys.executable, '-W', 'ignore', '-c', source], text=True,
                         capture_output=True, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_the_future_changes_no_bit():
    assert interpreted('''
import torch
from attnfree.kernels.prefix_mean import causal_mean
torch.manual_seed(0)
k,v = torch.randn(2, 70, 5),torch.randn(2, 70, 5)
y = causal_mean(k, v)
same = []
for t in (1, 31, 32, 33, 64, 69):
    late = torch.arange(70)[:,None] >= t
    for key,value in ((3e38, 1.), (-3e38, 1e30), (50., -7.)):
        changed = causal_mean(torch.where(late, key, k), torch.where(late, value, v))
        same.append(torch.equal(changed[:,:t], y[:,:t]))
print(str(all(same)).lower())''')


def test_as_an_operation_of_pytorch():
    assert interpreted('''
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from attnfree.kernels.prefix_mean import causal_mean, prefix_mean
from attnfree.weighted_mean import plain_mean, value_scale
torch.manual_seed(0)
k,v = (torch.randn(1, 40, 3, requires_grad=True) for _ in range(2))
count,scale = torch.ones(1, 40, 1),value_scale(v, None)
for times in (None, count): torch.library.opcheck(prefix_mean, (k, v, times, scale))
for t in (k.transpose(1, 2).contiguous().transpose(1, 2), k[:,::2], k[:,:0], k[:0]):
    assert_close(causal_mean(t, t), plain_mean(t, t, causal=True, kernel=False))
def mean(k, v): return causal_mean(k, v).cos().sum()
expected = torch.autograd.grad(mean(k, v), (k, v))
compiled = torch.compile(mean, fullgraph=True, backend='aot_eager')
assert_close(torch.autograd.grad(compiled(k, v), (k, v)), expected)
again = checkpoint(mean, k, v, use_reentrant=False)
assert_close(torch.autograd.grad(again, (k, v)), expected)
print('true')''')


def test_networks_take_it_on_a_gpu():
    called, work = [], weighted_mean.plain_mean.__globals__
    import attnfree.kernels.prefix_mean as kernels
    original = kernels.causal_mean
    def noted(*args):
        called.append(args[0].device.type)
        return original(*args)
    with patch.dict(work, kernels_work=lambda: True), patch.object(kernels, 'causal_mean', noted):
        with FakeTensorMode():
            for device, dtype in (('cuda', torch.bfloat16), ('cpu', torch.float32),
                                  ('cuda', torch.float64)):
                k, v = (torch.ones(2, 40, 8, dtype=dtype, device=device) for _ in range(2))
                y = plain_mean(k, v, causal=True)
                assert (y.shape, y.dtype, y.device.type) == (v.shape, dtype, device)
        assert called == ['cuda']
    with patch.dict(work, kernels_work=lambda: False), FakeTensorMode():
        k = torch.ones(2, 40, 8, device='cuda')
        assert plain_mean(k, k, causal=True).device.type == 'cuda'


def test_a_graph_asks_once_whether_they_work():
    "What Dynamo cannot trace, such as what a kernel answers, is asked while it traces."
    kernels = SimpleNamespace(agrees=lambda: bool(os.urandom(1)[0] + 1))
    gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    ask = weighted_mean.kernels_work
    with patch.dict(ask.__globals__, torch=gpu, _kernels=lambda: kernels):
        graph = torch.compile(lambda x: x + ask(), backend='eager', fullgraph=True)
        assert_close(graph(torch.ones(3)), torch.full((3,), 2.))


@needs_gpu
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('shape', [(1, 1, 3), (2, 71, 35), (1, 5000, 64), (3, 197, 192)])
def test_on_a_gpu(shape, dtype):
    torch.manual_seed(0)
    k, v, grad = (torch.randn(shape, device='cuda').to(dtype) for _ in range(3))
    results = []
    for kernel in (True, False):
        inputs = [t.float().requires_grad_() if not kernel else t.clone().requires_grad_()
                  for t in (k, v)]
        mean = plain_mean(*inputs, causal=True, kernel=kernel)
        results.append((mean, *torch.autograd.grad(mean, inputs, grad.to(mean.dtype))))
    within = 1e-4 if dtype == torch.float32 else 3e-2
    for found, expected in zip(*results):
        assert (found.float() - expected).abs().max() <= within*expected.abs().max()


@needs_gpu
def test_a_network_on_a_gpu():
    torch.manual_seed(0)
    network = randomise(create_model('pixels_aft_simple_micro_8'), std=0.1).cuda()
    ids = torch.randint(17, (3, 64), device='cuda')
    y = network(ids)
    with patch.dict(os.environ, ATTNFREE_KERNELS='0'): assert_close(network(ids), y)
    assert weighted_mean.kernels_work()
