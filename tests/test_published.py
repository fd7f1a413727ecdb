"""The weights that come with the package: each does what its card says, offline, by every way in.

Which networks they are, their files and checksums: models/00_families; their cards: run/12_cards.
"""
import json, logging, os, shutil

import pytest, timm, torch
from torch.testing import assert_close

import attnfree.language, attnfree.vision
from attnfree import families, learner
from attnfree.evaluate import attnfree_eval, attnfree_plot, attnfree_predict
from attnfree.families import WEIGHTS, published_names
from attnfree.generate import attnfree_generate
from attnfree.hub import attnfree_hub
from attnfree.learner import load
from attnfree.run import plan_evaluation
from attnfree.run.cards import model_card
from attnfree.train import attnfree_train

NAMES = published_names()
IMAGES = [name for name in NAMES if not name.startswith('lm_')]
needs_data = {'cifar10', 'enwik8'}


def about(name): return json.loads((WEIGHTS/name/'config.json').read_text())['published']


def test_all_that_were_promised_are_there():
    tags = [name.partition('.')[2] for name in NAMES]
    assert (tags.count('digits'), tags.count('cifar10'), tags.count('enwik8')) == (10, 5, 3)
    assert sum(file.stat().st_size for file in WEIGHTS.rglob('*') if file.is_file()) < 18e6


@pytest.mark.parametrize('name', NAMES)
def test_evaluated_it_has_the_figure_of_its_card(name):
    card, tag = about(name), name.partition('.')[2]
    if tag in needs_data and 'ATTNFREE_DATA' not in os.environ: pytest.skip('no data')
    plan = plan_evaluation(name, bs=100)
    assert len(plan.loader.dataset) == card['examples']
    table = plan.dls.task.evaluate(plan.model, plan.dls, plan.loader,
                                   settings=plan.settings).table
    found = float(table.iloc[-1][card['metric']])
    other = 1/card['examples'] if card['metric'] == 'accuracy' else 2e-4  # an image that is close
    assert abs(found - card['value']) <= 1.01*other + 5e-5
    assert f"{card['value']}" in model_card(name)


@pytest.mark.parametrize('name', NAMES)
def test_its_card_is_the_one_in_its_folder(name):
    assert (WEIGHTS/name/'README.md').read_text() == model_card(name)


@pytest.mark.parametrize('name', IMAGES)
def test_timm_builds_the_same_network(name):
    ours, config = load(name)
    theirs = timm.create_model(f'attnfree_{name}', pretrained=True).eval()
    by_name = timm.create_model(f"attnfree_{name.partition('.')[0]}", pretrained=True).eval()
    x = torch.randn(2, *theirs.pretrained_cfg['input_size'])
    with torch.no_grad():
        assert_close(theirs(x), ours(x), rtol=0, atol=0)
        assert_close(by_name(x), ours(x), rtol=0, atol=0)
    settings = theirs.pretrained_cfg
    assert settings['tag'] == about(name)['tag'] and settings['num_classes'] == 10
    assert settings['mean'] == tuple(config['data']['mean'])
    assert str(about(name)['value']) in settings['description']
    assert f'attnfree_{name}' in timm.list_models('attnfree_*', pretrained=True)


def test_timm_lists_no_others():
    assert timm.list_models('attnfree_*', pretrained=True) == sorted(
        f'attnfree_{name}' for name in IMAGES)
    with pytest.raises(ValueError, match="'vit_tiny_patch16_224' has no published weights"):
        timm.create_model('attnfree_vit_tiny_patch16_224', pretrained=True)


@pytest.mark.parametrize('name', ['ff_micro_patch2_8', 'aft_full_micro_patch2_8', 'lavit_micro_8'])
def test_another_size_other_channels_other_classes(name, caplog):
    with caplog.at_level(logging.WARNING, 'attnfree'):
        network = timm.create_model(f'attnfree_{name}', pretrained=True, img_size=16, in_chans=5,
                                    num_classes=3)
    assert network(torch.randn(1, 5, 16, 16)).shape == (1, 3)
    said, = caplog.messages
    assert all(part in said for part in ('16 x 16', '5 channels', 'fresh head for 3 classes'))
    plain, again = load(name)[0], timm.create_model(f'attnfree_{name}', pretrained=True, in_chans=5)
    x = torch.randn(1, 1, 8, 8)
    with torch.no_grad():
        assert_close(again.eval()(x.expand(-1, 5, -1, -1)), plain(x), atol=1e-4, rtol=1e-4)


def test_features_of_a_trained_network():
    features = timm.create_model('attnfree_lavit_micro_8', pretrained=True, features_only=True)
    plain = load('lavit_micro_8')[0]
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        assert_close(features.eval()(x)[-1], plain.forward_intermediates(x)[1][-1])


def test_a_changed_file_and_another_format_are_refused(tmp_path, monkeypatch):
    shutil.copytree(WEIGHTS/'ff_micro_patch2_8.digits', tmp_path/'ff_micro_patch2_8.digits')
    folder = tmp_path/'ff_micro_patch2_8.digits'
    monkeypatch.setattr(families, 'WEIGHTS', tmp_path)
    other = (WEIGHTS/'vit_micro_patch2_8.digits'/'model.safetensors').read_bytes()
    (folder/'model.safetensors').write_bytes(other)
    monkeypatch.setattr(learner, 'WEIGHTS', tmp_path)
    for build in (lambda: timm.create_model('attnfree_ff_micro_patch2_8', pretrained=True),
                  lambda: load('ff_micro_patch2_8')):
        with pytest.raises(ValueError, match='not those that were published'): build()
    config = json.loads((folder/'config.json').read_text())
    del config['checksum']
    (folder/'config.json').write_text(json.dumps(config | dict(format=1)))
    with pytest.raises(ValueError, match='format 1'): load(str(folder))


def test_commands_take_the_name(tmp_path, monkeypatch, capsys):
    from PIL import Image
    from sklearn.datasets import load_digits
    monkeypatch.chdir(tmp_path)
    digits = load_digits()
    Image.fromarray((digits.images[1500]*255/16).round().astype('uint8')).save('digit.png')
    attnfree_predict('aft_conv_micro_patch2_8', ['digit.png'])
    first = capsys.readouterr().out.splitlines()[1].split()
    assert first[0] == str(digits.target[1500]) and float(first[1][:-1]) > 50
    assert (tmp_path/'aft_conv_micro_patch2_8.digits'/'predictions'/'digit.png').exists()
    attnfree_plot(['aft_conv_micro_patch2_8', 'vit_micro_patch2_8.digits'])
    assert (tmp_path/'curves.png').exists()
    attnfree_eval('aft_conv_micro_patch2_8')
    assert f"accuracy {about('aft_conv_micro_patch2_8.digits')['value']:.2%}"[:-2] in (
        capsys.readouterr().out)
    assert (tmp_path/'aft_conv_micro_patch2_8.digits'/'eval.csv').exists()
    attnfree_generate('lm_gmlp_mini_256', prompt='The United State', tokens=20, temperature=0)
    assert capsys.readouterr().out.startswith('The United States')
    attnfree_hub('lavit_micro_8', 'hub')
    assert timm.create_model(f'local-dir:{tmp_path}/hub', pretrained=True).num_classes == 10
    with pytest.raises(SystemExit, match='has no published weights. These have'):
        attnfree_predict('vit_tiny_patch16_224', ['digit.png'])


@pytest.mark.parametrize('start, options, says', [
    ('aft_conv_micro_patch2_8', dict(data='digits'), 'except for a new head'),
    ('lm_gmlp_mini_256', dict(data='text', task='lm', path='story.txt'), 'lm_gmlp_mini_256')])
def test_a_training_begins_with_it(start, options, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path/'story.txt').write_text(400*'ten green bottles hanging on the wall, ')
    attnfree_train(start=start, epochs=1, out='run', no_draw=True,
                   set=['bs=16', 'warmup_epochs=0'], **options)
    out = capsys.readouterr().out
    assert f'starts from the weights of {start}' in out and says in out
    assert json.loads((tmp_path/'run/config.json').read_text())['source']['start'] == start
