"""The scripts of the site's live pages: node's own tests, the same numbers as in PyTorch, and what
happens in a browser when somebody turns the knobs."""
import json, os, re, shutil, subprocess
from pathlib import Path

import pytest, torch
from torch.testing import assert_close

from attnfree.aft.conv import conv_mean
from attnfree.biased_mean import full_mean
from attnfree.weighted_mean import plain_mean
from browser import CHROMIUM, browser, served

ROOT = Path(__file__).parent.parent
LIVE = ROOT/'nbs/site/live'
SITE = Path(os.environ.get('ATTNFREE_HTML', ROOT/'_proc/_docs'))
NODE = shutil.which('node')
needs_node = pytest.mark.skipif(NODE is None, reason='needs node')
needs_page = pytest.mark.skipif(
    CHROMIUM is None or not (SITE/'mixers/aft/variants.html').exists(),
    reason='needs chromium and a rendered site')


@needs_node
def test_the_scripts_own_tests():
    done = subprocess.run([NODE, '--test', str(ROOT/'tests/live')], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r'# pass (\d+)', done.stdout)[1]) >= 11


def in_node(state, keys, values):
    "The means of all variants by the page's script."
    script = f"""import {{VARIANTS, biases, means}} from {json.dumps((LIVE/'aft.js').as_uri())};
        const {{state, keys, values}} = {json.dumps(dict(state=state, keys=keys, values=values))};
        console.log(JSON.stringify(Object.fromEntries(VARIANTS.map(variant =>
            [variant, means(keys, biases(variant, state), values)]))));"""
    done = subprocess.run([NODE, '--input-type=module', '-e', script], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return {name: torch.tensor(found, dtype=torch.float64)
            for name, found in json.loads(done.stdout).items()}


@needs_node
@pytest.mark.parametrize('reach', [1, 2, 4])
def test_the_script_equals_pytorch(reach):
    torch.manual_seed(reach)
    width = 4
    n, side = width**2, 2*width - 1
    keys, values = torch.randn(2, n, dtype=torch.float64)
    free = torch.randn(n, n, dtype=torch.float64)
    kernel = torch.randn(side, side, dtype=torch.float64)
    state = dict(width=width, reach=reach, free=free.tolist(), kernel=kernel.flatten().tolist())
    found = in_node(state, keys.tolist(), values.tolist())
    k, v = keys[None, :, None], values[None, :, None]
    at = torch.cartesian_prod(torch.arange(width), torch.arange(width))
    near = (at[:, None] - at).abs().amax(-1) < reach
    inside = slice(width - reach, width + reach - 1)
    expected = dict(
        simple=plain_mean(k, v), full=full_mean(k, v, free), local=full_mean(k, v, free*near),
        conv=conv_mean(k, v, kernel[None, inside, inside], (width, width)))
    for name, mean in expected.items():
        assert_close(found[name], mean[0, :, 0].expand(n), rtol=1e-5, atol=1e-6)


@needs_page
@pytest.mark.parametrize('width', [1280, 390])
def test_knobs_are_turned(width):
    "A key is dragged and the weights follow; AFT-conv shares a bias; the keyboard does the same."
    with served(SITE) as address, browser() as tab:
        tab.send('Emulation.setDeviceMetricsOverride', width=width, height=1600,
                 deviceScaleFactor=1, mobile=False)
        tab.open(address + 'mixers/aft/variants.html')
        root = "document.querySelector('.aft-knobs')"
        def numbers(name): return [*map(float, tab.evaluate(f'{root}.dataset.{name}').split())]
        def drag(panel, column, row, by):
            tab.evaluate(f"{root}.scrollIntoView()")
            box = tab.evaluate(f"""(r => [r.x, r.y, r.width])({root}.querySelector(
                '[data-panel={panel}]').getBoundingClientRect())""")
            x, y = (box[i] + (at + 0.5)*box[2]/8 for i, at in enumerate((column, row)))
            for kind, down in (('mousePressed', 0), ('mouseMoved', by), ('mouseReleased', by)):
                tab.send('Input.dispatchMouseEvent', type=kind, x=x, y=y - down, button='left',
                         buttons=1, clickCount=1)
        def choose(variant):
            tab.evaluate(f"""(s => {{ s.value = '{variant}';
                s.dispatchEvent(new Event('change')); }})({root}.querySelector('select'))""")

        before = numbers('weights')
        assert sum(before) == pytest.approx(1, abs=1e-4) and len(before) == 64
        drag('keys', 2, 5, 50)  # two more
        after = numbers('weights')
        ratio = [new/old for new, old in zip(after, before)]
        assert ratio[42]/ratio[0] == pytest.approx(2.718281828**2, rel=0.02)
        assert max(ratio[:42]) == pytest.approx(min(ratio[:42]), rel=0.02)

        choose('full')
        drag('values', 0, 0, 0)  # another token reads
        one = numbers('means')
        drag('biases', 7, 7, 50)
        changed = [i for i, (a, b) in enumerate(zip(one, numbers('means'))) if a != b]
        assert changed == [0]  # in AFT-full the bias of a pair
        choose('conv')
        one = numbers('means')
        drag('biases', 1, 0, 50)
        changed = [i for i, (a, b) in enumerate(zip(one, numbers('means'))) if a != b]
        assert len(changed) > 30  # the offset of all
        choose('simple')
        one = numbers('means')
        drag('biases', 1, 0, 50)
        assert numbers('means') == one
        assert 'no biases' in tab.evaluate(f"{root}.querySelector('.knobs-said').textContent")

        tab.evaluate(f"{root}.querySelector('[data-panel=keys]').focus()")
        for key in ('ArrowRight', '+'):
            tab.send('Input.dispatchKeyEvent', type='keyDown', key=key)
        assert numbers('means') != one
        assert not tab.errors()
        assert tab.evaluate('document.documentElement.scrollWidth <= innerWidth')
