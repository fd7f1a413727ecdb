"""Texts in pieces: each causal network gives what it gives for the whole, wherever it is cut."""
import pytest, torch
from torch.testing import assert_close

from attnfree.language import create_model
from attnfree.mixer import randomise
from attnfree.sequences import (load_state, map_state, named_parts, save_state, select_rows,
                                state_to)

NAMES = [f'pixels_{mixer}_micro_8' for mixer in (
    'attention', 'aft_simple', 'aft_full', 'aft_local', 'aft_conv', 'gmlp', 'amlp')]
NAMES += ['recall_aft_conv_conv_d64', 'recall_gmlp_conv_d64']
CUTS = [[], [1], [32], [63], [7, 8, 30], [16, 32, 48]]


def build(name, dtype=torch.float64):
    network = randomise(create_model(name), std=0.1).to(dtype).eval()
    size = network.stem.words.num_embeddings
    ids = torch.randint(0, size, (3, 64), generator=torch.Generator().manual_seed(0))
    return network, ids


def read(network, ids, cuts, state=None):
    outputs = []
    for piece in ids.tensor_split(cuts, dim=1):
        y, state = network.prefill(piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


@pytest.mark.parametrize('name', NAMES)
def test_pieces_and_steps_give_what_the_whole_gives(name):
    for dtype, within in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        network, ids = build(name, dtype)
        with torch.no_grad():
            expected = network(ids)
            size = expected.abs().max()
            for cuts in CUTS:
                found, state = read(network, ids, cuts)
                assert (found - expected).abs().max() <= within*size, (cuts, dtype)
            state, outputs = network.start(3), []
            for token in ids.unbind(1):
                y, state = network.step(token, state)
                outputs.append(y)
            assert (torch.stack(outputs, dim=1) - expected).abs().max() <= within*size
            _, half = network.prefill(ids[:,:30])
            y, _ = network.step(ids[:,30], half) # a step goes on where a piece ended
            assert (y - expected[:,30]).abs().max() <= within*size


@pytest.mark.parametrize('name', NAMES)
def test_gradients_go_through_the_state(name):
    network, ids = build(name)
    gradients = []
    for cuts in ([], [20, 41]):
        network.zero_grad()
        read(network, ids, cuts)[0].cos().sum().backward()
        gradients.append({name: p.grad for name, p in network.named_parameters()})
    assert_close(*gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize('name', NAMES)
def test_rows_wait(name):
    network, ids = build(name)
    waits = torch.rand(3, 64, generator=torch.Generator().manual_seed(1)) < 0.5
    with torch.no_grad():
        outputs, state = [], None
        for first, last in ((0, 20), (20, 50), (50, 62)):
            y, state = network.prefill(ids[:,first:last], state, waits[:,first:last])
            outputs.append(y)
        for t in (62, 63):
            y, state = network.step(ids[:,t], state, waits[:,t])
            outputs.append(y[:,None])
        found = torch.cat(outputs, dim=1)
        for row in range(3):
            kept = ~waits[row]
            assert_close(found[row,kept], network(ids[row:row+1,kept])[0], rtol=0, atol=1e-11)
        assert state.seen.tolist() == (~waits).sum(dim=1).tolist()


@pytest.mark.parametrize('name', NAMES)
def test_states_fork_change_places_and_are_saved(name, tmp_path):
    network, ids = build(name)
    with torch.no_grad():
        _, state = network.prefill(ids[:,:40])
        save_state(state, tmp_path/'state.safetensors')
        rows = torch.tensor([2, 0, 2, 1])
        forked = select_rows(state, rows)
        expected = network(ids)[rows,40:]
        for start in (forked, select_rows(load_state(tmp_path/'state.safetensors',
                                                     network.start(1)), rows)):
            y, _ = network.prefill(ids[rows,40:], start)
            assert_close(y, expected, rtol=0, atol=1e-11)
        y, after = network.prefill(ids[:1,40:], select_rows(state, torch.tensor([0])))
        assert_close(y, expected[1:2], rtol=0, atol=1e-11)


@pytest.mark.parametrize('name', NAMES)
def test_states_that_do_not_fit_are_refused(name):
    network, ids = build(name)
    _, state = network.prefill(ids[:,:4])
    other = create_model('pixels_gmlp_micro_8' if 'gmlp' not in name else 'pixels_amlp_micro_8')
    for wrong, message in [
            (select_rows(state, torch.tensor([0])), 'texts, but 3 are to be continued'),
            (network.float().start(3), 'dtype=torch.float32'),
            (other.double().start(3), 'another network')]:
        with pytest.raises(ValueError, match=message): network.double().prefill(ids[:,4:], wrong)
    assert all(isinstance(part, (torch.Tensor, int)) for _, part in named_parts(state))


def test_hostile_keys():
    network, ids = build('pixels_aft_simple_micro_8', torch.float32)
    with torch.no_grad():
        for block in network.body.blocks: block.mixer.qkv.weight[64:128] *= 3000
        expected = network.double()(ids)
        assert expected.isfinite().all()
        size = expected.abs().max()
        for cuts in CUTS:
            found, _ = read(network, ids, cuts)
            assert (found - expected).abs().max() <= 1e-9*size


@pytest.mark.parametrize('name', NAMES)
def test_what_stands_where_rows_wait_does_not_matter(name):
    network, ids = build(name)
    x = network.stem(ids[:,:20]).detach()
    waits = torch.zeros(3, 20, dtype=torch.bool)
    waits[0,[1, 5, 6, 19]] = waits[2,:10] = True
    for wrong in (torch.nan, 1e5):
        spoilt = x.masked_fill(waits[...,None], wrong)
        with torch.no_grad():
            found, state = network.body.prefill(spoilt, None, waits)
            step, _ = network.body.step(x[:,0], state)
            expected, state = network.body.prefill(x, None, waits)
            assert_close(found[~waits], expected[~waits], rtol=0, atol=1e-11)
            assert_close(step, network.body.step(x[:,0], state)[0], rtol=0, atol=1e-11)


def test_keys_far_below_what_is_not_seen():
    network, ids = build('pixels_aft_full_micro_8')
    mixer = network.body.blocks[0].mixer
    x = torch.randn(2, 12, 64, dtype=torch.float64)
    x[...,0] = 1
    waits = torch.zeros(2, 12, dtype=torch.bool)
    waits[0,2:9] = True
    with torch.no_grad():
        mixer.qkv.weight[64:128] = 0
        mixer.qkv.weight[64:128,0] = -2000
        _, state = mixer.prefill(x[:,:11], None, waits[:,:11])
        y, _ = mixer.step(x[:,11], state)
        assert_close(y[0], mixer(x[:1,~waits[0]])[0,-1])


@pytest.mark.parametrize('name', NAMES)
def test_no_text_at_all(name):
    network, ids = build(name)
    y, state = network.prefill(ids[:0,:5])
    assert y.shape[:2] == (0, 5) and network.step(ids[:0,0], state)[0].shape[0] == 0


@pytest.mark.parametrize('name', NAMES[:7])
def test_a_step_refuses_the_state_of_others(name):
    network, ids = build(name, torch.float32)
    mixer, x_t = network.body.blocks[0].mixer, torch.randn(3, 64)
    other = build('pixels_gmlp_micro_8' if 'gmlp' not in name else NAMES[1])[0].body.blocks[0].mixer
    if type(other.start(1)) is not type(mixer.start(1)):
        with pytest.raises(ValueError, match='state of another network'):
            mixer.step(x_t, other.start(3))
    with pytest.raises(ValueError, match='a step takes one token'):
        mixer.step(x_t[None], mixer.start(3))
    with pytest.raises(ValueError, match='state of another network'):
        network.step(ids[:,0], mixer.start(3))
    _, state = mixer.prefill(torch.randn(2, 4, 64))
    with torch.no_grad(), pytest.raises(ValueError, match='has 2 texts'): mixer.step(x_t, state)
    doubled = map_state(lambda t: t.double() if t.is_floating_point() else t, mixer.start(3))
    with pytest.raises(ValueError, match='dtype=torch.float64'): mixer.step(x_t, doubled)
    mixer.double().step(x_t.double(), doubled)
    mixer.step(x_t.double(), doubled)


@pytest.mark.parametrize('name', ['pixels_attention_micro_8', 'pixels_aft_full_micro_8',
                                  'pixels_gmlp_micro_8', 'pixels_amlp_micro_8'])
def test_caches_do_not_grow_while_all_wait(name):
    network, ids = build(name)
    with torch.no_grad():
        _, state = network.prefill(ids[:,:10])
        wait = torch.ones(3, dtype=torch.bool)
        for _ in range(5): _, state = network.step(ids[:,0], state, wait)
        _, state = network.prefill(ids[:,:20], state, wait[:,None].expand(3, 20))
        sizes = {t.shape[-2] for name, t in named_parts(state) if name.endswith(('keys', 'values',
                                                                                  'normed'))}
        y, _ = network.prefill(ids[:,10:], state)
        assert_close(y, network(ids)[:,10:])
    assert sizes == {10}, sizes


def test_pieces_are_computed_again_where_memory_is_saved():
    network, ids = build('pixels_aft_local_micro_8')
    gradients = []
    for checkpointing in (False, True):
        network.set_grad_checkpointing(checkpointing)
        network.zero_grad()
        read(network, ids, [20, 41])[0].cos().sum().backward()
        gradients.append({name: p.grad for name, p in network.named_parameters()})
    assert_close(*gradients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('name', NAMES[:7])
def test_all_may_wait_before_the_first_token(name):
    network, ids = build(name)
    wait = torch.ones(3, 4, dtype=torch.bool)
    with torch.no_grad():
        _, state = network.prefill(ids[:,:4], None, wait)
        _, state = network.step(ids[:,0], state, wait[:,0])
        state = state_to(state_to(state, torch.float32), network.start(3))
        y, _ = network.prefill(ids, state)
        assert_close(y, network(ids))


@pytest.mark.parametrize('name', NAMES)
def test_a_step_never_reads_what_waits(name):
    "Neither a NaN nor an id that there is not, where a row waits, reaches anything."
    network, ids = build(name)
    block = network.body.blocks[0]
    _, state = network.prefill(ids[:,:5])
    x = torch.randn(3, block.mixer.out.in_features if hasattr(block.mixer, 'out')
                    else block.mixer.fc1.in_features, dtype=torch.float64)
    x[0] = torch.nan
    waits = torch.tensor([True, False, False])
    for part, part_state in ((block, state.blocks[0]), (block.mixer, block.mixer.start(3))):
        y, new = part.step(x, part_state, key_padding_mask=waits)
        gradients = torch.autograd.grad(y[1:].sum(), [*part.parameters()], allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in gradients)
        assert all(t.isfinite().all() for _, t in named_parts(new) if torch.is_tensor(t))
    token = torch.tensor([-100, 1, 2])
    scores, _ = network.step(token, state, waits)
    assert_close(scores[1:], network.step(token.clamp(min=0), state)[0][1:])
    for mask in (torch.zeros(3), torch.zeros(3, 2).bool(), [True, False, False]):
        with pytest.raises(ValueError, match='must be bool of shape'):
            network.step(token, state, mask)


@pytest.mark.parametrize('name', NAMES)
def test_a_step_refuses_states_from_elsewhere(name):
    "On another device, of another kind, or with a count that its cache does not hold."
    network, ids = build(name)
    block = network.body.blocks[0]
    x = torch.randn(3, network.stem.words.embedding_dim, dtype=torch.float64)
    state = block.start(3)
    elsewhere = map_state(lambda t: t.to('meta'), state)
    for part in (elsewhere, block.start(2), [*state], 3, map_state(lambda t: t.float(), state)):
        with pytest.raises(ValueError): block.step(x, part)
        with pytest.raises(ValueError): block.prefill(x[:,None], part)
    for stack in (elsewhere, [*network.body.start(3)], network.body.start(3)[:1]):
        with pytest.raises(ValueError): network.body.step(x, stack)


@pytest.mark.parametrize('name', ['attention', 'aft_full', 'gmlp'])
def test_a_count_that_the_cache_does_not_hold(name):
    network, ids = build(f'pixels_{name}_micro_8')
    mixer = network.body.blocks[0].mixer
    x = torch.randn(3, 3, network.stem.words.embedding_dim, dtype=torch.float64)
    with torch.no_grad():
        _, state = mixer.prefill(x)
        counted = state.gate if name == 'gmlp' else state
        for seen in (40, -2, True, 1.5, torch.ones(3)):
            wrong = counted._replace(seen=seen)
            wrong = state._replace(gate=wrong) if name == 'gmlp' else wrong
            with pytest.raises(ValueError, match='seen'): mixer.prefill(x, wrong)
            if isinstance(seen, int) and seen == 40:
                with pytest.raises(ValueError, match='seen'): mixer.step(x[:,0], wrong)


def test_rows_that_are_not_there():
    network, ids = build('pixels_aft_local_micro_8')
    state = network.start(3)
    for rows in ([3], [-4], torch.tensor([True, False])):
        with pytest.raises(ValueError, match='a state of 3 texts'): select_rows(state, rows)
