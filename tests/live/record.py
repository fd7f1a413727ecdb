"""Writes nbs/site/live/digit_stored.js: ten digits and what PyTorch says of them, for the page on
which digits are drawn to show before its networks are there. Run from the root of the checkout.
"""
import base64, json
from pathlib import Path

import torch

from attnfree.data.images import digits
from attnfree.pieces import NetworkPieces
from attnfree.vision import create_model

NETWORKS = [*(f'{mixer}_micro_patch2_8' for mixer in (
    'ff', 'gmlp', 'amlp', 'aft_simple', 'aft_full', 'aft_local', 'aft_conv')),
    'lavit_micro_8', 'vit_micro_patch2_8']
FIRST = 3  # the digit that the page begins with
FILE = Path(__file__).parent.parent.parent/'nbs/site/live/digit_stored.js'


def network(name): return create_model(name, pretrained=True).eval()


def normalized(model, greys):
    "Grey values of 0 to 16, `(b, 64)`, as the network was trained on them."
    mean, std = (model.pretrained_cfg[key][0] for key in ('mean', 'std'))
    return (torch.as_tensor(greys, dtype=torch.float32).view(-1, 1, 8, 8)/16 - mean)/std


def examples():
    "The first held-out digit of each class that all networks read, as grey values of 0 to 16."
    held = digits().items[1]
    images = torch.tensor([image.flatten().tolist() for image,_ in held])
    greys, labels = (images*16/255).round(), torch.tensor([int(label) for _,label in held])
    right = torch.ones(len(held), dtype=torch.bool)
    with torch.no_grad():
        for name in NETWORKS:
            model = network(name)
            right &= model(normalized(model, greys)).argmax(dim=1) == labels
    rows = [int((right & (labels == digit)).nonzero()[0]) for digit in range(10)]
    return [[int(grey) for grey in row] for row in greys[rows].tolist()]


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
             *(f'  {json.dumps(greys, separators=(",", ":"))},' for greys in images), '];',
             'export const STORED = {',
             *(f'  {name}: {json.dumps(about, separators=(",", ":"))},'
               for name, about in stored(images)), '};']
    return '\n'.join(lines) + '\n'


if __name__ == '__main__': FILE.write_text(script(), encoding='utf-8')
