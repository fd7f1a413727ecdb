r"""Writes what trained networks read at a query, for nbs/results/07_associative_recall.ipynb.

    python results/make_recall.py             # all mixers, in the project's root
    python results/make_recall.py gmlp amlp   # two of them

| WHAT       | writes                | from a run of        |
|------------|-----------------------|----------------------|
| attention  | recall_attention.npz  | board/recall_seeds   |
| gmlp       | recall_gmlp.npz       | board/recall_seeds   |
| amlp       | recall_amlp.npz       | board/recall         |
| aft_simple | recall_aft_simple.npz | board/recall_seeds   |
| aft_full   | recall_aft_full.npz   | board/recall_seeds   |
| aft_local  | recall_aft_local.npz  | board/recall_seeds   |
| aft_conv   | recall_aft_conv.npz   | board/recall_seeds   |

The run is the second seed of each mixer, or the first of aMLP, whose second seed has not learned to
recall. Each file holds, for 1,000 held-out sequences, `answers` `(4, 5)`: the share of queries for
a pair that are answered by the value of each pair, or by another token; and for 200 sequences what
the layers read: `bind` `(8, 8)`, the first layer at each token of the pairs, and `look` `(4, 10)`,
the second at a query for each pair, from the pairs' tokens, the query itself and the rest. How much
is read is the size of the derivative of what the layer adds to a token with respect to another
token, as a share of the row's sum. The runs are made by this command:

    python results/board/start.py --groups recall recall_seeds --processes 2 --out runs/board
"""
from functools import partial
from pathlib import Path

from making import main

COMMANDS = {'board': 'python results/board/start.py --groups recall recall_seeds --processes 2'}

RUNS = {
    'attention': 'recall_seeds/model=recall_attention_d64_lr=1e-2_2',
    'gmlp': 'recall_seeds/model=recall_gmlp_d64_lr=3e-3_2',
    'amlp': 'recall/model=recall_amlp_d64_lr=3e-3_1',
    'aft_simple': 'recall_seeds/model=recall_aft_simple_d64_lr=3e-3_2',
    'aft_full': 'recall_seeds/model=recall_aft_full_d64_lr=1e-3_2',
    'aft_local': 'recall_seeds/model=recall_aft_local_d64_lr=1e-3_2',
    'aft_conv': 'recall_seeds/model=recall_aft_conv_d64_lr=1e-3_2',
}


def read_size(block, x, at):
    "How much a block reads from each token of x `(b, n, d)` for its output at `at` `(b,)`."
    import torch
    x = x.detach().requires_grad_()
    y = (block(x) - x)[torch.arange(len(x)), at]
    squares = 0
    for channel in y.sum(dim=0):
        grad, = torch.autograd.grad(channel, x, retain_graph=True)
        squares = squares + grad.square().sum(dim=-1)
    return squares.sqrt()


def share(sizes):
    "Means over examples, `(..., tokens)`, as shares of each row's sum."
    return sizes/sizes.sum(axis=-1, keepdims=True)


def at_pairs(block, x):
    "What a layer reads at each of the eight tokens of the pairs, from these, `(8, 8)`."
    import numpy as np
    import torch
    sizes = [read_size(block, x, torch.full((len(x),), token))[:,:8] for token in range(8)]
    return share(np.stack([size.mean(dim=0).numpy() for size in sizes]))


def at_queries(block, x, at):
    "What a layer reads at the query for each pair: eight tokens, the query, the rest, `(4, 10)`."
    import numpy as np
    import torch
    rows = []
    for query in at.T:
        sizes = read_size(block, x, query)
        itself = sizes.gather(1, query[:,None])
        rest = sizes[:,8:].sum(dim=1, keepdim=True) - itself
        rows.append(torch.cat([sizes[:,:8], itself, rest], dim=1).mean(dim=0).numpy())
    return share(np.stack(rows))


def answered(model, tokens, at, answers):
    "The share of queries for each pair that are answered by each pair's value, or another token."
    import torch
    with torch.no_grad(): found = model(tokens, at).argmax(dim=-1)
    hits = (found[:,:,None] == answers[:,None]).float().mean(dim=0)
    return torch.cat([hits, 1 - hits.sum(dim=1, keepdim=True)], dim=1).numpy()


def pictures(mixer, run, runs, out):
    "Write what one network reads and answers; returns the name of the file."
    import numpy as np
    import torch
    from attnfree.data import create_dls
    from attnfree.learner import load
    model, _ = load(runs/run)
    rows = create_dls('recall', size=64, bs=1000).valid_ds.examples
    tokens, at, answers = (torch.as_tensor(part[:1000]) for part in
                           (rows.tokens, rows.at, rows.answers))
    with torch.no_grad():
        first = model.stem(tokens)
        second = model.body.blocks[0](first)
    file = out/f'recall_{mixer}.npz'
    np.savez_compressed(file, run=Path(run).name, answers=answered(model, tokens, at, answers),
                        bind=at_pairs(model.body.blocks[0], first[:200]),
                        look=at_queries(model.body.blocks[1], second[:200], at[:200]))
    return [file.name]


MAKERS = {mixer: (partial(pictures, mixer, f'board/{run}'), [f'board/{run}'])
          for mixer, run in RUNS.items()}

if __name__ == '__main__': main(__doc__, MAKERS, COMMANDS)
