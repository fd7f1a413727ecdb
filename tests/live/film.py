"""Films the page on which digits are drawn: nbs/images/draw_a_digit.webp, for the README.

    ATTNFREE_HTML=_proc/_docs python tests/live/film.py

Needs chromium, PIL and the rendered site.
"""
import base64, io, json, sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))
from browser import browser, served
from record import DRAWN, ROOT
from test_live_digit import PAGE, Page, SITE

WIDTH, ROWS, SCALE = 1280, 2, 0.85  # pixels of the page, rows of networks, and their size
FILE = ROOT/'nbs/images/draw_a_digit.webp'


class Film:
    "Pictures of the figure, one after another."
    def __init__(self, page):
        self.page, self.pictures, self.times = page, [], []
        box, down = page.get('.getBoundingClientRect().toJSON()'), page.tab.evaluate('scrollY')
        below = page.get(f".querySelectorAll('.digit-card')[{3*ROWS}].getBoundingClientRect().y")
        self.clip = dict(x=box['x'], y=box['y'] + down, width=box['width'],
                         height=below - box['y'] - 5, scale=SCALE)

    def shoot(self, milliseconds):
        "One more picture, seen for so long."
        data = self.page.tab.send('Page.captureScreenshot', clip=self.clip)['data']
        picture = Image.open(io.BytesIO(base64.b64decode(data))).convert('RGB')
        self.pictures.append(picture)
        self.times.append(milliseconds)

    def draw(self, strokes, every=4):
        "Strokes by the pointer, a picture every few points."
        box = self.page.get(".querySelector('.digit-pad').getBoundingClientRect().toJSON()")
        for stroke in strokes:
            points = [(box['x'] + x*box['width']/100, box['y'] + y*box['height']/100)
                      for x, y in filled(stroke)]
            self.page.mouse('mousePressed', *points[0])
            for i, point in enumerate(points[1:], 1):
                self.page.mouse('mouseMoved', *point)
                if i % every == 0 or i == len(points) - 1:
                    self.page.settle()
                    self.shoot(90)
            self.page.mouse('mouseReleased', *points[-1])

    def save(self, file):
        "As an animated picture of few colours."
        some = self.pictures[::5]
        width, height = some[0].size
        sheet = Image.new('RGB', (width, height*len(some)))
        for i, picture in enumerate(some): sheet.paste(picture, (0, i*height))
        palette = sheet.quantize(64, dither=Image.Dither.NONE)
        frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE).convert('RGB')
                  for picture in self.pictures]
        frames[0].save(file, save_all=True, append_images=frames[1:], duration=self.times, loop=0,
                       lossless=True, minimize_size=True)


def filled(stroke, longest=4):
    "A stroke with points in between, so that the pen moves evenly."
    found = [stroke[0]]
    for (x, y), (to_x, to_y) in zip(stroke, stroke[1:]):
        parts = max(1, round(((to_x - x)**2 + (to_y - y)**2)**0.5/longest))
        found += [(x + (to_x - x)*i/parts, y + (to_y - y)*i/parts) for i in range(1, parts + 1)]
    return found


def main():
    drawn = json.loads(DRAWN.read_text(encoding='utf-8'))
    def digit(value): return next(one['strokes'] for one in drawn if one['digit'] == value)
    with served(SITE) as address, browser() as tab:
        tab.send('Emulation.setDeviceMetricsOverride', width=WIDTH, height=1600,
                 deviceScaleFactor=1, mobile=False)
        tab.open(address + PAGE)
        page = Page(tab)
        page.get(".scrollIntoView({block: 'center'})")
        page.wait(".dataset.state == 'live'")
        page.settle()
        film = Film(page)
        for value in (5, 2):
            page.click('.digit-buttons button')
            page.settle()
            film.draw(digit(value))
            film.times[-1] = 900
            for row, column in [(1, 2), (1, 4), (3, 4), (4, 3), (6, 4), (7, 6)]:
                page.point(row, column)
                film.shoot(450)
        film.save(FILE)
    print(f'{FILE}: {FILE.stat().st_size:,} bytes, {len(film.pictures)} pictures')


if __name__ == '__main__': main()
