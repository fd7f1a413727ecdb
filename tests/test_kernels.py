"""Kernels for a GPU: what a processor can prove, by Triton's interpreter and without data."""
import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest, torch
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close

from attnfree import biased_mean, weighted_mean
from attnfree.biased_mean import band_mean, full_mean
from attnfree.kernels.proofs import interpreted
from attnfree.language import create_model
from attnfree.mixer import randomise
from attnfree.weighted_mean import exact_mean, plain_mean

pytest.importorskip('triton')
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')


def test_the_future_changes_no_bit():
    assert interpreted('''
import torch
from attnfree.kernels import prefix_mean as kernels
from attnfree.kernels.prefix_mean import causal_mean
kernels.TOKENS,kernels.SHORTEST = 4,8
torch.manual_seed(0)
k,v = torch.randn(2, 30, 5),torch.randn(2, 30, 5)
y = causal_mean(k, v)
same = []
for t in (1, 7, 8, 17, 29):
    late = torch.arange(30)[:,None] >= t
    for key,value in ((3e38, 1.), (-3e38, 1e30), (50., -7.)):
        changed = causal_mean(torch.where(late, key, k), torch.where(late, value, v))
        same.append(torch.equal(changed[:,:t], y[:,:t]))
print(str(all(same)).lower())''')


def test_the_future_changes_no_bit_with_biases():
    assert interpreted('''
import torch
from attnfree.kernels import biased_mean as kernels
from attnfree.kernels.biased_mean import exact_band_mean, exact_full_mean
kernels.TILE = 8
torch.manual_seed(0)
k, v, band, w = (torch.randn(shape) for shape in ((2, 20, 4), (2, 20, 4), (2, 20, 4), (20, 20)))
means = (lambda k, v: exact_band_mean(k, v, band, 3),
         lambda k, v: exact_band_mean(k, v, band, 3, connect=False),
         lambda k, v: exact_full_mean(k, v, w, causal=True))
same = []
for mean in means:
    y = mean(k, v)
    for t in (1, 8, 15):
        late = torch.arange(20)[:,None] >= t
        for key, value in ((3e38, 1.), (-3e38, 1e30)):
            changed = mean(torch.where(late, key, k), torch.where(late, value, v))
            same.append(torch.equal(changed[:,:t], y[:,:t]))
print(str(all(same)).lower())''')


def test_biased_means_as_an_operation_of_pytorch():
    assert interpreted('''
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from attnfree.biased_mean import band_mean
from attnfree.kernels import biased_mean as kernels
from attnfree.kernels.biased_mean import exact_band_mean, window_mean
from attnfree.weighted_mean import value_scale
kernels.TILE = 8
torch.manual_seed(0)
k, v = (torch.randn(1, 12, 4, requires_grad=True) for _ in range(2))
band = torch.randn(2, 12, 3, requires_grad=True)
count, scale = torch.ones(1, 12, 1), value_scale(v, None)
for times in (None, count):
    options = 2, None, True, False, True
    torch.library.opcheck(window_mean, (k, v, band, times, scale, *options))
kernel = torch.randn(2, 1, 3).expand(-1, 12, -1) # the same for all tokens
for t, biases in ((k.mT.contiguous().mT, kernel), (k[:0], band)):
    expected = band_mean(t, t, biases, 2, kernel=False)
    assert_close(exact_band_mean(t, t, biases, 2), expected)
def mean(k, v, band): return exact_band_mean(k, v, band, 2).cos().sum()
expected = torch.autograd.grad(mean(k, v, band), (k, v, band))
compiled = torch.compile(mean, fullgraph=True, backend='aot_eager')
assert_close(torch.autograd.grad(compiled(k, v, band), (k, v, band)), expected)
again = checkpoint(mean, k, v, band, use_reentrant=False)
assert_close(torch.autograd.grad(again, (k, v, band)), expected)
y = exact_band_mean(k, v, band, 2)
with torch.no_grad(): assert_close(exact_band_mean(k, v, band, 2), y, rtol=0, atol=0)
print('true')''')


def test_mixers_on_images_by_kernels():
    "AFT-full and AFT-conv, as on a GPU, against PyTorch's operations."
    assert interpreted('''
import torch
from torch.testing import assert_close
from unittest.mock import patch
from attnfree.aft import conv, variants
from attnfree import biased_mean
from attnfree.kernels import grid_mean as kernels
from attnfree.mixer import randomise
yes, taken, forward = lambda *_: True, [], kernels._forward
kernels._forward = lambda *tensors: taken.append(1) or forward(*tensors)
torch.manual_seed(0)
mask = torch.rand(2, 12) > 0.7
options = (dict(window=3), dict(window=3, connect=False), dict(window=9), dict(window=4))
mixers = [randomise(conv.AFTConv(8, (3, 4), heads=2, **given), std=0.5) for given in options]
for mixer in (*mixers, randomise(variants.AFTFull(8, (3, 4)), std=0.5)):
    results, module = [], conv if isinstance(mixer, conv.AFTConv) else biased_mean
    for there in (False, True):
        x = torch.linspace(-2, 2, 192).sin().view(2, 12, 8).requires_grad_()
        on_gpu = dict(fits_kernels=yes, kernels_work=yes) if there else {}
        with patch.dict(vars(module), on_gpu): y = mixer(x, key_padding_mask=mask)
        results.append((y, *torch.autograd.grad(y.cos().sum(), [x, *mixer.parameters()])))
    assert_close(*results)
print(json.dumps(len(taken) == 4))''')  # not without connection


def test_gates_by_kernels():
    "gMLP's and aMLP's gates as on a GPU, against PyTorch's operations."
    assert interpreted('''
import torch
from torch.testing import assert_close
from unittest.mock import patch
from attnfree import sgu
from attnfree.kernels import spatial_gate as kernels
from attnfree.mixer import randomise
yes, taken, gate = lambda *_: True, [], kernels.gate_tokens
kernels.gate_tokens = lambda *tensors: taken.append(1) or gate(*tensors)
torch.manual_seed(0)
mask = torch.rand(2, 12) > 0.7
options = dict(attention=4), dict(causal=True), dict(form='multiplicative'), dict(heads=2), {}
for given in options:
    grid = (12,) if 'causal' in given else (3, 4)
    mixer, results = randomise(sgu.GatedMLP(8, grid, hidden=16, **given), std=0.5), []
    for there in (False, True):
        x = torch.linspace(-2, 2, 192).sin().view(2, 12, 8).requires_grad_()
        on_gpu = dict(fits_kernels=yes, kernels_work=yes) if there else {}
        with patch.dict(vars(sgu), on_gpu): y = mixer(x, key_padding_mask=mask)
        results.append((y, *torch.autograd.grad(y.cos().sum(), [x, *mixer.parameters()])))
    assert_close(*results)
print(json.dumps(len(taken) == 5))''')


def test_kernels_with_biases_agree():
    assert interpreted('''
from attnfree.kernels.biased_mean import agrees
print(json.dumps(agrees('cpu')))''')


def test_as_an_operation_of_pytorch():
    assert interpreted('''
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from attnfree.kernels.prefix_mean import causal_mean
from attnfree.weighted_mean import plain_mean
torch.manual_seed(0)
k,v = (torch.randn(1, 20, 3, requires_grad=True) for _ in range(2))
for t in (k.transpose(1, 2).contiguous().transpose(1, 2), k[:,::2], k[:,:0], k[:0]):
    assert_close(causal_mean(t, t), plain_mean(t, t, causal=True, kernel=False))
def mean(k, v): return causal_mean(k, v).cos().sum()
expected = torch.autograd.grad(mean(k, v), (k, v))
again = checkpoint(mean, k, v, use_reentrant=False)
assert_close(torch.autograd.grad(again, (k, v)), expected)
with torch.no_grad(): assert_close(mean(k, v), mean(k.detach(), v.detach()), rtol=0, atol=0)
try: torch.autograd.grad(mean(k, v), k, create_graph=True)
except RuntimeError as error: assert 'create_graph' in str(error)
else: raise AssertionError('a second derivative')
print('true')''')


def test_a_graph_holds_the_kernels():
    "Dynamo sees them, forward and backward, without a break, so a compiler can plan around them."
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
    from attnfree.kernels.prefix_mean import causal_mean
    seen = []
    def backend(graph, inputs):
        for part in graph.modules():
            seen.extend(node for node in part.graph.nodes
                        if node.target is triton_kernel_wrapper_mutation)
        return lambda *given: [torch.zeros(1, 300, 64, requires_grad=True)]
    k, v = (torch.randn(1, 300, 64, requires_grad=True) for _ in range(2))
    with patch('torch.utils._triton.has_triton', lambda **options: True): # as with a GPU
        torch.compile(lambda k, v: causal_mean(k, v).cos(), backend=backend, fullgraph=True)(k, v)
    assert len(seen) == 4  # two forward and two backward, for the text has segments


def test_networks_take_it_on_a_gpu():
    called, work = [], vars(weighted_mean)
    import attnfree.kernels.prefix_mean as kernels
    def noted(*args):
        called.append(args[0].device.type)
        return args[1] + 0
    with patch.dict(work, kernels_work=lambda name: True):
        with patch.object(kernels, 'causal_mean', noted), FakeTensorMode():
            for device, dtype in (('cuda', torch.bfloat16), ('cpu', torch.float32),
                                  ('cuda', torch.float64)):
                k, v = (torch.ones(2, 40, 8, dtype=dtype, device=device) for _ in range(2))
                y = plain_mean(k, v, causal=True)
                assert (y.shape, y.dtype, y.device.type) == (v.shape, dtype, device)
        assert called == ['cuda']
    with patch.dict(work, kernels_work=lambda name: False), FakeTensorMode():
        k = torch.ones(2, 40, 8, device='cuda')
        assert plain_mean(k, k, causal=True).device.type == 'cuda'


def test_a_graph_asks_once_whether_they_work():
    "What Dynamo cannot trace, such as what a kernel answers, is asked while it traces."
    kernels = SimpleNamespace(agrees=lambda: bool(os.urandom(1)[0] + 1))
    kernels = SimpleNamespace(prefix_mean=kernels)
    gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    ask = weighted_mean.kernels_work
    with patch.dict(vars(weighted_mean), torch=gpu, _kernels=lambda: kernels):
        graph = torch.compile(lambda x: x + ask('prefix_mean'), backend='eager', fullgraph=True)
        assert_close(graph(torch.ones(3)), torch.full((3,), 2.))


def test_means_with_biases_take_it_on_a_gpu():
    import attnfree.kernels.biased_mean as kernels
    import attnfree.kernels.grid_mean as grids
    parts, called = vars(weighted_mean), []
    def noted(*args, **options):
        called.append(args[2].shape)
        return args[1] + 0
    with patch.dict(parts, kernels_work=lambda name: True), \
            patch.dict(vars(biased_mean), kernels_work=lambda name: True), \
            patch.object(kernels, 'exact_band_mean', noted), \
            patch.object(kernels, 'exact_full_mean', noted), \
            patch.object(grids, 'grid_mean', noted), FakeTensorMode():
        k = torch.ones(2, 100, 8, device='cuda')
        band, w = torch.ones(2, 100, 64, device='cuda'), torch.ones(100, 100, device='cuda')
        band_mean(k, k, band, 63, sums='fast')
        band_mean(k, k, torch.cat([band, band], dim=2), 127, sums='double')
        full_mean(k, k, w, causal=True, sums='exact')
        assert called == [(2, 100, 64), (2, 100, 100), (100, 100)]
        full_mean(k, k, w)
        assert called.pop() == (100, 100)
        long = torch.ones(2, 300, 8, device='cuda')
        full_mean(long, long, torch.ones(300, 300, device='cuda'), sums='fast')
        band_mean(k, k, torch.cat([band, band[...,:2]], dim=2), 65, sums='fast')
        band_mean(k.cpu(), k.cpu(), band.cpu(), 63, sums='fast')
        assert len(called) == 3


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
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('left, right, groups', [(3, None, 1), (31, None, 4), (7, 5, 2)])
def test_biases_on_a_gpu(left, right, groups, dtype):
    torch.manual_seed(0)
    k, v, grad = (torch.randn(2, 301, 64, device='cuda').to(dtype) for _ in range(3))
    band = torch.randn(groups, 301, left + 1 + (right or 0), device='cuda')
    w = 20*torch.randn(301, 301, device='cuda')
    for biases, mean in ((band, lambda k, v, band, **o: band_mean(k, v, band, left, right, **o)),
                         (w, lambda k, v, w, **o: full_mean(k, v, w, causal=not right, **o))):
        results = []
        for kernel in (True, False):
            inputs = [(t if kernel else t.float()).clone().requires_grad_() for t in (k, v, biases)]
            y = mean(*inputs, kernel=kernel)
            results.append((y, *torch.autograd.grad(y, inputs, grad.to(y.dtype))))
        within = 1e-4 if dtype == torch.float32 else 3e-2
        for found, expected in zip(*results):
            assert (found.float() - expected).abs().max() <= within*expected.abs().max()


@needs_gpu
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('shape, groups, heads', [
    ((2, 197, 384), 1, False), ((1, 50, 70), 2, False), ((2, 196, 384), 16, True),
    ((3, 64, 192), 32, True)])
def test_grids_on_a_gpu(shape, groups, heads, dtype):
    from attnfree.kernels.grid_mean import grid_mean
    torch.manual_seed(0)
    b, n, d = shape
    v, grad = (torch.randn(shape, device='cuda').to(dtype) for _ in range(2))
    k = torch.randn(b, n, groups if heads else d, device='cuda').to(dtype)
    for spread in (1, 100):  # by products, and one by one
        results, w = [], spread*torch.randn(groups, n, n, device='cuda')
        for kernel in (True, False):
            inputs = [(t if kernel else t.float()).clone().requires_grad_() for t in (k, v, w)]
            y = (grid_mean if kernel else exact_mean)(*inputs)
            results.append((y, *torch.autograd.grad(y, inputs, grad.to(y.dtype))))
        within = 1e-4 if dtype == torch.float32 else 3e-2
        for found, expected in zip(*results):
            assert (found.float() - expected).abs().max() <= within*expected.abs().max()


@needs_gpu
@pytest.mark.parametrize('mixer', ['aft_simple', 'aft_local', 'aft_conv', 'aft_full'])
def test_a_network_on_a_gpu(mixer):
    torch.manual_seed(0)
    network = randomise(create_model(f'pixels_{mixer}_micro_8'), std=0.1).cuda()
    ids = torch.randint(17, (3, 64), device='cuda')
    y = network(ids)
    with patch.dict(os.environ, ATTNFREE_KERNELS='0'): assert_close(network(ids), y)
    for name in ('prefix_mean', 'biased_mean', 'grid_mean', 'spatial_gate'):
        assert weighted_mean.kernels_work(name)
