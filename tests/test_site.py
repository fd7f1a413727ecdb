"""How the rendered site looks, page by page, in a real browser at two widths and in two themes.

Each page is opened once; what is measured of all of them is asserted by the tests below, whose
messages name the pages.
"""
import contextlib, json, os, re, sys, time
from pathlib import Path

import pytest

from browser import CHROMIUM, browser, served

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT/'.ci'))
import docs

SITE = Path(os.environ.get('ATTNFREE_HTML', ROOT/'_proc/_docs'))  # what `.ci/docs.py` renders

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason='no chromium: pages were not looked at'),
    pytest.mark.skipif(not SITE.exists(), reason='no site: `python .ci/docs.py` renders it')]

# Of a page: its width, blocks of code that are cut without a way to scroll, the top of the first
# picture, pictures without alternative text, and texts of too little contrast.
MEASURE = r"""
(() => {
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const seen = e => e.getClientRects().length > 0;
  const main = document.querySelector('main');
  const blocks = [...main.querySelectorAll('pre')].filter(seen);
  const over = blocks.filter(p => p.scrollWidth > p.clientWidth + 1);
  const cut = over.filter(p => !scrolls(p) && !(p.parentElement && scrolls(p.parentElement)));
  const pictures = [...main.querySelectorAll('img, svg')].filter(seen);
  const top = Math.min(...pictures.map(i => i.getBoundingClientRect().top + scrollY), 1e6);
  const part = v => (v /= 255, v <= 0.03928 ? v/12.92 : ((v + 0.055)/1.055)**2.4);
  const light = c => 0.2126*part(c[0]) + 0.7152*part(c[1]) + 0.0722*part(c[2]);
  const colour = text => (text.match(/[\d.]+/g) || []).map(Number);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.5) return c;
    }
    return [255, 255, 255];
  };
  const low = new Map();
  for (const e of document.querySelectorAll('main *, nav *')) {
    if (!seen(e) || e.closest('math, svg, figure img')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e), text = colour(style.color);
    if (text[3] === 0) continue;
    const a = light(text), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05)/(Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.set(`${style.color} on ${behind(e)}`, e.className || e.tagName);
  }
  return {
    over: over.length, cut: cut.length, blocks: blocks.length, top,
    wide: document.documentElement.scrollWidth - innerWidth,
    unnamed: [...document.images].filter(i => !i.getAttribute('alt')).map(i => i.src.slice(-60)),
    low: [...low].slice(0, 5)};
})()
"""
STILL = """document.head.append(Object.assign(document.createElement('style'),
    {textContent: '* { transition: none !important; }'}))"""
# The dark theme is another stylesheet: it counts when the page's background has become dark.
DARK = """(async () => {
    if (!document.body.classList.contains('quarto-dark')) window.quartoToggleColorScheme();
    const sum = colour => colour.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0);
    const of = tag => tag && sum(getComputedStyle(tag).backgroundColor);
    const code = document.querySelector('div.sourceCode');
    for (let i = 0; i < 500 && (of(document.body) > 200 || of(code) > 300); i++)
        await new Promise(done => setTimeout(done, 20));
    return of(document.body) <= 200 && !(of(code) > 300);
})()"""


# A page that is a table.
WITHOUT = {'tutorials/models.html'}


def pages():
    found = {path.relative_to(SITE).as_posix() for path in SITE.rglob('*.html')
             if path.name != '404.html' and SITE/'site' not in path.parents}
    return sorted(found - docs.moved(ROOT).keys())


def test_an_old_address_leads_to_its_page():
    with served(SITE) as address, browser() as tab:
        tab.send('Page.navigate', url=address + 'weighted_mean.html#blocks')
        for _ in range(100):
            with contextlib.suppress(RuntimeError):  # while the page is left for the other
                if tab.evaluate("!!document.querySelector('main')"): break
            time.sleep(0.1)
        found = tab.evaluate('location.pathname + location.hash')
        assert found == '/mixers/weighted_mean.html#blocks'


def test_on_a_phone_lists_fit_and_have_names():
    "The list of pages, the contents of the page, the search."
    with served(SITE) as address, browser() as tab:
        resize(tab, 390)
        tab.open(address + 'mixers/ff.html')
        tab.evaluate("document.querySelector('.quarto-btn-toggle').click()")
        time.sleep(1)  # it slides
        shown = "document.getElementById('quarto-sidebar').getBoundingClientRect().width"
        assert 0 < tab.evaluate(shown) <= 390
        links = tab.evaluate("document.querySelectorAll('.on-this-page a').length")
        assert links == tab.evaluate("document.querySelectorAll('#TOC > ul a').length") > 5
        button = "document.querySelector('#quarto-search button').getAttribute('aria-label')"
        assert tab.evaluate(button) == 'Search'


def resize(tab, width):
    tab.send('Emulation.setDeviceMetricsOverride', width=width, height=1600, deviceScaleFactor=1,
             mobile=False)


@pytest.fixture(scope='module')
def measured():
    "What MEASURE finds: `{page: {'1280': ..., '390': ..., 'dark': ...}}`."
    found = {}
    with served(SITE) as site, browser() as tab:
        tab.send('Network.enable')
        tab.send('Network.setBlockedURLs', urls=['https://*'])  # the site stands by itself
        for page in pages():
            resize(tab, 1280)
            tab.open(site + page)
            tab.evaluate(STILL)
            if tab.evaluate("document.body.classList.contains('quarto-dark')"):
                tab.evaluate('window.quartoToggleColorScheme()')
            found[page] = {'1280': tab.evaluate(MEASURE)}
            resize(tab, 390)
            found[page]['390'] = tab.evaluate(MEASURE)
            resize(tab, 1280)
            assert tab.evaluate(DARK), page
            found[page]['dark'] = tab.evaluate(MEASURE)
    if folder := os.environ.get('ATTNFREE_MEASURED'):
        Path(folder).write_text(json.dumps(found, indent=1))
    return found


@pytest.mark.parametrize('width', ['1280', '390'])
def test_no_page_is_wider_than_its_window(measured, width):
    assert not {page: m[width]['wide'] for page, m in measured.items() if m[width]['wide'] > 0}


@pytest.mark.parametrize('width', ['1280', '390'])
def test_no_code_is_cut(measured, width):
    "Where code is wider than the page it scrolls."
    assert sum(m[width]['blocks'] for m in measured.values()) > 500
    assert not {page: m[width]['cut'] for page, m in measured.items() if m[width]['cut']}


def test_code_fits_the_page(measured):
    "At 1280 pixels hardly any code, or output, has to scroll."
    over, blocks = (sum(m['1280'][key] for m in measured.values()) for key in ('over', 'blocks'))
    assert over < 0.04*blocks, f'{over} of {blocks} blocks'


def test_pictures_come_first(measured):
    "Pages of mixers, tutorials and results have a picture within their first 1,200 pixels."
    shown = {page: round(m['1280']['top']) for page, m in measured.items()
             if page.startswith(('mixers/', 'tutorials/', 'results/')) and page not in WITHOUT}
    assert len(shown) > 20
    assert not {page: top for page, top in shown.items() if top > 1200}



def test_pictures_have_alternative_text(measured):
    assert not {page: m['1280']['unnamed'] for page, m in measured.items() if m['1280']['unnamed']}


@pytest.mark.parametrize('theme', ['1280', 'dark'])
def test_text_can_be_read(measured, theme):
    "A contrast of 4.5, as WCAG AA asks for."
    assert not {page: m[theme]['low'] for page, m in measured.items() if m[theme]['low']}


def test_pages_are_light():
    "Under 2 MB with their pictures."
    heavy = {}
    for page in pages():
        text = (SITE/page).read_text(encoding='utf-8')
        sources = re.findall(r'<img[^>]*src="([^":]+)"', text)
        files = {(SITE/page).parent/source for source in sources}
        size = len(text.encode()) + sum(file.stat().st_size for file in files if file.is_file())
        if size > 2e6: heavy[page] = size
    assert not heavy


@pytest.mark.parametrize('phrase', ['gated MLP', 'attention free', 'AFT', 'diagonality',
                                    'relative position bias'])
def test_search_finds(phrase):
    with served(SITE) as site, browser() as tab:
        resize(tab, 1280)
        tab.open(site + 'index.html')
        tab.evaluate("document.querySelector('.aa-DetachedSearchButton').click()")
        tab.appears('.aa-Input')
        tab.evaluate(f"""(() => {{
            const input = document.querySelector('.aa-Input');
            input.focus(); input.value = {json.dumps(phrase)};
            input.dispatchEvent(new Event('input', {{bubbles: true}})); }})()""")
        tab.appears('.aa-Item')
        results = tab.evaluate("[...document.querySelectorAll('.aa-Item')].map(i => i.innerText)")
    assert results and any(phrase.lower() in ' '.join(r.split()).lower() for r in results), results


QUERIES = {
    'my own images': 'tutorials/train_a_classifier', 'AFT formula': 'mixers/aft/variants',
    'train on my images': 'tutorials/train_a_classifier', 'create_model': 'models/vision',
    'fine tune': 'text/model', 'citation': 'changelog', 'multi gpu': 'tutorials/several_gpus',
    'out of memory': 'training/callbacks', 'AFTConv': 'mixers/aft/conv',
    'attnfree_train': 'commands/train', 'patch embedding': 'skeleton/patch',
    'spatial gating unit': 'mixers/sgu', 'diagonality loss': 'mixers/less_attention/layer',
    'onnx export': 'tutorials/export', 'generate text': 'commands/generate',
    'hugging face': 'tutorials/transformers', 'timm': 'models/convert',
    'resume training': 'tutorials/promises', 'learning rate': 'training/optimiser',
    'imagenet': 'data/images', 'position bias': 'mixers/aft/variants',
    'mixup': 'training/callbacks',
    'flash attention': 'results/speed', 'custom dataset': 'tutorials/new_task',
    'which mixer is best': 'results/all_mixers',
    'how do I fine-tune': 'tutorials/train_a_classifier', 'how do I cite this': 'changelog'}


def test_search_finds_words():
    "Of each query, the page that must be among the first three entries."
    with served(SITE) as site, browser() as tab:
        tab.open(site + 'index.html')
        missed = {}
        for query, page in QUERIES.items():
            found = tab.evaluate(f"""readSearchData().then(entries =>
                fuseSearch({json.dumps(query)}, entries, {{limit: 3}})).then(
                found => found.map(entry => entry.href.split(/[?#]/)[0]))""")
            if f'{page}.html' not in found: missed[query] = found
    assert not missed


def test_search_has_no_code():
    entries = json.loads((SITE/'search.json').read_text(encoding='utf-8'))
    texts = ' '.join(entry['text'] for entry in entries)
    assert 'test_fail(' not in texts and 'assert_close(' not in texts and len(texts) < 2e6


def test_search_shows_no_formula_source():
    entries = json.loads((SITE/'search.json').read_text(encoding='utf-8'))
    assert len(entries) > 300
    tex = re.compile(r'\\(frac|sum|odot|sigma|top|partial)')
    assert not [entry['href'] for entry in entries if tex.search(entry['text'])]


def test_a_table_sorts_by_its_columns():
    with served(SITE) as site, browser() as tab:
        resize(tab, 1280)
        tab.open(site + 'results/all_mixers.html')
        table = "document.querySelectorAll('table.dataframe')[1]"
        rows, heads = f'[...{table}.tBodies[0].rows]', f'{table}.tHead.rows[0].cells'
        def column(i): return tab.evaluate(f'{rows}.map(r => r.cells[{i}].innerText)')
        def click(i): tab.evaluate(f"{heads}[{i}].querySelector('button').click()")
        before = column(0)
        click(2)
        accuracies = [float(text.split()[0]) for text in column(2)]
        assert accuracies == sorted(accuracies) and column(0) != before
        click(2)
        assert column(0)[0] == 'ConvMixer'
        click(3)  # bits, and mixers without a causal form, which stay below
        assert column(3)[-1] == 'no causal form' and 'AFT-conv' == column(0)[0]


def test_a_table_with_a_named_index_sorts_too():
    with served(SITE) as site, browser() as tab:
        resize(tab, 1280)
        tab.open(site + 'tutorials/models.html')
        table = "document.querySelectorAll('table.dataframe')[0]"
        assert tab.evaluate(f'{table}.tHead.rows.length') == 1
        tab.evaluate(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
        counts = tab.evaluate(f'[...{table}.tBodies[0].rows].map(r => r.cells[2].innerText)')
    counts = [int(count.replace(',', '')) for count in counts]
    assert len(counts) == 68 and counts == sorted(counts)


def test_every_page_has_its_text():
    text = (SITE/'llms.txt').read_text(encoding='utf-8')
    listed = re.findall(r'\]\(\S*?/attnfree/(\S+?)\)', text)
    assert len(listed) > 90
    for name in listed:
        text = (SITE/name).read_text(encoding='utf-8')
        assert len(text) > 500, name
        for link in re.findall(r'\]\((?!https?:)([^)\s#]+\.(?:md|ipynb))', text):
            assert link.endswith('.md') and (SITE/name).parent.joinpath(link).exists(), (name, link)
