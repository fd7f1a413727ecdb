"""Renders the site with Quarto, as it is published, and checks it; each problem is a printed line.

    python .ci/docs.py              # into _proc/_docs; needs quarto on the PATH
    python .ci/docs.py --no-render  # checks what was rendered before
    python .ci/docs.py --page mixers/01_ff  # only this page, unchecked, in a minute

Some pages of the site have no notebook: reference.qmd, what users import, names.qmd, an index of
public names, changelog.qmd, and those that lead from old addresses to new ones are written here;
each notebook's page has its text in PAGE.html.md, and llms.txt lists these. The networks that run
on the live pages are written by .ci/live.py.

A problem is: a warning or an error of nbdev, Quarto or pandoc (a formula that does not parse is
one); an error or a warning stored as output; a notebook that `sidebar.yml` does not list, or the
other way round; a page that is missing, or not at its address; a picture or an internal link
without a target (a page, an anchor, a file, or a line of source); a link inside code.
"""
import argparse, json, os, re, shutil, subprocess, sys
from pathlib import Path
from urllib.parse import unquote

import nbformat, yaml
from bs4 import BeautifulSoup

import pages, reference

DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md']
WARNING = re.compile(r'WARN|ERROR|Error|UserWarning')
COLOUR = re.compile(r'\x1b\[[0-9;]*m')
LINK = re.compile(r'\]\((?!https?:)([^)\s#]+\.ipynb)(#[^)]*)?\)')  # to a notebook
FORMULA = re.compile(r'\$\$|\$ [^$]+ \$|\$[^$]*\\[A-Za-z]+[^$]*\$|\\begin\{')  # left as text


def notebooks(root):
    "All notebooks of the site, by their paths within `nbs`."
    return {p.relative_to(root/'nbs').as_posix(): p for p in sorted((root/'nbs').rglob('*.ipynb'))
            if '.ipynb_checkpoints' not in p.parts}


def address(name):
    "The page of a notebook: nbdev removes the number from its name."
    folder, _, file = name.rpartition('/')
    return (f'{folder}/' if folder else '') + re.sub(r'^\d+[a-zA-Z0-9]*_', '', file)[:-6] + '.html'


def output_problems(name, path):
    "Errors and warnings that a notebook stores."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        for output in cell.get('outputs', []):
            where = f"{name}: cell {cell.get('id')}: error output"
            if output['output_type'] == 'error':
                yield f"{where}: {output['ename']}: {output['evalue']}"
            elif output.get('name') == 'stderr':
                text = ''.join(output['text']).strip().splitlines() or ['']
                yield f'{where}: stderr: {text[-1][:120]}'


def listed(contents):
    "The notebooks in the sidebar's entries, sections within sections included."
    for entry in contents:
        if isinstance(entry, str): yield entry
        else: yield from listed(entry.get('contents', [entry.get('href')]))


def sidebars(root):
    "The sidebars of the site, each with its contents."
    found = yaml.safe_load((root/'nbs/sidebar.yml').read_text(encoding='utf-8'))
    found = found['website']['sidebar']
    return found if isinstance(found, list) else [found]


def sidebar_problems(root):
    "Differences between the notebooks and the sidebar; two notebooks with one address."
    bars = sidebars(root)
    entries = [name for bar in bars for name in listed(bar['contents']) if name.endswith('.ipynb')]
    there, addresses = notebooks(root), {}
    if len(bars) > 1: there.pop('index.ipynb', None)  # the first page has no sidebar
    for name in sorted(there.keys() - set(entries)): yield f'{name}: missing from sidebar.yml'
    for name in sorted(set(entries) - there.keys()): yield f'sidebar.yml: no notebook {name}'
    for name in sorted({e for e in entries if entries.count(e) > 1}):
        yield f'sidebar.yml: lists {name} twice'
    for name in there:
        other = addresses.setdefault(address(name), name)
        if other != name: yield f'{name}: has the address of {other}: {address(name)}'


def said(done):
    "The warnings in what a command printed, one sentence each; if it failed, its last lines."
    lines = COLOUR.sub('', done.stdout + done.stderr).splitlines()
    for i, line in enumerate(lines):
        text = ' '.join(part.strip() for part in lines[i:i+3])[:300]
        # Cells of imports hold nothing else, except for the line that silences torch's warnings.
        if WARNING.search(line) and 'filterwarnings' not in text: yield text
    if done.returncode: yield f"ended with {done.returncode}: {' '.join(lines[-5:])[-500:]}"


def public_names(root):
    """`(module, name, page, definition, comments)` of what the notebooks export, in their order;
    the comments of the cell's lines are its docments."""
    for name, path in notebooks(root).items():
        cells = nbformat.read(path, as_version=4).cells
        module = re.search(r'#\| *default_exp +(\S+)', '\n'.join(c.source for c in cells))
        for cell in cells:
            if cell.cell_type != 'code' or not re.match(r'#\| *exports?\b', cell.source): continue
            said = reference.comments(cell.source)
            for node, _ in reference.pieces(cell.source):
                if node is not None and module:
                    yield f'attnfree.{module[1]}', node.name, address(name), node, said


def first_paragraph(node):
    "The first paragraph of a docstring, as one line."
    return ' '.join((reference.ast.get_docstring(node) or '').split('\n\n')[0].split())


def vocabulary(root):
    "`(subject, module, name)` of the names that users import, by `nbs/reference.yml`."
    file = root/'nbs/reference.yml'
    told = yaml.safe_load(file.read_text(encoding='utf-8')) if file.exists() else {}
    for subject, modules in told.items():
        for module, names in modules.items():
            for name in names.split(): yield subject, module, name


def reference_page(root):
    "The vocabulary by subject, each with its import and parameters, in markdown."
    found, lines, last = [*public_names(root)], [], None
    for subject, module, name in vocabulary(root):
        written = [f for f in found if f[1] == name and f'{f[0]}.'.startswith(f'{module}.')]
        if not written: raise ValueError(f'nbs/reference.yml: {module} has no {name}')
        _, _, page, node, said = written[0]
        if subject != last: lines += [f'## {subject}', '']
        last = subject
        title = f'{module}.{name}' if name == 'create_model' else name  # there are two
        lines += [f'### {title} {{#{module}.{name}}}', '',
                  f'[{first_paragraph(node)}]({page}#{name.lower()})', '']
        if reference.is_command(node): lines += [reference.options(node, said), '']
        else:
            listed, *methods = reference.details(node, said)
            lines += [f'```python\nfrom {module} import {name}\n```', '',
                      listed or '\n\n'.join(methods), '']
    head = '---\ntitle: Reference\ndescription: What is imported from where, and its parameters\n'
    text = (root/'nbs/_reference.md').read_text(encoding='utf-8')
    return head + 'repo-actions: false\n---\n\n' + text + '\n'.join(lines)


INTERNAL = 'errors', 'kernels', 'training', 'run', 'commands', 'measure'  # but for the vocabulary


def names_page(root):
    "The index of public names from A to Z, in markdown, without those of INTERNAL folders."
    wanted = {(module, name) for _, module, name in vocabulary(root)}
    def told(module, name, page, *_):
        own = any(f'{module}.'.startswith(f'{of}.') and name == other for of, other in wanted)
        return own or page.split('/')[0] not in INTERNAL
    entries = sorted((f for f in public_names(root) if told(*f)), key=lambda f: f[1].lower())
    letters, lines = {name[0].upper() for _, name, *_ in entries}, []
    lines.append(' '.join(f'[{letter}](#{letter.lower()})' for letter in sorted(letters)))
    for _, name, page, node, _ in entries:
        letter = name[0].upper()
        if letter in letters:
            letters.remove(letter)
            lines += ['', f'## {letter} {{#{letter.lower()}}}', '']
        lines.append(f'- [`{name}`]({page}#{name.lower()}): {first_paragraph(node)}')
    head = '---\ntitle: Names from A to Z\ndescription: Public names but for internals, and '
    return head + 'first lines\ntoc: false\nrepo-actions: false\n---\n\n' + '\n'.join(lines) + '\n'


def changelog_page(root):
    "The changelog, and how to cite the package."
    text = (root/'CHANGELOG.md').read_text(encoding='utf-8').partition('\n')[2]
    citation = yaml.safe_load((root/'CITATION.cff').read_text(encoding='utf-8'))
    entry = (f"@software{{attnfree,\n  title = {{{citation['title']}}},\n"
             f"  author = {{{{{citation['authors'][0]['name']}}}}},\n"
             f"  version = {{{citation['version']}}},\n  url = {{{citation['url']}}}\n}}")
    return (f"---\ntitle: Changelog\ndescription: What changed, by version, and how to cite\n"
            f"repo-actions: false\n---\n\n"
            f"## How to cite {{#cite}}\n\n{citation['message']}\n\n```bibtex\n{entry}\n```\n{text}")


def write_pages(root):
    "Write the pages that are not notebooks to the folder that Quarto renders."
    if (root/pages.settings(root)['lib_path']/'_modidx.py').exists():
        (root/'_proc/names.qmd').write_text(names_page(root), encoding='utf-8')
    if (root/'nbs/reference.yml').exists():
        (root/'_proc/reference.qmd').write_text(reference_page(root), encoding='utf-8')
    if (root/'CITATION.cff').exists():
        (root/'_proc/changelog.qmd').write_text(changelog_page(root), encoding='utf-8')


MOVED = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={0}"><link rel="canonical" href="{0}"></head>
<body><h1>Moved</h1><p>This page is <a href="{0}">here</a> now.</p>
<script>location.replace("{0}" + location.hash)</script></body></html>
"""


def moved(root):
    "New addresses of pages by their old ones."
    file = root/'nbs/moved.yml'
    return yaml.safe_load(file.read_text(encoding='utf-8')) if file.exists() else {}


def write_moved(root):
    "Write a page at each old address that leads to the new one."
    for old, new in moved(root).items():
        page = root/'_proc/_docs'/old
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(MOVED.format(os.path.relpath(new, Path(old).parent)), encoding='utf-8')


def write_texts(root):
    "Write the text of each page next to it, and llms.txt, which lists them."
    settings, out, lines = pages.settings(root), root/'_proc/_docs', []
    site = settings['doc_host'] + settings['doc_baseurl']
    for name in notebooks(root):
        page = address(name)
        if not (out/page).exists(): continue
        head, text, _ = pages.markdown(root/'_proc'/name)
        title, about = head.get('title', page), head.get('description', '')
        text = LINK.sub(lambda m: f"]({address(m[1])}.md{m[2] or ''})", text)
        text = f'# {title}\n\n> {about}\n\n{text.strip()}\n'
        (out/f'{page}.md').write_text(text, encoding='utf-8')
        lines.append(f'- [{title}]({site}/{page}.md): {about}')
    (out/'llms.txt').write_text('\n'.join([f"# {settings['title']}", '',
                                           f"> {settings['description']}", '', '## Pages', '',
                                           *lines, '']), encoding='utf-8')


WIDGETS = re.compile(r'<script src="https://cdnjs[^>]*></script>|'
                     r'<script type="application/javascript">define\(.jquery.*?</script>')


def without_cdn(out):
    "Remove what Quarto loads from elsewhere for Jupyter's widgets: the site has none."
    for page in out.rglob('*.html'):
        text = page.read_text(encoding='utf-8')
        if (cleaned := WIDGETS.sub('', text)) != text: page.write_text(cleaned, encoding='utf-8')


INNER = r'\[(`[^`]+`)\]\([^)]*\)'  # a name that nbdev has made a link
OUTER = re.compile(rf'\[((?:[^\[\]]|{INNER})*)\](?=\()')


def without_nested_links(text):
    "nbdev makes a link of a name within a link too, which no browser shows: the outer one stays."
    return OUTER.sub(lambda link: f"[{re.sub(INNER, lambda name: name[1], link[1])}]", text)


def unnest_links(root):
    "Remove links within links from the notebooks that Quarto renders."
    for name in notebooks(root):
        path = root/'_proc'/name
        if not path.exists(): continue
        book = json.loads(path.read_text(encoding='utf-8'))
        for cell in book['cells']:
            if cell['cell_type'] == 'markdown':
                text = without_nested_links(''.join(cell['source']))
                cell['source'] = text.splitlines(keepends=True)  # Quarto reads no other form
        path.write_text(json.dumps(book, ensure_ascii=False), encoding='utf-8')


def write_networks(root):
    "Write the networks that run on the live pages; yields what went wrong."
    if not (root/'.ci/live.py').exists(): return
    done = subprocess.run([sys.executable, root/'.ci/live.py', root/'_proc/site/live'],
                          capture_output=True, text=True)
    if done.returncode: yield f'live.py: {done.stderr.strip()[-300:]}'


def section_texts(soup, anchors):
    "The words of sections of a page by anchor, without code; '' is what comes before the first."
    for tag in soup.select('pre, annotation, script, style, table.dataframe, nav'): tag.extract()
    found, parts = {}, {anchor: soup.find(id=anchor) if anchor else soup.main for anchor in anchors}
    for anchor in sorted(anchors, reverse=True):  # '' at the end, when the sections are gone
        if not anchor:
            for tag in soup.select('section.level2'): tag.extract()
        found[anchor] = ' '.join(parts[anchor].get_text(' ').split()) if parts[anchor] else ''
    return found


def clean_search(root):
    "The search index without code, with an entry for each public name, and keywords of pages."
    out = root/'_proc/_docs'
    file, words = out/'search.json', root/'nbs/keywords.yml'
    if not file.exists(): return
    entries = json.loads(file.read_text(encoding='utf-8'))
    keywords = yaml.safe_load(words.read_text(encoding='utf-8')) if words.exists() else {}
    titles, by_page = {}, {}
    for entry in entries:
        page, _, anchor = entry['href'].partition('#')
        by_page.setdefault(page, {})[anchor] = entry
        titles[page] = entry['title'], entry.get('crumbs', [])[:-1]
        if not anchor and page in keywords: entry['keywords'] = keywords.pop(page).split(', ')
    for page, sections in by_page.items():
        for anchor, text in section_texts(parsed(out/page), sections).items():
            sections[anchor]['text'] = text
    for _, name, page, node, _ in public_names(root):
        if page not in titles: continue
        title, crumbs = titles[page]
        entries.append(dict(objectID=f'{page}#{name}', href=f'{page}#{name.lower()}', title=name,
                            section=name, text=f'{title}: {first_paragraph(node)}', crumbs=crumbs))
    yield from (f'keywords.yml: no page {page}' for page in keywords)
    file.write_text(json.dumps(entries, ensure_ascii=False), encoding='utf-8')


def render(root, page=None):
    "Render the site as `docs.yaml` does, or one page of it; returns the problems."
    if not page: shutil.rmtree(root/'_proc', ignore_errors=True)
    what = f'_proc/{page}' if page else '_proc'
    for command in (['nbdev_proc_nbs'], ['quarto', 'render', what, '--no-cache']):
        own = Path(sys.executable).parent/command[0]
        command[0] = str(own) if own.exists() else command[0]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True,
                              env=pages.environment())
        yield from (f'{Path(command[0]).name}: {line}' for line in said(done))
        if done.returncode: return
        if command[0].endswith('nbdev_proc_nbs'):
            unnest_links(root)
            write_pages(root)
            if not page: yield from write_networks(root)
    without_cdn(root/'_proc/_docs')
    if page: return  # the search and the texts stay as they were
    write_texts(root)
    write_moved(root)
    yield from clean_search(root)


def text_problems(soup):
    "Formulas that are still TeX, and links that are shown as text within code."
    for text in soup.body.find_all(string=FORMULA):
        if text.find_parent(['code', 'pre', 'math', 'script', 'style']): continue
        yield f"formula: not recognised: {' '.join(FORMULA.search(text)[0].split())}"
    for block in soup.find_all('pre'):  # nbdev links names in backticks in a docment too
        for link in re.findall(r'\[`[^`]+`\]\(https?:[^)]*\)', block.get_text()):
            yield f'link inside code: {link}: no backticks around this name in the docment'


def nested_problems(soup):
    "Links whose text shows another one."
    for link in soup.find_all('a'):
        if '](' in link.get_text(): yield f"link within a link: {' '.join(link.get_text().split())}"


def source_problem(root, target, anchor):
    "What is wrong with a link to a file, or to a line of it, on the project's host."
    lines = re.match(r'L(\d+)', anchor)
    if not (root/target).exists(): return f'no {target}'
    if lines and int(lines[1]) > len((root/target).read_text(encoding='utf-8').splitlines()):
        return f'{target} is shorter'


def within(settings, name, target):
    "The file of the site that a link on the page `name` points to; /BASE/FILE is one, too."
    base = settings['doc_baseurl'] + '/'
    if target.startswith(base): return os.path.normpath(unquote(target.removeprefix(base)))
    return os.path.normpath(Path(name).parent/unquote(target))


def link_problems(name, soup, folder, anchors, settings, root):
    "Broken pictures and links of the page `name`."
    source = '{git_url}/blob/{branch}/'.format(**settings)
    site = settings['doc_host'] + settings['doc_baseurl'] + '/'
    for image in soup.find_all('img'):
        src = image.get('src', '')
        if src.startswith('https:'): yield f'loads from elsewhere: {src}'
        if re.match(r'(https?|data):', src): continue
        target = within(settings, name, src)
        if not (folder/target).is_file(): yield f'missing picture: {src}'
    for script in soup.find_all('script', src=re.compile('^https?:')):
        yield f"loads from elsewhere: {script['src']}"
    for link in soup.find_all('a', href=True):
        href = link['href']
        target, _, anchor = unquote(href).partition('#')
        if target.startswith(source):
            problem = source_problem(root, target.removeprefix(source), anchor)
            if problem: yield f'dead link: {href}: {problem}'
            continue
        if target.startswith(site.rstrip('/')):
            target = target.removeprefix(site.rstrip('/')).lstrip('/') or 'index.html'
        elif re.match(r'[A-Za-z][A-Za-z0-9+.-]*:', target): continue
        else: target = within(settings, name, target) if target else name
        if target not in anchors and not (folder/target).exists():
            yield f'dead link: {href}: no page or file {target}'
        elif anchor and anchor not in anchors.get(target, {anchor}):
            yield f'dead link: {href}: no such anchor'


def parsed(path, **options):
    return BeautifulSoup(path.read_text(encoding='utf-8'), 'html.parser', **options)


def names_in(soup):
    "What a link may point to within a page."
    return {tag['id'] for tag in soup.find_all(id=True)} | {''}


def page_problems(root, out):
    "What is wrong with the rendered pages in `out`, and with the documents at the top."
    settings = pages.settings(root)
    there = {p.relative_to(out).as_posix(): p for p in sorted(out.rglob('*.html'))
             if out/'site' not in p.parents}  # not what attnfree.live.explain wrote
    soups = {name: parsed(path) for name, path in there.items()}
    anchors = {name: names_in(soup) for name, soup in soups.items()}
    expected = {address(name) for name in notebooks(root)}
    expected |= {f'{p.relative_to(root/"_proc").with_suffix("")}.html'
                 for p in (root/'_proc').rglob('*.qmd')}
    yield from (f'moved.yml: {old} is a page' for old in expected & moved(root).keys())
    expected |= moved(root).keys()
    told = [f'{module}.{name}' for _, module, name in vocabulary(root)]
    missing = {*told} - anchors.get('reference.html', {*told})
    yield from (f'reference.html: no entry {name}' for name in sorted(missing))
    for name in sorted(expected - soups.keys()): yield f'{name}: missing page'
    for name in sorted(soups.keys() - expected): yield f'{name}: page of no notebook'
    for name, soup in soups.items():
        if not soup.title or not soup.h1: yield f'{name}: no title'
        for problem in text_problems(soup): yield f'{name}: {problem}'
        for problem in nested_problems(soup): yield f'{name}: {problem}'
        for problem in link_problems(name, soup, out, anchors, settings, root):
            yield f'{name}: {problem}'
    for document in (name for name in DOCUMENTS if (root/name).exists()):
        text = (root/document).read_text(encoding='utf-8')
        rendered, warnings = pages.pandoc(text, '--to', 'html5', '--mathml', source='gfm')
        yield from (f'{document}: {warning}' for warning in warnings)
        soup = BeautifulSoup(rendered, 'html.parser')
        own = {document: names_in(soup)}
        for problem in link_problems(document, soup, root, own, settings, root):
            yield f'{document}: {problem}'


def check(root, rendering=True):
    "All problems of the documentation of the project in `root`."
    problems = [p for name, path in notebooks(root).items() for p in output_problems(name, path)]
    problems += sidebar_problems(root)
    if rendering: problems += render(root)
    return problems + [*page_problems(root, root/'_proc/_docs')]


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--no-render', action='store_true', help='only check what is there')
    parser.add_argument('--root', type=Path, default=pages.HERE.parent,
                        help='folder with settings.ini (default: this checkout)')
    parser.add_argument('--page', help='a notebook within nbs/: show only this one')
    args = parser.parse_args()
    if not args.no_render and not shutil.which('quarto'):
        parser.exit(2, 'docs: quarto is not on the PATH; CONTRIBUTING.md says how to get it\n')
    if args.page:
        name = args.page.removesuffix('.ipynb') + '.ipynb'
        if name not in notebooks(args.root):
            parser.exit(2, f'docs: --page {args.page}: nbs/ has no notebook {name}\n')
        found = [*render(args.root.resolve(), name)]
        print(*found, args.root/'_proc/_docs'/address(name), sep='\n')
        sys.exit(bool(found))
    found = check(args.root.resolve(), not args.no_render)
    for problem in found: print(problem)
    print(f'docs: {len(notebooks(args.root))} pages, {len(found)} problems')
    sys.exit(bool(found))
