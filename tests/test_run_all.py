"""Run All in JupyterLab never destroys what notebooks store.

JupyterLab knows no flags such as `#| data`: it clears the outputs of all cells, runs them, and
stops at the first error. So flagged cells store nothing and do nothing where their data are
missing, and what was drawn from real data is a file that markdown shows.
"""
import ast, importlib.util, json, os, re, subprocess, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT/'results/make_data_pictures.py'
FLAG = re.compile(r'^#\|\s*(data|slow)\b', re.MULTILINE)
PICTURE = re.compile(r'!\[([^\]]*)\]\(([^)\s]+)[^)]*\)')
real = pytest.mark.skipif(not os.environ.get('ATTNFREE_DATA'), reason='needs ATTNFREE_DATA')


def cells(kind, nbs=ROOT/'nbs'):
    "`(notebook, source, cell)` for all cells of a kind."
    for path in sorted(nbs.rglob('*.ipynb')):
        if '.ipynb_checkpoints' in path.parts: continue
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            if cell['cell_type'] == kind: yield path, ''.join(cell['source']), cell


def flagged(nbs=ROOT/'nbs'):
    "`(notebook, flag, source, cell)` for all cells flagged data or slow."
    for path, source, cell in cells('code', nbs):
        if flag := FLAG.search(source): yield path, flag[1], source, cell


def guard(source):
    "What decides whether the body of a cell runs, compiled; `None` where anything always runs."
    body = ast.parse(source).body
    if len(body) != 1 or not isinstance(body[0], ast.If) or body[0].orelse: return None
    return compile(ast.Expression(body[0].test), 'guard', 'eval')


def opens(source):
    "Whether the guard of a cell lets its body run here."
    return bool(eval(guard(source), dict(os=os, Path=Path)))


def pictures(nbs=ROOT/'nbs'):
    "`(notebook, alternative text, file)` for all pictures that markdown cells show."
    for path, source, _ in cells('markdown', nbs):
        for text, file in PICTURE.findall(source):
            if '://' not in file: yield path, text, path.parent/file


GUARDED = [(path, source) for path, flag, source, _ in flagged() if flag == 'data']
NAMES = [f'{path.stem}-{i}' for i, (path, _) in enumerate(GUARDED)]


def test_flagged_cells_store_nothing():
    assert not [(path.stem, source[:80]) for path, _, source, cell in flagged() if cell['outputs']]


def test_there_are_cells_and_pictures():
    assert len(GUARDED) > 5 and len([*pictures()]) > 5


@pytest.mark.parametrize('path,source', GUARDED, ids=NAMES)
def test_data_cells_are_guarded(path, source, tmp_path, monkeypatch):
    "Neither without data nor with a folder that holds other data does the cell do anything."
    assert guard(source), source
    monkeypatch.chdir(path.parent)
    for folder in ('', str(tmp_path), str(tmp_path/'nowhere')):
        monkeypatch.setenv('ATTNFREE_DATA', folder)
        assert not opens(source)
    monkeypatch.delenv('ATTNFREE_DATA')
    assert not opens(source)


@real
@pytest.mark.parametrize('path,source', GUARDED, ids=NAMES)
def test_data_cells_run_where_the_data_are(path, source):
    "No guard is so strict that its cell proves nothing."
    assert opens(source)


def test_pictures_are_there():
    assert not [(path.stem, str(file)) for path, _, file in pictures() if not file.exists()]
    assert not [(path.stem, str(file)) for path, text, file in pictures() if not text.strip()]
    limits = {'.webp': 250_000}  # of a film
    assert not [file.name for _, _, file in pictures()
                if file.stat().st_size >= limits.get(file.suffix, 200_000)]


def test_streams_are_stored_as_one():
    "JupyterLab joins what a cell prints, `jupyter execute` does not: slow prints must be one."
    for path, source, cell in cells('code'):
        kinds = [output.get('name') for output in cell['outputs']]
        assert not [a for a, b in zip(kinds, kinds[1:]) if a and a == b], (path.stem, source)


@pytest.mark.parametrize('source,fine', [
    ("if Path(os.environ.get('ATTNFREE_DATA', ''), 'x').is_dir():\n    f()", True),
    ("if os.environ.get('ATTNFREE_DATA'):\n    f()", True),
    ("data = os.environ['ATTNFREE_DATA']", False),
    ("if 'ATTNFREE_DATA' in os.environ: f()\nf()", False),
    ("if 'ATTNFREE_DATA' in os.environ: f()\nelse: f()", False)])
def test_missing_guards_are_noticed(source, fine):
    assert (guard(source) is not None) == fine


def test_flags_and_pictures_are_noticed(tmp_path):
    markdown = '![](a.png) ![b](http://x/b.png)\n![c d](../images/c.png "title")'
    content = [dict(cell_type='code', source=['#| data\n', 'f()'], outputs=[]),
               dict(cell_type='code', source=['#|slow\n', 'f()'], outputs=[]),
               dict(cell_type='code', source=["'data'"], outputs=[]),
               dict(cell_type='markdown', source=[markdown])]
    (tmp_path/'a.ipynb').write_text(json.dumps(dict(cells=content)))
    assert [flag for _, flag, _, _ in flagged(tmp_path)] == ['data', 'slow']
    shown = [(text, file.relative_to(tmp_path).as_posix()) for _, text, file in pictures(tmp_path)]
    assert shown == [('', 'a.png'), ('c d', '../images/c.png')]


def run(*arguments, options=(), **more):
    "Run the script as its reader would."
    command = [sys.executable, *options, SCRIPT, *arguments]
    environment = os.environ | {'PYTHONPATH': str(ROOT)} | more
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def script():
    "The script as a module."
    spec = importlib.util.spec_from_file_location('make_data_pictures', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_helps_at_once():
    done = run('--help', options=['-X', 'importtime'])
    assert done.returncode == 0 and '--data DIR' in done.stdout and '--out DIR' in done.stdout
    imported = {line.rpartition('|')[2].strip() for line in done.stderr.splitlines()}
    assert 'argparse' in imported and not imported & {'torch', 'pandas', 'numpy', 'attnfree'}


def test_script_and_its_files():
    "Each file that the script names is there and shown; each maker says what it needs."
    module = script()
    files = re.findall(r'\w+\.(?:png|csv)\b', module.__doc__)
    shown = {file.name for _, _, file in pictures()}
    read = '\n'.join(source for _, source, _ in cells('code'))
    assert len(files) == 12
    site = (ROOT/'_quarto.yml').read_text()
    for name in files:
        assert name in shown or f'../results/{name}' in read or f'site/{name}' in site
    assert [*module.NEEDED] == [*module.MAKERS]
    for name in module.MAKERS: assert f'\n| {name} ' in module.__doc__
    pyflakes = [sys.executable, '-m', 'pyflakes', SCRIPT]
    done = subprocess.run(pyflakes, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert all(len(line) <= 100 for line in SCRIPT.read_text().splitlines())


def test_script_names_what_is_missing(tmp_path):
    done = run('tables', '--data', tmp_path, '--out', tmp_path/'out')
    assert done.returncode == 1 and not (tmp_path/'out').exists()
    assert done.stderr == f'{SCRIPT.name}: {tmp_path} does not hold SST-2\n'
    assert 'there is no table, only cifar10' in run('table', '--data', tmp_path).stderr
    assert '--data or ATTNFREE_DATA' in run(ATTNFREE_DATA='').stderr


@real
def test_tables_are_those_of_the_data(tmp_path):
    done = run('tables', 'enwik8', '--out', tmp_path)
    assert done.returncode == 0, done.stderr
    names = [line.rpartition('/')[2] for line in done.stdout.splitlines()]
    assert names == ['sentence_lengths.csv', 'squad_windows.csv', 'enwik8_window.csv']
    for name in names:
        assert (tmp_path/'results'/name).read_text() == (ROOT/'results'/name).read_text()
