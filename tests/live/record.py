"""Writes what the page on which digits are drawn keeps, from the root of the checkout:

nbs/site/live/digit_stored.js: ten digits and what PyTorch says of them, which it shows before its
networks are there; nbs/live/drawn.json: the bitmaps that its script makes of thirty drawn digits.
"""
import base64, json, subprocess
from pathlib import Path

import torch

from attnfree.data.images import digits
from attnfree.live.pieces import NetworkPieces
from attnfree.vision import create_model

NETWORKS = [*(f'{mixer}_micro_patch2_8' for mixer in (
    'ff', 'gmlp', 'amlp', 'aft_simple', 'aft_full', 'aft_local', 'aft_conv')),
    'lavit_micro_8', 'vit_micro_patch2_8']
FIRST = 3  # the digit that the page begins with
ROOT = Path(__file__).resolve().parent.parent.parent
FILE, DRAWN = ROOT/'nbs/site/live/digit_stored.js', ROOT/'nbs/live/drawn.json'


def bitmaps(drawn):
    "What the page's script makes of strokes: 32 x 32 pixels for each digit, in hexadecimal."
    script = f"""import {{bitmap}} from {json.dumps((FILE.parent/'strokes.js').as_uri())};
        const all = {json.dumps([one['strokes'] for one in drawn])};
        console.log(JSON.stringify(all.map(strokes => bitmap(strokes).join(''))));"""
    done = subprocess.run(['node', '--input-type=module', '-e', script], capture_output=True,
                          text=True)
    if done.returncode: raise RuntimeError(done.stderr)
    return [f'{int(bits, 2):0256x}' for bits in json.loads(done.stdout)]


def greys(bitmap):
    "Ink in blocks of 4 x 4, `(64,)`."
    bits = torch.tensor([int(bit) for bit in f'{int(bitmap, 16):01024b}'], dtype=torch.float32)
    return bits.view(8, 4, 8, 4).sum(dim=(1, 3)).flatten()


def network(name): return create_model(name, pretrained=True).eval()


def normalized(model, images):
    "Grey values of 0 to 16, `(b, 64)`, as the network was trained on them."
    mean, std = (model.pretrained_cfg[key][0] for key in ('mean', 'std'))
    return (torch.as_tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)/16 - mean)/std


def examples():
    "The first held-out digit of each class that all networks read, as grey values of 0 to 16."
    held = digits().items[1]
    images = torch.tensor([image.flatten().tolist() for image,_ in held])
    images, labels = (images*16/255).round(), torch.tensor([int(label) for _,label in held])
    right = torch.ones(len(held), dtype=torch.bool)
    with torch.no_grad():
        for name in NETWORKS:
            model = network(name)
            right &= model(normalized(model, images)).argmax(dim=1) == labels
    rows = [int((right & (labels == digit)).nonzero()[0]) for digit in range(10)]
    return [[int(grey) for grey in row] for row in images[rows].tolist()]


def layers(model, image):
    "What each token reads in each layer, as bytes: 255 is the most that one reads of another."
    pieces = NetworkPieces(model, image)
    for layer, (grid, prefix) in enumerate(pieces.layers):
        found = pieces.reads(image, layer)
        top = found.masked_fill(torch.eye(len(found), dtype=torch.bool), 0).max()
        values = (found/top*255).round().clamp(max=255).to(torch.uint8)
        yield dict(grid=[*grid], prefix=prefix, top=round(float(top), 5),
                   reads=base64.b64encode(bytes(values.flatten().tolist())).decode())


def stored(images):
    "What the page shows of each network: scores for all images, and what is read in one of them."
    for name in NETWORKS:
        model = network(name)
        with torch.no_grad(): scores = model(normalized(model, images))
        yield name, dict(scores=[[round(score, 4) for score in row] for row in scores.tolist()],
                         layers=[*layers(model, normalized(model, images[FIRST:FIRST + 1]))])


def script():
    "The file as a module of JavaScript."
    images = examples()
    lines = ['// Written by tests/live/record.py: ten held-out digits, what PyTorch makes of them.',
             f'export const FIRST = {FIRST};', 'export const EXAMPLES = [',
             *(f'  {json.dumps(image, separators=(",", ":"))},' for image in images), '];',
             'export const STORED = {',
             *(f'  {name}: {json.dumps(about, separators=(",", ":"))},'
               for name, about in stored(images)), '};']
    return '\n'.join(lines) + '\n'


if __name__ == '__main__':
    FILE.write_text(script(), encoding='utf-8')
    drawn = json.loads(DRAWN.read_text(encoding='utf-8'))
    lines = [json.dumps(one | dict(bitmap=bitmap), separators=(',', ':'))
             for one, bitmap in zip(drawn, bitmaps(drawn))]
    DRAWN.write_text('[\n' + ',\n'.join(lines) + '\n]\n', encoding='utf-8')
