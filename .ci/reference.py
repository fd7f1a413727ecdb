"""How the site shows what a notebook exports, and what it folds: processors of nbdev.

nbdev's `show_doc` runs each notebook and prints signatures without the source; classes look like
functions, methods are missing, `*` and types such as `tuple[int,...]` are lost. Here nothing is
run: name, docstring, source, parameters and methods come from the exported cell itself.
settings.ini names these processors:

    `Reference`     an entry for each public name: its source, folded where it is long
    `Fold`          imports, cells that hold nothing but checks, and all code of results, under a
                    line that says so; alternative text for figures that have none
    `Relative`      links to pages of the site become relative, so that any copy can be read
    `PageLinks`     each page links to its notebook, on GitHub and in Colab
"""
import ast, io, os, re, textwrap, tokenize
from pathlib import Path, PurePosixPath

import nbformat, yaml
from nbdev.config import get_config
from nbdev.doclinks import NbdevLookup, _nbpath2html
from nbdev.processors import Processor, mk_cell

OPEN = 40  # longest source, in lines, that is not folded
FEW = 4  # most lines of checks that are not folded
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
# A picture on a line of its own; a paragraph in italics below it is its caption.
PICTURE = re.compile(r'^!\[([^\]]+)\]\(([^)\s]+)\)$(?:\n\n\*([^*]+)\*$)?', re.MULTILINE)
CHECK = re.compile(r'test_\w+|assert_\w+|check_mixer')


# Reading a definition


def comments(source):
    "The comment at the end of each line, by line number; a line of comment continues the last."
    found, begun, last = {}, None, None  # `begun`: the line whose comment goes on until `last`
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT: continue
        text, line = token.string.lstrip('#').strip(), token.start[0]
        if token.line[:token.start[1]].strip(): found[line], begun, last = text, line, line
        elif last == line - 1: found[begun], last = f'{found[begun]} {text}', line
    return found


def parameters(function, said, skip_self=False):
    "`(name, type, default, description)` of each parameter of a definition, in order."
    args = function.args
    plain = args.posonlyargs + args.args
    defaults = [None]*(len(plain) - len(args.defaults)) + args.defaults
    listed = [('', arg, default) for arg, default in zip(plain, defaults)]
    if args.vararg: listed.append(('*', args.vararg, None))
    listed += [('', arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg: listed.append(('**', args.kwarg, None))
    if skip_self and listed and listed[0][1].arg in ('self', 'cls'): listed = listed[1:]
    for stars, arg, default in listed:
        last = default.end_lineno if default is not None else arg.end_lineno
        yield stars + arg.arg, text_of(arg.annotation), text_of(default), said.get(last, '')


def fields(definition, said):
    "The annotated fields of a class, as parameters."
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, default = node.target.id, text_of(node.value)
            yield name, text_of(node.annotation), default, said.get(node.end_lineno, '')


def text_of(node):
    "An expression as in the source."
    return '' if node is None else ast.unparse(node).replace(' | ', '|')


def returned(function, said):
    "Type and description of what a function returns; empty texts for what is not given."
    if function.returns is None: return '', ''
    return text_of(function.returns), said.get(function.returns.end_lineno, '')


def signature(node, said):
    "The signature of a definition without comments, a line for each parameter if it is long."
    if isinstance(node, ast.ClassDef):
        made = constructor(node)
        bases = ', '.join(text_of(base) for base in node.bases)
        head = f'class {node.name}' + (f'({bases})' if bases else '')
        if made is None: return head
        return head + ':\n' + textwrap.indent(signature(made, said), '    ')
    args, end = ast.unparse(node.args), f'->{text_of(node.returns)}' if node.returns else ''
    line = f'def {node.name}({args}){end}'
    if len(line) <= 88: return line
    parts = [name + (f': {kind}' if kind else '') + (f' = {default}' if default else '')
             for name, kind, default, _ in parameters(node, said)]
    at = len(node.args.posonlyargs + node.args.args)
    if node.args.kwonlyargs and not node.args.vararg: parts.insert(at, '*')
    return f'def {node.name}(\n' + ''.join(f'    {part},\n' for part in parts) + f'){end}'


def constructor(definition):
    "The `__init__` of a class, or `None`."
    return next((node for node in definition.body
                 if isinstance(node, FUNCTIONS) and node.name == '__init__'), None)


def public_methods(definition):
    return [node for node in definition.body if isinstance(node, FUNCTIONS)
            and not node.name.startswith('_')]


# Writing its entry on a page


def listing(entries, result=('', '')):
    "Parameters, or fields, and what is returned, as a list in markdown."
    lines = []
    for name, kind, default, description in entries:
        code = (kind + (f' = {default}' if default else '')).strip()
        lines.append(f'- **`{name}`**' + (f' `{code}`' if code else '')
                     + (f': {description}' if description else ''))
    if any(result):
        kind, description = result
        lines.append('- **returns**' + (f' `{kind}`' if kind else '')
                     + (f': {description}' if description else ''))
    return '\n'.join(lines)


def method_entry(owner, node, said):
    "The entry of a method on a page."
    decorators = [text_of(decorator) for decorator in node.decorator_list]
    is_property = any(name.endswith('property') for name in decorators)
    call = '' if is_property else f'({", ".join(p[0] for p in parameters(node, said, True))})'
    name = f'{owner}.{node.name}'
    title = f'[**`{node.name}{call}`**]{{#{name.lower()}}}'
    entry = [f'{title} {ast.get_docstring(node) or ""}'.strip()]
    entries = [*parameters(node, said, skip_self=True)]
    if found := listing(entries, returned(node, said)): entry.append(found)
    return '\n\n'.join(entry)


def details(node, said):
    "Parameters and methods of a definition, in markdown."
    if not isinstance(node, ast.ClassDef):
        return [listing(parameters(node, said), returned(node, said))]
    made = constructor(node)
    parts = [listing(parameters(made, said, skip_self=True) if made else fields(node, said))]
    methods = [method_entry(node.name, method, said) for method in public_methods(node)]
    if methods: parts += ['**Methods**', *methods]
    return parts


def folded(summary, *parts):
    "Markdown parts, folded under a line that opens them."
    return '\n\n'.join([f'<details class="reference">\n<summary>{summary}</summary>',
                        *(part for part in parts if part), '</details>'])


def entry(node):
    "The markdown cell of one name: title, kind, link to its lines, docstring."
    kind = 'class' if isinstance(node, ast.ClassDef) else 'function'
    source = NbdevLookup().code(node.name)
    link = f' [source]({source})' if source else ''
    return (f'### {node.name}\n\n'
            f'::: {{.definition}}\n{kind}{link}\n:::\n\n{ast.get_docstring(node) or ""}')


def source_cell(source, summary, shown=False):
    "Code of an exported cell, under a line that opens or closes it."
    code = mk_cell(f'#| code-fold: {"show" if shown else "true"}\n'
                   f'#| code-summary: "{summary}"\n{source}')
    code.metadata, code.outputs, code.execution_count = {}, [], None
    return code


def markdown_cell(text):
    text = NbdevLookup().linkify(text)
    text = re.sub(r'\[(`_\w+`)\]\([^)]*\)', r'\1', text)  # private names have no entry
    cell = mk_cell(text, cell_type='markdown')
    cell.metadata = {}
    return cell


def exported(cell):
    return cell.cell_type == 'code' and {'export', 'exports', 'exporti'} & cell.directives_.keys()


def pieces(source):
    "`(definition, source)` of each public one, in order; `(None, source)` of what is between them."
    lines, between, at = source.splitlines(), [], 0
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)): at = node.end_lineno; continue
        text = '\n'.join(lines[at:node.end_lineno]).strip('\n')
        at = node.end_lineno
        public = isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith('_')
        if not public: between.append(text); continue
        if between: yield None, '\n\n'.join(between)
        between = []
        yield node, text
    if between: yield None, '\n\n'.join(between)


def replaced(source):
    "The cells that stand for the source of an exported one on a page."
    said = comments(source)
    for node, text in pieces(source):
        if node is None:
            yield source_cell(text, 'Helpers and constants')
            continue
        lines = len(text.splitlines())
        yield markdown_cell(entry(node))
        if lines <= OPEN: yield source_cell(text, 'Source', shown=True)
        else: yield markdown_cell(f'```python\n{signature(node, said)}\n```')
        title = 'Parameters and methods' if isinstance(node, ast.ClassDef) else 'Parameters'
        if any(parts := details(node, said)): yield markdown_cell(folded(title, *parts))
        if lines > OPEN: yield source_cell(text, 'Source')


def is_command(node):
    return 'call_parse' in map(text_of, getattr(node, 'decorator_list', ()))


def help_of(kind):
    "The help text of an annotation by `option`, as it stands or as the constant IMPORTS."
    if kind == 'IMPORTS':  # shared by all commands
        page = Path(__file__).parent.parent/'nbs/commands/00_train.ipynb'
        code = '\n'.join(c.source for c in nbformat.read(page, as_version=4).cells)
        kind = re.search(r"IMPORTS = (option\(.*?action='append'\))", code, re.DOTALL)[1]
    if kind.startswith('option('): return ast.literal_eval(ast.parse(kind).body[0].value.args[0])


def options(node, said):
    "The options of a command, in markdown."
    lines = []
    for name, kind, default, about in parameters(node, said):
        own = not default or 'opt=False' in kind
        given = f' (`{default}`)' if default not in ('', 'None', 'False') else ''
        about = re.sub(r'(?<![\w`-])--[a-z_]+', r'`\g<0>`', help_of(kind) or about)
        lines.append(f"- **`{name.upper() if own else f'--{name}'}`**{given}: {about}")
    return '\n'.join(lines)


def options_of(cells):
    "Sections on the options of the commands that are defined in `cells`."
    for cell in filter(exported, cells):
        said = comments(cell.source)
        for node, _ in pieces(cell.source):
            if node is not None and is_command(node):
                yield markdown_cell(f'## Options of `{node.name}`\n\n{options(node, said)}')


class Reference(Processor):
    "Puts an entry for each public name in place of the cells that export."
    def begin(self):
        cells = []
        if told := [*options_of(self.nb.cells)]:  # of a command come after the page's first words
            first = [i for i, cell in enumerate(self.nb.cells) if cell.cell_type == 'markdown'][1]
            self.nb.cells[first+1:first+1] = told
        for cell in self.nb.cells:
            if not exported(cell): cells.append(cell)
            elif 'hide' not in cell.directives_: cells += replaced(cell.source)
        hidden = {'hide', 'default_exp'}
        self.nb.cells = [cell for cell in cells if not hidden & cell.get('directives_', {}).keys()]
        for cell in self.nb.cells: cell.setdefault('directives_', {})


def checks(cell):
    "How many checks a cell holds."
    nodes = [node for part in cell.parsed_() or [] for node in ast.walk(part)]
    called = [getattr(node.func, 'id', getattr(node.func, 'attr', ''))
              for node in nodes if isinstance(node, ast.Call)]
    return (sum(isinstance(node, ast.Assert) for node in nodes)
            + sum(bool(CHECK.fullmatch(name)) for name in called))


def summary_of(cell, results):
    "The line under which a cell is folded, or `None` if its code is shown."
    body = cell.parsed_()
    if not body: return None
    count, lines = checks(cell), len(cell.source.strip().splitlines())
    if all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body): return 'Imports'
    defines = any(isinstance(node, (*FUNCTIONS, ast.ClassDef)) for node in body)  # is used later
    if count and lines > FEW and not defines and not cell.get('outputs'):
        return f'Evidence: {count} check' + 's'*(count > 1)
    return 'Code' if results else None


def described(match):
    "A picture with its caption, and with what it shows as alternative text for screen readers."
    alt, address, caption = match.groups()
    said = plain_text(alt)[:400].replace('%', ' percent')
    return f'![{caption or alt}]({address}){{fig-alt="{said}"}}'


def without_marks(markdown):
    "Markdown without its marks, formulas and the addresses of its links."
    return re.sub(r'\$[^$]*\$|\[([^\]]*)\]\([^)]*\)|[`*#>|{}"\\]|<[^>]*>', r'\1', markdown)


def plain_text(markdown): return ' '.join(without_marks(markdown).split())


def sentence(markdown):
    "The last full sentence of some markdown, as plain text."
    parts = re.split(r'(?<=[.:?!])\s+|\n\n', without_marks(markdown))
    found = [part.rstrip(':') for part in map(plain_text, parts) if len(part) > 15]
    return (found[-1] if found else plain_text(markdown))[:200]


class Fold(Processor):
    "Folds what readers need not see, and describes figures by the sentence that stands above."
    def begin(self):
        results = str(page_of(self.nb)).startswith('results/')
        above = self.nb.frontmatter_.get('title', '')
        for cell in self.nb.cells:
            if cell.cell_type == 'markdown':
                cell.source = PICTURE.sub(described, cell.source)
                if not cell.source.startswith(('<!--', '<details', '###')):
                    above = sentence(cell.source) or above
                continue
            if cell.cell_type != 'code' or not cell.source.strip(): continue
            told = {*re.findall(r'^#\| *([\w-]+):', cell.source, re.MULTILINE)}
            lines = []
            if not {'code-fold', 'echo'} & told and (summary := summary_of(cell, results)):
                lines += ['#| code-fold: true', f'#| code-summary: "{summary}"']
            drawn = any('image/png' in output.get('data', {}) for output in cell.get('outputs', []))
            if drawn and 'fig-alt' not in told:
                alt = re.sub(r'%', ' percent', above).replace("'", '’')
                lines.append(f"#| fig-alt: '{alt}'")
            if lines: cell.source = '\n'.join([*lines, cell.source])


class Relative(Processor):
    "Makes links to pages of the site relative to the page, so that any copy can be read."
    def cell(self, cell):
        if cell.cell_type != 'markdown': return
        config = get_config()
        base = re.escape(config.doc_host + config.doc_baseurl) + '/'
        folder = page_of(self.nb).parent
        def local(match):
            return '](' + os.path.relpath(match[1] or 'index.html', folder) + (match[2] or '') + ')'
        cell.source = re.sub(rf'\]\({base}([^)#]*)(#[^)]*)?\)', local, cell.source)


def page_of(nb):
    "The page of a notebook, relative to the site's root."
    path = PurePosixPath(os.path.relpath(nb.path_, get_config().nbs_path))
    return path.parent/_nbpath2html(path).name


class PageLinks(Processor):
    "Links each page to its notebook, on GitHub and in Colab, and to its text."
    def begin(self):
        config, head = get_config(), self.nb.cells[0] if self.nb.cells else None
        if head is None or head.cell_type != 'raw': return
        path = os.path.relpath(self.nb.path_, config.nbs_path.parent).replace(os.sep, '/')
        tail = f'{config.user}/{config.repo}/blob/{config.branch}/{path}'
        settings = yaml.safe_load(head.source.strip().strip('-'))
        settings['other-links'] = [
            {'text': 'Open in Colab', 'icon': 'play-circle',
             'href': f'https://colab.research.google.com/github/{tail}'},
            {'text': 'Notebook', 'icon': 'journal-code', 'href': f'https://github.com/{tail}'},
            {'text': 'As plain text', 'icon': 'file-text', 'href': page_of(self.nb).name + '.md'}]
        head.source = f'---\n{yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}---'
