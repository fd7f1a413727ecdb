r"""Writes the files that nbs/results/00_ff_only.ipynb reads, from three runs.

    python results/make_ff_only.py          # all, in the project's root
    python results/make_ff_only.py digits   # only what is made from the digits

| WHAT    | writes                                                  | from                    |
|---------|---------------------------------------------------------|-------------------------|
| digits  | digits_ff.csv, digits_ff_only.npz, digits_sizes.json    | digits                  |
| cifar10 | cifar10_ff.csv, cifar10_vit.csv, cifar10_ff_only.npz    | cifar10_ff, cifar10_vit |

The runs are made by these commands; CIFAR-10 is looked for in ATTNFREE_DATA, else downloaded.

    attnfree_train --epochs 30 --set smoothing=0 --out runs/digits
    for network in ff vit; do
        attnfree_train --recipe cifar10 --model ${network}_nano_patch4_32 \
            --set precision=bf16 --set threads=1 --out runs/cifar10_$network
    done
"""
from making import copy_metrics, main

CIFAR10 = ('attnfree_train --recipe cifar10 --model {}_nano_patch4_32 '
           '--set precision=bf16 --set threads=1')
COMMANDS = {'digits': 'attnfree_train --epochs 30 --set smoothing=0',
            'cifar10_ff': CIFAR10.format('ff'), 'cifar10_vit': CIFAR10.format('vit')}


def held_out(data):
    "The first 360 held-out images of a data set, which are all of the digits, and their labels."
    import torch
    from attnfree.data import create_dls
    batch = create_dls(data, bs=360).valid.one_batch()
    return [part.as_subclass(torch.Tensor) for part in batch]


def keep_pictures(run, images, file):
    "Store what is drawn of an FF-only network, and return the name of the file."
    import numpy as np
    from attnfree.learner import load
    from attnfree.visualise import hidden_filters, influence_maps, spatial_weights
    model, _ = load(run)
    stored = dict(weights=spatial_weights(model).values[:,0],
                  filters=hidden_filters(model).values,
                  influence=influence_maps(model, images[:8]).values)
    stored = {name: array.astype(np.float32) for name, array in stored.items()}
    np.savez_compressed(file, **stored)
    return file.name


def accuracy_at(run, images, labels, size):
    "Accuracy of a run's network on images resampled to `size` pixels, after `set_input_size`."
    import torch
    from torch.nn.functional import interpolate
    from attnfree.learner import load
    model, _ = load(run)
    model.set_input_size(size)
    resampled = interpolate(images, size=size, mode='bicubic', antialias=size < images.shape[-1])
    with torch.no_grad(): right = model(resampled).argmax(1) == labels
    return right.float().mean().item()


def digits(runs, out):
    "Metrics and pictures of the network for digits, and its accuracy at other image sizes."
    import json
    run = runs/'digits'
    images, labels = held_out('digits')
    sizes = {size: accuracy_at(run, images, labels, size) for size in (6, 8, 10, 12, 16)}
    (out/'digits_sizes.json').write_text(json.dumps(sizes))
    return [copy_metrics(run, out/'digits_ff.csv'),
            keep_pictures(run, images, out/'digits_ff_only.npz'), 'digits_sizes.json']


def cifar10(runs, out):
    "Metrics of both networks for CIFAR-10, and the pictures of FF-only."
    images, _ = held_out('cifar10')
    return [copy_metrics(runs/'cifar10_ff', out/'cifar10_ff.csv'),
            copy_metrics(runs/'cifar10_vit', out/'cifar10_vit.csv'),
            keep_pictures(runs/'cifar10_ff', images, out/'cifar10_ff_only.npz')]


MAKERS = {'digits': (digits, ['digits']), 'cifar10': (cifar10, ['cifar10_ff', 'cifar10_vit'])}

if __name__ == '__main__': main(__doc__, MAKERS, COMMANDS)
