"The rendered site in a real browser: index and three component pages."
import os
from pathlib import Path

import pytest

from browser import CHROMIUM, browser, served

ROOT = Path(__file__).parent.parent
SITE = Path(os.environ.get('ATTNFREE_HTML', ROOT/'_proc/_docs'))  # what `.ci/docs.py` renders
PAGES = {'index.html': 'attnfree', 'mixers/ff.html': None, 'mixers/attention.html': None,
         'mixers/aft/variants.html': None}  # and, where it matters, a word of the title

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason='no chromium: pages were not looked at'),
    pytest.mark.skipif(not SITE.exists(), reason='no site: `python .ci/docs.py` renders it')]


@pytest.fixture(scope='module')
def tab():
    with browser() as tab: yield tab


@pytest.fixture(scope='module')
def site():
    with served(SITE) as address: yield address


@pytest.mark.parametrize('page', PAGES)
def test_page(tab, site, page, tmp_path):
    tab.open(site + page)
    picture = tmp_path/'page.png'
    tab.screenshot(picture)
    title = tab.evaluate('document.querySelector("h1").innerText')
    text = tab.evaluate('document.querySelector("main").innerText')
    assert title and (PAGES[page] or title) in title and len(text) > 500
    images = tab.evaluate(
        '[...document.images].map(i => [i.getAttribute("src"), i.complete && i.naturalWidth])')
    assert images and all(width for _, width in images), f'pictures that did not load: {images}'
    formulas = tab.evaluate(
        '[...document.querySelectorAll("math")].map(m => m.getBoundingClientRect().width)')
    assert all(formulas), 'a formula takes no space'
    assert page == 'index.html' or formulas, 'a component page without a formula'
    wide = tab.evaluate('[document.documentElement.scrollWidth, innerWidth]')
    assert wide[0] <= wide[1], f'the page is wider than the window: {wide}'
    assert not tab.errors()
    assert picture.stat().st_size > 10_000


def test_a_broken_page_is_noticed(tab, tmp_path):
    "What the test above trusts: a missing picture has no width, and complaints are heard."
    broken = '<h1>x</h1><img src="none.png"><script>nonsense()</script>'
    (tmp_path/'broken.html').write_text(broken)
    with served(tmp_path) as address:
        tab.open(address + 'broken.html')
        assert tab.evaluate('document.images[0].naturalWidth') == 0
        errors = ' '.join(tab.errors())
    assert 'none.png' in errors and 'Uncaught' in errors
