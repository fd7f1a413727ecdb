"The tools in `.ci` on made-up projects: each kind of problem is reported, and only where it is."
import base64, json, shutil, subprocess, sys
from pathlib import Path

import nbformat, pytest

CI = Path(__file__).parent.parent/'.ci'
sys.path.insert(0, str(CI))
import docs
from test_layout import PROMISED

PNG = base64.b64encode(bytes.fromhex(
    '89504e470d0a1a0a0000000d49484452000000010000000108020000009077'
    '53de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082')).decode()
SETTINGS = """[DEFAULT]
repo = example
lib_name = example
version = 0.0.1
min_python = 3.11
license = apache2
lib_path = example
nbs_path = nbs
doc_path = _docs
recursive = True
tst_flags = slow
custom_sidebar = True
title = example
branch = main
user = example
doc_host = https://example.github.io
doc_baseurl = /example
git_url = https://github.com/example/example
description = An example
author = nobody
author_email = nobody@example.org
copyright = nobody
keywords = example
language = English
status = 3
audience = Developers
"""
QUARTO = """project:
  type: website
format:
  html:
    theme: none
    html-math-method: mathml
metadata-files: [nbdev.yml, sidebar.yml]
"""
quarto = pytest.mark.skipif(not shutil.which('quarto'), reason='no quarto: nothing was rendered')


def text(source): return {'cell_type': 'markdown', 'source': source.splitlines(True)}


def code(source, *outputs):
    return {'cell_type': 'code', 'execution_count': None, 'outputs': list(outputs),
            'source': source.splitlines(True)}


def shown(kind, content):
    return {'output_type': 'display_data', 'metadata': {}, 'data': {kind: content}}


def failed(name, value):
    return {'output_type': 'error', 'ename': name, 'evalue': value, 'traceback': []}


def project(root, pages, listed=None):
    "A project of notebooks, `{name: cells}`, in the folder `root`, with `listed` in its sidebar."
    for folder in ('nbs', 'example'): (root/folder).mkdir(parents=True, exist_ok=True)
    (root/'settings.ini').write_text(SETTINGS)
    (root/'nbs/_quarto.yml').write_text(QUARTO)
    (root/'example/__init__.py').write_text('one = 1\n')
    kernel = {'display_name': 'python3', 'language': 'python', 'name': 'python3'}
    for name, cells in pages.items():
        cells = [text(f'# Title of {name}\n\n> What {name} is about')] + cells
        cells = [dict(cell, id=f'cell{i}', metadata={}) for i, cell in enumerate(cells)]
        file = root/f'nbs/{name}.ipynb'
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({'cells': cells, 'metadata': {'kernelspec': kernel},
                                    'nbformat': 4, 'nbformat_minor': 5}, indent=1))
    names = pages if listed is None else listed
    entries = ''.join(f'      - {name}.ipynb\n' for name in names)
    (root/'nbs/sidebar.yml').write_text(f'website:\n  sidebar:\n    contents:\n{entries}')
    return root


def tool(name, root, *options):
    command = [sys.executable, CI/name, *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


SITE, SOURCE = 'https://example.github.io/example', 'https://github.com/example/example/blob/main'
GOOD = [text('## A part\n\nA formula $x_t = \\sum_s w_{ts}$,'
             ' a [page](part/01_fine.ipynb#more-of-it),'
             f' [here](#a-part), [the site]({SITE}/part/fine.html#more-of-it),'
             f' [source]({SOURCE}/example/__init__.py#L1).\n\n'
             '$$ \\Big\\lVert y \\Big\\rVert_F $$'),
        text('![a picture](images/good.png)'),
        code('1 + 1', {'output_type': 'execute_result', 'execution_count': None, 'metadata': {},
                       'data': {'text/plain': ['2']}}),
        code('plot()', shown('image/png', PNG)), code("'$$' # not a formula: code")]
BROKEN = {  # name of the page: (its cells, what is reported, of the page or of the notebook)
    '02_picture': ([text('![gone](images/gone.png)')], 'missing picture: images/gone.png'),
    '90_script': ([text('<script src="https://else.example/a.js"></script>')],
                  'loads from elsewhere: https://else.example/a.js'),
    '91_foreign': ([text('![far](https://else.example/a.png)')],
                   'loads from elsewhere: https://else.example/a.png'),
    '03_page': ([text('[gone](gone.html)')],
                'dead link: gone.html: no page or file part/gone.html'),
    '04_anchor': ([text('## Here\n\n[gone](#there)')], 'dead link: #there: no such anchor'),
    '05_other_anchor': ([text('[gone](01_fine.ipynb#nowhere)')], '#nowhere: no such anchor'),
    '06_site': ([text(f'[gone]({SITE}/part/fine.html#nowhere)')], '#nowhere: no such anchor'),
    '07_source': ([text(f'[gone]({SOURCE}/example/gone.py#L3)')], 'no example/gone.py'),
    '08_line': ([text(f'[gone]({SOURCE}/example/__init__.py#L300)')], '__init__.py is shorter'),
    '09_file': ([text('[gone](data.csv)')], 'dead link: data.csv'),
    '12_no_formula': ([text('this $ \\alpha + \\beta $ has spaces inside')], 'not recognised'),
    '17_code': ([text(f'```python\n# [`x`]({SITE}/part/fine.html#x)\n```')], 'link inside code'),
    '13_error': ([code('1/0', failed('ZeroDivisionError', 'division by zero'))],
                 'error output: ZeroDivisionError: division by zero'),
    '14_warning': ([code('warn()', {'output_type': 'stream', 'name': 'stderr',
                                    'text': ['UserWarning: old\n']})], 'error output: stderr'),
    '15_unlisted': ([], 'missing from sidebar.yml')}


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    "The lines printed of a project with good pages and one page for each kind of problem."
    root = tmp_path_factory.mktemp('docs')
    broken = {f'part/{name}': cells for name, (cells, _) in BROKEN.items()}
    pages = {'index': GOOD, 'part/01_fine': [text('## More of it')], **broken}
    project(root, pages, [name for name in pages if name != 'part/15_unlisted'])
    (root/'nbs/images').mkdir()
    (root/'nbs/images/good.png').write_bytes(base64.b64decode(PNG))
    (root/'README.md').write_text('[gone](nbs/gone.ipynb)\n')
    done = tool('docs.py', root, '--root', root)
    assert done.returncode == 1, done.stderr
    return done.stdout.splitlines(), root/'_proc/_docs'


@quarto
@pytest.mark.parametrize('name', BROKEN)
def test_problem_is_reported(report, name):
    page = f'part/{name[3:]}.html'
    lines = [line for line in report[0] if line.startswith((f'part/{name}.ipynb', page))]
    assert len(lines) == 1 and BROKEN[name][1] in lines[0], report[0]


@quarto
def test_nothing_else_is_reported(report):
    starts = tuple(start for name in BROKEN
                   for start in (f'part/{name}.ipynb', f'part/{name[3:]}.html'))
    lines = [line for line in report[0] if not line.startswith(starts)]
    assert lines == ['README.md: dead link: nbs/gone.ipynb: no page or file nbs/gone.ipynb',
                     f'docs: {len(BROKEN) + 2} pages, {len(BROKEN) + 1} problems']


@quarto
def test_pages_are_whole(report):
    page = (report[1]/'index.html').read_text()
    for part in ('Title of index</h1>', 'What index is about', '<math', 'id="a-part"',
                 'fine.html#more-of-it"', 'src="images/good.png"'):
        assert part in page, part
    assert len(list((report[1]/'index_files').rglob('*.png'))) == 1


@quarto
def test_what_quarto_warns_of_is_reported(tmp_path):
    "Formulas that do not parse, and links to notebooks that are not there."
    project(tmp_path, {'index': [text('$$ \\frac{a}{b $$'), text('$\\nosuchcommand{a}$'),
                                 text('[gone](09_gone.ipynb)')]})
    done = tool('docs.py', tmp_path, '--root', tmp_path)
    assert done.returncode == 1
    lines = [' '.join(line.split()) for line in done.stdout.splitlines()]
    for part in ('Could not convert TeX math \\frac{a}{b', 'Could not convert TeX math \\nosuch',
                 'Unable to resolve link target: 09_gone.ipynb', 'dead link: 09_gone.ipynb'):
        assert any(part in line for line in lines), done.stdout


def test_one_address_for_two_is_reported(tmp_path):
    project(tmp_path, {'index': [], '01_text': [], '02_text': []})
    done = tool('docs.py', tmp_path, '--root', tmp_path, '--no-render')
    assert '02_text.ipynb: has the address of 01_text.ipynb: text.html' in done.stdout
    assert done.returncode == 1


@quarto
def test_a_missing_page_is_reported(tmp_path):
    project(tmp_path, {'index': [text('## A part')], '01_text': []})
    done = tool('docs.py', tmp_path, '--root', tmp_path)
    assert (done.returncode, done.stdout) == (0, 'docs: 2 pages, 0 problems\n'), done.stderr
    (tmp_path/'_proc/_docs/text.html').unlink()
    done = tool('docs.py', tmp_path, '--root', tmp_path, '--no-render')
    assert done.returncode == 1 and 'text.html: missing page' in done.stdout


def test_links_within_links():
    made = docs.without_nested_links(
        '[[`a`](b#a)](c) [`d`](e), [see [`x`](y) and [`z`](w)](u) [![`a` drawn](p.png)](q) [f](g)')
    assert made == '[`a`](c) [`d`](e), [see `x` and `z`](u) [![`a` drawn](p.png)](q) [f](g)'
    soup = docs.BeautifulSoup('<a href="c">[a](b)</a> <a href="d">e</a>', 'html.parser')
    assert [*docs.nested_problems(soup)] == ['link within a link: [a](b)']


def test_pages_of_learn_end_with_exercises():
    "Two for each page that writes a module, with answers that are folded, run, and check."
    root = CI.parent
    contents = docs.sidebars(root)[0]['contents']
    for name in docs.listed(contents):
        cells = nbformat.read(root/'nbs'/name, as_version=4).cells
        if not any(cell.source.startswith('#| default_exp') for cell in cells): continue
        titles = [i for i, cell in enumerate(cells) if cell.source.startswith('## Exercises')]
        assert len(titles) == 1, name
        for question, answer in zip(cells[titles[0]:][:4:2], cells[titles[0]:][1:4:2], strict=True):
            assert question.cell_type == 'markdown' and '**' in question.source, name
            head = '#| code-fold: true\n#| code-summary: "Answer"\n# '
            assert answer.source.startswith(head), name
            assert 'assert' in answer.source or 'test_eq' in answer.source, name
            assert not answer.outputs and answer.metadata.jupyter.source_hidden, name


def test_the_reference_has_what_is_promised():
    told = {(module.removeprefix('attnfree.'), name)
            for _, module, name in docs.vocabulary(CI.parent)}
    wanted = {(module, name) for module, names in PROMISED.items() for name in names.split()}
    assert told == wanted - {('less_attention.plugin', 'with_less_attention')}  # named once


def test_old_addresses_lead_to_pages():
    root = CI.parent
    there = {docs.address(name) for name in docs.notebooks(root)}
    assert docs.moved(root).keys() and not docs.moved(root).keys() & there
    assert {*docs.moved(root).values()} <= there


def test_sidebar_of_what_is_not_there(tmp_path):
    project(tmp_path, {'index': []}, ['index', '18_extra', 'index'])
    done = tool('docs.py', tmp_path, '--root', tmp_path, '--no-render')
    lines = done.stdout.splitlines()
    assert lines[:2] == ['sidebar.yml: no notebook 18_extra.ipynb',
                         'sidebar.yml: lists index.ipynb twice'] and done.returncode == 1


def test_readme(tmp_path):
    project(tmp_path, {'index': GOOD[:3] + [code('#| hide\nhidden()')], 'part/01_fine': []})
    assert tool('readme.py', tmp_path, '--root', tmp_path).returncode == 0
    first = (tmp_path/'README.md').read_bytes()
    written = first.decode()
    assert '\n# Title of index\n\n> What index is about\n' in written and 'hidden' not in written
    for part in ('![a picture](nbs/images/good.png)', '](nbs/part/01_fine.ipynb#more-of-it)',
                 '](#a-part)'):
        assert part in written, part
    assert tool('readme.py', tmp_path, '--root', tmp_path, '--check').returncode == 0
    (tmp_path/'README.md').write_bytes(first + b'x')
    assert tool('readme.py', tmp_path, '--root', tmp_path, '--check').returncode == 1
    assert (tmp_path/'README.md').read_bytes() == first + b'x'


def test_readme_refuses_stored_pictures(tmp_path):
    project(tmp_path, {'index': [code('plot()', shown('image/png', PNG))]})
    done = tool('readme.py', tmp_path, '--root', tmp_path)
    assert done.returncode == 1 and 'nbs/images' in done.stderr
    assert not (tmp_path/'README.md').exists()


def test_notebooks_are_counted(tmp_path):
    "Two of one name in two folders count as two, and each is checked by itself."
    project(tmp_path, {'a/00_one': [code('assert 1 + 1 == 2')],
                       'b/00_one': [code('assert 1 + 1 == 3')],
                       'b/02_flagged': [code('#| slow\nassert False')],
                       'b/03_dies': [code('import os; os._exit(1)')]})
    done = tool('notebooks.py', tmp_path, '--path', 'nbs/a')
    assert done.returncode == 0 and 'notebooks: 1 passed, 0 failed' in done.stdout, done.stderr
    (tmp_path/'nbs/b/03_dies.ipynb').rename(tmp_path/'dies.ipynb')
    done = tool('notebooks.py', tmp_path)
    verdicts = sorted(line.split()[:2] for line in done.stdout.splitlines()
                      if line.startswith(('passed', 'FAILED')))
    assert verdicts == [['FAILED', 'b/00_one'], ['passed', 'a/00_one'], ['passed', 'b/02_flagged']]
    assert 'notebooks: 2 passed, 1 failed' in done.stdout and 'AssertionError' in done.stdout
    assert done.returncode == 1
    assert '2 failed' in tool('notebooks.py', tmp_path, '--flags', 'slow').stdout
    (tmp_path/'dies.ipynb').rename(tmp_path/'nbs/b/03_dies.ipynb')
    done = tool('notebooks.py', tmp_path, '--path', 'nbs/b/03_dies.ipynb')
    assert done.returncode == 1 and 'did not end' in done.stdout


def test_notebooks_print_what_they_show(tmp_path):
    "Other words or numbers fail, but for rounding, addresses, and cells that say that they differ."
    def stored(source, text): return code(source, shown('text/plain', text))
    project(tmp_path, {'a/00_alike': [stored('0.9222', '0.9198'), stored('object()', '<object>'),
                                      stored('# output differs\n2', '1')],
                       'a/01_stale': [stored('0.9222', '0.3611')],
                       'a/02_words': [stored("'two words'", "'one word'")],
                       'a/03_silent': [stored('None', '1')],
                       'a/04_more': [stored("print('one')\n'two'", "'two'")],
                       'a/05_cleared': [stored("def clear_output(): print('one')\n"
                                               "clear_output()\n'two'", "'two'")]})
    said = tool('notebooks.py', tmp_path).stdout
    assert 'notebooks: 2 passed, 4 failed' in said and 'shows 0.3611, and prints 0.9222' in said
    assert "(0.9222)" in said and "'one word'" in said and "'two words'" in said
