"""Files in `results/` are made by scripts and commands; notebooks only read them.

So "Run All" in JupyterLab, which knows no flags such as `#| slow`, runs every results notebook to
its end and changes no file. What is tested here: the scripts `results/make_*.py`, and that what
notebooks read is there.
"""
import ast, contextlib, importlib, io, json, os, re, subprocess, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT/'results'
SCRIPTS = sorted(path.stem for path in RESULTS.glob('make_*.py')  # those that read runs
                 if 'from making import' in path.read_text())
WRITES = re.compile(r'\.to_csv\(|savez|savefig\(|write_text\(|write_bytes\(|shutil')


def load(name):
    "A script as a module."
    sys.path.insert(0, str(RESULTS))
    try: return importlib.import_module(name)
    finally: sys.path.remove(str(RESULTS))


def run(name, *arguments, options=(), **more):
    "Run a script as its reader would."
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    command = [sys.executable, *options, RESULTS/f'{name}.py', *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **more)


def code_cells(path):
    "The sources of a notebook's code cells."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    return [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']


def notebooks(folder='nbs'):
    paths = (ROOT/folder).rglob('*.ipynb')
    return sorted(path for path in paths if '.ipynb_checkpoints' not in path.parts)


def pattern(node):
    "A string in the syntax tree, with `*` for what an f-string puts in; `None` for other nodes."
    if isinstance(node, ast.Constant) and isinstance(node.value, str): return node.value
    if not isinstance(node, ast.JoinedStr): return None
    return ''.join('*' if isinstance(part, ast.FormattedValue) else part.value
                   for part in node.values)


def read_files(source):
    """Files below `results/` that code names: 'results/FILE', results/'FILE', measured('FILE'); no
    f-string that begins with a variable, which would name all."""
    tree = ast.parse(re.sub(r'^\s*[%!].*$', '', source, flags=re.MULTILINE))
    nodes = [*ast.walk(tree)]
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if node in parts: continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            file = pattern(node.right) or ''
            if not file.startswith('*') and re.search(r'\bresults\b', ast.unparse(node.left)):
                yield file
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == 'measured':
            yield pattern(node.args[0])
        elif (text := pattern(node)) and '../results/' in text:
            yield text.partition('../results/')[2]


def test_there_are_scripts():
    assert SCRIPTS == ['make_aft', 'make_gmlp', 'make_lavit', 'make_recall']


@pytest.mark.parametrize('name', [*SCRIPTS, 'make_data_pictures'])
def test_help_comes_at_once(name):
    done = run(name, '--help', options=['-X', 'importtime'], timeout=20)
    source = '--runs DIR' if name in SCRIPTS else '--data DIR'
    assert done.returncode == 0 and source in done.stdout and '--out DIR' in done.stdout
    imported = {line.rpartition('|')[2].strip() for line in done.stderr.splitlines()}
    assert 'argparse' in imported and not imported & {'torch', 'pandas', 'numpy', 'attnfree'}
    for what in load(name).MAKERS: assert f'\n| {what} ' in done.stdout


@pytest.mark.parametrize('name,what', [(name, what) for name in SCRIPTS
                                       for what, (_, runs) in load(name).MAKERS.items() if runs])
def test_missing_run(name, what, tmp_path):
    "One line that names the run and the command that makes it; nothing is written."
    done = run(name, what, '--runs', tmp_path/'none', '--out', tmp_path/'out', timeout=20)
    missing = load(name).MAKERS[what][1][0]
    line, = done.stderr.splitlines()
    assert done.returncode == 1 and not done.stdout and not (tmp_path/'out').exists()
    assert line.startswith(f'{name}.py: {tmp_path}/none/{missing} is missing; this command makes')
    assert re.search(r': (attnfree_(train|sweep)|python results/board/start.py) .* --out ', line)


def test_unknown_name():
    done = run('make_aft', 'mixer', timeout=20)
    assert done.returncode == 2 and 'there is no mixer, only transfer, memory' in done.stderr


def commands_of(shell):
    "The commands that bash would run, each as a tuple of words."
    echo = "echo() { printf '%s\\n' \"$@\" --end; }\n"
    names = ''.join(f'attnfree_{name}() {{ echo attnfree_{name} "$@"; }}\n'
                    for name in ('train', 'sweep')) + 'python() { echo python "$@"; }\n'
    done = subprocess.run(['bash', '-euc', echo + names + shell], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split('--end\n')[:-1]
    return {tuple(words.splitlines()) for words in found}


@pytest.mark.parametrize('name', SCRIPTS)
def test_commands_are_those_of_the_docstring(name):
    "What a complaint says is what stands at the head of the script."
    script = load(name)
    begin = r'\n\n(?=    (?:for|attnfree|python results/board))'
    stated = re.split(begin, script.__doc__, maxsplit=1)[1]
    complained = [f'{command} --out runs/{run}' for run, command in script.COMMANDS.items()]
    assert commands_of(stated) == commands_of('\n'.join(complained))
    assert len(commands_of(stated)) == len(script.COMMANDS)
    for _, runs in script.MAKERS.values():
        assert {run.partition('/')[0] for run in runs} <= {*script.COMMANDS}


@pytest.mark.parametrize('name', [*SCRIPTS, 'making'])
def test_names_resolve(name):
    "Scripts import within functions, where nothing else would notice a name that is gone."
    file = RESULTS/f'{name}.py'
    done = subprocess.run([sys.executable, '-m', 'pyflakes', file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith('attnfree'):
            module = importlib.import_module(node.module)
            for alias in node.names: assert hasattr(module, alias.name), f'{name}: {alias.name}'
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node), f'{name}.{node.name} has no docstring'
    assert all(len(line) <= 100 for line in file.read_text().splitlines())


def test_digits_are_completed_by_runs(tmp_path):
    "Networks trained for two steps complete the same digits as those that were trained to the end."
    import numpy as np
    from attnfree.train import attnfree_train
    for run_of in load('make_aft').MAKERS['digits'][1]:
        model = run_of.partition('model=')[2].partition('_drop')[0]
        attnfree_train('digits_pixels', model=model, out=str(tmp_path/'runs'/run_of),
                       set=['steps=2', 'warmup_epochs=0', 'train_examples=8', 'valid_examples=8',
                            'bs=4', 'epochs=none'])
    done = run('make_aft', 'digits', '--runs', tmp_path/'runs', '--out', tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip().rpartition('/')[2]
    with np.load(tmp_path/name) as made, np.load(RESULTS/name) as kept:
        assert [*made] == [*kept] == ['images', 'aft_conv', 'gmlp', 'attention']
        for key in made: assert made[key].shape == kept[key].shape
        assert (made['images'] == kept['images']).all()
        assert all((made[key][:,:4] == made['images'][:,:4]).all() for key in made)


@pytest.mark.skipif('ATTNFREE_DATA' not in os.environ, reason='no data')
def test_test_images_are_those_of_the_data(tmp_path):
    import numpy as np
    done = run('make_data_pictures', 'test', '--out', tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    name = 'results/cifar10_test.npz'
    with np.load(tmp_path/name) as made, np.load(ROOT/name) as kept:
        assert [*made] == [*kept]
        for key in made: np.testing.assert_array_equal(made[key], kept[key])


def test_memory_is_measured(tmp_path, monkeypatch):
    "The expression for a fresh process names functions that are there. Here nothing is fresh."
    import torch
    from attnfree.measure import less_attention, models, sequences
    names = vars(models) | vars(less_attention) | vars(sequences)
    monkeypatch.setattr(models, 'in_fresh_process', lambda expression: eval(expression, names))
    monkeypatch.setattr(torch, 'set_num_threads', lambda threads: None)
    load('make_aft').memory(None, tmp_path, lengths=(16,))
    made, kept = (folder/'bench_aft_memory.csv' for folder in (tmp_path, RESULTS))
    assert made.read_text().splitlines()[0] == kept.read_text().splitlines()[0]
    assert len(made.read_text().splitlines()) == 4


def test_what_notebooks_read_is_there():
    found = {(path.stem, file) for path in notebooks() for source in code_cells(path)
             for file in read_files(source) if file}
    assert len(found) > 40
    assert not [pair for pair in sorted(found) if not [*RESULTS.glob(pair[1])]]
    unread = {file.name for file in RESULTS.iterdir() if file.suffix not in ('.py', '')}
    for _, file in found: unread -= {path.name for path in RESULTS.glob(file)}
    assert not unread


def shown(source, folder, width):
    "What a cell that needs pandas alone shows; `None` for one that needs more."
    import pandas as pd
    tree = ast.parse(source)
    if not isinstance(tree.body[-1], ast.Expr): return None
    last = ast.Expression(tree.body.pop().value)
    names = dict(pd=pd, Path=Path, results=Path('../../results'))
    before = os.getcwd()
    os.chdir(folder)
    try:
        with (contextlib.redirect_stdout(io.StringIO()),
              pd.option_context('display.max_columns', 20, 'display.max_colwidth', width)):
            exec(compile(tree, 'cell', 'exec'), names)
            return repr(eval(compile(last, 'cell', 'eval'), names))
    except NameError: return None
    finally: os.chdir(before)


def test_shown_tables_are_those_of_the_files():
    "A table that was measured again is shown again, too: stored outputs are compared with files."
    compared, stale = 0, []
    for path in notebooks():
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            source = ''.join(cell['source'])
            if cell['cell_type'] != 'code' or 'read_csv(' not in source: continue
            if 'results' not in source or 'def ' in source: continue
            now = [shown(source, path.parent, width) for width in (50, None)]  # a notebook's choice
            if now[0] is None: continue
            stored = ''.join(''.join(output['data']['text/plain']) for output in cell['outputs']
                             if 'text/plain' in output.get('data', {}))
            compared += 1
            if stored.split() not in [text.split() for text in now]:
                stale.append((path.stem, source[:80]))
    assert compared >= 25 and not stale


@pytest.mark.parametrize('path', notebooks('nbs/results'), ids=lambda path: path.stem)
def test_results_notebooks_only_read(path):
    for source in code_cells(path):
        assert not re.search(r'''\bruns(/|['"])''', source), source
        assert not WRITES.search(source) and '#| slow' not in source, source


@pytest.mark.parametrize('source,files', [
    ("pd.read_csv('../../results/a.csv')", ['a.csv']),
    ("[pd.read_csv(f'../../../results/a_{name}.csv') for name in 'xy']", ['a_*.csv']),
    ("np.load(results/'a.npz')", ['a.npz']), ("Path('../../results')/f'{x}.csv'", []),
    ("measured('a.csv')", ['a.csv']), ("share = part/whole; runs['a']", [])])
def test_reading_is_noticed(source, files): assert [*read_files(source)] == files
