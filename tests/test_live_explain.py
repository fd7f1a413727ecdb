"""Pages that `explain` writes, opened from a file in a browser: what they show is what PyTorch
says, for the package's networks, a stranger's mixer and timm's."""
import base64, io, json, re
from pathlib import Path

import numpy as np, pytest, timm, torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.testing import assert_close

from attnfree.live.explain import RUNTIME as CDN, explain
from attnfree.families import forget
from attnfree.run.imports import import_file
from attnfree.mixer import randomise
from attnfree.live.pieces import NetworkPieces
from attnfree.vision import create_model
from browser import CHROMIUM, browser
from runtime import live, runtime_folder

ROOT = Path(__file__).parent.parent
ROOT_DIV = "document.querySelector('.explain')"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason='needs chromium')


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    "A network and a page for each kind, by its name."
    folder, made = tmp_path_factory.mktemp('pages'), {}
    digits = [(image*255/16).round().astype('uint8') for image in load_digits().images[:3]]
    torch.manual_seed(0)
    photographs = [np.random.default_rng(i).integers(0, 256, (32, 32, 3)).astype('uint8')
                   for i in range(2)]
    import_file(str(ROOT/'examples/mixers.py'))
    fourier = create_model('fourier_micro_patch2_8', in_chans=1, num_classes=10)
    for name in ('fourier', 'shift'): forget(name)
    vit = timm.create_model('vit_tiny_patch16_224', img_size=32, patch_size=8, depth=2,
                            num_classes=4)
    for name, model, examples in [
            ('published', create_model('lavit_micro_8', pretrained=True), digits),
            ('stranger', randomise(fourier, std=0.1), digits),
            ('timm', randomise(vit, std=0.1), photographs)]:
        made[name] = model.eval(), explain(model, examples, folder/f'{name}.html', title=name)
    return made


def shown(page):
    "What a page was given to show."
    return json.loads(re.search(r'id="shown">(.*?)</script>', page.read_text())[1])


def numbers(tab, expression): return [*map(float, tab.evaluate(expression).split())]


def settled(tab):
    "Wait until the page has read the image that it shows."
    tab.evaluate(f"""new Promise((done, failed) => {{
        const end = Date.now() + 50000;
        const look = () => {ROOT_DIV}.dataset.ready === 'yes' && {ROOT_DIV}.dataset.done ? done() :
            Date.now() > end ? failed(document.body.innerText) : setTimeout(look, 50);
        look();
    }})""")


def pixels(tab):
    "What the page's network sees, painted parts included, as its test hook says."
    return np.array(numbers(tab, f"{ROOT_DIV}.dataset.pixels"), dtype='float32')


@pytest.mark.parametrize('name', ['published', 'stranger', 'timm'])
def test_a_page_says_what_pytorch_says(pages, name):
    model, page = pages[name]
    about = shown(page)['meta']
    mean, std = (torch.tensor(about[key]).view(-1, 1, 1) for key in ('mean', 'std'))

    def same(tab):
        x = (torch.from_numpy(pixels(tab)).view(about['image']) - mean)/std
        with torch.no_grad(): expected = model(x[None])[0]
        assert_close(torch.tensor(numbers(tab, f'{ROOT_DIV}.dataset.scores')), expected,
                     rtol=1e-3, atol=1e-3)
        pieces = NetworkPieces(model, x[None])
        for i, layer in enumerate(about['layers']):
            (h, w), prefix = layer['grid'], layer['prefix']
            at = json.loads(tab.evaluate(f'{ROOT_DIV}.dataset.at'))
            token = prefix + int(at[1]*h)*w + int(at[0]*w)
            moved = numbers(tab, f"document.querySelectorAll('.explain-layers canvas')[{i}]"
                                 '.dataset.moved')
            assert_close(torch.tensor(moved), pieces.reads(x[None], i)[token], rtol=1e-3, atol=1e-3)
        return expected

    with browser() as tab:
        tab.route({CDN: runtime_folder()})
        tab.open(page.as_uri())
        settled(tab)
        first = same(tab)
        tab.evaluate(f"""(select => {{ select.value = 'paint';
            delete {ROOT_DIV}.dataset.done; }})({ROOT_DIV}.querySelector('select'))""")
        left, top, side = tab.evaluate(f"""(r => [r.x, r.y, r.width])({ROOT_DIV}
            .querySelector('canvas').getBoundingClientRect())""")
        for kind, part in [('mousePressed', 0.55), ('mouseMoved', 0.7), ('mouseReleased', 0.7)]:
            tab.send('Input.dispatchMouseEvent', type=kind, x=left + part*side, y=top + 0.6*side,
                     button='left', buttons=1, clickCount=1)
        settled(tab)
        assert not torch.allclose(same(tab), first, rtol=1e-3, atol=1e-3)

        moved = tab.evaluate(f"{ROOT_DIV}.querySelector('.explain-layers canvas').dataset.moved")
        tab.evaluate(f"{ROOT_DIV}.querySelector('canvas').focus()")
        tab.send('Input.dispatchKeyEvent', type='keyDown', key='ArrowUp')
        same(tab)
        assert moved != tab.evaluate(
            f"{ROOT_DIV}.querySelector('.explain-layers canvas').dataset.moved")
        assert not tab.errors()
        hosts = {url.split('/')[2] for url in tab.requests if url.startswith('http')}
        assert hosts == {'cdn.jsdelivr.net'}


def test_the_site_has_the_same_runtime():
    assert CDN == 'https://cdn.jsdelivr.net/npm/{}@{}/dist/'.format(*live.RUNTIME)


def test_without_the_runtime_a_stored_example_stays(pages):
    model, page = pages['published']
    with browser() as tab:
        tab.send('Emulation.setDeviceMetricsOverride', width=390, height=1200, deviceScaleFactor=1,
                 mobile=False)
        tab.route({CDN: None})
        tab.open(page.as_uri())
        tab.evaluate(f"""new Promise(done => {{ const look = () =>
            {ROOT_DIV}.dataset.ready === 'no' ? done() : setTimeout(look, 50); look(); }})""")
        said = tab.evaluate(f"{ROOT_DIV}.querySelector('[role=status]').textContent")
        assert 'could not be loaded' in said and 'stored results' in said
        best = tab.evaluate(f"{ROOT_DIV}.querySelector('.explain-bars li').textContent")
        stored = shown(page)['stored']['probabilities']
        assert best.startswith(f'{np.argmax(stored)}{100*max(stored):.1f}')
        ink = tab.evaluate(f"""(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data
            .reduce((a, b) => a + b))({ROOT_DIV}.querySelector('.explain-layers canvas'))""")
        assert ink > 0
        assert tab.evaluate('document.documentElement.scrollWidth <= innerWidth')


def test_an_example_is_the_picture_that_was_given(pages):
    _, page = pages['published']
    file = io.BytesIO(base64.b64decode(shown(page)['examples'][1].partition(',')[2]))
    given = (load_digits().images[1]*255/16).round().astype('uint8')
    assert (np.asarray(Image.open(file)) == given).all()
