"""The layout of the package: where a notebook stands, what it may import, how wide its lines are.

A notebook's folder is its role, its number its position in the reading order of the folder, its
name the last part of its module's name. One notebook, one module. A notebook imports only from
earlier ones, in its tests as well. No line of code is longer than a page is wide.
"""
import ast, json, re, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The folders in the order in which they may import from each other.
FOLDERS = ['errors', 'skeleton', 'mixers', 'mixers/aft', 'mixers/less_attention', 'kernels', 'text',
           'models', 'visualise', 'training', 'tasks', 'data', 'run', 'measure', 'commands',
           'live', 'tutorials', 'results', '.']
SCRIPTS = ['tests/*.py', '.ci/*.py', '.ci/run', 'examples/*.py', 'results/*.py',
           'results/*/*.py']
WIDTH = 100
READERS = ['tutorials', 'results', '.']  # they export nothing
PAGES = ['live']  # and here, some
EXPORTED = re.compile(r'^#\|\s*(export|exports|exporti)\b', re.MULTILINE)
DEFAULT = re.compile(r'^#\|\s*default_exp\s+(\S+)', re.MULTILINE)
ELSEWHERE = re.compile(r'^#\|\s*(?:export|exports|exporti)[ \t]+(\S+)', re.MULTILINE)
ALLOWED = {('less_attention', 'attention')}  # the plug-in turns the one into the other
MEANS = {'weighted_mean', 'biased_mean'}  # what mixers may share
TORCH_ALONE = {'attention', 'ff', 'sgu', 'weighted_mean', 'biased_mean', 'aft.variants',
               'aft.conv', 'aft.sparse', 'less_attention.layer'}
PROMISED = {
    'aft': 'AFTSimple AFTFull AFTLocal AFTConv', 'attention': 'Attention', 'ff': 'FeedForwardMixer',
    'sgu': 'GatedMLP SpatialGatingUnit', 'less_attention': 'LessAttention with_less_attention',
    'less_attention.plugin': 'with_less_attention',
    'mixer': 'check_mixer', 'block': 'MixerBlock', 'backbone': 'Backbone Readout Stack',
    'patch': 'PatchEmbed', 'vision': 'create_model', 'language': 'create_model',
    'tasks': 'Task register_task', 'data': 'create_dls DataSet register_data_set',
    'families': 'Family register', 'learner': 'attnfree_learner',
    'visualise': 'plot_spatial_weights', 'train': 'attnfree_train',
    'run': 'train draw_run plan_training plan_evaluation plot_prediction plot_runs generate '
           'plot_sweep',
    'evaluate': 'attnfree_eval attnfree_predict attnfree_plot',
    'generate': 'attnfree_generate', 'sweep': 'attnfree_sweep', 'bench': 'attnfree_bench',
    'hub': 'attnfree_hub', 'export': 'attnfree_export'}


class Notebook:
    "What the rules ask of a notebook below `nbs`."
    def __init__(self, path, nbs):
        self.name = path.relative_to(nbs).with_suffix('').as_posix()
        self.folder = path.parent.relative_to(nbs).as_posix()
        self.number, _, self.title = path.stem.partition('_')
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        self.cells = {number: ''.join(cell['source']) for number, cell in enumerate(cells, 1)
                      if cell['cell_type'] == 'code'}
        sources = [*self.cells.values()]
        self.code = [(bool(EXPORTED.search(source)), source) for source in sources]
        self.modules = DEFAULT.findall('\n'.join(sources))
        self.module = self.modules[0] if self.modules else None
        self.exports_elsewhere = ELSEWHERE.findall('\n'.join(sources))

    def __repr__(self): return self.name

    def trees(self):
        "`(is it exported, syntax tree)` of each code cell, magics left out."
        for exported, source in self.code:
            yield exported, ast.parse(re.sub(r'^\s*[%!].*$', '', source, flags=re.MULTILINE))

    def position(self):
        "Where it stands in the order of the law."
        return FOLDERS.index(self.folder), self.number

    def defines(self):
        "The names that its exported cells bind."
        for exported, tree in self.trees():
            for node in tree.body if exported else ():
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)): yield node.name
                for target in getattr(node, 'targets', ()):
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def notebooks(nbs=ROOT/'nbs'):
    paths = [p for p in nbs.rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts]
    return [Notebook(path, nbs) for path in sorted(paths)]


def imports(tree):
    "`(module, name or None)` for all that a cell imports."
    for node in ast.walk(tree):
        if isinstance(node, ast.Import): yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


def sources(module, name, found):
    "The notebooks that `from attnfree.module import name` depends on; none where there is none."
    by_module = {n.module: n for n in found if n.module}
    if module in by_module: return [by_module[module]]
    if module == '' and name in by_module: return [by_module[name]]
    inside = [n for n in found if n.module and n.module.startswith(f'{module}.')] if module else []
    return [n for n in inside if name in n.defines()] or inside


def tables(notebook):
    "Changes that exported cells make to something imported, at the top of the module."
    imported = {name for exported, tree in notebook.trees() if exported
                for _, name in imports(tree) if name}
    for exported, tree in notebook.trees():
        for node in tree.body if exported else ():
            targets = getattr(node, 'targets', [getattr(node, 'target', None)])
            changed = [t.value for t in targets if isinstance(t, ast.Subscript)]
            if isinstance(node, ast.AugAssign): changed.append(node.target)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                function = node.value.func
                if isinstance(function, ast.Attribute) and function.attr in ('update', 'append'):
                    changed.append(function.value)
            yield from (c.id for c in changed if isinstance(c, ast.Name) and c.id in imported)


def of_mixers(own, other):
    "Whether a mixer's module `own` may import the mixer's module `other`."
    package = own.partition('.')[0]
    same = '.' in own and other.startswith(f'{package}.')
    return same or other in MEANS or (package, other) in ALLOWED


def violations(found):
    "Sentences for all that the dependency law forbids in the notebooks `found`."
    for book in found:
        for exported, tree in book.trees():
            for module, name in imports(tree):
                top, _, rest = module.partition('.')
                if exported and book.module in TORCH_ALONE:
                    if top not in ('torch', 'attnfree') and top not in sys.stdlib_module_names:
                        yield f'{book}: a mixer needs torch alone, and imports {module}'
                early = FOLDERS.index(book.folder) < FOLDERS.index('training')
                if exported and top == 'fastai' and early:
                    yield f'{book}: imports {module}, which comes in with training'
                if top != 'attnfree' or (module, name) == (top, None): continue # its version
                others = sources(rest, name, found)
                if not others: yield f'{book}: imports {module}.{name}: no notebook writes it'
                for other in others:
                    if other is book:
                        if exported: yield f'{book}: imports itself'
                    elif other.position() >= book.position():
                        yield f'{book}: imports {other.module}, which comes later'
                    elif exported and book.folder.startswith('mixers') and \
                            other.folder.startswith('mixers') and \
                            not of_mixers(book.module, other.module):
                        yield f'{book}: a mixer imports a mixer, {other.module}'
        for name in tables(book): yield f'{book}: changes {name}, which another module owns'


def misplaced(found):
    "Sentences for all notebooks that break the rules on folders, numbers, names and modules."
    for book in found:
        if book.folder not in FOLDERS: yield f'{book}: the folder {book.folder} has no place'
        if book.folder == '.':
            if book.name != 'index': yield f'{book}: only the index stands in no folder'
            continue
        if not re.fullmatch(r'\d\d', book.number): yield f'{book}: has no number'
        if book.exports_elsewhere: yield f'{book}: exports into {book.exports_elsewhere[0]}'
        if book.folder in READERS:
            if book.modules: yield f'{book}: exports, but {book.folder} is for reading'
        elif book.folder in PAGES and not book.modules: continue
        elif len(book.modules) != 1: yield f'{book}: must name one module by default_exp'
        else:
            package = book.folder.rpartition('/')[2]
            if book.module not in (book.title, f'{package}.{book.title}'):
                yield f'{book}: writes {book.module}, which its name does not say'
    for key, what in ((lambda b: (b.folder, b.number), 'number'), (lambda b: b.module, 'module'),
                      (lambda b: f'{b.folder}/{b.title}', 'address')):
        seen = {}
        for book in found:
            if key(book) is None: continue
            if key(book) in seen: yield f'{seen[key(book)]} and {book} have the same {what}'
            seen[key(book)] = book


def strangers(package, found):
    "Python files below `package` that no notebook writes; hand-written `__init__.py` apart."
    written = {n.module.replace('.', '/') + '.py' for n in found if n.module}
    folders = {str(Path(file).parent) for file in written}
    for file in sorted(package.rglob('*.py')):
        name = file.relative_to(package).as_posix()
        own = file.name == '__init__.py' and str(Path(name).parent) in folders
        if not own and name not in written | {'_modidx.py'}: yield name
    for name in sorted(written):
        if not (package/name).exists(): yield f'{name}, which is missing'


def long_lines(root):
    "Each line of code below `root` that is too long: file, cell (counted from 1), line, columns."
    sources = {}
    for book in notebooks(root/'nbs'):
        for number, source in book.cells.items():
            sources[f'nbs/{book}.ipynb, cell {number}'] = source
    for path in sorted(file for pattern in SCRIPTS for file in root.glob(pattern)):
        sources[path.relative_to(root).as_posix()] = path.read_text(encoding='utf-8')
    for name, source in sources.items():
        for number, line in enumerate(source.splitlines(), 1):
            if len(line) > WIDTH: yield f'{name}, line {number}: {len(line)} columns'


def test_every_line_fits_the_page():
    found = list(long_lines(ROOT))
    assert not found, '\n'.join([f'over {WIDTH} columns:', *found])


def test_every_notebook_has_its_place():
    assert len(notebooks()) > 50
    assert not list(misplaced(notebooks()))


def test_every_notebook_installs_the_package_in_colab():
    for book in notebooks():
        found = [source for source in book.cells.values() if '/content' in source]
        assert len(found) == 1, (f'{book} has {len(found)} cells for Colab: copy the third cell of '
                                 'another notebook in its folder (CONTRIBUTING.md)')
        cell, = found
        folder = f'nbs/{book}'.rpartition('/')[0]
        assert cell.startswith('#| hide\n#| eval: false\n') and len(cell.splitlines()) == 6
        assert f"os.chdir('attnfree/{folder}')" in cell, book


def test_every_module_has_its_notebook():
    assert not list(strangers(ROOT/'attnfree', notebooks()))


def test_dependency_law():
    assert not list(violations(notebooks()))


def test_promised_imports():
    "What users were promised stays where it is."
    import importlib
    for module, names in PROMISED.items():
        found = importlib.import_module(f'attnfree.{module}')
        for name in names.split():
            assert callable(getattr(found, name)), f'attnfree.{module}.{name}'


def write(nbs, name, *cells):
    "A notebook of code `cells`, for trying the rules."
    path = nbs/f'{name}.ipynb'
    path.parent.mkdir(parents=True, exist_ok=True)
    content = [{'cell_type': 'code', 'source': cell.splitlines(True)} for cell in cells]
    path.write_text(json.dumps({'cells': content}))


def test_a_long_line_is_found(tmp_path):
    widest, longer = 'x'*WIDTH, 'x'*(WIDTH + 1)
    write(tmp_path/'nbs', 'mixers/01_ff', widest, f'y = 1\n{longer}')
    write(tmp_path/'nbs', 'index', longer)
    for name in ('.ci/run', '.ci/docs.py', 'tests/test_ff.py', 'examples/mine.py', 'setup.py'):
        (tmp_path/name).parent.mkdir(exist_ok=True)
        (tmp_path/name).write_text(f'{widest}\n\n{longer}\n')
    columns = f'{WIDTH + 1} columns'
    assert list(long_lines(tmp_path)) == [
        f'nbs/index.ipynb, cell 1, line 1: {columns}',
        f'nbs/mixers/01_ff.ipynb, cell 2, line 2: {columns}',
        f'.ci/docs.py, line 3: {columns}', f'.ci/run, line 3: {columns}',
        f'examples/mine.py, line 3: {columns}', f'tests/test_ff.py, line 3: {columns}']


@pytest.fixture
def nbs(tmp_path):
    "A small package that keeps all rules."
    for name, module in [('skeleton/00_patch', 'patch'), ('mixers/00_attention', 'attention'),
                         ('mixers/01_ff', 'ff'), ('mixers/aft/00_variants', 'aft.variants'),
                         ('models/00_vision', 'vision')]:
        write(tmp_path, name, f'#| default_exp {module}', f'#| export\ndef {name[-3:]}(): pass')
    write(tmp_path, 'tutorials/00_compare', 'from attnfree.aft import nts')
    return tmp_path


def test_a_good_layout(nbs):
    assert not [*violations(notebooks(nbs)), *misplaced(notebooks(nbs))]


@pytest.mark.parametrize('source,complaint', [
    ('#| export\nfrom attnfree.ff import _ff', 'a mixer imports a mixer'),
    ('#| export\nfrom attnfree.vision import create_model', 'comes later'),
    ('import attnfree.vision', 'comes later'),
    ('from attnfree import vision', 'comes later'),
    ('from attnfree.aft import nts', 'comes later'),
    ('#| export\nfrom fastai.learner import Learner', 'imports fastai'),
    ('#| export\nfrom timm.layers import Mlp', 'torch alone'),
    ('#| export\nfrom attnfree.sgu import x', 'imports itself'),
    ('from attnfree.core import x', 'no notebook writes it'),
    ('#| export\nfrom attnfree.patch import T\nT |= {1: 2}', 'changes T'),
    ('#| export\nfrom attnfree.patch import T\nT[1] = 2', 'changes T'),
    ('#| export\nfrom attnfree.patch import PatchEmbed', None),
    ('from attnfree.sgu import x', None)])
def test_law_can_be_broken(nbs, source, complaint):
    write(nbs, 'mixers/05_sgu', '#| default_exp sgu', source)
    found = [f for f in violations(notebooks(nbs)) if 'fastai' in str(complaint) or 'alone' not in f
             or 'alone' in complaint]
    assert (found and complaint in found[0]) if complaint else not found


@pytest.mark.parametrize('name,cells,complaint', [
    ('mixers/05_sgu', ['#| default_exp gate'], 'its name does not say'),
    ('mixers/01_sgu', ['#| default_exp sgu'], 'the same number'),
    ('mixers/02_ff', ['#| default_exp ff'], 'the same module'),
    ('mixers/05_sgu', ['#| default_exp sgu', '#| export ff\nx = 1'], 'exports into ff'),
    ('mixers/sgu', ['#| default_exp sgu'], 'has no number'),
    ('mixers/05_sgu', ['x = 1'], 'must name one module'),
    ('attic/00_sgu', ['#| default_exp sgu'], 'has no place'),
    ('tutorials/01_sgu', ['#| default_exp sgu'], 'is for reading'),
    ('tutorials/01_compare', ['x = 1'], 'the same address'),
    ('more', ['x = 1'], 'only the index')])
def test_places_can_be_missed(nbs, name, cells, complaint):
    write(nbs, name, *cells)
    assert any(complaint in sentence for sentence in misplaced(notebooks(nbs)))


def test_a_stale_module_is_found(nbs, tmp_path):
    package = tmp_path/'package'
    (package/'aft').mkdir(parents=True)
    for name in ('patch', 'attention', 'ff', 'vision', 'aft/variants', '__init__', 'aft/__init__'):
        (package/f'{name}.py').touch()
    assert not list(strangers(package, notebooks(nbs)))
    (package/'aft.py').touch()
    (package/'ff.py').unlink()
    assert list(strangers(package, notebooks(nbs))) == ['aft.py', 'ff.py, which is missing']
