r"""Writes the pictures and tables of real data that notebooks show, so that these need no data.

    python results/make_data_pictures.py --data DIR             # all, in the project's root
    python results/make_data_pictures.py cifar10 --data DIR     # only what is made from CIFAR-10

| WHAT       | writes                                                | shown in nbs/              |
|------------|-------------------------------------------------------|----------------------------|
| cifar10    | cifar10_training.png, cifar10_sequences.png           | data/images, data/sequences|
| imagenette | imagenette_training.png                               | data/images                |
| texts      | text_batches.png                                      | data/texts                 |
| enwik8     | enwik8_window.csv                                     | data/sequences             |
| tables     | sentence_lengths.csv, squad_windows.csv               | text/objectives            |
| dense      | photographs_found.png                                 | models/dense               |
| test       | cifar10_test.npz, the first 64 test images            | results/                   |
| mixers     | mixers_read.png, of published networks                | index                      |
| heroes     | hero_*.png, a row of panels for each mixer's page     | mixers/                    |
| logo       | favicon.png, card.png, of AFT-conv's learned kernels  | site/                      |
| photographs | probe_photographs.{csv,png}, finetuned_photographs.csv | tutorials/features       |

DIR holds cifar-10-batches-py/, imagenette-subset/, SST-2/, MNLI/, SQuAD/ and
enwik8-first-4150000.xz. Pictures go to nbs/images/, tables to results/. What a notebook
already defines is taken from its cells. Imports are light here, so that `--help` is fast.
"""
import argparse, os, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = {'cifar10': ['cifar-10-batches-py'], 'imagenette': ['imagenette-subset'],
          'texts': ['SST-2', 'MNLI', 'SQuAD'], 'enwik8': ['enwik8-first-4150000.xz'],
          'tables': ['SST-2', 'MNLI', 'SQuAD'], 'dense': ['imagenette-subset'],
          'test': ['cifar-10-batches-py'], 'mixers': [], 'heroes': [],
          'logo': [],
          'photographs': ['imagenette-subset']}


def definitions(name, module):
    "What the cells of the notebook `name` import and define themselves, in addition to `module`."
    import ast, importlib, json
    cells = json.loads((ROOT/'nbs'/f'{name}.ipynb').read_text(encoding='utf-8'))['cells']
    names = dict(vars(importlib.import_module(module)))
    for cell in cells:
        source = ''.join(cell['source'])
        if cell['cell_type'] != 'code' or source.startswith(('#| export', '#| hide')): continue
        kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        body = [node for node in ast.parse(source).body if isinstance(node, kept)]
        exec(compile(ast.Module(body, type_ignores=[]), name, 'exec'), names)
    return names


def save(out, name):
    "Write the current figure to a small file, and return its name."
    import io
    import matplotlib.pyplot as plt
    from PIL import Image
    drawn = io.BytesIO()
    plt.savefig(drawn, dpi=100, bbox_inches='tight')
    plt.close()
    (out/'nbs/images').mkdir(parents=True, exist_ok=True)
    Image.open(drawn).convert('RGB').save(out/'nbs/images'/name, optimize=True)
    return f'nbs/images/{name}'


def write(out, name, table, **options):
    "Write a table, and return its name."
    (out/'results').mkdir(parents=True, exist_ok=True)
    table.to_csv(out/'results'/name, **options)
    return f'results/{name}'


def cifar10(data, out):
    "Training images of CIFAR-10: a batch, and some of them twice as the rows of a sequence."
    import matplotlib.pyplot as plt, numpy as np
    from fastai.torch_core import set_seed
    from attnfree.data import create_dls
    set_seed(42)
    create_dls('cifar10', path=data).show_batch(max_n=16, nrows=2, figsize=(11, 3.2))
    batch = save(out, 'cifar10_training.png')

    trained, plain = (create_dls('cifar10', 'pixels', data, bs=4, augment=augment).train_ds
                      for augment in (True, False))
    np.random.seed(3)
    figure, axes = plt.subplots(3, 6, figsize=(8, 4.2), layout='constrained')
    for i, column in enumerate(axes.T):
        for ax, items in zip(column, (plain, trained, trained)):
            ax.imshow(items[i][1].reshape(32, 32, 3))
            ax.set(xticks=[], yticks=[])
    for ax, name in zip(axes[:,0], ('original', 'once', 'again')): ax.set_ylabel(name)
    figure.suptitle('CIFAR-10: mirrored or not, up to 10 of 255 brighter or darker')
    return [batch, save(out, 'cifar10_sequences.png')]


def imagenette(data, out):
    "Training images of the Imagenette subset."
    from fastai.torch_core import set_seed
    from attnfree.data import create_dls
    set_seed(7)
    dls = create_dls('imagenet', path=data/'imagenette-subset')
    dls.show_batch(max_n=8, nrows=2, figsize=(7, 3.9))
    return [save(out, 'imagenette_training.png')]


def token_kinds(batch, name):
    "What each token of a batch is: 0 padding, 1 special, 2 and 3 its segment, 4 to predict."
    import torch
    from attnfree.text import CLS, MASK, PAD, SEP
    ids, segments, *rest = (part.as_subclass(torch.Tensor).cpu() for part in batch)
    kinds = torch.where(ids == PAD, 0, torch.where((ids == CLS) | (ids == SEP), 1, 2 + segments))
    if name == 'text': kinds[ids == MASK] = 4
    if name == 'squad':
        for row, start, end in zip(kinds, *rest):
            if end: row[start:end+1] = 4
    return kinds


def texts(data, out):
    "The first validation examples of the data sets of text, token by token."
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from attnfree.data import create_dls
    sets = {'text': create_dls('text', 'mlm', bs=32, size=64)}
    for name, size in ('sst2', 64), ('mnli', 64), ('squad', 256):
        sets[name] = create_dls(name, path=data, bs=32, size=size, tokenizer='pieces')
    figure, axes = plt.subplots(4, 1, figsize=(8, 8), layout='constrained')
    colours = ListedColormap(['white', '0.25', 'tab:blue', 'tab:cyan', 'tab:red'])
    for ax, (name, dls) in zip(axes, sets.items()):
        kinds = token_kinds(dls.valid.one_batch(), name)
        ax.imshow(kinds[:16], cmap=colours, vmin=-.5, vmax=4.5, aspect='auto',
                  interpolation='nearest')
        ax.set(title=f'{name}: 16 examples of {kinds.shape[1]} tokens', yticks=[],
               ylabel='example')
    axes[-1].set_xlabel('token')
    squares = [plt.Rectangle((0, 0), 1, 1, facecolor=colours(i), edgecolor='0.5') for i in range(5)]
    labels = ['padding', '[CLS], [SEP]', 'segment 0', 'segment 1', '[MASK], or the answer']
    figure.legend(squares, labels, loc='outside lower center', ncols=5, frameon=False)
    return [save(out, 'text_batches.png')]


def enwik8(data, out):
    "The beginning of a window of enwik8, and of its targets."
    import contextlib, io
    import pandas as pd
    from attnfree.data import create_dls
    with contextlib.redirect_stdout(io.StringIO()):
        held_out = create_dls('enwik8', path=data, size=256).valid_ds
    rows = [repr(bytes(row[:80].tolist())) for row in held_out[1]]
    table = pd.DataFrame(dict(name=['read', 'asked for'], bytes=rows))
    return [write(out, 'enwik8_window.csv', table, index=False)]


def tables(data, out):
    "Rows and lengths of SST-2, MNLI and SQuAD."
    names = definitions('text/02_objectives', 'attnfree.text.objectives')
    pieces = names['sst2_pieces'](data)
    sentences, questions = (names[f'{kind}_table'](data, pieces) for kind in ('sentence', 'squad'))
    return [write(out, 'sentence_lengths.csv', sentences),
            write(out, 'squad_windows.csv', questions)]


def dense(data, out):
    "What a detector and a segmenter find in scenes of photographs."
    from tempfile import TemporaryDirectory
    names = definitions('models/05_dense', 'attnfree.models.dense')
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        names['write_photographs'](data/'imagenette-subset', folder)
        networks, _ = names['learn_photographs'](folder)
        names['show'](names['coco'](folder, 'val'), names['ade20k'](folder, 'val'), networks,
                      ['parachute', 'golf ball'])
    return [save(out, 'photographs_found.png')]


def test(data, out):
    "The first 64 test images of CIFAR-10, `(64, 3, 32, 32)` bytes, and their labels."
    import numpy as np
    from attnfree.data import create_dls
    held_out = create_dls('cifar10', path=data, bs=64).valid_ds
    pairs = [held_out[i] for i in range(64)]
    images = np.stack([np.asarray(image).transpose(2, 0, 1) for image, _ in pairs])
    (out/'results').mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out/'results/cifar10_test.npz', images=images.astype(np.uint8),
                        labels=np.array([int(label) for _, label in pairs]))
    return ['results/cifar10_test.npz']


PLACE = 3, 4  # row and column of the token that reads, on 8 x 8
BOARD = ROOT/'results/board/weights/cifar10'
CIFAR10 = {'FF-only': 'ff_nano_patch4_32', 'gMLP': 'gmlp_nano_patch4_32',
           'AFT-simple': BOARD/'model=aft_simple_nano_patch4_32_lr=2e-3',
           'AFT-full': BOARD/'model=aft_full_nano_patch4_32_lr=2e-3',
           'AFT-local': BOARD/'model=aft_local_nano_patch4_32_lr=2e-3',
           'AFT-conv': 'aft_conv_nano_patch4_32', 'attention (ViT)': 'vit_nano_patch4_32'}


def test_images(config):
    "The first 64 test images of CIFAR-10, normalised for the network of `config`."
    import numpy as np, torch
    from torchvision.transforms.v2.functional import normalize
    with np.load(ROOT/'results/cifar10_test.npz') as stored:
        images = torch.from_numpy(stored['images']).float()/255
    return normalize(images, config['data']['mean'], config['data']['std'])


def read_by_token(label, layers):
    "What the token at PLACE reads at 64 test images, `(8, 8)` for each layer, without itself."
    import numpy as np
    from attnfree.learner import load
    from attnfree.visualise import influence_maps
    model, config = load(CIFAR10[label])
    images = test_images(config)
    prefix = influence_maps(model, images[:1], layers=[0]).prefix
    token = prefix + 8*PLACE[0] + PLACE[1]
    maps = influence_maps(model, images, token, layers=[*layers])
    grids = maps.values[:,0,prefix:].reshape(-1, 8, 8).copy()
    grids[:,PLACE[0],PLACE[1]] = np.nan
    return grids


def draw_read(ax, grid):
    "Draw what a token reads, and mark the token."
    import matplotlib.pyplot as plt
    ax.imshow(grid, cmap='Reds', vmin=0)
    ax.add_patch(plt.Rectangle((PLACE[1] - 0.5, PLACE[0] - 0.5), 1, 1, fc='0.25', ec='k'))
    ax.set(xticks=[], yticks=[])


def mixers(data, out):
    "What one token reads in each mixer trained on CIFAR-10, layer by layer, at 64 test images."
    import matplotlib.pyplot as plt
    names = ['FF-only', 'gMLP', 'AFT-full', 'AFT-conv', 'attention (ViT)']
    fig, axes = plt.subplots(3, len(names), figsize=(9, 5.8), layout='constrained')
    for column, label in zip(axes.T, names):
        for ax, grid in zip(column, read_by_token(label, range(3))): draw_read(ax, grid)
        column[0].set_title(label)
    for layer, ax in enumerate(axes[:,0]): ax.set_ylabel(f'layer {layer}')
    return [save(out, 'mixers_read.png')]


def row(out, name, panels, draw):
    "A picture of panels side by side, `{title: what draw takes}`."
    import matplotlib.pyplot as plt
    height = 9/max(len(panels), 4) + 0.35
    fig, axes = plt.subplots(1, len(panels), figsize=(9, height), layout='constrained')
    for ax, (title, panel) in zip(axes, panels.items()):
        draw(ax, panel)
        ax.set_title(title, fontsize=10)
    return save(out, f'hero_{name}.png')


def heroes(data, out):
    "A row of panels for the page of each mixer."
    import numpy as np
    from attnfree.learner import load
    from attnfree.visualise import attention_maps, kernel_entropy, spatial_weights
    files = []
    for name, label, depth in (('attention', 'attention (ViT)', 4), ('ff', 'FF-only', 4),
                               ('gmlp', 'gMLP', 3)):
        panels = {f'layer {i}': grid for i, grid in enumerate(read_by_token(label, range(depth)))}
        files.append(row(out, name, panels, draw_read))
    labels = ['AFT-simple', 'AFT-full', 'AFT-local', 'AFT-conv']
    files.append(row(out, 'aft', {label: read_by_token(label, [0])[0] for label in labels},
                     draw_read))

    def draw_kernel(ax, kernel):
        ax.imshow(kernel, cmap='RdBu_r', vmin=-4, vmax=4)
        ax.plot(5, 5, 's', c='k', ms=4, mfc='none')
        ax.set(xticks=[], yticks=[])
    factors = spatial_weights(load(CIFAR10['AFT-conv'])[0])
    kernels = np.log1p(factors.values)
    chosen = [(0, 3), (0, 8), (1, 17), (1, 11), (2, 8), (2, 11), (3, 17), (3, 8)]
    files.append(row(out, 'kernels', {f'layer {i}\nhead {j}': kernels[i, j] for i, j in chosen},
                     draw_kernel))
    entropy = kernel_entropy(factors)
    order = np.argsort(entropy[2])[[0, 2, 4, 8, 16, 31]]
    files.append(row(out, 'sparse', {f'as of {np.exp(entropy[2, j]):.1f} positions': kernels[2, j]
                                     for j in order}, draw_kernel))

    def draw_matrix(ax, matrix):
        ax.imshow(matrix, cmap='RdBu_r', vmin=-4, vmax=4)
        ax.set(xticks=[], yticks=[])
    text = np.log1p(spatial_weights(load('lm_aft_local_mini_256')[0]).values[:,0,:64,:64])
    full = np.log1p(spatial_weights(load(CIFAR10['AFT-full'])[0]).values[:,0])
    files.append(row(out, 'biases', {'AFT-full, layer 0': full[0], 'AFT-full, layer 1': full[1],
                                     'AFT-local, layer 0': text[0],
                                     'AFT-local, layer 1': text[1]}, draw_matrix))
    lavit, config = load('lavit_nano_32')
    maps = attention_maps(lavit, test_images(config))

    def draw_map(ax, weights):
        side = int(len(weights)**0.5)
        ax.imshow(weights.reshape(side, side), cmap='Reds', vmin=0)
        at = side//2 - 1, side//2
        ax.plot(at[1], at[0], 's', c='k', ms=60/side, mfc='none')
        ax.set(xticks=[], yticks=[])
    panels = {}
    for name, layer in maps.items():
        values = np.asarray(layer.values)
        values = values.mean(axis=tuple(range(values.ndim - 2)))
        side = int(len(values)**0.5)
        panels[f"{name.replace(', layer', chr(10) + 'layer')}"] = \
            values[(side//2 - 1)*side + side//2]
    files.append(row(out, 'lavit', panels, draw_map))
    return files + [mean_picture(out), recall_picture(out)]


def recall_picture(out):
    "The recall accuracy of each mixer of the board, at its best rate."
    import matplotlib.pyplot as plt, pandas as pd
    rows = pd.read_csv(ROOT/'results/board/recall.csv')
    mixer = rows.case.str.extract(r'recall_(\w+)_d64')[0]
    best = (100*rows.accuracy).groupby(mixer).max().sort_values()
    names = {'attention': 'attention', 'amlp': 'aMLP', 'gmlp': 'gMLP', 'aft_simple': 'AFT-simple',
             'aft_full': 'AFT-full', 'aft_local': 'AFT-local', 'aft_conv': 'AFT-conv'}
    fig, ax = plt.subplots(figsize=(7, 2.4), layout='constrained')
    ax.barh([names[name] for name in best.index], best, color='C0')
    ax.axvline(25, c='k', ls='--', lw=1)
    ax.annotate('a guess among the four values', (25, 0), xytext=(6, 0), va='center',
                textcoords='offset points')
    ax.set(xlabel='% found of what is asked for', xlim=(0, 100))
    ax.spines[['top', 'right']].set_visible(False)
    return save(out, 'hero_recall.png')


def mean_picture(out):
    "A weighted mean of one channel: keys, the weights that they make, and the mean so far."
    import matplotlib.pyplot as plt, torch
    from attnfree.weighted_mean import plain_mean
    torch.manual_seed(4)
    n = 32
    keys, values = 2*torch.randn(1, n, 1), torch.sin(torch.arange(n)/4.)[None,:,None]
    values = values + 0.2*torch.randn(1, n, 1)
    fig, axes = plt.subplots(1, 2, figsize=(9, 2.4), layout='constrained')
    weights = keys.softmax(dim=1)[0,:,0]
    axes[0].bar(range(n), weights, color='C3')
    axes[0].set(title='weights: the softmax of keys over tokens', xlabel='token', ylabel='weight')
    axes[1].plot(values[0,:,0], '.', c='0.5', label='values')
    axes[1].plot(plain_mean(keys, values, causal=True)[0,:,0], c='C3', label='mean so far (causal)')
    axes[1].axhline(plain_mean(keys, values)[0,0,0], c='k', ls='--', lw=1, label='mean of all')
    axes[1].set(title='what the tokens read', xlabel='token')
    axes[1].legend(frameon=False, fontsize=8)
    return save(out, 'hero_mean.png')


def logo(data, out):
    "The site's icon, one learned kernel of AFT-conv, and its card, thirty-two of them."
    import matplotlib.pyplot as plt, numpy as np
    from attnfree.learner import load
    from attnfree.visualise import spatial_weights
    kernels = np.log1p(spatial_weights(load('aft_conv_nano_patch4_32')[0]).values)
    (out/'nbs/site').mkdir(parents=True, exist_ok=True)
    look = dict(cmap='RdBu_r', vmin=-4, vmax=4)
    icon = kernels[0, 3]
    plt.imsave(out/'nbs/site/favicon.png', np.kron(icon, np.ones((8, 8))), **look)
    fig = plt.figure(figsize=(12, 6.3), facecolor='#16191d')
    for i, kernel in enumerate(kernels[:,::4].reshape(-1, 11, 11)):
        ax = fig.add_axes([0.43 + 0.068*(i % 8), 0.72 - 0.19*(i // 8), 0.062, 0.17])
        ax.imshow(kernel, **look)
        ax.axis('off')
    fig.text(0.05, 0.58, 'attnfree', fontsize=56, color='w')
    about = 'networks without attention,\nor with less of it'
    fig.text(0.05, 0.46, about, fontsize=20, color='0.8', va='top')
    fig.savefig(out/'nbs/site/card.png', dpi=100, facecolor=fig.get_facecolor())
    plt.close(fig)
    return ['nbs/site/favicon.png', 'nbs/site/card.png']


def fine_tuned(path):
    "Percent of held-out photographs after each epoch, from CIFAR-10's weights and from scratch."
    from tempfile import TemporaryDirectory
    import pandas as pd
    from attnfree.train import attnfree_train
    name, curves = 'aft_conv_nano_patch4_32', {}
    for start, how in {'from CIFAR-10': dict(start=name, set=['lr=5e-4']),
                       'from scratch': dict(model=name, set=['lr=2e-3'])}.items():
        how['set'] += ['size=32', 'bs=32', 'threads=1']
        with TemporaryDirectory() as out:
            attnfree_train(data='imagenet', path=str(path), epochs=10, out=f'{out}/run', **how)
            curves[start] = 100*pd.read_csv(f'{out}/run/metrics.csv').accuracy
    table = pd.DataFrame(curves)
    return table.set_index(pd.Index(range(1, len(table) + 1), name='epoch'))


def photographs(data, out):
    "Linear probes on features of photographs, also as a picture, and fine-tuning from weights."
    from attnfree.data import create_dls
    names = definitions('tutorials/09_features', 'attnfree.vision')
    names['NAMES'] = {'FF-only': 'ff_nano_patch4_32', 'gMLP': 'gmlp_nano_patch4_32',
                      'AFT-conv': 'aft_conv_nano_patch4_32', 'LaViT': 'lavit_nano_32',
                      'ViT': 'vit_nano_patch4_32'}
    dls = create_dls('imagenet', path=data/'imagenette-subset', bs=64, size=32, augment=False)
    parts = [part for loader in (dls.train.new(shuffle=False, drop_last=False), dls.valid)
             for part in names['batch_of'](loader)]
    pixels = names['probe'](parts[0].flatten(1), parts[1], parts[2].flatten(1), parts[3])
    table = names['probes'](*parts)
    ax = table[['untrained', 'trained on CIFAR-10']].plot.bar(figsize=(7, 3), rot=0, width=0.7,
                                                              color=['0.75', 'C2'])
    ax.axhline(pixels, c='k', lw=1, ls='--')
    ax.annotate('pixels', (4.36, pixels), xytext=(2, 3), textcoords='offset points', ha='left')
    ax.set(ylabel='% of 350 right', xlim=(-0.6, 4.9))
    ax.legend(frameon=False, loc='upper left', ncols=2)
    ax.set_ylim(0, 68)
    ax.spines[['top', 'right']].set_visible(False)
    picture = save(out, 'probe_photographs.png')
    table.loc['pixels'] = pixels
    return [picture, write(out, 'probe_photographs.csv', table.round(2)),
            write(out, 'finetuned_photographs.csv', fine_tuned(data/'imagenette-subset').round(2))]


MAKERS = dict(cifar10=cifar10, imagenette=imagenette, texts=texts, enwik8=enwik8, tables=tables,
              dense=dense, test=test, mixers=mixers, heroes=heroes,
              logo=logo,
              photographs=photographs)


def main(argv=None):
    "Make what the command line asks for."
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', nargs='*', metavar='WHAT',
                        help=f"what to make, some of {', '.join(MAKERS)}; by default all")
    parser.add_argument('--data', metavar='DIR', default=os.environ.get('ATTNFREE_DATA'),
                        help='folder with the data sets (default: ATTNFREE_DATA)')
    parser.add_argument('--out', type=Path, default=ROOT, metavar='DIR',
                        help="folder that has nbs/images/ and results/ (default: the project's)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.what if name not in MAKERS]
    if unknown: parser.error(f"there is no {unknown[0]}, only {', '.join(MAKERS)}")
    if not args.data: parser.error('name the folder of the data sets by --data or ATTNFREE_DATA')
    chosen = args.what or [*MAKERS]
    for name in chosen:
        for needed in NEEDED[name]:
            if not Path(args.data, needed).exists():
                sys.exit(f'{parser.prog}: {args.data} does not hold {needed}')
    run(chosen, Path(args.data), args.out)


def run(chosen, data, out):
    "Make what was chosen; tokens and word pieces go to a temporary folder."
    from tempfile import TemporaryDirectory
    import matplotlib, torch
    matplotlib.use('agg')
    torch.set_num_threads(1)  # more threads change the order of sums
    with TemporaryDirectory() as home:
        os.environ['FASTAI_HOME'] = home
        for name in chosen:
            for file in MAKERS[name](data, out): print(f'{name}: {out/file}')


if __name__ == '__main__': main()
