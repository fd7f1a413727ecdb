"The dependency law: what a notebook may import follows from its number."
import ast, json, re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXPORTED = re.compile(r'^#\|\s*(export|exports|exporti)\b', re.MULTILINE)
ALLOWED_BETWEEN_MIXERS = {('less_attention', 'attention')}   # the one is about the other


def number(path): return int(path.name[:2])


def code_cells(path):
    "`(is it exported, source)` for each code cell of a notebook, magics left out."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        if cell['cell_type'] != 'code': continue
        source = ''.join(cell['source'])
        yield bool(EXPORTED.search(source)), re.sub(r'^\s*[%!].*$', '', source, flags=re.MULTILINE)


def imports(source):
    "Dotted names of all that `source` imports; `from a import b` gives `a.b`."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import): yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom): yield from (f'{node.module}.{alias.name}' for alias in node.names)


def violations(notebooks):
    "Sentences for all imports in `notebooks` that the law forbids."
    module_number = {path.stem[3:]: number(path) for path in notebooks if number(path) < 50}
    for path in notebooks:
        own, n = path.stem[3:], number(path)
        for exported, source in code_cells(path):
            for name in imports(source):
                top, _, rest = name.partition('.')
                if exported and top == 'fastai' and n < 20:
                    yield f"{path.name}: a mixer or a part of the skeleton imports {name}"
                if top != 'attnfree' or not rest: continue
                other = rest.split('.')[0]
                if other not in module_number: yield f"{path.name}: {name}: no notebook is called {other}"
                elif other == own:
                    if exported: yield f"{path.name}: imports itself"
                elif module_number[other] >= n: yield f"{path.name}: imports {other}, which comes later"
                elif exported and n//10 == module_number[other]//10 == 1 and (own, other) not in ALLOWED_BETWEEN_MIXERS:
                    yield f"{path.name}: a mixer imports a mixer, {other}"


def notebooks(): return sorted(p for p in (ROOT/'nbs').glob('[0-9][0-9]_*.ipynb'))


def test_law():
    assert len(notebooks()) >= 3
    assert not list(violations(notebooks()))


@pytest.mark.parametrize('name,source,complaint', [
    ('12_sgu', '#| export\nfrom attnfree.ff import FeedForwardMixer', 'a mixer imports a mixer'),
    ('12_sgu', '#| export\nfrom attnfree.vision import create_model', 'comes later'),
    ('12_sgu', 'import attnfree.vision', 'comes later'),
    ('12_sgu', '#| export\nfrom fastai.learner import Learner', 'imports fastai'),
    ('12_sgu', '#| export\nfrom attnfree.sgu import x', 'imports itself'),
    ('12_sgu', 'from attnfree.core import x', 'no notebook is called core'),
    ('12_sgu', '#| export\nfrom attnfree.patch import PatchEmbed', None),
    ('14_less_attention', '#| export\nfrom attnfree.attention import Attention', None)])
def test_law_can_be_broken(tmp_path, name, source, complaint):
    for other in ('00_patch', '10_attention', '11_ff', '20_vision'): (tmp_path/f'{other}.ipynb').write_text('{"cells": []}')
    (tmp_path/f'{name}.ipynb').write_text(json.dumps({'cells': [{'cell_type': 'code', 'source': source.splitlines(True)}]}))
    found = list(violations(sorted(tmp_path.glob('*.ipynb'))))
    assert (len(found) == 1 and complaint in found[0]) if complaint else not found


def test_every_notebook_below_50_exports_into_one_module_and_no_other_module_exists():
    exporting = {}
    for path in notebooks():
        default = [m[1] for _, source in code_cells(path) for m in re.finditer(r'^#\|\s*default_exp\s+(\S+)', source, re.MULTILINE)]
        named = {m[1] for _, source in code_cells(path) for m in re.finditer(r'^#\|\s*export +(\S+)', source, re.MULTILINE)}
        if default or named: exporting[path.name] = (default, named)
    modules = {p.stem for p in (ROOT/'attnfree').glob('*.py') if not p.name.startswith('_')}
    first = {default[0]: name for name, (default, _) in exporting.items() if default}
    assert modules == set(first)
    for path in notebooks():
        if number(path) >= 50: assert path.name not in exporting
        else:  # a module of its own name, or more of the module of an earlier notebook whose name its own begins with
            default, named = exporting[path.name]
            assert (default, named) == ([path.stem[3:]], set()) or (not default and len(named) == 1), path.name
            for module in named: assert first[module] < path.name and path.stem[3:].startswith(f'{module}_')
