"Networks that the package does not know: a file of somebody else's, by `--import` in all commands."
import os, subprocess, sys

import pytest

MIXERS = '''"Fourier mixing (Lee-Thorp et al. 2021) for images, and a causal token shift for sequences."
import torch
from torch import nn
from attnfree.families import register
from attnfree.language import text_family
from attnfree.vision import image_family

class Fourier(nn.Module):
    def __init__(self, dim, grid, *, prefix=0, causal=False):
        super().__init__()
        if causal: raise ValueError("Fourier reads all tokens: use causal=False")
        self.out = nn.Linear(dim, dim)
    def forward(self, x): return self.out(torch.fft.fft2(x, dim=(1, 2), norm='ortho').real)

class Shift(nn.Module):
    def __init__(self, dim, grid, *, prefix=0, causal=False):
        super().__init__()
        self.mix = nn.Linear(2*dim, dim)
    def forward(self, x):
        before = torch.cat([torch.zeros_like(x[:,:1]), x[:,:-1]], dim=1)
        return self.mix(torch.cat([x, before], dim=-1))
    def start(self, batch):
        count = torch.zeros(batch, dtype=torch.long)
        return count,self.mix.weight.new_zeros(batch, self.mix.out_features)
    def step(self, x_t, state):
        return self.mix(torch.cat([x_t, state[1]], dim=-1)),(state[0]+1,x_t)

register(image_family('fourier', Fourier))
register(text_family('shift', Shift, causal=True))
'''
COMMANDS = '''import sys
from attnfree.evaluate import attnfree_eval, attnfree_plot
from attnfree.generate import attnfree_generate
from attnfree.sweep import attnfree_sweep
from attnfree.train import attnfree_train
mine = dict(imports=['my_mixers.py'])
attnfree_train(model='fourier_micro_patch2_8', epochs=1, out='images', **mine)
attnfree_train(resume=True, out='images', **mine)
attnfree_eval('images', **mine)
attnfree_plot(['images'])
attnfree_train(data='digits', task='pixels', model='pixels_shift_micro_8', epochs=1,
               set=['train_examples=64', 'valid_examples=16'], out='pixels', **mine)
attnfree_generate('pixels', images=2, **mine)
attnfree_sweep(cases=['model=fourier_micro_patch2_8'], out='sweep', set=['epochs=1'], **mine)
'''
ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', MPLBACKEND='agg', PYTHONWARNINGS='ignore')


def python(folder, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT,
                          capture_output=True, text=True)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    "A folder with the mixers and with what all commands made of them."
    folder = tmp_path_factory.mktemp('mine')
    (folder/'my_mixers.py').write_text(MIXERS)
    done = python(folder, '-c', COMMANDS)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return folder


def test_all_commands_take_the_network(trained):
    for file in ('images/model.safetensors', 'images/influence.png', 'images/eval.csv',
                 'pixels/completed.png', 'sweep/sweep.csv'):
        assert (trained/file).exists(), file


def test_a_run_says_which_file_it_needs(trained):
    "A run's network is never imported by itself: the commands and `load` name the file."
    done = python(trained, '-m', 'attnfree.train', '--resume', '--out', 'images')
    assert done.returncode == 1
    for part in ('fourier_micro_patch2_8', 'my_mixers.py, which is not imported', '--import'):
        assert part in done.stderr, done.stderr
    done = python(trained, '-c', "from attnfree.learner import load; load('images')")
    assert 'import_file(' in done.stderr and 'ValueError' in done.stderr
    load = ("from attnfree.families import import_file; from attnfree.learner import load; "
            "import_file('my_mixers.py'); print(type(load('images')[0].body.blocks[0].mixer))")
    assert 'my_mixers.Fourier' in python(trained, '-c', load).stdout


@pytest.mark.parametrize('text,complaint', [
    ('x = (', "SyntaxError: '(' was never closed"),
    ('x = 1', 'it registers no network'),
    (MIXERS.replace("'fourier'", "'ff'"), "'ff_micro_patch2_8' of the family 'ff' has the name"),
    ('1/0', 'ZeroDivisionError: division by zero (bad.py, line 1)')])
def test_a_bad_file_is_one_line_and_nothing_is_written(tmp_path, text, complaint):
    (tmp_path/'bad.py').write_text(text)
    done = python(tmp_path, '-m', 'attnfree.train', '--import', 'bad.py', '--out', 'run')
    assert done.returncode == 1 and not (tmp_path/'run').exists()
    assert complaint in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
