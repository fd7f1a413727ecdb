r"""Writes the files that nbs/results/02_aft.ipynb reads.

    python results/make_aft.py                 # all, in the project's root
    python results/make_aft.py digits windows  # only some

| WHAT     | writes                                                     | from                     |
|----------|------------------------------------------------------------|--------------------------|
| transfer | cifar10_from_vit.csv: it trains two networks               | cifar10_vit              |
| memory   | bench_aft_memory.csv, measured                             | none                     |
| digits   | digits_completed.npz                                       | pixels, a sweep          |
| counts   | enwik8_counts.csv                                          | none, but the bytes      |
| windows  | sweep_windows.csv                                          | windows, a sweep         |
| lengths  | sweep_lengths.csv                                          | lengths, a sweep         |
| photos   | cifar10_pixels.csv, cifar10_completed.npz                  | cifar10_pixels           |

Measurements need the machine to themselves. `attnfree_bench --case aft_causal` and
`--case aft_decode` write bench_aft_causal.csv and bench_aft_decode.csv. The runs are made by these
commands, with CIFAR-10 and enwik8 in ATTNFREE_DATA. (Except for the digits, the stored files come
from version 0.1.0, with its initial weights and recipes.)

    attnfree_train --recipe cifar10 --model vit_nano_patch4_32 \
        --set precision=bf16 --set threads=1 --out runs/cifar10_vit
    attnfree_sweep --recipe digits_pixels --seeds 1 \
        --cases "model=pixels_aft_conv_micro_8 drop=0.1" "model=pixels_gmlp_micro_8 drop=0.2" \
            "model=pixels_attention_micro_8 drop=0" \
        --set epochs=16 --set bs=16 --set warmup_epochs=1 --set lr=1e-2 --set wd=0.1 \
        --set precision=bf16 --set threads=1 --out runs/pixels
    attnfree_sweep --data digits --task pixels --seeds 42,43,44 \
        --cases mixer=window={1,2,4,8,16,24,32,64} mixer=window=24,rank=none --out runs/windows
    attnfree_sweep --data enwik8 --seeds 42,43 \
        --cases "size=64 bs=64 train_examples=6400 valid_examples=1600" \
            "size=128 bs=32 train_examples=3200 valid_examples=800" \
            "size=256 bs=16 train_examples=1600 valid_examples=400" \
            "size=512 bs=8 train_examples=800 valid_examples=200" \
            "size=1024 bs=4 train_examples=400 valid_examples=100" \
        --set steps=300 --set precision=bf16 --set threads=1 --out runs/lengths
    attnfree_train --data cifar10 --task pixels --every 50 --set mixer=window=128 --set bs=4 \
        --set steps=1000 --set warmup_steps=100 --set train_examples=400 --set valid_examples=32 \
        --set precision=bf16 --set threads=1 --out runs/cifar10_pixels
"""
from making import main

PIXELS = {'aft_conv': 0.1, 'gmlp': 0.2, 'attention': 0}  # mixers and their dropout, as in the board
PIXEL_CASES = [f'model=pixels_{mixer}_micro_8 drop={drop}' for mixer, drop in PIXELS.items()]
SEEDS = [42, 43, 44]
# The cases of the sweeps; texts of different lengths, with equally many bytes in a batch.
WINDOWS = [f'mixer=window={window}' for window in (1, 2, 4, 8, 16, 24, 32, 64, '24,rank=none')]
LENGTHS = [f'size={n} bs={4096//n} train_examples={409600//n} valid_examples={102400//n}'
           for n in (64, 128, 256, 512, 1024)]

FAST = '--set precision=bf16 --set threads=1'
COMMANDS = {
    'cifar10_vit': f'attnfree_train --recipe cifar10 --model vit_nano_patch4_32 {FAST}',
    'pixels': 'attnfree_sweep --recipe digits_pixels --seeds 1 --cases '
              + ' '.join(f'"{case}"' for case in PIXEL_CASES)
              + ' --set epochs=16 --set bs=16 --set warmup_epochs=1 --set lr=1e-2 --set wd=0.1 '
              + FAST,
    'windows': 'attnfree_sweep --data digits --task pixels --seeds 42,43,44 '
               f'--cases {" ".join(WINDOWS)}',
    'lengths': 'attnfree_sweep --data enwik8 --seeds 42,43 --cases '
               + ' '.join(f'"{case}"' for case in LENGTHS) + f' --set steps=300 {FAST}',
    'cifar10_pixels': 'attnfree_train --data cifar10 --task pixels --every 50 --set '
                      'mixer=window=128 --set bs=4 --set steps=1000 --set warmup_steps=100 '
                      f'--set train_examples=400 --set valid_examples=32 {FAST}'}


def sweep_runs(sweep, cases, seeds):
    "The folders of a sweep's runs, relative to that of all runs."
    return [f"{sweep}/{case.replace(' ', '_')}_{seed}" for case in cases for seed in seeds]


def trained_once(model, settings):
    "Accuracy of `model` before and after training on CIFAR-10, and the steps, as a dictionary."
    from attnfree.data import create_dls
    from attnfree.learner import attnfree_learner, fit_recipe
    dls = create_dls('cifar10', bs=128, seed=42, augment=settings.augment)
    learn = attnfree_learner(dls, model, settings)
    with learn.no_bar(), learn.no_logging():
        before = learn.validate()
        fit_recipe(learn, settings)
    final = learn.recorder.values[-1]
    return dict(steps=len(learn.recorder.losses), before=before[1], loss=final[1],
                accuracy=final[2])


def transfer(runs, out):
    "Train AFT-conv for an epoch, from the ViT's weights and from scratch; a table of both."
    import pandas as pd
    from attnfree.models.convert import from_transformer
    from attnfree.training.loader import seed_all
    from attnfree.run.recipes import recipe
    from attnfree.vision import create_model
    settings = recipe('cifar10', epochs=1, warmup_epochs=0, warmup_steps=40, precision='bf16',
                      threads=1)
    vit, name = runs/'cifar10_vit'/'model.safetensors', 'aft_conv_nano_patch4_32'
    starts = {'from the ViT': lambda: from_transformer(vit, name),
              'from scratch': lambda: create_model(name, num_classes=10)}
    rows = []
    for start, build in starts.items():
        seed_all(42)
        rows.append(dict(start=start, **trained_once(build(), settings)))
    pd.DataFrame(rows).round(4).to_csv(out/'cifar10_from_vit.csv', index=False)
    return ['cifar10_from_vit.csv']


def memory(runs, out, lengths=(2048, 4096, 8192, 16384)):
    "Measure the peak memory of causal means, forward and backward, each in a fresh process."
    import pandas as pd, torch
    from attnfree.measure.models import in_fresh_process
    torch.set_num_threads(2)
    count, rows = "__import__('attnfree.measure.count').measure.count", []
    for n in lengths:
        for code in ('attention', 'AFT-simple, causal', 'AFT-local 32, causal'):
            codes = f'{count}._operator_case({n}, 256, 1, {count}._causal_codes({n}))'
            grown = in_fresh_process(f'peak_growth(lambda: {codes}[{code!r}])')
            rows.append({'code': code, 'tokens': n, 'MB': round(grown, 1),
                         'multiples of k': round(grown*1e6/(n*256*4), 1)})
    pd.DataFrame(rows).to_csv(out/'bench_aft_memory.csv', index=False)
    return ['bench_aft_memory.csv']


def completed(run, images, **how):
    "Images whose upper halves are kept and whose lower halves are generated by a run's network."
    import numpy as np
    from attnfree.run import complete_images
    from attnfree.learner import load
    return complete_images(load(run)[0], images, 0.5, seed=0, **how).numpy().astype(np.uint8)


def digits(runs, out):
    "Ten images completed by three of the mixers."
    import numpy as np, torch
    from attnfree.data import create_dls
    held_out = create_dls('digits', 'pixels').valid_ds.examples.images
    held = torch.from_numpy(held_out[:10].astype('int64'))
    made = {mixer: completed(runs/run, held, temperature=0.7)
            for mixer, run in zip(PIXELS, MAKERS['digits'][1])}
    np.savez_compressed(out/'digits_completed.npz', images=held.numpy().astype(np.uint8), **made)
    return ['digits_completed.npz']


def counts(runs, out):
    "Bits per byte of the validation part by frequencies of single bytes, and of pairs."
    import numpy as np, pandas as pd
    from attnfree.data import enwik8
    parts = [np.fromfile(items.file, dtype=np.uint8)[items.begin:items.end]
             for items in (loader.dataset for loader in enwik8(bs=1).loaders[:2])]
    pairs = np.full((256, 256), 0.01)  # so that no pair costs infinitely many bits
    np.add.at(pairs, (parts[0][:-1], parts[0][1:]), 1)
    alone, after = pairs.sum(axis=0)/pairs.sum(), pairs/pairs.sum(axis=1, keepdims=True)
    before, byte = parts[1][:-1], parts[1][1:]
    bits = {'how frequent each byte is': -np.log2(alone[byte]).mean(),
            'how frequent each is after each': -np.log2(after[before, byte]).mean()}
    table = pd.DataFrame(dict(known=list(bits), bits_per_byte=list(bits.values())))
    table.round(3).to_csv(out/'enwik8_counts.csv', index=False)
    return ['enwik8_counts.csv']


def sweep(runs, out, name):
    "The table of a sweep, with four decimals."
    import pandas as pd
    pd.read_csv(runs/name/'sweep.csv').round(4).to_csv(out/f'sweep_{name}.csv', index=False)
    return [f'sweep_{name}.csv']


def windows(runs, out):
    "The table of AFT-local's windows."
    return sweep(runs, out, 'windows')


def lengths(runs, out):
    "The table of the lengths of texts."
    return sweep(runs, out, 'lengths')


def photos(runs, out):
    "Metrics of the network for CIFAR-10's sub-pixels, and six images that it completes twice."
    import numpy as np, pandas as pd, torch
    from attnfree.data import cifar10_pixels
    run = runs/'cifar10_pixels'
    held = torch.from_numpy(cifar10_pixels(bs=1).valid_ds.images[:6].astype('int64'))
    made = {name: completed(run, held, temperature=temperature)
            for name, temperature in (('hot', 1.0), ('cool', 0.5))}
    np.savez_compressed(out/'cifar10_completed.npz', images=held.numpy().astype(np.uint8), **made)
    metrics = pd.read_csv(run/'metrics.csv').round(4)
    metrics.to_csv(out/'cifar10_pixels.csv', index=False)
    return ['cifar10_pixels.csv', 'cifar10_completed.npz']


MAKERS = {
    'transfer': (transfer, ['cifar10_vit']),
    'memory': (memory, []),
    'digits': (digits, sweep_runs('pixels', PIXEL_CASES, [1])),
    'counts': (counts, []),
    'windows': (windows, sweep_runs('windows', WINDOWS, SEEDS)),
    'lengths': (lengths, sweep_runs('lengths', LENGTHS, SEEDS[:2])),
    'photos': (photos, ['cifar10_pixels'])}

if __name__ == '__main__': main(__doc__, MAKERS, COMMANDS)
