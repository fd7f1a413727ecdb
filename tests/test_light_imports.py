"""A light core: mixers need torch alone, and `attnfree.data`, which makes batches, no mixer."""
import subprocess, sys

import pytest

LIGHT = {'attnfree', 'attnfree.errors', 'attnfree.errors.arguments', 'attnfree.errors.files',
         'attnfree.errors.pictures',
         'attnfree.data', 'attnfree.data.images', 'attnfree.data.texts',
         'attnfree.data.sequences', 'attnfree.data.recall', 'attnfree.data.datasets',
         'attnfree.tasks', 'attnfree.tasks.task', 'attnfree.tasks.networks',
         'attnfree.tasks.scores',
         'attnfree.tasks.classes', 'attnfree.tasks.images', 'attnfree.tasks.texts',
         'attnfree.tasks.answers', 'attnfree.tasks.sequences',
         'attnfree.training', 'attnfree.training.folder', 'attnfree.training.loader',
         'attnfree.training.processes',
         'attnfree.text', 'attnfree.text.tokens', 'attnfree.text.corpus',
         'attnfree.text.objectives'}
BATCHES = """
from attnfree.data import create_dls
for task in 'classification','pixels': create_dls('digits', task, bs=8).one_batch()
"""
MIXERS = ('attention', 'ff', 'sgu', 'weighted_mean', 'biased_mean', 'aft', 'less_attention')


def loaded(code, start=''):
    "The modules that `code` loads in a fresh process, beyond those that `start` has loaded."
    lines = start, 'import sys', 'before = {*sys.modules}', code
    script = '\n'.join((*lines, "print('LOADED', *({*sys.modules} - before))"))
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', script],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.split('LOADED')[1].split()}


def ours(modules):
    "Those of some modules that are this package's or timm's."
    return {name for name in modules if name.startswith(('attnfree', 'timm'))}


def test_batches_need_no_mixer_and_no_network():
    found = ours(loaded(BATCHES))
    assert found <= LIGHT and 'attnfree.data.datasets' in found, found - LIGHT


def test_a_mixer_would_be_noticed():
    assert ours(loaded('import attnfree.ff')) - LIGHT >= {'attnfree.ff'}


@pytest.mark.parametrize('name', MIXERS)
def test_mixers_need_torch_alone(name):
    "All that a module of mixers loads, beyond torch and what torch loads, are mixers."
    mixers = {'attnfree', 'attnfree.errors', 'attnfree.errors.arguments', 'attnfree.mixer',
              'attnfree.sequences', 'attnfree.packing'}
    mixers |= {f'attnfree.{mixer}' for mixer in MIXERS}
    mixers |= {f'attnfree.aft.{part}' for part in ('variants', 'conv', 'sparse')}
    mixers |= {'attnfree.less_attention.layer'}
    found = loaded(f'import attnfree.{name}', start='import torch')
    others = {module for module in found - mixers if not module.startswith('torch')}
    assert f'attnfree.{name}' in found and not others, others


def test_texts_need_no_network():
    assert 'attnfree.text.model' not in loaded('from attnfree.text import *\nencode_sentences')
