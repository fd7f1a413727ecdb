"`attnfree.data` makes batches: whoever wants only these loads no mixer, network or picture."
import subprocess, sys

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
NAMES = """
import sys, attnfree.text
assert 'attnfree.text.model' not in sys.modules
from attnfree.text import fine_tune
from attnfree.text import *
from attnfree.text.model import VocabularyReadout as readout
assert VocabularyReadout is readout and CLS and callable(encode_sentences)
assert not hasattr(attnfree.text, 'no_such_name')
"""


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


def test_text_offers_its_networks_when_asked():
    "Names of `attnfree.text.model` belong to `attnfree.text`, and are imported at first use."
    assert 'attnfree.text.model' in loaded(NAMES)
