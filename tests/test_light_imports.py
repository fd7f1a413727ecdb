"""A light core: mixers need torch alone, and `attnfree.data`, which makes batches, no mixer."""
import subprocess, sys

import pytest

LIGHT = {'attnfree', 'attnfree.data', 'attnfree.data.images', 'attnfree.data.texts',
         'attnfree.data.sequences', 'attnfree.data.datasets', 'attnfree.tasks',
         'attnfree.evaluation', 'attnfree.loader', 'attnfree.processes', 'attnfree.text',
         'attnfree.text.tokens', 'attnfree.text.corpus', 'attnfree.text.objectives'}
PRINTED = """
import sys
print('LOADED', *(name for name in sys.modules if name.startswith(('attnfree', 'timm'))))
"""
BATCHES = """
from attnfree.data import create_dls
for task in 'classification','pixels': create_dls('digits', task, bs=8).one_batch()
"""
MIXERS = ('attention', 'ff', 'sgu', 'weighted_mean', 'biased_mean', 'aft', 'less_attention')


def loaded(code):
    "Our modules, and timm's, that are loaded after `code` has run in a fresh process."
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code + PRINTED],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.split('LOADED')[1].split()}


def test_batches_need_no_mixer_and_no_network():
    found = loaded(BATCHES)
    assert found <= LIGHT and 'attnfree.data.datasets' in found, found - LIGHT


def test_a_mixer_would_be_noticed(): assert loaded('import attnfree.ff') - LIGHT >= {'attnfree.ff'}


@pytest.mark.parametrize('name', MIXERS)
def test_mixers_need_torch_alone(name):
    "All that a module of mixers loads, beyond torch and what torch loads, are mixers."
    code = f"""
import sys, torch
before = {{*sys.modules}}
import attnfree.{name}
print('LOADED', *({{*sys.modules}} - before))
sys.exit()
"""
    found = {module for module in loaded(code) if not module.startswith('torch')}
    ours = {'attnfree', 'attnfree.mixer'} | {f'attnfree.{mixer}' for mixer in MIXERS}
    ours |= {f'attnfree.aft.{part}' for part in ('variants', 'conv', 'sparse')}
    assert found <= ours | {'attnfree.less_attention.layer'}, found


def test_texts_need_no_network():
    assert 'attnfree.text.model' not in loaded('from attnfree.text import *\nencode_sentences')
