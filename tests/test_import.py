"What a stranger's file brings: networks, tasks and data sets, by `--import` in all commands."
import os, signal, subprocess, sys, time
from pathlib import Path

import numpy as np, pandas as pd, pytest
from PIL import Image
from sklearn.datasets import load_digits

from running import end, finish, killed_at, log, result, start
from attnfree.learner import load

EXAMPLES = Path(__file__).parents[1]/'examples'
ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', MPLBACKEND='agg', PYTHONWARNINGS='ignore',
                                COLUMNS='200')
COMMANDS = '''import sys
from attnfree.evaluate import attnfree_eval, attnfree_plot, attnfree_predict
from attnfree.export import attnfree_export
from attnfree.generate import attnfree_generate
from attnfree.sweep import attnfree_sweep
from attnfree.train import attnfree_train
mixers, kernels, lit, tables = (dict(imports=[f'{name}.py']) for name in
                                ('mixers', 'kernels', 'lit', 'tables'))
short = ['train_examples=128', 'valid_examples=32', 'warmup_epochs=0']

attnfree_train(model='fourier_micro_patch2_8', epochs=1, set=short, out='images', **mixers)
attnfree_eval('images', **mixers)
attnfree_predict('images', ['digit.png'], **mixers)
attnfree_plot(['images'])
attnfree_export('images', out='images.onnx', **mixers)
attnfree_train(data='text', task='lm', path='song.txt', model='lm_shift_mini_256', out='bytes',
               no_draw=True, set=['size=32', 'bs=8', 'steps=20', 'warmup_steps=2'], **mixers)
attnfree_generate('bytes', tokens=20, seed=1, **mixers)
attnfree_train(data='digits', task='pixels', model='pixels_shift_micro_8', epochs=1, set=short,
               out='pixels', no_draw=True, **mixers)
attnfree_generate('pixels', images=2, **mixers)
attnfree_sweep(cases=['lr=1e-3', 'lr=3e-3'], out='sweep', **mixers,
               set=short[:2] + ['epochs=1', 'warmup_epochs=0', 'model=fourier_micro_patch2_8'])

attnfree_train(model='kernels_micro_patch2_8', epochs=1, set=short, out='kernels', **kernels)

attnfree_train(data='digits', task='lit', out='lit', **lit)
attnfree_train(resume=True, out='lit', **lit)
attnfree_train(recipe='lit.toml', epochs=1, set=short, out='lit_file', **lit)
attnfree_eval('lit', **lit)
attnfree_predict('lit', ['digit.png'], **lit)
attnfree_plot(['lit'], out='lit.png')

for name, path in dict(folders='pictures', table='table.csv').items():
    attnfree_train(recipe='digits', set=[f'data={name}', 'bs=16'], path=path, epochs=2, out=name,
                   no_draw=True, **tables)
    attnfree_eval(name, **tables)

attnfree_train(model='timm:deit_tiny_patch16_224', epochs=1, set=short + ['size=32'], out='deit')
attnfree_train(resume=True, out='deit')
attnfree_train(model='timm:resnet10t', epochs=1, set=short + ['size=32'], out='resnet')
attnfree_train(model='timm:deit_tiny_distilled_patch16_224', epochs=1, set=short + ['size=32'],
               out='two', no_draw=True)
attnfree_eval('deit'), attnfree_eval('resnet')
attnfree_predict('deit', ['digit.png']), attnfree_predict('resnet', ['digit.png'])
attnfree_plot(['deit', 'resnet', 'images'], out='baselines.png')
'''


def python(folder, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT,
                          capture_output=True, text=True)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    "A folder with the examples and with what all commands made of them, and what these said."
    folder = tmp_path_factory.mktemp('mine')
    for file in EXAMPLES.iterdir():
        if file.is_file(): (folder/file.name).write_bytes(file.read_bytes())
    digits = load_digits()
    images = (digits.images*255/16).astype('uint8')
    Image.fromarray(images[7]).save(folder/'digit.png')
    rows = [','.join(map(str, [label, *image.ravel()])) for image, label
            in zip(images[:200], digits.target)]
    (folder/'table.csv').write_text('\n'.join(rows))
    for i in range(60):
        class_folder = folder/'pictures'/('even' if digits.target[i] % 2 == 0 else 'odd')
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i]).save(class_folder/f'{i}.png')
    (folder/'song.txt').write_text(''.join(f'{i} green bottles\n' for i in range(100)))
    done = python(folder, '-c', COMMANDS)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    (folder/'said').write_text(done.stdout)
    return folder


def test_all_commands_take_a_network(trained):
    for file in ('images/model.safetensors', 'images/influence.png', 'images/eval.csv',
                 'images/predictions/digit.png', 'bytes/model.safetensors', 'pixels/completed.png',
                 'sweep/sweep.csv', 'kernels/kernels.png', 'curves.png'):
        assert (trained/file).exists(), file


def test_a_task_is_trained_evaluated_and_drawn(trained):
    "A regression on the images of another task: it learns, and is evaluated by its own metric."
    metrics = pd.read_csv(trained/'lit/metrics.csv')
    lit = (load_digits().images > 0).mean(axis=(1, 2))
    guess = abs(lit - lit.mean()).mean()  # 0.039: the same answer for all images
    assert metrics.mean_error.iloc[-1] < 0.75*guess, metrics
    row = pd.read_csv(trained/'lit/eval.csv').iloc[0]
    assert abs(row.mean_error - metrics.mean_error.iloc[-1]) < 1e-4 and row.examples == 360
    for file in ('lit/influence.png', 'lit/kernels.png', 'lit/predictions/digit.png',
                 'lit.png', 'lit_file/spatial_weights.png'): assert (trained/file).exists(), file
    assert '    lit ' in (trained/'said').read_text()


def test_data_sets_are_trained_and_evaluated(trained):
    for name, classes, images in ('folders', 2, 12), ('table', 10, 40):
        table = pd.read_csv(trained/name/'eval.csv')
        assert (len(table), table.images.iloc[-1]) == (classes + 1, images)


def test_networks_of_timm_are_baselines(trained):
    said = (trained/'said').read_text()
    assert 'timm:resnet10t goes without img_size, pictures of its mixers' in said
    assert 'timm:deit_tiny_patch16_224 goes without pictures of its mixers' in said
    for name in 'deit', 'resnet':
        assert (trained/name/'predictions/digit.png').exists()
        assert pd.read_csv(trained/name/'eval.csv').images.iloc[-1] == 360
        pictures = sorted(file.name for file in (trained/name).glob('*.png'))
        assert pictures == ['confusion.png', 'curves.png']


OWN = dict(imports=[str(EXAMPLES/'mixers.py')], model='fourier_micro_patch2_8')


def test_a_task_that_changed_is_noticed(trained):
    "A run is neither evaluated nor resumed by a task that asks for another network."
    (trained/'two_scores.py').write_text(LIT + 'Lit.outputs = lambda self, classes: 2\n')
    mine = dict(imports=[str(trained/'two_scores.py')])
    assert end(start(trained/'lit', resume=True, **mine)) == 1
    assert 'its task and data now ask for' in log(trained/'lit')
    done = python(trained, '-c', "from attnfree.evaluate import attnfree_eval; "
                                 "attnfree_eval('lit', imports=['two_scores.py'])")
    assert done.returncode == 1, done.stderr
    assert "num_classes=1, task='lit' needs 2" in done.stderr, done.stderr


def test_a_picture_that_fails_costs_no_training(tmp_path):
    (tmp_path/'bad.py').write_text(LIT + 'Lit.pictures = lambda self, model, dls: 1/0\n')
    done = python(tmp_path, '-m', 'attnfree.train', '--import', 'bad.py', '--data', 'digits',
                  '--task', 'lit', '--epochs', '1', '--out', 'run')
    assert done.returncode == 0 and (tmp_path/'run/model.safetensors').exists(), done.stderr
    assert 'The pictures could not be drawn: ZeroDivisionError' in done.stdout


def test_a_killed_training_goes_on_to_the_last_bit(tmp_path):
    "SIGKILL in the middle, for a mixer that the package does not know; the result is the same."
    whole, killed = tmp_path/'whole', tmp_path/'killed'
    assert end(start(whole, epochs=3, every=4, **OWN)) == 0, log(whole)
    process = start(killed, epochs=3, every=4, prepare=killed_at(30), **OWN)
    assert end(process) == -signal.SIGKILL, log(killed)
    assert not (killed/'model.safetensors').exists()
    finish(killed, every=4, imports=OWN['imports'])
    assert result(whole) == result(killed)


def test_who_stops_is_told_to_import_again(tmp_path):
    run = tmp_path/'run'
    process = start(run, epochs=3, every=2, prepare=killed_at(30, how=signal.SIGINT), **OWN)
    assert end(process) == 130, log(run)
    assert f"--resume --out {run} --every 2 --import {OWN['imports'][0]}" in log(run)


def test_a_run_says_which_file_it_needs(trained):
    "A run's network or task is never imported by itself: the commands and `load` name the file."
    for run, what, file in (('images', "network 'fourier_micro_patch2_8'", 'mixers.py'),
                            ('lit', "task 'lit'", 'lit.py')):
        assert end(start(trained/run, resume=True)) == 1
        for part in (what, f'{file}, which is not imported', '--import'):
            assert part in log(trained/run), log(trained/run)
        with pytest.raises(ValueError, match='import_file'): load(trained/run)
    code = ("from attnfree.run.imports import import_file; from attnfree.learner import load; "
            "import_file('mixers.py'); print(type(load('images')[0].body.blocks[0].mixer))")
    assert 'mixers.Fourier' in python(trained, '-c', code).stdout


MIXERS, LIT, TABLES = ((EXAMPLES/name).read_text() for name in ('mixers.py', 'lit.py', 'tables.py'))
KERNELS = (EXAMPLES/'kernels.py').read_text()
LOSS = "lambda scores, share: F.mse_loss(scores[:,0], share)"


@pytest.mark.parametrize('text,options,complaint', [
    ('x = (', '', "SyntaxError: '(' was never closed"),
    ('x = 1', '', 'it registers nothing'),
    ('1/0', '', 'ZeroDivisionError: division by zero (bad.py, line 1)'),
    (MIXERS.replace("'fourier'", "'ff'"), '',
     "'ff_micro_patch2_8' of the family 'ff' has the same name"),
    (MIXERS + "register(image_family('fourier', Fourier))\n", '',
     "has the same name as one of 'fourier'"),
    (MIXERS.replace("x, dim=(1, 2)", "x, dim=(0, 2)"), '',
     "the mixer of the family 'fourier' fails check_mixer, which tries shape, gradients, "
     "independence of examples"),
    (MIXERS.replace("(0, 0, 1, -1)", "(0, 0, -1, 1)"), '', "the mixer of the family 'shift' fails"),
    (KERNELS.replace('self.kernels.detach()', 'self.kernels[:,:2].detach()'), '',
     "the mixer of the family 'kernels' fails"),
    (LIT.replace("'lit', (", "'pixels', ("), '', "the task 'pixels' is already registered"),
    (LIT.replace(LOSS, "lambda scores, share: (scores[:,0] - share)"), '--data digits --task lit',
     'its loss must be a tensor with a single number, and is shape (2,)'),
    (LIT.replace(LOSS, "lambda scores, share: 0.5"), '--data digits --task lit',
     'its loss must be a tensor with a single number, and is float'),
    (LIT.replace("scores[:,0], share)", "scores, share)"), '--data digits --task lit',
     "its loss cannot take scores of shape (2, 1) and targets of shape (2,)"),
    (LIT.replace("return (np.asarray(example.image) > 0).mean()", "return example.weight"),
     '--data digits --task lit', "no example can be made of data='digits': AttributeError"),
    (LIT.replace("mean_error.higher_is_better = False", ""), '--data digits --task lit',
     'does not say whether more of it is better'),
    (LIT.replace("> 0).mean()", "> 0).mean()*float('nan')"), '--data digits --task lit',
     'its loss is nan for two examples'),
    (LIT.replace(LOSS, LOSS + '.detach()'), '--data digits --task lit', 'its loss has no gradient'),
    (LIT.replace("(scores[:,0] - share).abs()", "(scores[:,3] - share).abs()"),
     '--data digits --task lit', 'its metrics cannot take scores of shape (2, 1)'),
    (LIT.replace("return 'mean_error'", "return 'nope'"), '--data digits --task lit',
     "monitor='nope' is not among the metrics: valid_loss, mean_error"),
    (LIT + "Lit.outputs = lambda self, classes: 0\n", '--data digits --task lit',
     'outputs=0 must be a whole number from 1'),
    ('import sys; sys.exit()', '', 'SystemExit:  (bad.py, line 1)'),
    (LIT, '--data cifar10 --task lit',
     "task='lit' is none of data='cifar10', which has classification"),
    (LIT, '--data digits --task lit --set mixup=0.2', 'mixup=0.2 is for images with a class'),
    (LIT, '--data digits --task lit --model mlm_gmlp_mini_128', 'is a network for texts'),
    (LIT, '--data digits --task lti', "task='lti' is unknown. Nearest: lit"),
    (LIT, '--recipe bad.toml', "bad.toml': lr='fast' must be a number from 1e-12"),
    (TABLES.replace("DataSet('table'", "DataSet('digits'"), '',
     "the data set 'digits' is already registered"),
    (TABLES.replace("'table', ('classification',)", "'table', ('lm',)"), '',
     'no function reads it so'),
    (TABLES.replace("classes)\n\nregister", "None)\n\nregister"),
     '--recipe digits --set data=table --path t.csv',
     "task='classification' needs classes, and these images have none")])
def test_a_bad_file_is_one_line_and_nothing_is_written(tmp_path, text, options, complaint):
    (tmp_path/'bad.py').write_text(text)
    (tmp_path/'bad.toml').write_text('task = "lit"\nlr = "fast"\n')
    np.savetxt(tmp_path/'t.csv', np.arange(200*17).reshape(200, 17) % 7, delimiter=',', fmt='%d')
    words = options.split()
    given = dict(zip((word.removeprefix('--') for word in words[::2]), words[1::2]))
    if 'set' in given: given['set'] = [given['set']]
    given = {name: str(tmp_path/value) if str(value).startswith(('bad.', 't.')) else value
             for name, value in given.items()}
    process = start(tmp_path/'run', imports=[str(tmp_path/'bad.py')], **given)
    assert end(process) == 1 and not (tmp_path/'run').exists(), log(tmp_path/'run')
    said = log(tmp_path/'run').strip()
    assert complaint in said and len(said.splitlines()) == 1, said


def test_a_bad_file_is_one_line_from_the_shell_too(tmp_path):
    (tmp_path/'bad.py').write_text('1/0')
    done = python(tmp_path, '-m', 'attnfree.train', '--import', 'bad.py', '--out', 'run')
    assert done.returncode == 1 and not (tmp_path/'run').exists()
    assert 'ZeroDivisionError: division by zero (bad.py, line 1)' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
