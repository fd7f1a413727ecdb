"""Checks the documentation without Quarto: every notebook becomes an HTML page, and each problem is one printed line.

A problem is: an error or a warning stored as output, a notebook missing from `sidebar.yml` or an entry without a notebook,
a missing picture, a dead internal link (page, anchor, file, or line of source), a link inside code, a formula that
does not parse.
`--out` keeps the pages, to be looked at in a browser.
"""
import argparse, json, re, shutil, sys, tempfile
from pathlib import Path
from urllib.parse import unquote

import yaml
from bs4 import BeautifulSoup

import pages

DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md']
LEFTOVER = re.compile(r'\$\$|\$ [^$]+ \$|\$[^$]*\\[A-Za-z]+[^$]*\$|\\begin\{')   # TeX that pandoc did not take for a formula


def output_problems(path):
    "Errors and warnings that the notebook `path` stores."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        for output in cell.get('outputs', []):
            where = f"{path.name}: cell {cell.get('id')}"
            if output['output_type'] == 'error': yield f"{where}: error output: {output['ename']}: {output['evalue']}"
            elif output.get('name') == 'stderr':
                text = ''.join(output['text']).strip().splitlines() or ['']
                yield f"{where}: error output: stderr: {text[-1][:120]}"


def sidebar_sections(root):
    "`(section or '', [notebooks])` for each entry of the sidebar."
    contents = yaml.safe_load((root/'nbs/sidebar.yml').read_text(encoding='utf-8'))['website']['sidebar']['contents']
    return [('', [entry]) if isinstance(entry, str) else (entry['section'], entry['contents']) for entry in contents]


def sidebar_problems(nbs, listed):
    "Differences between the notebooks in `nbs` and the pages `listed`."
    there = {p.name for p in nbs.glob('*.ipynb')}
    for name in sorted(there - set(listed)): yield f"{name}: missing from sidebar.yml"
    for name in sorted(set(listed) - there): yield f"sidebar.yml: lists {name}, which does not exist"
    for name in sorted({n for n in listed if listed.count(n) > 1}): yield f"sidebar.yml: lists {name} twice"


def navigation(sidebar, files, titles):
    "The sidebar as HTML."
    html = ''
    for section, names in sidebar:
        items = ''.join(f'<li><a href="{files[n]}">{titles[n]}</a></li>' for n in names if n in files)
        html += (f'<b>{section}</b>' if section else '') + f'<ul>{items}</ul>'
    return html


def render(root, out):
    "Write a page to `out` for each notebook of `root`; returns `{page: (notebook, parsed page)}` and the problems."
    with tempfile.TemporaryDirectory() as tmp:
        processed = pages.process(root, Path(tmp))
        notebooks = {p.name: pages.markdown(p) for p in sorted(processed.glob('*.ipynb'))}
        shutil.copytree(processed, out, ignore=shutil.ignore_patterns('*.ipynb', '*.yml'), dirs_exist_ok=True)
    files = {name: head.get('output-file', Path(name).stem + '.html') for name, (head, _, _) in notebooks.items()}
    titles = {name: head.get('title', name) for name, (head, _, _) in notebooks.items()}
    nav = navigation(sidebar_sections(root), files, titles)
    site = pages.settings(root)['doc_host'] + pages.settings(root)['doc_baseurl'] + '/'
    site_pages, problems = {}, []
    for name, (head, text, pictures) in notebooks.items():
        for file, content in pictures.items():
            (out/file).parent.mkdir(exist_ok=True)
            (out/file).write_bytes(content)
        if 'title' not in head: problems.append(f"{name}: no title: a cell `# Title` with a line `> what it is about`")
        html, warnings = pages.pandoc(
            text, '--to', 'html5', '--mathml', '--standalone', '--template', str(pages.HERE/'page.html'), '-V', f'sidebar={nav}',
            '-M', f"title={titles[name]}", '-M', f"description={head.get('description', '')}")
        problems += [f"{name}: formula: {w}" if 'TeX math' in w else f"{name}: pandoc: {w}" for w in warnings]
        soup = BeautifulSoup(html, 'html.parser')
        for link in soup.find_all('a', href=True):   # what Quarto and the web server do: notebooks and the site's own address
            page, hash_, anchor = link['href'].removeprefix(site).partition('#')
            link['href'] = files.get(page, page) + hash_ + anchor
        (out/files[name]).write_text(str(soup), encoding='utf-8')
        site_pages[files[name]] = name, soup
    return site_pages, problems


def leftover_formulas(soup):
    "Formulas that are still TeX in the page's text."
    for text in soup.body.find_all(string=LEFTOVER):
        if not text.find_parent(['code', 'pre', 'math', 'script', 'style']) and not text.find_parent(class_='math'):
            yield ' '.join(LEFTOVER.search(text)[0].split())


def links_in_code(soup):
    "Links shown as text: nbdev links names in backticks in a docment too, where the page shows code."
    for block in soup.find_all('pre'): yield from re.findall(r'\[`[^`]+`\]\(https?:[^)]*\)', block.get_text())


def link_problems(soup, folder, pages_, anchors, source, root):
    "Pictures and links of a page in `folder` that lead nowhere; `anchors` are those of each of the `pages_`."
    own = {tag['id'] for tag in soup.find_all(id=True)}
    for image in soup.find_all('img'):
        src = image.get('src', '')
        if not re.match(r'(https?|data):', src) and not (folder/unquote(src)).is_file(): yield f"missing picture: {src}"
    for link in soup.find_all('a', href=True):
        page, _, anchor = unquote(link['href']).partition('#')
        if page.startswith(source):   # a file of this project, at its host
            file, lines = page.removeprefix(source), re.match(r'L(\d+)', anchor)
            if not (root/file).exists(): yield f"dead link: {link['href']}: no {file}"
            elif lines and int(lines[1]) > len((root/file).read_text(encoding='utf-8').splitlines()):
                yield f"dead link: {link['href']}: {file} is shorter"
        elif re.match(r'[A-Za-z][A-Za-z0-9+.-]*:', page): continue
        elif page and page not in pages_ and not (folder/page).exists(): yield f"dead link: {link['href']}: no page or file {page}"
        elif anchor and (not page or page in pages_) and anchor not in (anchors[page] if page else own):
            yield f"dead link: {link['href']}: no such anchor"


def check(root, out):
    "All problems of the documentation of the project in `root`, whose pages are written to `out`."
    source = '{git_url}/blob/{branch}/'.format(**pages.settings(root))
    notebooks = sorted((root/'nbs').glob('*.ipynb'))
    problems = [p for n in notebooks for p in output_problems(n)]
    problems += sidebar_problems(root/'nbs', [n for _, names in sidebar_sections(root) for n in names])
    site, rendering = render(root, out)
    problems += rendering
    anchors = {page: {tag['id'] for tag in soup.find_all(id=True)} for page, (_, soup) in site.items()}
    for name, soup in site.values():
        problems += [f"{name}: formula: not recognised: {f}" for f in leftover_formulas(soup)]
        problems += [f"{name}: link inside code: {l}: no backticks around this name in the docment" for l in links_in_code(soup)]
        problems += [f"{name}: {p}" for p in link_problems(soup, out, site, anchors, source, root)]
    for document in [root/d for d in DOCUMENTS if (root/d).exists()]:
        html, warnings = pages.pandoc(document.read_text(encoding='utf-8'), '--to', 'html5', '--mathml', source='gfm')
        problems += [f"{document.name}: formula: {w}" for w in warnings]
        problems += [f"{document.name}: {p}" for p in link_problems(BeautifulSoup(html, 'html.parser'), root, {}, {}, source, root)]
    return problems, len(site)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, help='keep the HTML pages in this folder')
    parser.add_argument('--root', type=Path, default=pages.HERE.parent, help='folder with settings.ini (default: this checkout)')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        found, count = check(args.root, args.out or Path(tmp))
    for problem in found: print(problem)
    print(f"docs: {count} pages, {len(found)} problems")
    sys.exit(bool(found))
