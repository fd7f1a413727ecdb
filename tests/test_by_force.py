"""What a received folder, a pipe, a second process or a thread could do: each kind, tried.

Every test has its own time limit, for what it looks for is what never ends.
"""
import json, os, signal, socket, subprocess, sys, threading, warnings

import PIL.Image, pytest, torch

warnings.filterwarnings('ignore')
import pandas as pd
from safetensors.torch import save_file
from attnfree.data.images import read_cifar
from attnfree.language import create_model
from attnfree.learner import build_model, config_checksum, load, read_config, save_run
from attnfree.models.dense import _MaskedImages
from attnfree.run import sweep, workers
from attnfree.run.fitting import _only_thread
from attnfree.run.generation import sample
from attnfree.run.imports import IMPORTED
from attnfree.run.prediction import predict_images
from attnfree.run.scoring import plan_evaluation, run_evaluation
from attnfree.sequences import load_state as load_sequence_state
from attnfree.text.tokens import load_tokenizer, train_pieces, train_unigram
from attnfree.training.checkpoint import (VERSION, best_state, last_checkpoint, load_state,
                                          load_tensors, save_state, save_tensors)
from attnfree.training.folder import Run

NAME = 'ff_micro_patch2_8'


@pytest.fixture(autouse=True)
def limited():
    "Each test may take two minutes; what blocks is interrupted."
    def late(number, frame): raise TimeoutError('it blocks, or reads without end')
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(tmp_path):
    "A finished run of the digits."
    model, config = load(NAME)
    (tmp_path/'run').mkdir()
    save_run(tmp_path/'run', config, model)
    return tmp_path/'run'


def changed(run, **parts):
    "Change the configuration of a run, as somebody would who sends it."
    config = json.loads((run/'config.json').read_text())
    for name, values in parts.items(): config[name] |= values
    config['checksum'] = config_checksum(config)
    (run/'config.json').write_text(json.dumps(config))


def unreadable(kind, file):
    "Put a pipe, or a link to a device without an end, in place of a file."
    file.unlink(missing_ok=True)
    if kind == 'pipe': os.mkfifo(file)
    else: file.symlink_to('/dev/zero')


READERS = {
    'config.json': lambda file: read_config(file.parent),
    'model.safetensors': lambda file: load(file.parent),
    'best.safetensors': lambda file: load(file.parent, 'best'),
    'checkpoint.safetensors': lambda file: last_checkpoint(file.parent),
    'metrics.csv': lambda file: Run(file.parent).epochs(),
    'steps.csv': lambda file: Run(file.parent).rows(file),
    'tokenizer.json': load_tokenizer,
    'state': lambda file: load_sequence_state(file, (torch.zeros(1),)),
    'rows.csv': sweep.read_rows,
    'sweep.toml': sweep.read_sweep,
    '.plan.json': lambda file: workers.kept_plan(file.parent),
    'data_batch_1': lambda file: read_cifar(file, 'no checksum'),
    'data_batch_2.xz': lambda file: read_cifar(file.with_suffix(''), 'no checksum'),
    'mask.png': lambda file: _MaskedImages([(file.parent/'image.png', file)], None)[0]}


@pytest.mark.parametrize('kind', ['pipe', 'device'])
@pytest.mark.parametrize('name', READERS)
def test_pipes_and_devices_are_never_opened(run, kind, name):
    PIL.Image.new('L', (8, 8)).save(run/'image.png')
    unreadable(kind, run/name)
    with pytest.raises((ValueError, FileNotFoundError)): READERS[name](run/name)


@pytest.mark.parametrize('kind', ['pipe', 'device'])
def test_what_is_not_needed_is_not_waited_for(run, kind):
    "The companion of the lock, a sweep's processes, the rows of a best epoch."
    unreadable(kind, run/'.processes.json')
    assert workers._signal(run, signal.SIGCONT) == 0
    save_tensors(run/'best.safetensors', load(run)[0].state_dict(), dict(epoch='1', value='1.0'))
    unreadable(kind, run/'metrics.csv')
    assert best_state(run)['logs'][0] == []
    unreadable(kind, run/'.process')
    if kind == 'pipe':
        with Run(run).alone(): assert (run/'.process').is_file()
    else:
        with pytest.raises(ValueError, match='leads out of the folder'):
            with Run(run).alone(): pass


@pytest.mark.parametrize('text', ['{"a":1}', '["a"]', '5', '[0, -1, 1]', f'[{10**20}]', 'x{',
                                  '['*100_000])
def test_numbers_of_processes_that_are_none(tmp_path, text, monkeypatch):
    monkeypatch.setattr(os, 'kill', lambda *args: pytest.fail(f'a signal to {args}'))
    (tmp_path/'.processes.json').write_text(text)
    assert workers._signal(tmp_path, signal.SIGCONT) == 0


def test_links_lead_nowhere(run, tmp_path):
    "What is written in a received folder replaces its links, not what they point to."
    mine = tmp_path/'mine'
    mine.write_text('mine')
    names = ['eval.csv', '.eval.csv.part', 'confusion.png', 'curves.png', '.config.json.part',
             'model.safetensors', '.model.safetensors.part']
    weights = load(run)[0].state_dict()
    for name in names:
        (run/name).unlink(missing_ok=True)
        (run/name).symlink_to(mine)
    save_tensors(run/'model.safetensors', weights)
    run_evaluation(plan_evaluation(str(run)))
    assert mine.read_text() == 'mine'
    assert pd.read_csv(run/'eval.csv').images.sum() and not (run/'confusion.png').is_symlink()


def test_a_linked_folder_for_predictions_is_refused(run, tmp_path):
    PIL.Image.new('L', (8, 8)).save(tmp_path/'digit.png')
    (tmp_path/'pictures').mkdir()
    (run/'predictions').symlink_to(tmp_path/'pictures')
    with pytest.raises(ValueError, match="'predictions' leads out of the folder"):
        [*predict_images(str(run), [str(tmp_path/'digit.png')])]
    assert not [*(tmp_path/'pictures').iterdir()]


def test_sweeps_that_share_a_table_lose_no_row(tmp_path, monkeypatch):
    cases = [f'case{i}' for i in range(8)]
    plan = {case: sweep.SweepRun(case, None, tmp_path/'rows.csv') for case in cases}
    row = dict(seed=42, settings='lr=1', version='1', metric='loss', loss=1.)
    monkeypatch.setattr(sweep.SweepRun, 'seed', 42)
    monkeypatch.setattr(sweep, 'sweep_row', lambda folder, case: dict(case=case) | row)
    def share(mine):
        for case in mine: sweep.keep_row(plan, case, tmp_path)
    threads = [threading.Thread(target=share, args=(cases[i::4],)) for i in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert sweep.read_rows(tmp_path/'rows.csv').case.tolist() == cases
    assert sorted(os.listdir(tmp_path)) == ['.rows.csv.lock', 'rows.csv']


@pytest.mark.parametrize('dtype', [torch.int8, torch.bool, torch.complex64, 'nan', 'inf'])
def test_weights_that_are_none(run, dtype):
    tensors, _ = load_tensors(run/'model.safetensors')
    if isinstance(dtype, str): [*tensors.values()][0].view(-1)[0] = float(dtype)
    else: tensors = {name: value.to(dtype) for name, value in tensors.items()}
    save_file(tensors, run/'model.safetensors')  # without a checksum
    with pytest.raises(ValueError, match='is not finite|holds values of'): load(run)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precision_are_read(run, dtype):
    tensors, _ = load_tensors(run/'model.safetensors')
    save_file({name: value.to(dtype) for name, value in tensors.items()}, run/'model.safetensors')
    for name, value in load(run)[0].state_dict().items():
        torch.testing.assert_close(value, tensors[name], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize('parts, says', [
    (dict(data=dict(img_size=16384)), 'data.img_size'),
    (dict(data=dict(classes=['\x1b[31mred'] + ['x']*9)), 'no control characters'),
    (dict(versions=dict(attnfree='1\x1b]0;owned\x07')), 'no control characters')])
def test_a_received_configuration(run, parts, says):
    changed(run, **parts)
    with pytest.raises(ValueError, match=says) as refused: read_config(run)
    assert str(refused.value).isprintable()


def test_no_weights_are_fetched_for_a_run(monkeypatch):
    def connect(*args): raise AssertionError('asked the network')
    monkeypatch.setattr(socket.socket, 'connect', connect)
    model = dict(name='timm:resnet10t', in_chans=1, num_classes=10, pretrained=True)
    build_model(dict(task='classification', model=model))


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    config = load(NAME)[1]
    config['data']['classes'] = ['a\tb'] + ['c']*9
    with pytest.raises(ValueError, match='no control characters'): save_run(tmp_path, config)
    assert not [*tmp_path.iterdir()]


@pytest.fixture(scope='module')
def tokenizers(tmp_path_factory):
    folder, text = tmp_path_factory.mktemp('tokenizers'), ['the river runs through the town']*9
    train_pieces(text, size=60).save(folder/'pieces.json')
    train_unigram(text, size=40).save(folder/'unigram.json')
    return {kind: json.loads((folder/f'{kind}.json').read_text()) for kind in ('pieces', 'unigram')}


def _nested(about):
    replace = dict(type='Replace', pattern=dict(String='a'), content='a'*100)
    about['normalizer'] = dict(type='Sequence', normalizers=[replace]*14)
def _slow(about):
    about['pre_tokenizer'] = dict(type='Split', pattern=dict(Regex='(e+|[a-z ]+)+$'),
                                  behavior='Isolated', invert=False)
def _map(about): about['normalizer'] = dict(type='Precompiled', precompiled_charsmap='AAAA')
def _fixed(about): about['pre_tokenizer'] = dict(type='FixedLength', length=0)
def _long(about):
    vocab = about['model']['vocab']
    if isinstance(vocab, dict): vocab['a'*10**6] = len(vocab)
    else: vocab.append(['a'*10**6, -1.])
def _far(about):
    vocab = about['model']['vocab']
    if isinstance(vocab, dict): vocab['far'] = 4*10**9
    else: about['model']['unk_id'] = 4*10**9
def _other(about): about['model']['type'] = 'BPE'


@pytest.mark.parametrize('kind', ['pieces', 'unigram'])
@pytest.mark.parametrize('change', [_nested, _slow, _map, _fixed, _long, _far, _other])
def test_a_received_tokenizer(tmp_path, tokenizers, kind, change):
    about = json.loads(json.dumps(tokenizers[kind]))
    (tmp_path/'tokenizer.json').write_text(json.dumps(about))
    text = load_tokenizer(tmp_path/'tokenizer.json').text()
    assert json.loads(text) == about  # as it is, it is read
    change(about)
    (tmp_path/'tokenizer.json').write_text(json.dumps(about))
    with pytest.raises(ValueError, match='is not the file of a tokenizer'):
        load_tokenizer(tmp_path/'tokenizer.json')


def test_a_received_sweep_runs_no_file(tmp_path):
    (tmp_path/'evil.py').write_text(f"open({str(tmp_path/'ran')!r}, 'w')")
    kept = dict(case='a', settings={}, rows='rows.csv', version=None, weights=None,
                imports=[str(tmp_path/'evil.py')])
    (tmp_path/'.plan.json').write_text(json.dumps(dict(a=kept)))
    with pytest.raises(ValueError, match='evil.py: if you trust them, name them by --import'):
        workers.kept_plan(tmp_path)
    assert not (tmp_path/'ran').exists() and str(tmp_path/'evil.py') not in IMPORTED


@pytest.mark.parametrize('plan', ['[]', '5', '{"a":5}', '{"a":{}}', 'x{', '['*100_000])
def test_a_damaged_plan_is_named(tmp_path, plan):
    (tmp_path/'.plan.json').write_text(plan)
    with pytest.raises(ValueError, match='does not say what is trained there'):
        workers.kept_plan(tmp_path)


GROUP = 'recipe = "digits"\ncases = ["lr=1e-3"]\nseeds = [1]\n'


@pytest.mark.parametrize('text, says', [
    (f'["../../esc"]\n{GROUP}', 'leads out of'), (f'["/abs"]\n{GROUP}', 'leads out of'),
    (f'[a]\n{GROUP}imports = [5]', "imports has 5, which must be text"),
    ('[a]\nrecipe="digits"\nseeds=[1]\ncases=[[5], [6]]', "cases has 5, which must be text"),
    (f'[a]\n{GROUP}version = 5', "version=5 must be"),
    ('[a]\nrecipe="digits"\nseeds=[1]\ncases=' + str([[f'lr={i}' for i in range(9)]]*9),
     '387,420,489 combinations'),
    ('a = ' + '['*10_000, 'is no file of runs')])
def test_a_received_file_of_runs(tmp_path, text, says):
    (tmp_path/'sweep.toml').write_text(text)
    with pytest.raises(ValueError, match=says): sweep.read_sweep(tmp_path/'sweep.toml')


@pytest.mark.parametrize('text', [
    '', 'case,seed\n', 'case,seed,settings,version\na,1,lr=1,1\n',
    'case,seed,settings,version,metric\na,x,lr=1,1,loss\n',
    'case,seed,settings,version,metric\na,1,,1,loss\n', 'a,"b\n', '\xff'])
def test_a_table_that_no_sweep_wrote(tmp_path, text):
    (tmp_path/'rows.csv').write_bytes(text.encode('latin1'))
    with pytest.raises(ValueError, match='move it away'): sweep.read_rows(tmp_path/'rows.csv')


@pytest.mark.parametrize('text', ['', 'epoch,loss\n', 'epoch,valid_loss\n0,x\n',
                                  'epoch,loss\nx,1\n'])
def test_metrics_that_are_no_numbers(tmp_path, text):
    (tmp_path/'metrics.csv').write_text(text)
    with pytest.raises(ValueError, match='metrics.csv.* cannot be read'): Run(tmp_path).epochs()


@pytest.mark.parametrize('state', ['{"dict":5}', '{}', 'x{', '[]', '{"tensor":9}',
                                   '{"dict":[[{"dict":[]},1]]}', '['*100_000,
                                   '{"array":0,"dtype":"none"}'])
@pytest.mark.parametrize('fallback', [False, True])
def test_checkpoints_made_by_hand(tmp_path, state, fallback):
    about = dict(format='attnfree state', version=str(VERSION), state=state)
    save_tensors(tmp_path/'checkpoint.safetensors', {'0': torch.zeros(1)}, about)
    if fallback:
        save_state(tmp_path/'previous.safetensors', dict(epoch=1))
        found, problem = last_checkpoint(tmp_path)
        assert found == dict(epoch=1) and 'checkpoint.safetensors' in problem
    elif state in ('[]', '{}'): # a state, though none of a training
        try: load_state(tmp_path/'checkpoint.safetensors')
        except ValueError as error: assert 'is no checkpoint' in str(error)
    else:
        with pytest.raises(ValueError, match='is no checkpoint that attnfree wrote'):
            last_checkpoint(tmp_path)


def test_equal_files_have_equal_bytes(tmp_path):
    "safetensors writes its texts in any order, another one each time."
    about = dict(epoch='1', value='0.5', name='é', format='state')
    for i in range(12): save_tensors(tmp_path/f'{i}', dict(w=torch.ones(3), b=torch.ones(1)), about)
    assert len({(tmp_path/f'{i}').read_bytes() for i in range(12)}) == 1
    tensors, found = load_tensors(tmp_path/'0')
    assert found == about and {*tensors} == {'w', 'b'}


@pytest.mark.parametrize('smallest', [1e-300, 1e-46, 1e-45, 1e-38])
def test_the_smallest_temperature_and_share_take_the_likeliest(smallest):
    scores = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    for option in ('temperature', 'top_p'):
        assert torch.equal(sample(scores, **{option: smallest}), scores.argmax(dim=-1)), option


def test_no_examples_at_all():
    "An empty batch through every mixer that reads text, forward and backward."
    mixers = 'attention gmlp amlp aft_full aft_simple aft_local aft_conv'.split()
    for name in [f'lm_{mixer}_mini_256' for mixer in mixers]:
        model = create_model(name, n=32, vocab_size=16)
        scores = model(torch.zeros(0, 32, dtype=torch.long))
        assert scores.shape == (0, 32, 16), name
        scores.sum().backward()


def test_two_threads_do_not_train_at_once():
    said = []
    def second():
        try:
            with _only_thread(): said.append('trained')
        except ValueError as error: said.append(str(error))
    for _ in range(2):
        with _only_thread(), _only_thread():  # a training within a training is another matter
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        second()
    assert ['another thread' in line for line in said] == [True, False]*2


@pytest.mark.parametrize('option', ['--no-draw', '--no_draw'])
def test_options_with_either_spelling(option):
    "fastcore 1 and 2 spell them differently; .ci/run tries the other one, in a user's environment."
    done = subprocess.run([sys.executable, '-m', 'attnfree.train', option, '--list'],
                          capture_output=True, text=True)
    assert done.returncode == 0 and 'digits' in done.stdout, done.stderr
