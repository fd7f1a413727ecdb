"""Bad command lines and damaged files: each ends with one line of ours, or does what it says.

All run in this process, on runs of a few images, so that hundreds take seconds. What would be a
traceback, a hang or a message of several lines is listed, with the command line that it came from.
Each option and field is tried with a third of the values; ATTNFREE_ALL=1 tries all.
"""
import contextlib, io, json, os, shutil, signal, sys, traceback, warnings

import pytest, torch
from fastcore.script import _run_cli
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image
from sklearn.datasets import load_digits

warnings.filterwarnings('ignore')
import attnfree.run.fitting
from attnfree.bench import attnfree_bench
from attnfree.evaluate import attnfree_eval, attnfree_plot, attnfree_predict
from attnfree.export import attnfree_export
from attnfree.generate import attnfree_generate
from attnfree.hub import attnfree_hub
from attnfree.sweep import attnfree_sweep
from attnfree.train import attnfree_train

SMALL = ['--set=bs=16', '--set=epochs=1', '--set=train_examples=32', '--set=valid_examples=16']
PATIENCE = 20 # seconds, of commands that take a tenth of one
HOSTILE = ['-1', '0', '1', '9'*21, '1e400', 'nan', 'x', '', ' ', 'none', 'true', '\x01', '~nouser',
           '/proc/x', '/proc/self/mem', '/dev/null', 'plain.txt', 'empty', '--', ',', 'é'*300]
IMPOSSIBLE = ['-1', '0', '1e-30', '1e308', '9'*21, 'nan', 'x', '', 'none', '[]', 'a=b', '1,2',
              '0.999999,0', 'rand-m-5', 'augmix-m-3']
OPTIONS = {
    attnfree_train: 'recipe data task path start tokenizer out import every workers loader '
                    'log epochs timeout',
    attnfree_eval: 'data path examples bs size out workers stride',
    attnfree_predict: 'top out', attnfree_plot: 'metric out',
    attnfree_generate: 'prompt tokens temperature top_k top_p keep seed images',
    attnfree_bench: 'case models device precision size repeats threads batch out',
    attnfree_sweep: 'cases recipe set seeds out processes nice groups file share',
    attnfree_export: 'out piece model',
}
FIELDS = ('task data model size bs mixer tokenizer train_examples valid_examples epochs steps '
          'lr wd betas eps schedule warmup_epochs warmup_steps lr_start lr_end smoothing augment '
          'mixup cutmix mixup_prob erasing repeats drop drop_path ema diagonality entropy clip '
          'accumulate pack precision layer_decay checkpointing channels_last threads seed').split()


class Hang(BaseException): pass


def alarm(*_): raise Hang(f'took over {PATIENCE} s')


def run(command, *options):
    "Exit code and message of a command line; `None` and where it came from for a foreign error."
    before, out, errors = [*sys.argv], io.StringIO(), io.StringIO()
    sys.argv = [command.__name__, *map(str, options)]
    old = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(PATIENCE)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            _run_cli(command.__wrapped__, False)
    except SystemExit as end:
        return (1, end.code) if isinstance(end.code, str) else (end.code or 0, errors.getvalue())
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return None, f'{error!r:.300} in {last.name}, line {last.lineno}'
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
        sys.argv = before
    return 0, out.getvalue()


def complaint(command, options, accepted=True):
    "What is wrong with how a command line ends; nothing if it ends as it should."
    code, text = run(command, *options)
    line = f"{command.__name__} {' '.join(map(str, options))}"[:300]
    if code is None: return f'{line}: {text}'
    if code == 0 and not accepted: return f'{line}: accepted'
    if code == 2 and 'unrecognized arguments' in text: return f'{line}: {text[-300:]!r}'
    if code == 1 and ('\n' in text.strip() or not text.startswith(command.__name__)):
        return f'{line}: {text[:300]!r}'


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    "A folder with two runs and some files, in which the commands are called."
    folder = tmp_path_factory.mktemp('bad')
    (folder/'plain.txt').write_text('hello')
    (folder/'bin.png').write_bytes(b'\x00\x01')
    Image.fromarray((load_digits().images[7]*255/16).astype('uint8')).save(folder/'digit.png')
    (folder/'empty').mkdir()
    threads = torch.get_num_threads()
    with contextlib.chdir(folder):
        torch.set_num_threads(1)
        for name, recipe in (('images', 'digits'), ('pixels', 'digits_pixels')):
            out = f'--out=runs/{name}'
            assert run(attnfree_train, f'--recipe={recipe}', *SMALL, '--no_draw', out)[0] == 0
        yield folder
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def tidy(place):
    "A training may go to any folder: those that were not there before are removed."
    before = {*place.rglob('*')}
    yield
    for path in sorted({*place.rglob('*')} - before, reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def fresh():
    for name in ('runs/new', 'new'): shutil.rmtree(name, ignore_errors=True)


def some(values, number):
    "A third of the values, another one for each number."
    return values if os.environ.get('ATTNFREE_ALL') else values[number % 3::3]


LINES = {  # command lines that do
    attnfree_train: ['--recipe=digits', *SMALL, '--no_draw', '--out=runs/new'],
    attnfree_eval: ['runs/images', '--examples=8', '--out=new'],
    attnfree_predict: ['runs/images', 'digit.png'],
    attnfree_plot: ['runs/images'],
    attnfree_generate: ['runs/pixels', '--images=1'],
    attnfree_bench: ['--models=attnfree_ff_micro_patch2_8', '--repeats=1', '--batch=1',
                     '--out=new.csv'],
    attnfree_sweep: ['--cases=lr=1e-3', '--recipe=digits', *SMALL, '--seeds=1', '--out=new'],
    attnfree_export: ['--model=pixels_gmlp_micro_8', '--out=network.onnx'],
}


def command_line(command, option):
    "A command line that does, to which `option` is added."
    return [part for part in LINES[command] if part.split('=')[0] != option.split('=')[0]
            or option.startswith('--set')] + [option]


@pytest.mark.parametrize('command', LINES, ids=lambda command: command.__name__)
def test_the_lines_do(place, command):
    fresh()
    assert run(command, *LINES[command])[0] == 0


@pytest.mark.parametrize('command', OPTIONS, ids=lambda command: command.__name__)
def test_options(place, command):
    found = []
    for number, option in enumerate(OPTIONS[command].split()):
        for value in some(HOSTILE, number):
            fresh()
            found.append(complaint(command, command_line(command, f'--{option}={value}')))
    assert not any(found), [text for text in found if text]


@pytest.mark.parametrize('command', (attnfree_eval, attnfree_predict, attnfree_plot,
                                     attnfree_generate, attnfree_hub, attnfree_export),
                         ids=lambda command: command.__name__)
def test_runs_that_are_none(place, command):
    more = {attnfree_predict: ['digit.png'], attnfree_hub: ['new'],
            attnfree_export: ['--out=network.onnx']}.get(command, [])
    found = [complaint(command, [value, *more], accepted=value in ('--', ''))
             for value in HOSTILE if not value.startswith('-')]
    assert not any(found), [text for text in found if text]


@pytest.mark.parametrize('field', FIELDS)
def test_settings(place, field):
    found = []
    for value in some(IMPOSSIBLE, FIELDS.index(field)):
        fresh()
        found.append(complaint(attnfree_train, command_line(attnfree_train,
                                                            f'--set={field}={value}')))
    assert not any(found), [text for text in found if text]


@pytest.mark.parametrize('setting', ['clip=1e-30', 'mixup=1e308', 'betas=0.999999,0', 'eps=1e308',
                                     'lr=1e-30', 'size=1', 'augment=rand-m-5'])
def test_useless_settings_are_refused(place, setting):
    fresh()
    line = command_line(attnfree_train, f'--set={setting}')
    assert complaint(attnfree_train, line, accepted=False) is None


@pytest.mark.parametrize('option', ['--log=,', '--recipe=', '--data='])
def test_empty_names_are_refused(place, option):
    fresh()
    line = command_line(attnfree_train, option)
    assert complaint(attnfree_train, line, accepted=False) is None


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(), st.text(),
                  st.sampled_from(['', '../x', '~nouser', '\x00', 10**9, -1, 0, 0.5, 1e308]))
NESTED = st.recursive(PLAIN, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6)


def places(node, at=()):
    "The places of everything in a configuration."
    if not isinstance(node, dict): return
    for key, value in node.items():
        yield (*at, key)
        yield from places(value, (*at, key))


@pytest.mark.parametrize('name', ['images', 'pixels'])
def test_configurations(place, name):
    "Any part of `config.json` may be anything: one line says what is wrong with it, or it serves."
    whole = json.loads((place/'runs'/name/'config.json').read_text())
    whole.pop('checksum')
    shutil.copytree(place/'runs'/name, place/'hostile')
    found = []

    @settings(max_examples=250, deadline=None, derandomize=True, database=None,
              suppress_health_check=[*HealthCheck])
    @given(st.sampled_from([*places(whole)]), NESTED, st.booleans())
    def damaged(at, value, removed):
        config = json.loads(json.dumps(whole))
        part = config
        for key in at[:-1]: part = part[key]
        if removed and value is None: del part[at[-1]]
        else: part[at[-1]] = value
        try: (place/'hostile/config.json').write_text(json.dumps(config))
        except UnicodeEncodeError: return
        command = attnfree_eval if name == 'images' else attnfree_generate
        more = ['--examples=8', '--out=new'] if name == 'images' else ['--images=1']
        found.append(complaint(command, ['hostile', *more]))
        if at[0] in ('training', 'source'): # a resumed run reads these
            found.append(complaint(attnfree_train, ['--out=hostile', '--resume', '--no_draw']))

    try: damaged()
    finally: shutil.rmtree(place/'hostile')
    assert len(found) >= 250 and not any(found), [text for text in found if text][:10]


@pytest.mark.parametrize('text', ['', '{', '[]', 'null', '3', '"x"', '['*100_000, '{"a": NaN}',
                                  '\ufeff{}', '{"model": {}, "data": {}}'])
def test_what_is_no_configuration(place, text):
    shutil.copytree(place/'runs/images', place/'broken')
    try:
        (place/'broken/config.json').write_text(text)
        found = [complaint(attnfree_eval, ['broken'], accepted=False),
                 complaint(attnfree_train, ['--out=broken', '--resume'], accepted=False)]
    finally: shutil.rmtree(place/'broken')
    assert not any(found), found


@pytest.mark.parametrize('content', [None, [], 3, {}, {'data': None}, {'data': [None]},
                                     {'data': [{'paragraphs': 3}]},
                                     {'data': [{'paragraphs': [{'context': 'a', 'qas': [{}]}]}]},
                                     {'data': [{'paragraphs': [{'context': None, 'qas': []}]}]}])
def test_squad_of_wrong_shape(place, tmp_path, content):
    from attnfree.text.objectives import read_squad
    (tmp_path/'dev.json').write_text(json.dumps(content))
    with pytest.raises(ValueError, match='is not a file of SQuAD') as error:
        read_squad(tmp_path/'dev.json')
    assert '\n' not in str(error.value)


def test_a_foreign_error_would_be_noticed(place):
    def attnfree_broken(): return [][1]
    attnfree_broken.__wrapped__ = attnfree_broken
    assert 'IndexError' in complaint(attnfree_broken, [])
