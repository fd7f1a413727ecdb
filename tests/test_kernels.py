"""Kernels for a GPU: what a processor can prove, by Triton's interpreter and without data."""
import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest, torch
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close

from attnfree import weighted_mean
from attnfree.biased_mean import band_mean, full_mean
from attnfree.kernels.proofs import interpreted
from attnfree.language import create_model
from attnfree.mixer import randomise
from attnfree.weighted_mean import exact_mean, gated, plain_mean

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


HOSTILE = ('part', 'front', 'count', 'rise wide groups', 'rise padding', 'hostile wide',
           '1e38 rise', '1e-30', 'float16', 'bfloat16 rise wide')
FORMS = {  # left, right, tokens: one tile and a part of the next
    'one_by_one': [(3, None, 9), (2, 3, 9), (30, 30, 7), (2, None, 1)],
    'window_mean': [(7, None, 34), (33, None, 66), (0, None, 20), (2, None, 1)],
    'matrix_mean': [(None, None, 12), (None, 0, 12), (None, None, 1)]}


@pytest.mark.parametrize('name', FORMS)
def test_hostile_means_against_the_definition(name):
    "The first form with all that is special, the others as they are and with what rises."
    first, *others = FORMS[name]
    cases = [(*first, 6, special) for special in HOSTILE]
    cases += [(*first, 70, ''), *((*form, 3, 'rise') for form in others)]
    errors = interpreted('''
from importlib import import_module
from attnfree.kernels import one_by_one
from attnfree.kernels.proofs import worst_errors
one_by_one.PROGRAMS = 1  # programs look at several blocks of rows
kernels = import_module(f'attnfree.kernels.{name}')
if name == 'window_mean': kernels.SHORTEST = 32  # several segments
def mean(k, v, w, left, right, connect, mask, count):
    given = dict(key_padding_mask=mask, count=count)
    if name == 'matrix_mean': return kernels.matrix_mean(k, v, w, causal=right is None, **given)
    if name == 'window_mean': return kernels.window_mean(k, v, w, left, **given)
    return kernels.one_by_one_mean(k, v, w, left, right, connect=connect, **given)
print(json.dumps([worst_errors(mean, *case) for case in cases]))''', cases=cases, name=name)
    for case, found in zip(cases, errors):
        assert max(found) < (1e-2 if 'float16' in case[-1] else 1e-6), (case, found)


def test_the_future_changes_no_bit_in_windows():
    "Neither by products nor where rows are flagged."
    assert interpreted('''
import torch
from attnfree.kernels.window_mean import window_mean
torch.manual_seed(0)
k,v,band = torch.randn(1, 40, 3),torch.randn(1, 40, 3),torch.randn(1, 40, 5)
k[:,20:,1] += 60 # flagged
band[:,34:36] *= 100
y,same = window_mean(k, v, band, 4),[]
for t in (21, 35):
    late = torch.arange(40)[:,None] >= t
    for key,value in ((3e38, 1.), (-3e38, 1e30)):
        changed = window_mean(torch.where(late, key, k), torch.where(late, value, v), band, 4)
        same.append(torch.equal(changed[:,:t], y[:,:t]))
print(json.dumps(all(same)))''')


def test_the_future_changes_no_bit_in_matrices():
    "Neither by products nor where rows are flagged."
    assert interpreted('''
import torch
from attnfree.kernels.matrix_mean import matrix_mean
torch.manual_seed(0)
k,v,w = torch.randn(1, 40, 3),torch.randn(1, 40, 3),torch.randn(40, 40)
k[:,20:,1] += 90 # flagged
w[30:32] *= 100
y,same = matrix_mean(k, v, w, causal=True),[]
for t in (21, 31):
    late = torch.arange(40)[:,None] >= t
    for key,value in ((3e38, 1.), (-3e38, 1e30)):
        late_k,late_v = torch.where(late, key, k),torch.where(late, value, v)
        same.append(torch.equal(matrix_mean(late_k, late_v, w, causal=True)[:,:t], y[:,:t]))
print(json.dumps(all(same)))''')


def test_the_future_changes_no_bit_one_by_one():
    assert interpreted('''
import torch
from attnfree.kernels.one_by_one import one_by_one_mean
torch.manual_seed(0)
k, v, band = (torch.randn(shape) for shape in ((1, 12, 4), (1, 12, 4), (2, 12, 4)))
same = []
for connect in (True, False):
    y = one_by_one_mean(k, v, band, 3, connect=connect)
    for t in (1, 8):
        late = torch.arange(12)[:,None] >= t
        for key, value in ((3e38, 1.), (-3e38, 1e30)):
            late_k, late_v = torch.where(late, key, k), torch.where(late, value, v)
            changed = one_by_one_mean(late_k, late_v, band, 3, connect=connect)
            same.append(torch.equal(changed[:,:t], y[:,:t]))
print(str(all(same)).lower())''')


def test_biased_means_as_operations_of_pytorch():
    assert interpreted('''
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from attnfree.biased_mean import band_mean, full_mean
from attnfree.kernels.matrix_mean import matrix_mean
from attnfree.kernels.one_by_one import one_by_one_mean
from attnfree.kernels.window_mean import window_mean
torch.manual_seed(0)
k, v = (torch.randn(1, 12, 4, requires_grad=True) for _ in range(2))
band, w = torch.randn(2, 12, 3, requires_grad=True), torch.randn(12, 12, requires_grad=True)
kernel = torch.randn(2, 1, 3).expand(-1, 12, -1)  # the same for all tokens
for mean in (one_by_one_mean, window_mean):
    for t, biases in ((k.mT.contiguous().mT, kernel), (k[:0], band)):
        assert_close(mean(t, t, biases, 2), band_mean(t, t, biases, 2, kernel=False))
assert_close(matrix_mean(k[:0], v[:0], w), full_mean(k[:0], v[:0], w, kernel=False))
means = ((one_by_one_mean, band, (2,)), (window_mean, band, (2,)), (matrix_mean, w, ()))
for mean, biases, options in means:
    def of(k, v, w): return mean(k, v, w, *options).cos().sum()
    expected = torch.autograd.grad(of(k, v, biases), (k, v, biases))
    again = checkpoint(of, k, v, biases, use_reentrant=False)
    assert_close(torch.autograd.grad(again, (k, v, biases)), expected)
    with torch.no_grad(): assert_close(of(k, v, biases), of(k, v, biases), rtol=0, atol=0)
    try: torch.autograd.grad(of(k, v, biases), k, create_graph=True)
    except RuntimeError as error: assert 'create_graph' in str(error)
    else: raise AssertionError('a second derivative')
print('true')''')


def test_mixers_by_kernels():
    "AFT as on a GPU, against PyTorch's operations: which kernels it takes, outputs, gradients."
    taken = interpreted('''
import torch
from collections import Counter
from torch.testing import assert_close
from unittest.mock import patch
from attnfree import weighted_mean
from attnfree.aft import AFTConv, AFTFull, AFTLocal, AFTSimple, conv
from attnfree.kernels import grid_mean, matrix_mean, one_by_one, prefix_mean, window_mean
from attnfree.mixer import randomise
taken, yes = Counter(), lambda *_: True
for module, name in ((grid_mean, 'grid_mean'), (matrix_mean, 'matrix_mean'),
                     (one_by_one, 'one_by_one_mean'), (window_mean, 'window_mean'),
                     (prefix_mean, 'causal_mean')):
    def noted(*args, mean=getattr(module, name), name=name, **options):
        taken[name] += 1
        taken['gated'] += name == 'grid_mean' and len(args) == 5 # with queries
        return mean(*args, **options)
    setattr(module, name, noted)
torch.manual_seed(0)
text, image = ((12,), dict(causal=True)), ((3, 4), {})
mixers = [AFTConv(8, image[0], heads=2, **options) for options in (
    dict(window=3), dict(window=3, connect=False), dict(window=9), dict(window=4))]
mixers += [AFTFull(8, image[0]), AFTFull(8, image[0], gate=torch.relu),
           AFTLocal(8, image[0], window=2)]
for name, options in ((AFTSimple, {}), (AFTFull, {}), (AFTLocal, dict(window=4)),
                      (AFTLocal, dict(window=4, connect=False)), (AFTConv, dict(heads=2, window=3)),
                      (AFTConv, dict(heads=2, window=3, connect=False))):
    mixers.append(name(8, (12,), causal=True, **options))
mixers += [AFTLocal(8, (12,), window=4), AFTConv(8, (12,), heads=2, window=3)]
mask = torch.rand(2, 12) > 0.7
there = dict(fits_kernels=yes, kernels_work=yes)
for mixer in mixers:
    randomise(mixer, std=0.5)
    results = []
    for on_gpu in (False, True):
        x = torch.linspace(-2, 2, 192).sin().view(2, 12, 8).requires_grad_()
        with patch.dict(vars(weighted_mean), there if on_gpu else {}), \
                patch.dict(vars(conv), dict(fits_kernels=yes) if on_gpu else {}):
            y = mixer(x, key_padding_mask=mask)
        results.append((y, *torch.autograd.grad(y.cos().sum(), [x, *mixer.parameters()])))
    assert_close(*results)
print(json.dumps(taken))''')
    assert taken == dict(grid_mean=9, gated=6, causal_mean=1, matrix_mean=1, window_mean=2,
                         one_by_one_mean=2)


def test_gates_by_kernels():
    "gMLP's and aMLP's gates as on a GPU, against PyTorch's operations in double precision."
    taken, errors = interpreted('''
import torch
from copy import deepcopy
from unittest.mock import patch
from attnfree import sgu, weighted_mean
from attnfree.kernels import spatial_gate as kernels
from attnfree.mixer import randomise
yes, taken, errors, gate = lambda *_: True, [], [], kernels.gate_tokens
kernels.gate_tokens = lambda *tensors: taken.append(1) or gate(*tensors)
torch.manual_seed(0)
mask = torch.rand(2, 12) > 0.7
options = dict(attention=4), dict(causal=True), dict(form='multiplicative'), dict(heads=2), {}
for given in options:
    grid = (12,) if 'causal' in given else (3, 4)
    single, results = randomise(sgu.GatedMLP(8, grid, hidden=16, **given), std=0.5), []
    for mixer, there in (deepcopy(single).double(), False), (single, True):
        x = torch.linspace(-2, 2, 192).sin().view(2, 12, 8).to(mixer.fc2.weight).requires_grad_()
        on_gpu = dict(fits_kernels=yes, kernels_work=yes) if there else {}
        with patch.dict(vars(weighted_mean), on_gpu): y = mixer(x, key_padding_mask=mask)
        results.append((y, *torch.autograd.grad(y.cos().sum(), [x, *mixer.parameters()])))
    errors.append([float((ours - exact).abs().max()/exact.abs().max())
                   for exact, ours in zip(*results, strict=True)])
print(json.dumps([len(taken), errors]))''')
    assert taken == len(errors) == 5
    # PyTorch's in float32: 3.2e-6
    assert all(error < 5e-6 for found in errors for error in found), errors


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


def mean_of(name):
    "A mean by PyTorch's name, and its other arguments."
    k, v = (torch.randn(1, 300, 64, requires_grad=True) for _ in range(2))
    band, w = torch.randn(1, 300, 8), torch.randn(300, 300)
    return {'prefix': (lambda k, v: plain_mean(k, v, causal=True), k, v),
            'window': (lambda k, v, w: band_mean(k, v, w, 7), k, v, band),
            'one by one': (lambda k, v, w: band_mean(k, v, w, 7, connect=False), k, v, band),
            'matrix': (lambda k, v, w: full_mean(k, v, w, causal=True), k, v, w),
            'grid': (full_mean, k[:,:200], v[:,:200], w[:200,:200])}[name]


# forward and backward; a text of 300 tokens has segments
@pytest.mark.parametrize('name, kernels', [('prefix', 4), ('window', 5 + 6), ('one by one', 1 + 3),
                                           ('matrix', 4 + 6), ('grid', 2 + 2)])
def test_a_graph_holds_the_kernels(name, kernels):
    "Dynamo sees them, forward and backward, without a break, so a compiler can plan around them."
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
    function, *tensors = mean_of(name)
    seen, yes = [], lambda *_: True
    yes._dynamo_marked_constant = True  # as kernels_work
    def backend(graph, inputs):
        for part in graph.modules():
            seen.extend(node for node in part.graph.nodes
                        if node.target is triton_kernel_wrapper_mutation)
        return lambda *given: [torch.zeros_like(tensors[1]).requires_grad_()]
    weighted_mean._kernels_there()
    with patch('torch.utils._triton.has_triton', lambda **options: True), \
            patch.dict(vars(weighted_mean), fits_kernels=lambda *_: True, kernels_work=yes):
        torch.compile(function, backend=backend, fullgraph=True)(*tensors)  # as with a GPU
    assert len(seen) == kernels


def test_a_graph_asks_once_whether_they_work():
    "What Dynamo cannot trace, such as what a kernel answers, is asked while it traces."
    gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    ask = weighted_mean.kernels_work
    with patch.dict(vars(weighted_mean), torch=gpu), \
            patch('attnfree.kernels.proofs.agrees', lambda name: bool(os.urandom(1)[0] + 1)):
        graph = torch.compile(lambda x: x + ask('prefix_mean'), backend='eager', fullgraph=True)
        assert_close(graph(torch.ones(3)), torch.full((3,), 2.))


def test_which_tensors_take_them():
    with patch.dict(vars(weighted_mean), kernels_work=lambda name: True), FakeTensorMode():
        def fits(device, dtype, *shape):
            k = torch.ones(2, *shape, dtype=dtype, device=device)
            # a kernel would read where a tensor without numbers says that it lies: at 0
            assert weighted_mean.kernels_for('prefix_mean', k, torch.ones_like(k)) is None
            return weighted_mean.fits_kernels(k, torch.ones_like(k))
        assert fits('cuda', torch.bfloat16, 40, 8) and fits('cuda', torch.float32, 40, 8)
        assert not fits('cpu', torch.float32, 40, 8) and not fits('cuda', torch.float64, 40, 8)
    with patch.dict(vars(weighted_mean), kernels_work=lambda name: False), FakeTensorMode():
        k = torch.ones(2, 40, 8, device='cuda')
        assert plain_mean(k, k, causal=True).device.type == 'cuda'


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
    both = torch.randn(b, n, 2*d, device='cuda').to(dtype)
    for spread, gate in ((1, False), (1, True), (100, True)):  # by products, and one by one
        results, w = [], spread*torch.randn(groups, n, n, device='cuda')
        for kernel in (True, False):
            given = (k, v, w, both) if gate else (k, v, w)
            inputs = [(t if kernel else t.float()).clone().requires_grad_() for t in given]
            query = inputs[3][:, :, d:] if gate else None
            y = grid_mean(*inputs[:3], query=query) if kernel else exact_mean(*inputs[:3])
            if not kernel: y = gated(y, query)
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
    for name in ('prefix_mean', 'one_by_one', 'grid_mean', 'spatial_gate', 'window_mean',
                 'matrix_mean'):
        assert weighted_mean.kernels_work(name)
