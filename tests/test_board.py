"The board: its file, its rows, its weights and the script that trains it belong together."
import contextlib, importlib.util, io, json, os, sys, tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch

import attnfree
from attnfree.run.imports import import_file
from attnfree.learner import build_model
from attnfree.run.sweep import read_rows, read_sweep, trained_runs
from attnfree.vision import create_model, model_names

ROOT = Path(__file__).parent.parent
BOARD = ROOT/'results'/'board'
FILES = [BOARD/f'{name}.toml' for name in ('board', 'controlled', 'gpu')]
FILE, CONTROLLED, _ = FILES


def script(name='start'):
    "`start.py`, or another, as a module."
    spec = importlib.util.spec_from_file_location(name, BOARD/f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups_of(*files):
    "The groups of files by name."
    found = {}
    for file in files: found |= tomllib.loads(file.read_text())
    return found


def versions(*files):
    "The versions that the groups of files name."
    return {group['version'] for group in groups_of(*files).values()}


@pytest.fixture
def plan(monkeypatch):
    "The plan of all groups, each read as its own version reads it."
    plan = {}
    for version in versions(*FILES):
        monkeypatch.setattr(attnfree, '__version__', version)
        for file in FILES: plan |= read_sweep(file).plan
    return plan


def test_the_plan_has_every_group(plan):
    assert {run.rows.stem for run in plan.values()} == {*groups_of(*FILES)}
    for file in FILES:  # each has a version and a commit
        for name in groups_of(file): script().commit_of(file, [name])


def test_another_version_leaves_the_board_alone(monkeypatch):
    monkeypatch.setattr(attnfree, '__version__', '9.9.9')
    sweep = read_sweep(FILE)
    assert not sweep.plan and {*sweep.others.values()} == versions(FILE)


def test_rows_are_those_of_the_plan(plan):
    "No row has other settings or another version than the file says, and none is left over."
    done = trained_runs(plan)
    rows = {run.rows: read_rows(run.rows) for run in plan.values()}
    assert sum(len(table) for table in rows.values()) == len(done) >= 160
    for table in rows.values():
        if len(table):
            lengths = table.curve.astype(str).str.split().str.len()  # of one epoch: a number
            assert (lengths == table.epochs).all()


@pytest.mark.parametrize('name', ['scale/scale', 'recipes/recipes'])
def test_the_sweeps_that_chose_settings_know_their_rows(name):
    "A recipe that changes later must not change what their files say: they pin each setting."
    plan = read_sweep(BOARD.parent/f'{name}.toml').plan
    done, files = trained_runs(plan), {run.rows for run in plan.values()}
    assert len(done) == sum(len(read_rows(file)) for file in files) > 100


def test_first_seeds_keep_their_weights(plan):
    kept = [run for name in trained_runs(plan) if (run := plan[name]).weights]
    assert len(kept) >= 30
    for run in kept:
        config = json.loads((run.weights/'config.json').read_text())
        assert (run.weights/'model.safetensors').stat().st_size > 50_000
        assert config['training']['seed'] == run.seed and config['source']['path'] is None
        build_model(config)


def test_every_mixer_has_the_same_recipe(plan):
    "But for what a sweep showed that one needs: the learning rate, and the dropout of pixels."
    columns, board = {}, groups_of(FILE)
    for run in plan.values():
        if run.rows.stem not in board: continue
        own = ['model', 'seed', 'lr'] + ['drop']*(run.rows.stem == 'pixels')
        settings = {k: v for k, v in run.settings if k not in own}
        columns.setdefault(run.rows.stem.removesuffix('_more'), []).append(settings)
    for column, found in columns.items(): assert all(one == found[0] for one in found), column


def test_the_budget_has_every_run(plan):
    budget = pd.read_csv(BOARD/'budget.csv')
    planned = pd.Series([run.rows.stem.removesuffix('_more') for run in plan.values()])
    budgeted = budget.groupby('column').seeds.sum()
    for column, runs in planned.value_counts().items():
        if not column.startswith('gpu'): assert budgeted[column] == runs, column
    product = budget.ms_a_step*budget.steps*budget.seeds/3.6e6
    assert ((product - budget.hours).abs() < 0.006).all()
    controlled = budget.column.isin(groups_of(CONTROLLED))
    hours = dict(board=2*26, controlled=48)
    assert budget[controlled].hours.sum() < hours['controlled']
    assert budget[~controlled].hours.sum() < hours['board']


def test_a_best_rate_at_the_edge_asks_for_one_more():
    "Whether more or less of the metric is better."
    rates = script('rates')
    def table(metric, *scores):
        cases = [f'model={name} lr={rate}' for name in 'ab' for rate in ('1e-3', '2e-3', '4e-3')]
        return pd.DataFrame({'case': cases, 'metric': metric, metric: scores})
    found = rates.best_rates(table('accuracy', 1, 2, 3, 1, 3, 2))
    assert found == {'model=a lr=0.004': 0.008, 'model=b lr=0.002': None}
    found = rates.best_rates(table('byte_perplexity', 1, 2, 3, 3, 1, 2))
    assert found == {'model=a lr=0.001': 0.0005, 'model=b lr=0.002': None}


def test_one_shell_for_every_mixer():
    "The controlled networks agree in parameters within 2 %, and in all but mixer and hidden width."
    import_file(str(BOARD/'controlled.py'))
    counts, shells = {}, set()
    for name in (name for name in model_names() if name.startswith('controlled_')):
        model = create_model(name, num_classes=10)
        counts[name] = sum(p.numel() for p in model.parameters())
        for block in model.body.blocks:
            block.mixer = block.ff.fc1 = block.ff.fc2 = torch.nn.Identity()
        shells.add(str(model))
    assert len(counts) == 8 and len(shells) == 1
    attention = counts['controlled_attention_nano_patch4_32']
    assert all(abs(count/attention - 1) < 0.02 for count in counts.values()), counts


TWO = """
[a]
version = '1.0'
commit = 'abc'
[b]
version = '1.0'
commit = 'def'
[c]
version = '1.0'
"""


def test_one_environment_for_one_commit(tmp_path):
    file = tmp_path/'board.toml'
    file.write_text(TWO)
    assert script().commit_of(file, ['b']) == ('1.0', 'def')
    for names in (None, ['a', 'b'], ['c']):
        with pytest.raises(SystemExit, match='name one version and one commit'):
            script().commit_of(file, names)
    with pytest.raises(SystemExit, match="no group 'd', but a, b, c"):
        script().commit_of(file, ['d'])


def test_an_environment_that_is_there_is_used_again(tmp_path, monkeypatch):
    "All other options go to its attnfree_sweep."
    start, called = script(), []
    version, commit = start.commit_of(FILE, ['digits'])
    env = tmp_path/'.env'/f'{version}-{commit[:8]}'
    env.mkdir(parents=True)
    (env/'ready').touch()
    monkeypatch.setattr(start.os, 'execv', lambda program, words: called.extend(words))
    monkeypatch.setattr(sys, 'argv', ['start.py', '--out', str(tmp_path), '--groups', 'digits',
                                      '--share', '1/3'])
    start.main()
    assert called == [str(env/'bin'/'attnfree_sweep'), '--file', str(FILE), '--out', str(tmp_path),
                      '--groups', 'digits', '--share', '1/3']


def test_an_environment_of_another_version_is_refused(tmp_path, monkeypatch):
    "The wheel of a commit says which version it is; here pip and git do nothing."
    start = script()

    class Done:
        stdout = '1.1\n'

    def run(command, **options):
        if command[1] == 'archive':
            import tarfile
            with tarfile.open(fileobj=options['stdout'], mode='w'): pass
        if 'wheel' in command:
            folder = Path(command[command.index('-w') + 1])
            (folder/'attnfree-1.1-py3-none-any.whl').touch()
        return Done
    monkeypatch.setattr(start.subprocess, 'run', run)
    (tmp_path/'env').mkdir()
    with pytest.raises(SystemExit, match='abc holds attnfree 1.1, and the groups are for 1.0'):
        start.build('1.0', 'abc', tmp_path/'env')
    assert not (tmp_path/'env'/'ready').exists()
    start.build('1.1', 'abc', tmp_path/'env')
    assert (tmp_path/'env'/'ready').exists()


def page(name):
    "The cells of a notebook, as text."
    cells = json.loads((ROOT/'nbs'/f'{name}.ipynb').read_text(encoding='utf-8'))['cells']
    return [''.join(cell['source']) for cell in cells]


@pytest.fixture(scope='module')
def board_page():
    "What the board's page defines up to its rule: `compare`, `scores_of`, `own`, `table`."
    names, before = {}, os.getcwd()
    os.chdir(ROOT/'nbs'/'results')
    try:
        for source in page('results/05_all_mixers'):
            parts = ('import tomllib', 'def trained_rows', 'def scores_of', 'def judge',
                     'def compare')
            if any(part in source for part in parts):
                with contextlib.redirect_stdout(io.StringIO()): exec(source, names)
    finally: os.chdir(before)
    return names


AFTS = ['AFT-simple', 'AFT-full', 'AFT-local']
IMAGES = [('cifar10', 'AFT-conv', ['gMLP', 'FF-only', 'ViT'], 'better'),
          ('cifar10', 'gMLP', ['FF-only', 'ViT'], 'better')]
SAID = [  # page, what it says, and the comparisons that it says
    ('results/05_all_mixers', 'AFT-conv is better than gMLP, FF-only and ViT, and gMLP better than '
     'FF-only and ViT', IMAGES),
    ('results/05_all_mixers', 'For pixels AFT-conv, gMLP and aMLP are better than attention; every '
     'seed of the other AFTs is better than every seed of attention, too, but that does not decide',
     [('pixels', one, ['ViT'], 'better') for one in ('AFT-conv', 'gMLP', 'aMLP')]
     + [('pixels', one, ['ViT'], 'not decided') for one in AFTS]),
    ('results/05_all_mixers', 'For bytes aMLP is better than attention and AFT-conv as good; which '
     'of aMLP and gMLP is better is not decided',
     [('bytes', 'aMLP', ['ViT'], 'better'), ('bytes', 'AFT-conv', ['ViT'], 'as good'),
      ('bytes', 'aMLP', ['gMLP'], 'not decided')]),
    ('index', 'AFT-conv is better than gMLP, FF-only and ViT, gMLP better than FF-only and ViT; '
     'the others have one seed, and three seeds do not decide between FF-only and ViT',
     [*IMAGES, ('cifar10', 'FF-only', ['ViT'], 'not decided')]),
    ('results/00_ff_only', 'leaves it undecided which is better',
     [('cifar10', 'FF-only', ['ViT'], 'not decided')]),
    ('results/01_gmlp', 'gMLP is better than attention for images, by four points, and aMLP for '
     'bytes, by 0.06 bits. gMLP\'s lead for bytes, 0.04 bits, is not decided',
     [('cifar10', 'gMLP', ['ViT'], 'better'), ('bytes', 'aMLP', ['ViT'], 'better'),
      ('bytes', 'gMLP', ['ViT'], 'not decided'), ('cifar10', 'aMLP', ['ViT'], 'not decided')]),
    ('results/01_gmlp', 'Whether aMLP\'s tiny attention helps is not decided here, by either',
     [(column, 'aMLP', ['gMLP'], 'not decided') for column in ('cifar10', 'bytes')]),
    ('results/02_aft', 'AFT-conv is better than attention for images and for pixels. The others '
     'have one seed for images, above each of attention\'s three, and for pixels every seed of '
     'theirs is better than every seed of attention; neither is decided',
     [(column, 'AFT-conv', ['ViT'], 'better') for column in ('cifar10', 'pixels')]
     + [(column, one, ['ViT'], 'not decided') for column in ('cifar10', 'pixels') for one in AFTS]),
    ('results/02_aft', 'is better than each of the other AFTs for pixels',
     [('pixels', 'AFT-conv', AFTS, 'better')]),
    ('results/02_aft', 'AFT-simple, which has no position biases, is worse than all, and AFT-conv '
     'is as good as attention; for AFT-full and AFT-local, with a lead of 0.01 and 0.02 bits, it '
     'is not decided',
     [('bytes', 'AFT-simple', ['ViT', 'gMLP', 'aMLP', *AFTS[1:], 'AFT-conv'], 'worse'),
      ('bytes', 'AFT-conv', ['ViT'], 'as good'),
      *[('bytes', one, ['ViT'], 'not decided') for one in AFTS[1:]]]),
    ('results/03_lavit', 'with one seed nothing is decided',
     [('cifar10', 'LaViT', ['ViT'], 'not decided')])]


@pytest.mark.parametrize('name, sentence, comparisons', SAID, ids=lambda value: str(value)[:40])
def test_what_pages_say_of_the_board_follows_from_its_rule(name, sentence, comparisons, board_page):
    assert '\n'.join(page(name)).count(sentence) == 1
    for column, one, others, verdict in comparisons:
        for other in others:
            assert board_page['compare'](column, one, other) == verdict, (column, one, other)


def test_what_the_first_page_says_of_mixers_alone(board_page):
    means = {mixer: f'{found.mean():.1f}' for mixer, found in board_page['seeds'].items()}
    gate = means["gMLP's gate"]
    three = sorted(means[f'AFT-{kind}'] for kind in ('simple', 'full', 'local'))
    assert (f"AFT-conv has {means['AFT-conv']} %, the other AFTs {three[0]} to {three[-1]}, gMLP's "
            f"gate {gate}, FF {means['FF']}, linear attention {means['linear attention']} and "
            f"attention {means['attention']}") in '\n'.join(page('index'))


def test_the_rule(board_page, monkeypatch):
    "On seeds made up: equal, apart by less and by more than the margin, too few, fewer bits."
    seeds = {'a': [80, 80.1, 80.2], 'b': [80.1, 80.2, 80.3], 'c': [83, 83.1, 83.2], 'd': [99],
             'e': [70, 80, 90]}
    monkeypatch.setitem(board_page, 'scores_of', lambda column, label: seeds[label])
    compare = board_page['compare']
    assert compare('cifar10', 'a', 'b') == compare('cifar10', 'b', 'a') == 'as good'
    assert (compare('cifar10', 'c', 'a'), compare('cifar10', 'a', 'c')) == ('better', 'worse')
    assert compare('bytes', 'a', 'c') == 'better'  # fewer bits
    assert compare('cifar10', 'a', 'd') == compare('cifar10', 'a', 'e') == 'not decided'
    assert compare('recall', 'c', 'a') == 'not decided'


def test_lavit_was_trained_without_its_loss(plan):
    "As the pages say that show it."
    board = groups_of(FILE)
    runs = [run for run in plan.values()
            if run.rows.stem in board and 'lavit' in run.settings.model]
    assert len(runs) == 6 and {run.settings.diagonality for run in runs} == {0}
    for name in ('index', 'results/05_all_mixers', 'results/03_lavit'):
        assert 'was trained without' in '\n'.join(page(name)), name


def test_what_surrounds_a_mixer_is_what_pages_say():
    "Of stems: skeleton/00. Of blocks: skeleton/04 and mixers/01. Of the first page: MLP-Mixer."
    def has(name):
        with torch.device('meta'): model = create_model(f'{name}_nano_patch4_32')
        block = model.body.blocks[0]
        return (model.stem.prefix, model.stem.positions is not None, block.ff is not None,
                block.ff_first, type(block.norm_mixer).__name__, model.readout.pool)
    plain = (1, True, True, False, 'LayerNorm', 'cls')
    for name in ('vit', 'aft_simple', 'aft_full', 'aft_local'): assert has(name) == plain
    assert has('ff') == (1, True, True, True, 'TokenNorm', 'cls')
    assert has('gmlp') == has('amlp') == (1, False, False, False, 'LayerNorm', 'cls')
    assert has('aft_conv') == (0, False, True, False, 'LayerNorm', 'mean')
    for page_name, sentence in (
            ('skeleton/00_patch', 'gMLP a class token alone, AFT-conv neither'),
            ('skeleton/04_block', 'FF-only takes the two lines in the other order, and gMLP leaves '
             'the second one out'),
            ('index', 'the feed-forward mixer makes an MLP-Mixer')):
        assert sentence in '\n'.join(page(page_name)), page_name
