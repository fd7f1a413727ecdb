"The script for a GPU, at tiny sizes on the processor: every part runs, and goes on where it was."
import sys
from pathlib import Path

import pandas as pd, pytest, timm

from attnfree.data.datasets import DATASETS
from attnfree.run.imports import import_file
from attnfree.run.plan import requested_settings

sys.path.append(str(Path(__file__).parents[1]/'results/gpu'))
import measure


@pytest.mark.parametrize('part', [part for part in measure.PARTS if part != 'tiles'])
def test_a_dry_run(part, tmp_path):
    file = tmp_path/f'{part}.csv'
    assert measure.run_rows(measure.PARTS[part]('cpu', True), file, 600, 'cpu') == 0
    table = pd.read_csv(file)
    print(table.drop(columns=['machine', 'date']).to_string())
    assert table.error.isna().all() and (table.seconds >= 0).all()
    rates = [name for name in table if name.endswith('_ms') or name.endswith('_s')]
    assert part == 'checks' or rates and (table[rates].fillna(1) > 0).all(axis=None)
    if part == 'trainings':
        assert table.wrong.isna().all(), table.wrong.tolist()
        assert table['share'].dropna().between(0.05, 2).all() and table['share'].notna().sum() > 2


def test_what_is_there_is_left_out(tmp_path):
    "A row that fails is written down, and the next one begun; without time none is."
    tried = []
    def works(n):
        tried.append(n)
        return dict(ms=n/2)
    rows = [measure.Row(dict(op='a', n=n), lambda n=n: n, works) for n in (2, 4)]
    rows.insert(1, measure.Row(dict(op='b', n=0), lambda: 1/0, works))
    file = tmp_path/'part.csv'
    assert measure.run_rows(rows, file, -1, 'cpu') == 3
    for _ in range(2): assert measure.run_rows(rows, file, 60, 'cpu') == 0
    table = pd.read_csv(file)
    assert tried == [2, 4] and table.error[1] == 'ZeroDivisionError: division by zero'
    assert table.ms[[0, 2]].tolist() == [1, 2]


def test_rows_of_a_gpu():
    "They are planned without one; all networks are known to timm."
    counts = {part: len([*rows('cuda', False)]) for part, rows in measure.PARTS.items()}
    print(counts)
    assert all(counts.values())
    assert [name for name in measure.NETWORKS if not timm.is_model(name)] == []
    for row in measure.trainings('cuda', False):  # settings that agree with each other
        words = row.keys['options'].split()
        named = {word[2:]: words[i + 1] for i, word in enumerate(words) if word[:2] == '--'}
        if 'import' in named and 'noise' not in DATASETS:
            import_file(f"{measure.ROOT}/{named['import']}")
        given = {key: value for key, value in named.items() if key in ('recipe', 'data', 'task')}
        fields = [word for word in words if '=' in word]
        assert requested_settings(fields, **given)[0].data in (given.get('data'), 'noise')


def test_preparing(monkeypatch, tmp_path, capsys):
    "Each row is run once, in other processes."
    given = ['measure', 'bytes', '--prepare', '--device', 'cpu', '--small', '--out', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', given)
    measure.main()
    assert capsys.readouterr().out == '6 rows prepared\n' and not [*tmp_path.iterdir()]


def test_together(tmp_path, capsys):
    "Rows are compiled in processes of their own, and measured in turn, but for one that is there."
    file = tmp_path/'networks.csv'
    rows = [*measure.networks('cpu', True)]
    measure.add_row(file, rows[0].keys, dict(images_s=1.), '', 0., 'cpu')
    assert measure.run_together('networks', file, 100, 'cpu', True) == 0
    table = pd.read_csv(file)
    assert {*table['row']} == {measure.named(row.keys) for row in rows} and len(table) == len(rows)
    assert table.error.isna().all() and (table.images_s > 0).all() and table.images_s[0] == 1
    print(capsys.readouterr().out)
