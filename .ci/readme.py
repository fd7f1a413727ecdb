"""Writes `README.md` from `nbs/index.ipynb`, without Quarto; `--check` fails where they differ.

The same notebook gives the same bytes. Pictures are files in `nbs/images/` that the notebook's
markdown refers to.
"""
import argparse, difflib, sys, tempfile
from pathlib import Path

import pages

WARNING = '<!-- Written by .ci/readme.py from nbs/index.ipynb. Do not edit: edit the notebook. -->'


def readme(root):
    "The text of `README.md` for the project in `root`."
    with tempfile.TemporaryDirectory() as tmp:
        index = pages.process(root, Path(tmp), only='index.ipynb')
        head, text, pictures = pages.markdown(index)
    if pictures:
        raise SystemExit(f'nbs/index.ipynb stores {len(pictures)} picture(s) as output, which a '
                         'README cannot show: save each as nbs/images/NAME.png and refer to it '
                         'with ![what it shows](images/NAME.png)')
    body, warnings = pages.pandoc(text, '--to', 'gfm-raw_html', '--wrap', 'none',
                                  '--lua-filter', str(pages.HERE/'readme.lua'))
    if warnings: raise SystemExit('\n'.join(warnings))
    title = f"# {head['title']}\n\n> {head['description']}"
    return f'{WARNING}\n\n{title}\n\n{body.strip()}\n'


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; fail if it differs')
    parser.add_argument('--root', type=Path, default=pages.HERE.parent,
                        help='folder with settings.ini (default: this checkout)')
    args = parser.parse_args()
    new, path = readme(args.root), args.root/'README.md'
    old = path.read_text(encoding='utf-8') if path.exists() else ''
    if not args.check: path.write_text(new, encoding='utf-8')
    elif new != old:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True),
                                                   'README.md', 'nbs/index.ipynb'))
        raise SystemExit('README.md does not match nbs/index.ipynb: '
                         'run `python .ci/readme.py`')
