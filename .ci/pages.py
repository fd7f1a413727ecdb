"Turns the index into markdown without Quarto: as nbdev processes it, then nbconvert, then pandoc."
import os, re, shutil, subprocess, sys
from configparser import ConfigParser
from pathlib import Path

import nbformat, pypandoc, yaml
from nbconvert import MarkdownExporter
from traitlets.config import Config

HERE = Path(__file__).parent
DIRECTIVE = re.compile(r'^#\|.*\n?', re.MULTILINE)
HIDDEN = re.compile(r'^#\| *echo: *false', re.MULTILINE)
KINDS = ['text/markdown', 'image/svg+xml', 'image/png', 'image/jpeg', 'text/plain']


def settings(root):
    "The `settings.ini` of the project in `root`."
    parser = ConfigParser(delimiters=['='])
    parser.read(root/'settings.ini', encoding='utf-8')
    return parser['DEFAULT']


def environment():
    "The environment of commands that process notebooks, in which `reference.py` can be imported."
    paths = [str(HERE), *filter(None, [os.environ.get('PYTHONPATH')])]
    return os.environ | {'PYTHONPATH': os.pathsep.join(paths)}


def process(root, tmp, only):
    "Let nbdev prepare the notebook `only` of `root` in the folder `tmp`; returns its path there."
    ignore = shutil.ignore_patterns('.ipynb_checkpoints', '__pycache__')
    lib = settings(root)['lib_path']
    shutil.copy(root/'settings.ini', tmp)
    (tmp/'nbs').mkdir()
    for file in (root/'nbs').glob('*'):
        if file.is_file() and (file.suffix != '.ipynb' or file.name == only):
            shutil.copy(file, tmp/'nbs')
    if (root/lib).exists(): shutil.copytree(root/lib, tmp/lib, ignore=ignore)
    command = 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=0)'
    done = subprocess.run([sys.executable, '-c', command], cwd=tmp, capture_output=True, text=True,
                          env=environment())
    if done.returncode:
        raise RuntimeError(f'nbdev could not process {only}:\n{done.stderr[-3000:]}')
    return tmp/'_proc'/only


def markdown(path):
    """The processed notebook `path` as `(fields of its first cell, markdown, {file: picture})`.

    Directives are treated as by Quarto: `echo: false` hides the source, their lines are removed.
    """
    notebook = nbformat.read(path, as_version=4)
    head = {}
    if notebook.cells and notebook.cells[0].cell_type == 'raw':
        head = yaml.safe_load(notebook.cells.pop(0).source.strip().strip('-'))
    for cell in notebook.cells:
        if cell.cell_type != 'code': continue
        cell.metadata['transient'] = {'remove_source': bool(HIDDEN.search(cell.source))}
        cell.source = DIRECTIVE.sub('', cell.source)
    notebook.cells = [cell for cell in notebook.cells
                      if cell.source.strip() and not cell.source.startswith('<!-- WARNING')]
    notebook.metadata['language_info'] = {'name': 'python'}
    config = Config()
    config.NbConvertBase.display_data_priority = KINDS
    text, resources = MarkdownExporter(config=config).from_notebook_node(notebook)
    return head, text, resources['outputs']


def pandoc(text, *options, source='markdown-implicit_figures-raw_tex'):
    "Run pandoc on `text`; returns its output and its warnings, one string each."
    done = subprocess.run([pypandoc.get_pandoc_path(), '--from', source, *options],
                          input=text.encode(), capture_output=True)
    errors = done.stderr.decode()
    if done.returncode: raise RuntimeError(f'pandoc failed: {errors}')
    warnings = re.split(r'^\[WARNING\] ', errors, flags=re.MULTILINE)
    return done.stdout.decode(), [' '.join(w.split()) for w in warnings if w.strip()]
