"""Turns notebooks into pages without Quarto: as nbdev processes them, then markdown, then pandoc.

Shared by `readme.py` and `check_docs.py`.
"""
import re, shutil, subprocess, sys
from configparser import ConfigParser
from pathlib import Path

import nbformat, pypandoc, yaml
from nbconvert import MarkdownExporter
from traitlets.config import Config

HERE = Path(__file__).parent
DIRECTIVE = re.compile(r'^#\|.*\n?', re.MULTILINE)


def settings(root):
    "What `settings.ini` of the project in `root` says."
    parser = ConfigParser(delimiters=['='])
    parser.read(root/'settings.ini', encoding='utf-8')
    return parser['DEFAULT']


def process(root, tmp, only='*'):
    "Copy the project in `root` to `tmp` and let nbdev prepare the notebooks `only`; returns the folder with them and all that goes with them."
    ignore = shutil.ignore_patterns('.ipynb_checkpoints', 'runs', '__pycache__')
    lib = settings(root)['lib_path']
    shutil.copy(root/'settings.ini', tmp)
    shutil.copytree(root/'nbs', tmp/'nbs', ignore=ignore)
    if (root/lib).exists(): shutil.copytree(root/lib, tmp/lib, ignore=ignore)
    for other in set((tmp/'nbs').glob('*.ipynb')) - set((tmp/'nbs').glob(only + '.ipynb')): other.unlink()
    done = subprocess.run([sys.executable, '-c', 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=2)'],
                          cwd=tmp, capture_output=True, text=True)
    if done.returncode: raise RuntimeError(f"nbdev could not process the notebooks:\n{done.stderr[-3000:]}")
    return tmp/'_proc'


def markdown(path, *, html=True):
    """The processed notebook `path` as `(title and more from its first cell, markdown, {file name: picture})`.

    What Quarto does with a cell's directives happens here: `echo: false` hides the source, directive lines vanish.
    """
    notebook = nbformat.read(path, as_version=4)
    head = {}
    if notebook.cells and notebook.cells[0].cell_type == 'raw':
        head = yaml.safe_load(notebook.cells.pop(0).source.strip().strip('-'))
    for cell in notebook.cells:
        if cell.cell_type != 'code': continue
        cell.metadata['transient'] = {'remove_source': bool(re.search(r'^#\| *echo: *false', cell.source, re.MULTILINE))}
        cell.source = DIRECTIVE.sub('', cell.source)
    notebook.cells = [c for c in notebook.cells if c.source.strip() and not c.source.startswith('<!-- WARNING')]
    notebook.metadata['language_info'] = {'name': 'python'}
    config = Config()
    kinds = ['text/html', 'text/markdown', 'image/svg+xml', 'image/png', 'image/jpeg', 'text/plain']
    config.NbConvertBase.display_data_priority = kinds if html else kinds[1:]
    stem = Path(path).stem
    text, resources = MarkdownExporter(config=config).from_notebook_node(
        notebook, resources={'unique_key': stem, 'output_files_dir': f'{stem}_files'})
    return head, text, resources['outputs']


def pandoc(text, *options, source='markdown-implicit_figures-raw_tex'):
    "Run pandoc on `text`; returns its output and its warnings, one string each."
    done = subprocess.run([pypandoc.get_pandoc_path(), '--from', source, *options], input=text.encode(), capture_output=True)
    errors = done.stderr.decode()
    if done.returncode: raise RuntimeError(f"pandoc failed: {errors}")
    return done.stdout.decode(), [' '.join(w.split()) for w in re.split(r'^\[WARNING\] ', errors, flags=re.MULTILINE) if w.strip()]
