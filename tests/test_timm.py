"What timm's own tests of models showed, kept for the smallest network of each family."
import pickle
from copy import deepcopy
from functools import partial

import pytest, timm, torch
from safetensors.torch import save_file
from timm.layers import create_feature_extractor
from torch.testing import assert_close
from torchvision.models import feature_extraction

from attnfree.families import fitted_weights
from attnfree.mixer import randomise
from attnfree.vision import model_names

NAMES = [f'attnfree_{name}' for name in model_names() if '_micro_' in name]
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def model(name, **options):
    return randomise(timm.create_model(name, in_chans=3, **options), std=0.1)


def modes(network): return {part.training for part in network.modules()}


EXTRACTORS = dict(timm=create_feature_extractor,
                  torchvision=feature_extraction.create_feature_extractor)


@pytest.mark.parametrize('extractor', EXTRACTORS)
@pytest.mark.parametrize('name', NAMES)
def test_traced_by_fx_it_computes_and_learns_the_same(name, extractor):
    network = model(name, num_classes=5)
    traced = EXTRACTORS[extractor](network, {'readout.head': 'scores'})
    for mode in (False, True):
        network.train(mode), traced.train(mode)
        gradients = []
        for call in (network, lambda x: traced(x)['scores']):
            network.zero_grad(), traced.zero_grad()
            y = call(IMAGES)
            y.square().sum().backward()
            owner = network if call is network else traced
            gradients.append({k: p.grad.clone() for k, p in owner.named_parameters()})
        assert_close(traced(IMAGES)['scores'], network(IMAGES))
        assert_close(gradients[1], {k: gradients[0][k] for k in gradients[1]})
        assert len(gradients[1]) == len(gradients[0])


@pytest.mark.parametrize('name', NAMES)
def test_changing_the_head_changes_neither_mode_nor_features(name):
    network = model(name).eval()
    features = network.forward_head(network.forward_features(IMAGES), pre_logits=True)
    network.reset_classifier(0)
    assert_close(network(IMAGES), features)
    assert modes(network) == {False}
    network.reset_classifier(0, '')
    assert network(IMAGES).shape[:2] == network.forward_features(IMAGES).shape[:2]
    network.prune_intermediate_layers([0], prune_norm=True)
    assert modes(network) == {False}


@pytest.mark.parametrize('pool', ['avg', 'max', '', 'token'])
@pytest.mark.parametrize('name', NAMES)
def test_pools_by_the_names_of_timm(name, pool):
    if pool == 'token' and not timm.create_model(name).num_prefix_tokens:
        with pytest.raises(ValueError, match='class token'):
            timm.create_model(name, global_pool=pool)
        return
    network = model(name, global_pool=pool, num_classes=0).eval()
    tokens = network.forward_features(IMAGES)
    on_grid = tokens[:,network.num_prefix_tokens:]
    pooled = {'avg': on_grid.mean(1), 'max': on_grid.amax(1), '': tokens, 'token': tokens[:,0]}
    assert_close(network(IMAGES), network.readout.pre_logits(pooled[pool]))


# the attention-only control attends over channels too: its width is the number of tokens
@pytest.mark.parametrize('name', [name for name in NAMES if 'attn_only' not in name])
def test_frozen_stays_frozen_at_another_size(name):
    network = model(name).requires_grad_(False).eval()
    network.set_input_size(16)
    assert not any(p.requires_grad for p in network.parameters())
    assert modes(network) == {False}
    network.requires_grad_().set_input_size(8)
    assert all(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize('name', NAMES)
def test_weights_of_other_classes_by_a_file(name, tmp_path):
    "As `pretrained=True` with a file in the configuration: the head stays new, the rest is read."
    source, file = model(name, num_classes=7), tmp_path/'weights.safetensors'
    save_file(source.state_dict(), file)
    network = timm.create_model(name, pretrained=True, num_classes=3, in_chans=3,
                                pretrained_cfg_overlay=dict(file=str(file), num_classes=7))
    state, rest = network.state_dict(), source.state_dict()
    assert network.num_classes == len(state['readout.head.weight']) == 3
    for key in rest:
        if not key.startswith('readout.head'): assert_close(state[key], rest[key], rtol=0, atol=0)


@pytest.mark.parametrize('theirs, ours, ending', [
    ('vit_tiny_patch16_224', 'vit_tiny_patch16_224', 'safetensors'),
    ('gmlp_s16_224', 'gmlp_s16_224_gap', 'pth')])
def test_a_file_of_timm_is_a_checkpoint_path(theirs, ours, ending, tmp_path):
    reference = randomise(timm.create_model(theirs, num_classes=5), std=0.05).eval()
    file = tmp_path/f'model.{ending}'
    if ending == 'pth': torch.save({'state_dict': reference.state_dict(), 'epoch': 3}, file)
    else: save_file(reference.state_dict(), file)
    network = timm.create_model(f'attnfree_{ours}', num_classes=5, checkpoint_path=str(file)).eval()
    image = torch.randn(1, 3, 224, 224)
    with torch.no_grad(): assert_close(network(image), reference(image), atol=1e-4, rtol=1e-4)
    again = pickle.loads(pickle.dumps(deepcopy(network)))
    again.load_state_dict(reference.state_dict())
    with torch.no_grad(): assert_close(again(image), network(image))


@pytest.mark.parametrize('name', ['vit_micro_patch2_8', 'aft_conv_micro_patch2_8', 'lavit_micro_8'])
def test_a_folder_of_timm_keeps_size_and_pool(name, tmp_path):
    pytest.importorskip('timm.models._input', reason='timm before 1.0.31 keeps neither')
    model = timm.create_model(f'attnfree_{name}', pretrained=True, img_size=16).eval()
    if 'vit' in name[:3]: model.reset_classifier(10, 'avg')
    timm.models.save_for_hf(model, tmp_path)
    again = timm.create_model(f'local-dir:{tmp_path}', pretrained=True).eval()
    images = torch.randn(2, 1, 16, 16)
    assert_close(again(images), model(images))
    larger = timm.create_model(f'local-dir:{tmp_path}', pretrained=True, img_size=32).eval()
    model.set_input_size(32)
    images = torch.randn(2, 1, 32, 32)
    assert_close(larger(images), model(images))


def test_weights_with_names_of_timm_for_other_channels_and_classes(tmp_path):
    theirs = timm.create_model('vit_tiny_patch16_224', img_size=32, num_classes=7)
    save_file(theirs.state_dict(), tmp_path/'weights.safetensors')
    own = dict(file=str(tmp_path/'weights.safetensors'), num_classes=7, input_size=(3, 32, 32))
    model = timm.create_model('attnfree_vit_tiny_patch16_224', pretrained=True, img_size=48,
                              in_chans=1, num_classes=2, pretrained_cfg_overlay=own)
    assert model(torch.randn(1, 1, 48, 48)).shape == (1, 2)
    assert_close(model.body.blocks[3].mixer.qkv.weight, theirs.blocks[3].attn.qkv.weight)
    assert_close(model.stem.proj.weight, theirs.patch_embed.proj.weight.sum(dim=1, keepdim=True))


def test_weights_whose_configuration_says_another_size(tmp_path):
    build = partial(timm.create_model, 'attnfree_vit_micro_patch2_8', img_size=16, in_chans=1,
                    num_classes=10)
    source = build()
    save_file(source.state_dict(), tmp_path/'weights.safetensors')
    own = dict(file=str(tmp_path/'weights.safetensors'), input_size=(1, 8, 8), num_classes=10)
    model = build(pretrained=True, pretrained_cfg_overlay=own)
    assert_close(model.state_dict(), source.state_dict())


def test_published_weights_with_another_mean():
    model = timm.create_model('attnfree_vit_micro_patch2_8', pretrained=True, img_size=16,
                              pretrained_cfg_overlay=dict(mean=(0.5,)))
    assert model.pretrained_cfg['mean'] == (0.5,) and model.stem.img_size == (16, 16)
    plain = timm.create_model('attnfree_vit_micro_patch2_8', pretrained=True)
    assert_close(model.body.state_dict(), plain.body.state_dict())


@pytest.mark.parametrize('kind', ['getter', 'hook', 'fx'])
def test_features_by_each_of_timms_ways(kind):
    model = timm.create_model('attnfree_vit_micro_patch2_8', pretrained=True, features_only=True,
                              feature_cls=kind, out_indices=(1, 2)).eval()
    found = model(torch.randn(2, 1, 8, 8))
    assert [len(x) for x in found] == [2, 2]
    if kind != 'getter':
        with pytest.raises(ValueError, match="feature_cls='getter'"):
            timm.create_model('attnfree_vit_micro_patch2_8', pretrained=True, features_only=True,
                              feature_cls=kind, img_size=16)


def test_a_resized_ff_says_how_it_is_loaded(tmp_path):
    source = timm.create_model('attnfree_ff_micro_patch2_8', pretrained=True, img_size=16)
    build = partial(timm.create_model, 'attnfree_ff_micro_patch2_8', img_size=16, in_chans=1)
    with pytest.raises(ValueError, match=r'mixer=dict\(hidden=68\)'):
        fitted_weights(source, build())
    file = tmp_path/'weights.safetensors'
    save_file(source.state_dict(), file)
    with pytest.raises(ValueError, match=r'mixer=dict\(hidden=68\)'):
        build(pretrained=True, pretrained_cfg_overlay=dict(file=str(file)))
    build(mixer=dict(hidden=68), num_classes=10).load_state_dict(source.state_dict())


def test_an_optimiser_made_before_a_resize_trains_all_that_kept_its_shape():
    for name in ('vit_micro_patch2_8', 'aft_conv_micro_patch2_8', 'lavit_micro_8'):
        model = timm.create_model(f'attnfree_{name}')
        held = {id(p) for p in model.parameters()}
        shapes = {name: p.shape for name, p in model.named_parameters()}
        model.set_input_size(16)
        lost = {name for name, p in model.named_parameters() if id(p) not in held}
        assert lost == {name for name, p in model.named_parameters() if p.shape != shapes[name]}
