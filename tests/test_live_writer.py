"""The page on which a language model writes: its text is that of `generate`, its state is drawn as
.ci/live.py stores it, and a reader can stop it, go on, and read an example without any runtime."""
import json, os, random, shutil, subprocess, sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np, pytest, torch

from attnfree.learner import load
from attnfree.run.generation import generate
from browser import CHROMIUM, browser, served
from runtime import OWN

ROOT = Path(__file__).parent.parent
LIVE = ROOT/'nbs/site/live'
SITE = Path(os.environ.get('ATTNFREE_HTML', ROOT/'_proc/_docs'))
PAGE = 'live/writer.html'
NODE = shutil.which('node')
needs_node = pytest.mark.skipif(NODE is None, reason='needs node')
NEEDED = [SITE/PAGE, SITE/OWN, SITE/'site/live/writer.json']
needs_page = pytest.mark.skipif(
    CHROMIUM is None or not all(path.exists() for path in NEEDED),
    reason='needs chromium and a rendered site')
WRITER = "document.querySelector('.writer')"
PROMPT = 'The history of '


@cache
def greedy(prompt, count):
    "What attnfree writes at temperature 0."
    model, _ = load('lm_aft_local_mini_256.enwik8')
    start = torch.tensor([[*prompt.encode()]])
    return [value.item() for value in generate(model.eval(), start, count, temperature=0)]


class Page:
    "The page in a tab: what a reader does with it, and what he sees."
    def __init__(self, tab): self.tab = tab

    def find(self, what): return self.tab.evaluate(f'{WRITER}.{what}')
    def data(self, name): return self.find(f'dataset.{name}')
    def said(self): return self.find("querySelector('.writer-said').textContent")
    def text(self): return self.find("querySelector('.writer-text').textContent")
    def values(self): return json.loads(self.find("values.join() ?? ''").join('[]'))
    def press(self, name='writer-write'): self.find(f"querySelector('.{name}').click()")
    def wait(self, seconds): self.tab.evaluate(f'new Promise(r => setTimeout(r, {1000*seconds}))')

    def until(self, condition, seconds=120):
        "Wait for a condition in JavaScript, of the data `d` and what the page says, `said`."
        said = f"{WRITER}.querySelector('.writer-said').textContent"
        for _ in range(10*seconds):
            now = self.tab.evaluate(f'((d, said) => {condition})({WRITER}.dataset, {said})')
            if now: return
            self.wait(0.1)
        raise TimeoutError(f'{condition}: {self.said()}')

    def set(self, selector, value):
        self.tab.evaluate(f"""(e => {{ e.value = {json.dumps(value)};
            e.dispatchEvent(new Event('input')); }})({WRITER}.querySelector('{selector}'))""")

    def fits(self):
        return self.tab.evaluate('document.documentElement.scrollWidth <= innerWidth')

    def ready(self):
        self.tab.evaluate(f'{WRITER}.scrollIntoView()')
        self.until("d.phase === 'ready'")


@contextmanager
def opened(width=1280, height=1100, blocked=False):
    "The page, with the runtime or without."
    with served(SITE) as address, browser() as tab:
        tab.route({address + OWN: None} if blocked else {})
        tab.send('Emulation.setDeviceMetricsOverride', width=width, height=height,
                 deviceScaleFactor=1, mobile=False)
        tab.open(address + PAGE)
        yield Page(tab)


def pictures_in_node(state, about, seen):
    "The state by the page's script."
    script = f"""import {{pictures}} from {json.dumps((LIVE/'steps.js').as_uri())};
        const {{state, about, seen}} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
        const bytes = ({{numbers}}) => Array.from(numbers, x => Number.isNaN(x) ? -128 : 127*x);
        console.log(JSON.stringify(pictures({{state, about, seen}}).map(block =>
            [block.keys, block.values, ...Object.values(block.before ?? {{}})].map(bytes))));"""
    script = script.replace('require(', "(await import('node:module')).createRequire('/')(")
    done = subprocess.run([NODE, '--input-type=module', '-e', script], capture_output=True,
                          text=True, input=json.dumps(dict(state=state, about=about, seen=seen)))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
@pytest.mark.parametrize('kind', ['aft', 'attention'])
def test_the_stored_picture_is_the_state(tmp_path, monkeypatch, kind):
    "What .ci/live.py stores after 100 bytes is what the script draws of the same state."
    monkeypatch.syspath_prepend(ROOT/'.ci')
    import base64, live
    from attnfree.run.export import OnnxSteps
    (tmp_path/'own').mkdir()
    file, = live.write(tmp_path/'own', [f'writer_{kind}.onnx'])
    assert file.stat().st_size < 2.4e6
    steps = OnnxSteps(file)
    for byte in (PROMPT*7)[:100].encode(): steps.step([byte])
    blocks, scales = live.pictures(steps, 8)
    state = {name: dict(data=value.ravel().tolist()) for name, value in steps.state.items()}
    shapes = [dict(name=name, shape=value.shape) for name, value in steps.state.items()]
    drawn = pictures_in_node(state, dict(state=shapes, every=8, scales=scales, longest=256), 100)
    assert len(drawn) == len(blocks) == 4
    for found, block in zip(drawn, blocks):
        parts = [block['keys'], block['values'], *(block['before'] or {}).values()]
        assert len(found) == len(parts) == (4 if kind == 'aft' else 2)
        for one, part in zip(found, parts):
            expected = np.frombuffer(base64.b64decode(part['numbers']), dtype=np.int8)
            assert len(expected) == part['rows']*part['columns'] == len(one)
            assert np.abs(expected - np.array(one)).max() <= 0.51


@needs_node
def test_broken_utf8_is_shown_as_in_python():
    numbers = random.Random(0)
    starts = [0x41, 0x80, 0xbf, 0xc2, 0xe2, 0x82, 0xed, 0xa0, 0xf0, 0x9f, 0xf4, 0x90, 0xef, 0xff]
    texts = [[numbers.choice(starts) for _ in range(40)] for _ in range(200)]
    script = f"""import {{Decoder}} from {json.dumps((LIVE/'steps.js').as_uri())};
        console.log(JSON.stringify({json.dumps(texts)}.map(bytes => {{
            const decoder = new Decoder();
            return [...bytes.map(byte => decoder.push(byte)), decoder.end()]; }})));"""
    done = subprocess.run([NODE, '--input-type=module', '-e', script], capture_output=True,
                          text=True, encoding='utf-8')
    assert done.returncode == 0, done.stderr
    for bytes_, found in zip(texts, json.loads(done.stdout)):
        assert ''.join(found) == bytes(bytes_).decode('utf-8', 'replace')


def test_the_example_is_what_the_notebook_printed():
    cells = json.loads((ROOT/'nbs/live/02_writer.ipynb').read_text(encoding='utf-8'))['cells']
    printed = [''.join(output['text']) for cell in cells for output in cell.get('outputs', [])
               if 'drawn = generate(' in ''.join(cell['source'])]
    sys.path.insert(0, str(ROOT/'.ci'))
    try: import live
    finally: sys.path.pop(0)
    prompt, written = live.example()
    assert prompt == PROMPT and len(written) > 300
    assert printed == [prompt + written + '\n']


@needs_page
def test_it_writes_what_generate_writes():
    "400 greedy bytes, past the window of 256, and nothing from elsewhere."
    with opened(height=300) as page:
        tab = page.tab
        page.wait(0.5)
        assert page.data('phase') == 'example' and not any(OWN in url for url in tab.requests)
        assert page.text().startswith(PROMPT) and len(page.text()) > 300
        page.ready()
        page.set('input[type=range]', 0)
        page.press()
        for _ in range(60):
            page.wait(0.5)
            if int(page.data('written') or 0) >= 400: break
        page.press()
        values = page.values()
        assert values[:400] == greedy(PROMPT, 400)
        assert page.text() == PROMPT + bytes(values).decode()
        assert page.data('aftSize') == '133120'  # after 400 bytes as after one
        assert 0 < int(page.data('attentionSize')) <= 2**20
        assert not tab.errors()
        hosts = {urlsplit(url).netloc for url in tab.requests}
        assert hosts == {urlsplit(tab.evaluate('location.href')).netloc}
        loaded = {Path(urlsplit(url).path).name for url in tab.requests if OWN not in url}
        assert {'writer.json', 'writer_aft.onnx', 'writer_attention.onnx'} <= loaded
        own = [file for file in (SITE/'site/live').iterdir() if file.name in loaded]
        assert sum(file.stat().st_size for file in own) < 5e6


@needs_page
def test_it_writes_a_hundred_bytes_a_second():
    "Of half a minute the best half second counts: machines are shared."
    paces, speeds = [], []
    with opened(height=300) as page:
        page.ready()
        page.press()
        for _ in range(60):
            page.wait(0.5)
            paces.append(float(page.data('pace') or 0))
            speeds.append([float(page.data(f'{kind}Speed') or 0) for kind in ('aft', 'attention')])
            if max(paces) >= 100 and max(speeds)[0] >= 100: break
        page.press()
    print(f'bytes a second: {max(paces):.0f} on the page, by its own steps AFT-local '
          f'{max(a for a, _ in speeds):.0f}, attention {max(b for _, b in speeds):.0f}')
    assert max(paces) >= 100
    assert max(a for a, _ in speeds) >= 100


@needs_page
def test_stop_and_go_on():
    "The text is the same whether somebody stops the network or not; another start is another text."
    with opened() as page:
        page.ready()
        page.press()
        page.until('d.written >= 300')
        page.press()
        whole = page.values()[:300]
        assert page.data('phase') == 'stopped' and 'Stopped after' in page.said()
        count = len(page.values())
        page.wait(0.5)
        assert len(page.values()) == count

    with opened() as page:
        page.ready()
        page.press()
        for pause in (20, 130, 245):  # the last one while the text is read again
            page.until(f'd.written >= {pause}')
            page.press()
            page.wait(0.3)
            assert page.find("querySelector('.writer-write').textContent") == 'go on'
            page.press()
        page.until('d.written >= 300')
        page.press()
        assert page.values()[:300] == whole
        page.find("querySelector('.writer-bar button:nth-child(2)').click()")
        page.until(f"d.phase === 'writing' && {WRITER}.values.length >= 40")
        assert page.values()[:40] != whole[:40]
        page.find("querySelector('input[type=checkbox]').click()")  # attention rests
        count = len(page.values())
        page.until(f'd.written >= {count + 5}')  # a byte that was begun is read to its end
        size = page.data('attentionSize')
        page.until(f'd.written >= {count + 25}')
        assert page.data('attentionSize') == size and int(size) < 2**20
        assert not page.tab.errors()


@needs_page
@pytest.mark.parametrize('width', [390, 1280])
def test_by_keyboard(width):
    "Somebody types a prompt and presses the keys; the page keeps its width."
    with opened(width=width) as page:
        assert page.fits()
        page.ready()
        tab = page.tab
        def key(name, **more):
            for kind in ('keyDown', 'keyUp'):
                tab.send('Input.dispatchKeyEvent', type=kind, key=name, **more)
        page.find("querySelector('textarea').select()")
        page.find("querySelector('textarea').focus()")
        tab.send('Input.insertText', text='Grüße ')
        key('Tab', code='Tab', windowsVirtualKeyCode=9)
        assert tab.evaluate('document.activeElement.textContent') == 'write'
        key(' ', code='Space', windowsVirtualKeyCode=32, text=' ')
        page.until('d.written >= 30')
        assert page.text().startswith('Grüße ')
        key(' ', code='Space', windowsVirtualKeyCode=32, text=' ')
        page.until("d.phase === 'stopped'")
        assert page.fits()
        page.set('textarea', '')
        page.press()
        page.until("said.includes('at least one character')")
        page.set('textarea', 'x'*300)  # longer than the window: its last half is read
        page.set('input[type=range]', 0)
        page.press()
        page.until('d.written >= 5')
        page.press()
        assert page.values()[:5] == greedy('x'*300, 5)
        assert page.fits() and not tab.errors()


@needs_page
def test_without_the_runtime():
    "A blocked runtime leaves the example and says so in plain words; the button tries again."
    with opened(blocked=True) as page:
        page.tab.evaluate(f'{WRITER}.scrollIntoView()')
        page.until("d.phase === 'blocked'")
        assert 'could not be loaded' in page.said()
        text = page.text()
        assert text.startswith(PROMPT) and len(text) > 300
        drawn = f"""[...{WRITER}.querySelectorAll('canvas')].filter(canvas =>
            canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
            .data.some(x => x)).length"""
        assert page.tab.evaluate(drawn) == 8
        problems = [error for error in page.tab.errors() if OWN not in error]
        assert not problems
        page.tab.route({})
        page.press()
        page.until('d.written >= 5')
