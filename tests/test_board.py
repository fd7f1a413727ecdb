"The board: its file, its rows, its weights and the script that trains it belong together."
import importlib.util, json, sys, tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch

import attnfree
from attnfree.imports import import_file
from attnfree.learner import build_model
from attnfree.run.sweep import read_rows, read_sweep, trained_runs
from attnfree.vision import create_model, model_names

BOARD = Path(__file__).parent.parent/'results'/'board'
FILE, CONTROLLED = FILES = [BOARD/'board.toml', BOARD/'controlled.toml']


def script():
    "`start.py` as a module."
    spec = importlib.util.spec_from_file_location('start', BOARD/'start.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups_of(*files):
    "The groups of files by name."
    return {name: group for file in files for name, group in tomllib.loads(file.read_text()).items()}


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
        if len(table): assert (table.curve.str.split().str.len() == table.epochs).all()


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
        settings = {k: v for k, v in run.settings.items() if k not in own}
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
    assert budget[~controlled].hours.sum() < 2*26 and budget[controlled].hours.sum() < 48


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
