"The tools in `.ci` on made-up projects: each kind of problem is reported, and only where it is."
import base64, json, subprocess, sys
from pathlib import Path

import pytest

CI = Path(__file__).parent.parent/'.ci'
PNG = base64.b64encode(bytes.fromhex('89504e470d0a1a0a0000000d49484452000000010000000108020000009077'
                                     '53de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082')).decode()
SETTINGS = """[DEFAULT]
repo = example
lib_name = example
version = 0.0.1
min_python = 3.10
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


def text(source): return {'cell_type': 'markdown', 'metadata': {}, 'source': source.splitlines(True)}


def code(source, *outputs):
    return {'cell_type': 'code', 'execution_count': None, 'metadata': {}, 'outputs': list(outputs), 'source': source.splitlines(True)}


def shown(kind, content):
    return {'output_type': 'display_data', 'metadata': {}, 'data': {kind: content}}


def project(root, pages, listed=None):
    "A project of the notebooks `pages`, `{name: cells}`, in the folder `root`, with `listed` in its sidebar."
    for folder in ('nbs', 'example'): (root/folder).mkdir(parents=True, exist_ok=True)
    (root/'settings.ini').write_text(SETTINGS)
    (root/'example/__init__.py').write_text('one = 1\n')
    for name, cells in pages.items():
        cells = [text(f'# Title of {name}\n\n> What {name} is about')] + cells
        for i, cell in enumerate(cells): cell['id'] = f'cell{i}'
        notebook = {'cells': cells, 'metadata': {'kernelspec': {'display_name': 'python3', 'language': 'python', 'name': 'python3'}},
                    'nbformat': 4, 'nbformat_minor': 5}
        (root/f'nbs/{name}.ipynb').write_text(json.dumps(notebook, indent=1))
    entries = ''.join(f'      - {name}.ipynb\n' for name in (pages if listed is None else listed))
    (root/'nbs/sidebar.yml').write_text(f'website:\n  sidebar:\n    contents:\n{entries}')
    return root


def tool(name, root, *options):
    return subprocess.run([sys.executable, CI/name, *options], cwd=root, capture_output=True, text=True)


GOOD = [text('## A part\n\nA formula $x_t = \\sum_s w_{ts}$, a [page](01_fine.ipynb#more-of-it), [here](#a-part), '
             '[the site](https://example.github.io/example/fine.html#more-of-it), '
             '[source](https://github.com/example/example/blob/main/example/__init__.py#L1).\n\n$$ \\Big\\lVert y \\Big\\rVert_F $$'),
        text('![a picture](images/good.png)'),
        code('1 + 1', {'output_type': 'execute_result', 'execution_count': None, 'metadata': {}, 'data': {'text/plain': ['2']}}),
        code('plot()', shown('image/png', PNG)), code("'$$' # not a formula: code")]
BROKEN = {   # name of the page: (its cells, what is to be reported)
    '02_picture': ([text('![gone](images/gone.png)')], 'missing picture: images/gone.png'),
    '03_page': ([text('[gone](09_gone.ipynb)')], 'dead link: 09_gone.ipynb'),
    '04_anchor': ([text('## Here\n\n[gone](#there)')], 'dead link: #there: no such anchor'),
    '05_other_anchor': ([text('[gone](01_fine.ipynb#nowhere)')], 'dead link: fine.html#nowhere: no such anchor'),
    '06_site': ([text('[gone](https://example.github.io/example/fine.html#nowhere)')], 'dead link: fine.html#nowhere: no such anchor'),
    '07_source': ([text('[gone](https://github.com/example/example/blob/main/example/gone.py#L3)')], 'no example/gone.py'),
    '08_line': ([text('[gone](https://github.com/example/example/blob/main/example/__init__.py#L300)')], 'example/__init__.py is shorter'),
    '09_file': ([text('[gone](data.csv)')], 'dead link: data.csv'),
    '10_formula': ([text('$$ \\frac{a}{b $$')], 'formula: Could not convert TeX math'),
    '11_command': ([text('$\\nosuchcommand{a}$')], 'formula: Could not convert TeX math'),
    '12_no_formula': ([text('this $ \\alpha + \\beta $ has spaces inside')], 'formula: not recognised'),
    '16_environment': ([text('\\begin{align} a \\end{align}')], 'formula: not recognised'),
    '17_code': ([text('```python\n# [`x`](https://example.github.io/example/fine.html#x)\n```')], 'link inside code'),
    '13_error': ([code('1/0', {'output_type': 'error', 'ename': 'ZeroDivisionError', 'evalue': 'division by zero', 'traceback': []})],
                 'error output: ZeroDivisionError'),
    '14_warning': ([code('warn()', {'output_type': 'stream', 'name': 'stderr', 'text': ['UserWarning: old\n']})], 'error output: stderr'),
    '15_unlisted': ([], '15_unlisted.ipynb: missing from sidebar.yml'),
}


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    "The lines that `check_docs.py` prints of a project with good pages and one page for each kind of problem."
    root = tmp_path_factory.mktemp('docs')
    project(root, {'index': GOOD, '01_fine': [text('## More of it')], **{name: cells for name, (cells, _) in BROKEN.items()}},
            listed=['index', '01_fine', *(name for name in BROKEN if name != '15_unlisted'), '18_extra'])
    (root/'nbs/images').mkdir()
    (root/'nbs/images/good.png').write_bytes(base64.b64decode(PNG))
    (root/'README.md').write_text('[gone](nbs/gone.ipynb)\n')
    done = tool('check_docs.py', root, '--root', root, '--out', root/'html')
    assert done.returncode == 1, done.stderr
    return done.stdout.splitlines(), root/'html'


@pytest.mark.parametrize('name', BROKEN)
def test_problem_is_reported(report, name):
    lines = [line for line in report[0] if line.startswith(name)]
    assert len(lines) == 1 and BROKEN[name][1] in lines[0]


def test_nothing_else_is_reported(report):
    lines = [line for line in report[0] if line.partition('.')[0] not in BROKEN]
    assert lines == ['sidebar.yml: lists 18_extra.ipynb, which does not exist',
                     'README.md: dead link: nbs/gone.ipynb: no page or file nbs/gone.ipynb',
                     f'docs: {len(BROKEN) + 2} pages, {len(BROKEN) + 2} problems']


def test_pages_are_whole(report):
    page = (report[1]/'index.html').read_text()
    for part in ('<h1>Title of index</h1>', 'What index is about', '<math', 'href="fine.html#more-of-it"', 'src="images/good.png"',
                 'src="index_files/index_', 'id="a-part"'):
        assert part in page, part
    assert len(list((report[1]/'index_files').glob('*.png'))) == 1


def test_good_documentation_passes(tmp_path):
    project(tmp_path, {'index': [text('## A part')]})
    done = tool('check_docs.py', tmp_path, '--root', tmp_path)
    assert (done.returncode, done.stdout) == (0, 'docs: 1 pages, 0 problems\n'), done.stderr


def test_readme(tmp_path):
    project(tmp_path, {'index': GOOD[:3] + [code('#| hide\nhidden()')], '01_fine': []})
    assert tool('readme.py', tmp_path, '--root', tmp_path).returncode == 0
    first = (tmp_path/'README.md').read_bytes()
    text_ = first.decode()
    assert '\n# Title of index\n\n> What index is about\n' in text_ and 'hidden' not in text_
    assert '![a picture](nbs/images/good.png)' in text_ and '](nbs/01_fine.ipynb#more-of-it)' in text_ and '](#a-part)' in text_
    assert tool('readme.py', tmp_path, '--root', tmp_path, '--check').returncode == 0
    (tmp_path/'README.md').write_bytes(first + b'x')
    assert tool('readme.py', tmp_path, '--root', tmp_path, '--check').returncode == 1
    assert (tmp_path/'README.md').read_bytes() == first + b'x'


def test_readme_refuses_stored_pictures(tmp_path):
    project(tmp_path, {'index': [code('plot()', shown('image/png', PNG))]})
    done = tool('readme.py', tmp_path, '--root', tmp_path)
    assert done.returncode == 1 and 'nbs/images' in done.stderr and not (tmp_path/'README.md').exists()


def test_notebooks_are_counted(tmp_path):
    project(tmp_path, {'00_good': [code('assert 1 + 1 == 2')], '01_bad': [code('assert 1 + 1 == 3')],
                       '02_flagged': [code('#| slow\nassert False')]})
    done = tool('notebooks.py', tmp_path)
    assert done.returncode == 1 and 'notebooks: 2 passed, 1 failed' in done.stdout and 'AssertionError' in done.stdout, done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines() if '.ipynb   ' in line] == [
        ['passed', '00_good.ipynb'], ['FAILED', '01_bad.ipynb'], ['passed', '02_flagged.ipynb']]
    assert '2 failed' in tool('notebooks.py', tmp_path, '--flags', 'slow').stdout
    (tmp_path/'nbs/01_bad.ipynb').unlink()
    assert tool('notebooks.py', tmp_path).returncode == 0
