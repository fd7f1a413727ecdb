"How pages show exported cells: `.ci/reference.py`, which reads them and runs nothing."
import ast, sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent/'.ci'))
try: import reference
finally: sys.path.pop(0)

SOURCE = '''from torch import nn
SIZES = (1, 2)
class Mixer(nn.Module):
    "Mixes tokens."
    def __init__(self,
        dim:int,             # Channels
        grid:tuple[int,...], # Token grid, which is
                             # `(h, w)`
        *,
        gate=torch.sigmoid,  # Nonlinearity
    ): pass

    def step(self,
        x:Tensor|None, # One token
    )->Tensor:         # Mixed
        "Mix one token."

    def _hidden(self): pass

    @property
    def size(self)->int: # How many
        "Its size."

def _helper(): pass
'''


def definition():
    return next(node for node, _ in reference.pieces(SOURCE) if node)


def test_pieces_are_what_is_public_and_what_is_between():
    found = [(node and node.name, text.split('\n')[0]) for node, text in reference.pieces(SOURCE)]
    assert found == [(None, 'SIZES = (1, 2)'), ('Mixer', 'class Mixer(nn.Module):'),
                     (None, 'def _helper(): pass')]


def test_a_class_is_a_class_with_true_types():
    shown = reference.signature(definition(), reference.comments(SOURCE))
    assert shown.startswith('class Mixer(nn.Module):\n    def __init__(self, dim: int')
    assert 'tuple[int, ...], *, gate=torch.sigmoid)' in shown
    assert '__main__' not in shown and 'builtin' not in shown


def test_a_long_signature_keeps_its_star():
    plain = ', '.join(f'parameter_{i}:int' for i in range(6))
    source = f'def f({plain}, *, last:str="x"): pass'
    lines = reference.signature(ast.parse(source).body[0], {}).split('\n')
    assert lines[7:9] == ['    *,', "    last: str = 'x',"]


def test_parameters_and_methods_are_listed():
    parts = reference.details(definition(), reference.comments(SOURCE))
    assert '- **`grid`** `tuple[int, ...]`: Token grid, which is `(h, w)`' in parts[0]
    assert '- **`gate`** `= torch.sigmoid`: Nonlinearity' in parts[0] and 'self' not in parts[0]
    text = '\n'.join(parts)
    assert '[**`step(x)`**]{#mixer.step} Mix one token.' in text
    assert '- **`x`** `Tensor|None`: One token\n- **returns** `Tensor`: Mixed' in text
    assert '[**`size`**]{#mixer.size} Its size.' in text and '_hidden' not in text


class Cell(dict):
    def parsed_(self): return ast.parse(self['source']).body
    source = property(lambda self: self['source'])


@pytest.mark.parametrize('source,outputs,summary', [
    ('import a\nfrom b import c', [], 'Imports'),
    ('x = 1\ny = 2\nassert x\ntest_eq(x, y)\nassert_close(x, y)', [], 'Evidence: 3 checks'),
    ('x = 1\nassert x', [], None),  # short: it is also how a thing is used
    ('x = 1\ny = 2\nassert x\nassert y\nx', ['a table'], None),
    ('def f():\n    return 1\n\ny = 2\nassert f()', [], None),  # f is used below
    ('x = 1\ny = 2\nz = 3\nf(x)\nplot(y)', [], None)])
def test_what_is_folded(source, outputs, summary):
    cell = Cell(source=source, outputs=outputs)
    assert reference.summary_of(cell, results=False) == summary
    assert reference.summary_of(cell, results=True) == (summary or 'Code')


def test_a_figure_is_described_by_the_last_sentence():
    said = 'First this. The [weights](x.ipynb) of `f` are $w$ smooth:'
    assert reference.sentence(said) == 'The weights of f are smooth'


@pytest.mark.parametrize('markdown,expected', [
    ('![Red `maps`](a.png)\n\n*What is read, 5 % of it.*',
     '![What is read, 5 % of it.](a.png){fig-alt="Red maps"}'),
    ('![Bars, 5 %](a.png)', '![Bars, 5 %](a.png){fig-alt="Bars, 5  percent"}'),
    ('Text ![Bars](a.png)', 'Text ![Bars](a.png)')])
def test_a_picture_has_its_caption_below_it(markdown, expected):
    assert reference.PICTURE.sub(reference.described, markdown) == expected


def test_options_of_a_command():
    "Names as they are typed, arguments without dashes, defaults, and the help of `option`."
    source = """@call_parse
def command(
    run:str,      # Folder of a run
    top:int=5,    # How many, short for --set top=
    cases:option('A case', str, action='append')=None,
    imports:IMPORTS=None,
): "Does nothing."
"""
    node, = reference.ast.parse(source).body
    assert reference.is_command(node)
    lines = reference.options(node, reference.comments(source)).splitlines()
    assert lines[:3] == ['- **`RUN`**: Folder of a run',
                         '- **`--top`** (`5`): How many, short for `--set` top=',
                         '- **`--cases`**: A case']
    assert lines[3].startswith('- **`--imports`**: A Python file or module')
