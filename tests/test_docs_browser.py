"The documentation in a real browser: index and two component pages."
import os, subprocess, sys
from pathlib import Path

import pytest

from browser import CHROMIUM, browser, served

ROOT = Path(__file__).parent.parent
PAGES = {'index.html': 'attnfree', 'ff.html': None, 'attention.html': None}   # page and, where it matters, a word of its title

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason='no chromium on this machine: pages were not looked at in a browser')


@pytest.fixture(scope='module')
def tab():
    with browser() as tab: yield tab


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    "The pages that `.ci/run` has just made (`ATTNFREE_HTML`), or fresh ones."
    folder = os.environ.get('ATTNFREE_HTML')
    if not folder:
        folder = tmp_path_factory.mktemp('html')
        subprocess.run([sys.executable, ROOT/'.ci/check_docs.py', '--out', folder], check=True)
    with served(folder) as address: yield address


@pytest.mark.parametrize('page', PAGES)
def test_page(tab, site, page, tmp_path):
    tab.open(site + page)
    tab.screenshot(tmp_path/f'{page}.png')
    title, text = tab.evaluate('document.querySelector("h1").innerText'), tab.evaluate('document.querySelector("main").innerText')
    assert title and (PAGES[page] or title) in title and len(text) > 500
    pictures = tab.evaluate('[...document.images].map(i => [i.getAttribute("src"), i.complete && i.naturalWidth])')
    assert pictures and all(width for _, width in pictures), f"pictures that did not load: {pictures}"
    formulas = tab.evaluate('[...document.querySelectorAll("math")].map(m => m.getBoundingClientRect().width)')
    assert all(formulas), 'a formula takes no space'
    assert page == 'index.html' or formulas, 'a component page without a formula'
    assert tab.evaluate('document.documentElement.scrollWidth <= innerWidth'), 'the page is wider than the window'
    assert not tab.errors()
    assert (tmp_path/f'{page}.png').stat().st_size > 10_000


def test_a_broken_page_is_noticed(tab, tmp_path):
    "What the test above trusts: a missing picture has no width, and the browser's complaint reaches `errors`."
    (tmp_path/'broken.html').write_text('<h1>x</h1><img src="none.png"><script>nonsense()</script>')
    with served(tmp_path) as address:
        tab.open(address + 'broken.html')
        assert tab.evaluate('document.images[0].naturalWidth') == 0
        errors = ' '.join(tab.errors())
    assert 'none.png' in errors and 'Uncaught' in errors
