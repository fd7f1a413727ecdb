"""Texts in one row: every text gets what it gets alone, whatever stands beside it."""
from functools import partial

import pytest, torch
from torch import nn
from torch.testing import assert_close

from attnfree.aft.conv import AFTConv
from attnfree.aft.variants import AFTFull,AFTLocal,AFTSimple
from attnfree.attention import Attention,PositionAttention
from attnfree.backbone import Stack
from attnfree.block import MixerBlock,ShortConv
from attnfree.ff import FeedForwardMixer
from attnfree.language import create_model,model_names
from attnfree.mixer import MeanMixer,randomise
from attnfree.packing import mix_texts
from attnfree.sgu import GatedMLP
from attnfree.text.model import fine_tune

LENGTHS = [7, 1, 0, 16, 3, 5]
ENDS = torch.tensor([0, *LENGTHS]).cumsum(0)
CU_SEQLENS = ENDS.int()
SPANS = [(int(first), int(last)) for first,last in zip(ENDS, ENDS[1:]) if last > first]

MIXERS = {
    'aft_simple': AFTSimple, 'aft_full': partial(AFTFull, rank=3),
    'aft_full_free': partial(AFTFull, rank=None), 'aft_local': partial(AFTLocal, window=4, rank=3),
    'aft_local_alone': partial(AFTLocal, window=4, rank=None, connect=False),
    'aft_conv': partial(AFTConv, heads=2, window=5), 'attention': partial(Attention, heads=2),
    'attention_relative': partial(Attention, heads=2, relative=True),
    'position_attention': partial(PositionAttention, heads=2), 'gmlp': GatedMLP,
    'gmlp_toeplitz': partial(GatedMLP, toeplitz=True), 'amlp': partial(GatedMLP, attention=4),
    'ff': FeedForwardMixer, 'mean': MeanMixer}
CASES = [(name, causal) for name in MIXERS for causal in (False, True)
         if (name, causal) != ('ff', True)]


def block_of(name, causal, **options):
    torch.manual_seed(0)
    if causal: options['short_conv'] = 4
    block = MixerBlock(8, (16,), MIXERS[name], causal=causal, **options)
    return randomise(block.double(), std=0.5)


@pytest.mark.parametrize('name, causal', CASES)
def test_a_block_gives_each_text_what_it_gets_alone(name, causal):
    block = block_of(name, causal).eval()
    row = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64, requires_grad=True)
    weigh = torch.randn_like(row)
    y = block(row, None, CU_SEQLENS)
    alone = torch.cat([block(row[:,first:last]) for first,last in SPANS], dim=1)
    assert_close(y, alone, rtol=1e-10, atol=1e-12)
    wanted = [row, *block.parameters()]
    found,expected = (torch.autograd.grad((t*weigh).sum(), wanted, allow_unused=True)
                      for t in (y, alone))
    for a,b in zip(found, expected):
        assert (a is None) == (b is None)
        if a is not None: assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize('name, causal', CASES)
def test_nothing_reaches_over_a_border(name, causal):
    block = block_of(name, causal).eval()
    row = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64)
    y = block(row, None, CU_SEQLENS)
    for first,last in SPANS:
        for value in (torch.nan, torch.inf, 1e30):
            changed = torch.full_like(row, value)
            changed[:,first:last] = row[:,first:last]
            assert torch.equal(block(changed, None, CU_SEQLENS)[:,first:last], y[:,first:last])
        changed = row.clone().requires_grad_()
        block(changed, None, CU_SEQLENS)[:,first:last].square().sum().backward()
        assert changed.grad[:,:first].count_nonzero() == 0
        assert changed.grad[:,last:].count_nonzero() == 0
        assert changed.grad[:,first:last].count_nonzero() > 0


@pytest.mark.parametrize('name, causal', [case for case in CASES if 'aft' in case[0]])
def test_hostile_keys_and_biases(name, causal):
    mixer = block_of(name, causal).mixer.eval()
    with torch.no_grad():
        for parameter in mixer.parameters(): parameter.mul_(30)
        row = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64)*10
        y = mixer(row, cu_seqlens=CU_SEQLENS)
        for first,last in SPANS: assert_close(y[:,first:last], mixer(row[:,first:last]))


TEXTS = [name for name in model_names() if name.startswith('mlm_') and '_mini_' in name]
SEQUENCES = [name for name in model_names() if name.startswith('lm_') and '_mini_' in name]


@pytest.mark.parametrize('name', TEXTS + SEQUENCES)
def test_a_network_gives_each_text_what_it_gets_alone(name):
    torch.manual_seed(0)
    network = randomise(create_model(name, vocab_size=50, n=16), std=0.1).double().eval()
    ids = torch.randint(1, 50, (1, sum(LENGTHS)))
    kinds = dict(segments=torch.randint(0, 2, ids.shape)) if name in TEXTS else {}
    with torch.no_grad():
        y = network(ids, **kinds, cu_seqlens=CU_SEQLENS)
        for first,last in SPANS:
            part = {key: value[:,first:last] for key,value in kinds.items()}
            assert_close(y[:,first:last], network(ids[:,first:last], **part), rtol=1e-9, atol=1e-10)
        at = torch.tensor([[0, 8, 30]])
        assert_close(network(ids, at=at, **kinds, cu_seqlens=CU_SEQLENS), y[:,at[0]])


@pytest.mark.parametrize('pool', ['cls', 'mean', 'max'])
@pytest.mark.parametrize('name', ['mlm_gmlp_mini_128', 'mlm_bert_mini_128', 'mlm_mixer_mini_128'])
def test_a_class_for_each_text(name, pool):
    torch.manual_seed(0)
    network = fine_tune(create_model(name, vocab_size=50, n=16, mask_padding=True), 'classes')
    network.reset_classifier(3, pool)
    network = randomise(network, std=0.1).double().eval()
    ids = torch.randint(1, 50, (1, sum(LENGTHS)))
    with torch.no_grad():
        y = network(ids, torch.zeros_like(ids), None, CU_SEQLENS)
        assert y.shape == (len(LENGTHS), 3)
        for i,length in enumerate(LENGTHS):
            first,last = ENDS[i],ENDS[i+1]
            if length < 2: continue # mean and maximum leave out the first
            assert_close(y[i:i+1], network(ids[:,first:last]))
            if pool != 'cls': continue
            padded = torch.zeros(1, 16, dtype=torch.long)
            padded[:,:length] = ids[:,first:last]
            assert_close(y[i:i+1], network(padded))


def test_answers_of_each_text():
    torch.manual_seed(0)
    model = create_model('mlm_amlp_mini_128', vocab_size=50, n=16, mask_padding=True)
    network = randomise(fine_tune(model, 'span'), std=0.1).double().eval()
    ids = torch.randint(1, 50, (1, sum(LENGTHS)))
    with torch.no_grad():
        y = network(ids, torch.zeros_like(ids), None, CU_SEQLENS)
        assert y.shape == (6, 16, 2)
        for i,length in enumerate(LENGTHS):
            assert y[i,length:].eq(-torch.inf).all()
            if length: assert_close(y[i:i+1,:length], network(ids[:,ENDS[i]:ENDS[i+1]]))


def test_a_branch_is_left_out_for_whole_texts():
    block = block_of('aft_full', False, drop_path=0.5, ff=None).train()
    row = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64)
    kept = set()
    for seed in range(20):
        torch.manual_seed(seed)
        changed = (block(row, None, CU_SEQLENS) != row).any(dim=-1)[0]
        texts = [changed[first:last] for first,last in SPANS]
        assert all(text.all() or not text.any() for text in texts)
        kept.add(tuple(bool(text.any()) for text in texts))
    assert len(kept) > 5


def test_checkpointing_and_a_short_convolution():
    torch.manual_seed(0)
    build = partial(MixerBlock, 8, (16,), MIXERS['aft_local'], causal=True, short_conv=3)
    stack = randomise(Stack(build, 2).double(), std=0.3)
    row = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64, requires_grad=True)
    grads = []
    for checkpointing in (False, True):
        stack.checkpointing = checkpointing
        grads.append(torch.autograd.grad(stack(row, None, CU_SEQLENS).square().sum(), row)[0])
    assert_close(*grads)
    conv = randomise(ShortConv(8, 3).double())
    y = conv(row, cu_seqlens=CU_SEQLENS)
    for first,last in SPANS: assert_close(y[:,first:last], conv(row[:,first:last]))


@pytest.mark.parametrize('name', ['lm_aft_conv_mini_256', 'lm_aft_simple_mini_256',
                                  'mlm_amlp_mini_128', 'mlm_bert_mini_128'])
def test_as_a_graph(name):
    torch.manual_seed(0)
    network = randomise(create_model(name, vocab_size=50, n=16), std=0.1).eval()
    ids = torch.randint(1, 50, (1, sum(LENGTHS)))
    call = lambda ids, cu: network(ids, cu_seqlens=cu)
    with torch.no_grad():
        compiled = torch.compile(call, fullgraph=True, backend='aot_eager')
        assert_close(compiled(ids, CU_SEQLENS), call(ids, CU_SEQLENS), rtol=1e-4, atol=1e-5)


def borders(*numbers): return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize('cu_seqlens, message', [
    (borders(1, 32), 'cu_seqlens begins with 1'), (borders(0, 9, 8, 32), 'falls from 9 to 8'),
    (borders(0, 31), 'cu_seqlens ends with 31, but x has 32 tokens'), (borders(0), 'holds no text'),
    (borders(0, 33), 'cu_seqlens ends with 33'),
    (borders(0, 32), '32 tokens, but the model was built for 16'),
    (borders(0, 32)[None], 'must be a tensor'), (borders(0, 32).float(), 'must be a tensor'),
    ([0, 32], 'must be a tensor'), (borders(0, 32).to('meta'), 'cu_seqlens is on meta')])
def test_bad_borders(cu_seqlens, message):
    network = create_model('lm_aft_simple_mini_256', vocab_size=50, n=16)
    ids = torch.randint(1, 50, (1, 32))
    with pytest.raises(ValueError, match=message): network(ids, cu_seqlens=cu_seqlens)


def test_bad_combinations():
    network = create_model('mlm_bert_mini_128', vocab_size=50, n=16)
    ids,cu_seqlens = torch.randint(1, 50, (2, 16)),borders(0, 8, 16)
    with pytest.raises(ValueError, match='divides one row'): network(ids, cu_seqlens=cu_seqlens)
    mask = torch.zeros(1, 16, dtype=torch.bool)
    with pytest.raises(ValueError, match='both given'):
        network(ids[:1], key_padding_mask=mask, cu_seqlens=cu_seqlens)
    x = torch.randn(1, 16, 8)
    with pytest.raises(ValueError, match='a text of 16 tokens, but the mixer was built for 9'):
        AFTSimple(8, (9,))(x, cu_seqlens=borders(0, 16))
    with pytest.raises(ValueError, match='for images'):
        AFTSimple(8, (4, 4))(x, cu_seqlens=borders(0, 16))
    class Own(nn.Module):
        def __init__(self, dim, grid, *, prefix=0, causal=False): super().__init__()
        def forward(self, x): return x.mean(dim=1, keepdim=True).expand_as(x)
    with pytest.raises(ValueError, match='Own cannot keep texts apart'):
        MixerBlock(8, (16,), Own)(x, None, cu_seqlens)
    with pytest.raises(ValueError, match='cu_seqlens was given, but this block normalises'):
        MixerBlock(8, (16,), AFTSimple, token_norm='mixer')(x, None, cu_seqlens)


def test_an_empty_text_leaves_gradients_finite():
    class Own(nn.Module):
        "Divides by the number of its tokens."
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 8)
        def forward(self, x, key_padding_mask=None):
            keep = (~key_padding_mask)[...,None]
            return self.out((x*keep).sum(1, True)/keep.sum(1, True)).expand_as(x)
    mixer = Own()
    mix_texts(mixer, torch.randn(1, 7, 8), None, borders(0, 3, 3, 7)).sum().backward()
    assert mixer.out.weight.grad.isfinite().all()


def test_exported_for_any_row_and_any_number_of_texts():
    torch.manual_seed(0)
    network = randomise(create_model('mlm_bert_mini_128', vocab_size=50, n=16), std=0.1).eval()
    ids = torch.randint(1, 50, (1, sum(LENGTHS)))
    any_row,any_number = torch.export.Dim('row', min=2, max=4096),torch.export.Dim('ends', min=3)
    shapes = dict(ids={1: any_row}, segments=None, at=None, key_padding_mask=None,
                  cu_seqlens={0: any_number})
    with torch.no_grad():
        program = torch.export.export(network, (ids, None, None, None, CU_SEQLENS),
                                      dynamic_shapes=shapes)
        other = borders(0, 4, 9)
        found = program.module()(ids[:,:9], None, None, None, other)
        assert_close(found, network(ids[:,:9], cu_seqlens=other), rtol=1e-4, atol=1e-5)
