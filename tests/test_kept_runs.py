"""Runs of earlier versions are loaded, and give what they gave.

From version 0.2.0 on, the format of `config.json` and the keys of a network's state are promises:
what changes them reads the old ones too. `tests/kept/VERSION/` holds small runs of a version, each
with an input and the network's output, and `states.json`, the keys and shapes of the states of all
networks that the board trains. From 0.4.0 on there is a run that was killed in its second epoch,
`killed`, and the weights that the same run ended with where nothing stopped it.
`python tests/test_kept_runs.py` wrote them, with that version.
"""
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import attnfree
from attnfree.training.checkpoint import load_state
from attnfree.evaluate import attnfree_eval
from attnfree.run.imports import import_file
from attnfree.learner import build_model, load
from attnfree.train import attnfree_train

ROOT = Path(__file__).parent.parent
RUNS = Path(__file__).parent/'kept'
KEPT = sorted(file.parent for file in RUNS.glob('*/*/config.json'))
STATES = sorted(RUNS.glob('*/states.json'))
KILLED = sorted(RUNS.glob('*/killed'))
KEPT = [run for run in KEPT if run not in KILLED]
TRAINED = ('gmlp_micro_patch2_8', 'lavit_micro_8', 'pixels_aft_local_micro_8')


def board_states():
    "Keys and shapes of the states of the networks of the board, by name."
    from attnfree.families import NETWORKS
    from attnfree.language import create_model as language_model
    from attnfree.vision import create_model
    import_file(str(ROOT/'results'/'board'/'baselines.py'))
    ends = ('_micro_patch2_8', '_nano_patch4_32', 'lavit_micro_8', 'lavit_nano_32')
    starts = ('lm_', 'pixels_')
    states = {}
    for name in sorted(NETWORKS):
        if name.startswith(starts) and name.endswith(('_mini_256', '_micro_8')):
            model = language_model(name)
        elif name.endswith(ends): model = create_model(name, in_chans=1, num_classes=10)
        else: continue
        states[name] = {key: list(value.shape) for key, value in model.state_dict().items()}
    return states


def test_there_are_kept_runs():
    assert len(KEPT) >= 3 and len(STATES) >= 1


@pytest.mark.parametrize('run', KEPT, ids=lambda run: f'{run.parent.name}-{run.name}')
def test_a_kept_run_gives_what_it_gave(run):
    model, config = load(run)
    example = load_file(run/'example.safetensors')
    with torch.no_grad(): output = model(example['input'])
    torch.testing.assert_close(output, example['output'], rtol=1e-4, atol=1e-4)
    assert config['versions']['attnfree'] == run.parent.name


@pytest.mark.parametrize('run', KEPT, ids=lambda run: f'{run.parent.name}-{run.name}')
def test_its_output_is_that_of_its_weights(run):
    "The stored output would be noticed if it came from other weights."
    config = json.loads((run/'config.json').read_text())
    example = load_file(run/'example.safetensors')
    torch.manual_seed(0)
    with torch.no_grad(): output = build_model(config).eval()(example['input'])
    assert (output - example['output']).abs().max() > 0.1


@pytest.mark.parametrize('file', STATES, ids=lambda file: file.parent.name)
def test_states_have_the_keys_they_had(file):
    kept, now = json.loads(file.read_text()), board_states()
    for name, state in kept.items(): assert now[name] == state, name
    assert len(kept) > 30


@pytest.mark.parametrize('run', KILLED, ids=lambda run: run.parent.name)
def test_a_killed_run_goes_on(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path/'run'))
    expected = load_file(copy/'expected.safetensors')
    (copy/'expected.safetensors').unlink()
    epochs = len((copy/'metrics.csv').read_text().splitlines()) - 1
    assert epochs == 1 and not (copy/'model.safetensors').exists()
    attnfree_train(resume=True, out=str(copy), no_draw=True)
    found = load_file(copy/'model.safetensors')
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3) # another processor rounds
    attnfree_eval(str(copy))
    assert (copy/'eval.csv').exists()


def killed(folder):
    "Keep a run that was killed in its second epoch, and the weights of the same run that was not."
    fields = ('model=gmlp_micro_patch2_8', 'epochs=2', 'warmup_epochs=0.5', 'ema=0.9', 'mixup=0.2',
              'accumulate=2', 'drop_path=0.1', 'threads=1', 'clip=1')
    command = [sys.executable, '-m', 'attnfree.train', '--data', 'digits', '--every', '5',
               '--no_draw', *(part for field in fields for part in ('--set', field))]
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([*command, '--out', f'{out}/whole'], check=True)
        run = Path(out)/'run'
        training = subprocess.Popen([*command, '--out', str(run)])
        while training.poll() is None and not _in_second_epoch(run): time.sleep(0.02)
        training.send_signal(signal.SIGKILL)
        training.wait()
        assert _in_second_epoch(run) and not (run/'model.safetensors').exists()
        folder.mkdir(parents=True)
        for name in ('config.json', 'metrics.csv', 'checkpoint.safetensors'):
            shutil.copy(run/name, folder/name)
        shutil.copy(f'{out}/whole/model.safetensors', folder/'expected.safetensors')


def _in_second_epoch(run):
    try: epoch, batch = load_state(run/'checkpoint.safetensors')['position']
    except (OSError, ValueError, RuntimeError): return False # one file takes the place of another
    return epoch == 1 and batch > 0


def make(folder=RUNS/attnfree.__version__):
    "Train and keep the runs, and the keys of all states."
    from attnfree.run.sweep import keep_weights
    killed(folder/'killed')
    for name in TRAINED:
        task = ['task=pixels'] if name.startswith('pixels') else []
        with tempfile.TemporaryDirectory() as out:
            attnfree_train(data='digits', model=name, epochs=2, out=f'{out}/run', no_draw=True,
                           task='pixels' if task else None, set=['warmup_epochs=1'])
            keep_weights(f'{out}/run', folder/name)
        model, _ = load(folder/name)
        torch.manual_seed(1)
        given = torch.randint(17, (2, 64)) if task else torch.rand(2, 1, 8, 8)
        with torch.no_grad(): output = model(given)
        save_file(dict(input=given, output=output), folder/name/'example.safetensors')
    (folder/'states.json').write_text(json.dumps(board_states(), indent=None) + '\n')


if __name__ == '__main__': make()
