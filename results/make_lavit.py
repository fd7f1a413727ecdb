r"""Writes what nbs/results/03_lavit.ipynb reads of trained networks: their attention maps.

    python results/make_lavit.py            # in the project's root

| WHAT | writes                    | from                                                |
|------|---------------------------|-----------------------------------------------------|
| maps | lavit_maps.csv, lavit.npz | the first seeds of `lavit` in board/controlled.toml |

The runs are made by this command, in hours of a processor (results/board/budget.csv):

    python results/board/start.py --file results/board/controlled.toml --groups lavit \
        --processes 2 --out runs/board
"""
from making import main

RUNS = {'with the loss, 0.1': 'lavit_nano_32_diagonality=0.1',
        'with the loss, 0.01': 'lavit_nano_32_diagonality=0.01',
        'without the loss': 'lavit_nano_32_diagonality=0',
        'without the residual': 'lavit_nano_32_no_ar',
        'without less attention': 'lavit_nano_32_no_la'}
FOLDERS = {name: f'board/lavit/model={case}_1' for name, case in RUNS.items()}
COMMANDS = {'board': 'python results/board/start.py --file results/board/controlled.toml '
                     '--groups lavit --processes 2'}


def test_images(config):
    "64 test images of CIFAR-10, as the networks take them."
    import numpy as np
    import torch
    from pathlib import Path
    from torchvision.transforms.v2.functional import normalize
    with np.load(Path(__file__).parent/'cifar10_test.npz') as stored:
        images = torch.from_numpy(stored['images']).float()/255
    return normalize(images, config['data']['mean'], config['data']['std'])


def rows_of(name, maps):
    "A row for each layer: means over images and heads, shares times the number of tokens."
    import torch
    before = None
    for layer, stored in maps.items():
        shares = torch.as_tensor(stored.values).float()
        tokens, flat = shares.shape[-1], shares.flatten(-2)
        alike = before is not None and before.shape == flat.shape
        yield {'network': name, 'layer': layer, 'tokens': tokens,
               'diagonal': tokens*shares.diagonal(dim1=-2, dim2=-1).mean().item(),
               'largest': tokens*shares.amax(dim=-1).mean().item(),
               'similarity': torch.cosine_similarity(before, flat, dim=-1).mean().item() if alike
                             else None}
        before = flat


def maps(runs, out):
    "A table of all layers' maps, and the mean maps with and without the loss."
    import numpy as np
    import pandas as pd
    from attnfree.learner import load
    from attnfree.visualise import attention_maps
    rows, kept = [], {}
    for name, folder in FOLDERS.items():
        network, config = load(runs/folder)
        layers = attention_maps(network, test_images(config))
        rows += rows_of(name, layers)
        if name in ('with the loss, 0.1', 'without the loss'):
            kept |= {f'{name}: {layer}': np.asarray(stored.values, dtype=np.float32)
                     .mean(axis=0, keepdims=True).astype(np.float16)
                     for layer, stored in layers.items()}
    pd.DataFrame(rows).round(3).to_csv(out/'lavit_maps.csv', index=False)
    np.savez_compressed(out/'lavit.npz', **kept)
    return ['lavit_maps.csv', 'lavit.npz']


MAKERS = {'maps': (maps, [*FOLDERS.values()])}

if __name__ == '__main__': main(__doc__, MAKERS, COMMANDS)
