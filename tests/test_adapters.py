"""What takes the place of a layer, or changes it when it is called, acts everywhere.

The smallest network of each family, and one that less attention was put into, are read in every
way that they have: whole, shorter, with padding, packed, in steps and in pieces.
"""
from copy import deepcopy
from functools import cache

import accelerate, pytest, timm, torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import prune
from torch.testing import assert_close

from attnfree import language, vision
from attnfree.less_attention.plugin import with_less_attention
from attnfree.mixer import randomise
from attnfree.run.generation import generate

IMAGES = [name for name in vision.model_names() if '_micro_' in name]
TEXTS = [name for name in language.model_names() if name.endswith('_micro_8')]
TEXTS += [name for name in language.model_names()
          if name.startswith('mlm_') and '_mini_' in name]
CONVERTED = 'timm ViT'
NAMES = IMAGES + TEXTS + [CONVERTED]
LAYERS = nn.Linear | nn.Embedding | nn.Conv2d


def fresh(name):
    "The network, without values where it is built on the device meta."
    if name == CONVERTED:
        vit = timm.create_model('vit_tiny_patch16_224', depth=3, embed_dim=32, num_heads=2,
                                img_size=32, num_classes=5)
        return with_less_attention(vit, 1)
    if name in IMAGES: return vision.create_model(name, in_chans=3, pretrained=False)
    network = language.create_model(name, **({} if name.startswith('pixels') else
                                             dict(vocab_size=50)))
    network.body.blocks = network.body.blocks[:2]
    return network


@cache
def _network(name): return randomise(fresh(name), std=0.05).eval()


def network(name): return deepcopy(_network(name))


def steps(net, ids):
    state, scores = net.start(len(ids)), []
    for token in ids.unbind(1):
        y, state = net.step(token, state)
        scores.append(y)
    return torch.stack(scores, dim=1)


def pieces(net, ids):
    first, state = net.prefill(ids[:, :5])
    return torch.cat([first, net.prefill(ids[:, 5:], state)[0]], dim=1)


def calls(name):
    "The ways in which a network can be called, by name."
    seeded = torch.Generator().manual_seed(0)
    if name not in TEXTS:
        images = torch.randn(2, 3, *[32 if name == CONVERTED else 8]*2, generator=seeded)
        return dict(whole=lambda net: net(images.to(next(net.parameters()).dtype)))
    net = _network(name)
    ids = torch.randint(1, net.num_classes, (2, net.stem.grid[0]), generator=seeded)
    short, borders = ids[:, :12], torch.tensor([0, 7, 12], dtype=torch.int32)
    padding = torch.arange(12) >= torch.tensor([[12], [9]])
    found = dict(
        whole=lambda net: net(ids), shorter=lambda net: net(short),
        padded=lambda net: net(short, key_padding_mask=padding).masked_fill(padding[..., None], 0),
        packed=lambda net: net(short[:1], cu_seqlens=borders))
    if hasattr(net, 'step'):
        found |= dict(steps=lambda net: steps(net, short), pieces=lambda net: pieces(net, short))
    return found


def layers(net, kinds=LAYERS):
    return {path: layer for path, layer in net.named_modules() if isinstance(layer, kinds)}


@torch.no_grad()
def same(name, found, expected, **tolerance):
    "Both networks give the same in every way."
    for way, call in calls(name).items():
        assert_close(call(found), call(expected), msg=lambda text: f'{way}: {text}', **tolerance)


@pytest.mark.parametrize('name', NAMES)
def test_every_layer_is_called(name):
    net, count = network(name), {}
    for path, layer in layers(net).items():
        def seen(layer, given, made, path=path): count[path] = count.get(path, 0) + 1
        layer.register_forward_hook(seen)
    optional = {'stem.segments'} if name in TEXTS else set()
    for way, call in calls(name).items():
        count.clear()
        call(net)
        assert set(layers(net)) - set(count) <= optional, way


class LowRank(nn.Module):
    "A layer and a product of two narrow ones, with none of the layer's attributes."
    def __init__(self, layer):
        super().__init__()
        self.inner = layer
        self.down, self.up = (nn.Parameter(torch.randn(size, 2)/size**0.5)
                              for size in reversed(layer.weight.shape))

    def forward(self, x):
        if isinstance(self.inner, nn.Embedding): return self.inner(x) + self.up[x] @ self.down.T
        return self.inner(x) + x @ self.down @ self.up.T


@pytest.mark.parametrize('name', NAMES)
def test_adapters(name):
    "Each layer with an adapter gives what it gives with the sum of both weights."
    torch.manual_seed(0)
    adapted, merged = network(name).double(), network(name).double()
    expected = layers(merged, nn.Linear | nn.Embedding)
    for path, layer in layers(adapted, nn.Linear | nn.Embedding).items():
        adapter = LowRank(layer).double()
        adapted.set_submodule(path, adapter)
        expected[path].weight.data += adapter.up.data @ adapter.down.data.T
    same(name, adapted, merged)
    assert not torch.allclose(calls(name)['whole'](adapted),
                              calls(name)['whole'](network(name).double()))
    trained = [p for path, p in adapted.named_parameters() if path.endswith(('.down', '.up'))]
    optimizer = torch.optim.SGD(trained, lr=1e-3)
    calls(name)['whole'](adapted).square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in trained)
    optimizer.step()


@pytest.mark.parametrize('name', NAMES)
def test_int8(name):
    net = network(name)
    small = quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    assert not layers(small, nn.Linear)
    with torch.no_grad():
        for way, call in calls(name).items():
            expected, found = call(net), call(small)
            assert (found - expected).std() < 0.1*expected.std(), way
    if hasattr(net, 'step'): assert len([*generate(small, torch.ones(1, 3).long(), 2, seed=0)]) == 2


@pytest.mark.parametrize('name', NAMES)
def test_pruning(name):
    net = network(name).train()
    for layer in layers(net).values(): prune.l1_unstructured(layer, 'weight', 0.3)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        calls(name)['whole'](net).square().mean().backward()
        optimizer.step()
    masked = network(name)
    weights = {path.replace('weight_orig', 'weight'): value
               for path, value in net.state_dict().items() if not path.endswith('weight_mask')}
    for path, layer in layers(net).items():
        weights[f'{path}.weight'] = layer.weight_orig*layer.weight_mask
    masked.load_state_dict(weights)
    same(name, net.eval(), masked, rtol=0, atol=0)


@pytest.mark.parametrize('name', NAMES)
def test_offloaded(name):
    net = network(name)
    accelerate.cpu_offload(net, execution_device=torch.device('cpu'))
    with torch.no_grad():
        for way, call in calls(name).items():
            if way in ('steps', 'pieces'):
                with pytest.raises(ValueError, match='without values.*reads whole texts'): call(net)
            else: assert_close(call(net), call(_network(name)), rtol=0, atol=0)


@pytest.mark.parametrize('name', NAMES)
def test_built_without_values_then_given_weights(name):
    with torch.device('meta'): net = fresh(name)
    net.load_state_dict(_network(name).state_dict(), assign=True)
    same(name, net.eval(), _network(name), rtol=0, atol=0)


@pytest.mark.parametrize('name, size', [('ff_micro_patch2_8', 16), ('mlm_bert_mini_128', 256)])
def test_what_cannot_be_carried_over_to_another_size_is_refused(name, size):
    net, whole = network(name), list(calls(name).values())[0]
    for path, layer in layers(net, nn.Linear | nn.Embedding).items():
        net.set_submodule(path, LowRank(layer))
    expected = whole(net)
    with pytest.raises(ValueError, match='LowRank and more than its weights'):
        net.set_input_size(size)
    assert_close(whole(net), expected, rtol=0, atol=0)


def test_layers_with_adapters_are_not_converted():
    vit = timm.create_model('vit_tiny_patch16_224', depth=2)
    vit.blocks[1].attn.qkv = LowRank(vit.blocks[1].attn.qkv)
    with pytest.raises(ValueError, match='qkv is LowRank and more than its weights'):
        with_less_attention(vit, 1)
