"""Records what the package computes, bit by bit, to prove that a refactoring changes nothing.

Of each family of networks the smallest is built, run, differentiated and, if causal, stepped; some
short trainings run as commands. The sums are for reading; the sha256 is what no bit can escape.

    python .ci/record.py                              print the table of this checkout
    python .ci/record.py --out .ci/record.csv         write it
    python .ci/record.py --compare .ci/record.csv     compare; status 1 if any value differs
    python .ci/record.py --package DIR ...            the same for another checkout

Bits depend on the processor, the threads and the libraries. The table holds these too, and nothing
is compared (status 2) where they differ: then record the old commit on this machine:

    git worktree add DIR COMMIT
    python .ci/record.py --package DIR --out FILE
    python .ci/record.py --compare FILE
"""
import argparse, csv, hashlib, importlib, os, re, subprocess, sys, tempfile, warnings
from importlib.metadata import version
from pathlib import Path

# Before torch is imported: one thread, no GPU, and no files left behind in the checkout.
SETTINGS = dict(OMP_NUM_THREADS='1', MKL_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='', MPLBACKEND='agg',
                PYTHONDONTWRITEBYTECODE='1')
os.environ.update(SETTINGS)
sys.dont_write_bytecode = True
warnings.filterwarnings('ignore', category=FutureWarning)

import torch
from safetensors.torch import load_file

torch.set_num_threads(1)

SIZES = {'micro', 'nano', 'mini', 'tiny', 'small', 'base', 'large', 'xlarge',
         't', 's', 'b', 'ti16', 's16', 'b16'}
LONGEST = 256     # tokens of a text in a batch, where the network takes more
STEPS = 40        # tokens that a causal network reads one by one, beyond a window of 32
CPU = ('model name', 'cpu family', 'model')      # what /proc/cpuinfo calls the processor
LIBRARIES = ('torch', 'timm', 'fastai', 'numpy', 'pillow')
TIMES = ('seconds', 'images/s', 'waiting')     # columns of metrics.csv that no two runs share

TRAININGS = {     # name: options of attnfree_train; TEXT is the file that write_text writes
    'digits': '--data digits',
    'digits, all options': '--data digits --model vit_micro_patch2_8 --set mixup=0.8 '
        '--set cutmix=1 --set erasing=0.25 --set repeats=2 --set drop=0.1 --set drop_path=0.1 '
        '--set clip=1 --set ema=0.9 --set accumulate=2 --set layer_decay=0.9',
    'digits, less attention': '--data digits --model lavit_micro_8 --set diagonality=0.1',
    'digits, pixels': '--data digits --task pixels',
    'text, mlm': '--data text --task mlm --path TEXT --model mlm_gmlp_mini_128 --set size=32 '
        '--set bs=32 --set warmup_steps=4',
    'text, lm': '--data text --task lm --path TEXT --model lm_aft_local_mini_256 --set size=64 '
        '--set bs=16 --set warmup_steps=4',
}


def refuse(text):
    "Say why there is nothing to compare, and stop."
    print(f'record.py: {text}', file=sys.stderr)
    sys.exit(2)


def conditions():
    "What bits depend on besides the package."
    first = Path('/proc/cpuinfo').read_text().partition('\n\n')[0]
    cpu = dict(map(str.strip, line.split(':', 1)) for line in first.splitlines())
    flags = cpu.get('flags', '')
    about = dict(
        processor=', '.join(f'{name} {cpu.get(name)}' for name in CPU),
        avx512='yes' if 'avx512' in flags else 'no',
        amx='yes' if 'amx' in flags else 'no',
        kernels=torch.backends.cpu.get_cpu_capability(),
        threads=str(torch.get_num_threads()))
    return about | {name: version(name) for name in LIBRARIES}


def sha256(parts):
    "One sum over the bytes of tensors or texts, one after the other."
    whole = hashlib.sha256()
    for part in parts:
        if not isinstance(part, str):
            part = part.detach().contiguous().flatten().view(torch.uint8).numpy()
        whole.update(part.encode() if isinstance(part, str) else part.tobytes())
    return whole.hexdigest()


def values(what, tensors):
    "Two rows for some tensors: their sum, and the sha256 of their bytes."
    tensors = list(tensors)
    total = sum(tensor.detach().double().sum().item() for tensor in tensors)
    return {f'{what}: sum': repr(total), f'{what}: sha256': sha256(tensors)}


def family_of(name):
    "The name of a network without its size."
    sizes = re.compile(r'(patch|[ldkh])?\d+')
    return '_'.join(p for p in name.split('_') if p not in SIZES and not sizes.fullmatch(p))


def smallest(module):
    "Of each family the network with the fewest parameters."
    found = {}
    for name in module.model_names():
        with torch.device('meta'): model = module.create_model(name)
        size = sum(p.numel() for p in model.parameters())
        family = family_of(name)
        if family not in found or size < found[family][0]: found[family] = size, name
    return [name for _, name in found.values()]


def image_batch(model):
    "Two images of the size that the network is made for."
    return (torch.randn(2, *model.pretrained_cfg['input_size']),)


def text_batch(model):
    "Two texts; where gaps are filled, they have two segments, and the second ends in padding."
    n = min(model.stem.grid[0], LONGEST)
    ids = torch.randint(1, model.num_classes, (2, n))
    if hasattr(model, 'step'): return (ids,)
    ids[1, -n//4:] = 0
    segments = (torch.arange(n) >= n//2).long().expand(2, n)
    return ids, segments


def network(model, batch):
    "All that is recorded of a fresh network, by what it is."
    state, parameters = model.state_dict(), list(model.parameters())
    shapes = [f'{name} {tuple(value.shape)} {value.dtype}\n' for name, value in state.items()]
    rows = {'parameters': str(sum(p.numel() for p in parameters)),
            'names: sha256': sha256(shapes),
            'weights: sum': values('weights', parameters)['weights: sum'],
            'weights: sha256': sha256(state.values())}
    torch.manual_seed(1)
    inputs = batch(model)
    # Parameters that begin as 0 or 1 would hide what is done with them: from here on none is.
    with torch.no_grad():
        for p in parameters: p.add_(torch.randn_like(p), alpha=0.02)
        rows |= values('eval output', [model.eval()(*inputs)])
        if hasattr(model, 'step'):
            memory, scores = model.start(2), []
            for ids in inputs[0][:, :STEPS].unbind(1):
                score, memory = model.step(ids, memory)
                scores.append(score)
            rows |= values('steps', scores)
    torch.manual_seed(0)
    output = model.train()(*inputs)
    rows |= values('train output', [output])
    (output*torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    unused = torch.zeros(1)
    return rows | values('gradients', [unused if p.grad is None else p.grad for p in parameters])


def networks():
    "Rows of the smallest network of each family."
    kinds = ('vision', 'drop_rate', image_batch), ('language', 'drop', text_batch)
    for kind, drop, batch in kinds:
        module = importlib.import_module(f'attnfree.{kind}')
        names = module.model_names()
        yield kind, 'all', 'number of names', str(len(names))
        yield kind, 'all', 'names: sha256', sha256(['\n'.join(names)])
        for name in smallest(module):
            torch.manual_seed(0)
            model = module.create_model(name, drop_path_rate=0.1, **{drop: 0.1})
            for what, value in network(model, batch).items(): yield kind, name, what, value


def write_text(file):
    "Some 30 kB of words, always the same."
    words = ('a network mixes what it reads and learns from every word how far the next '
             'one is while gaps are filled bytes follow bytes and none is drawn').split()
    number, text = 1, []
    for i in range(6000):
        number = (1103515245*number + 12345) % 2**31
        text.append(words[(number >> 16) % len(words)] + ('.\n' if i % 12 == 11 else ' '))
    file.write_text(''.join(text), encoding='utf-8')


def command(arguments, package, folder):
    "Run Python in a folder of its own, with the package of a checkout; returns what it printed."
    settings = {name: value for name, value in os.environ.items()
                if name not in ('ATTNFREE_DATA', 'WORLD_SIZE', 'RANK')}
    settings |= SETTINGS | dict(PYTHONPATH=str(package), FASTAI_HOME=str(folder/'fastai'))
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=settings,
                          capture_output=True, text=True)
    if done.returncode: raise RuntimeError(f'{arguments} failed:\n{done.stderr[-3000:]}')
    return done.stdout


def trainings(package):
    "Rows of two epochs of each training, each in a fresh process."
    for name, options in TRAININGS.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            where = command(['-c', 'import attnfree; print(attnfree.__file__)'], package, folder)
            check_place(where, package)
            write_text(folder/'text.txt')
            options = options.replace('TEXT', 'text.txt').split()
            command(['-m', 'attnfree.train', *options, '--epochs', '2', '--set', 'threads=1',
                     '--out', 'run'], package, folder)
            with open(folder/'run/metrics.csv', newline='') as file:
                for row in csv.DictReader(file):
                    for metric, value in row.items():
                        if metric not in (*TIMES, 'epoch'):
                            yield 'training', name, f"epoch {row['epoch']}: {metric}", value
            weights = load_file(folder/'run/model.safetensors')
            rows = values('weights', [weights[key] for key in sorted(weights)])
        for what, value in rows.items(): yield 'training', name, what, value


def check_place(file, package):
    "Raise `ImportError` unless the module that was imported lies in the checkout."
    if not Path(file.strip()).resolve().is_relative_to(package/'attnfree'):
        raise ImportError(f'attnfree was imported from {file.strip()}, not from {package}')


def record(package):
    "All values of the package in a checkout: `{(kind, name, what): value}`."
    sys.path.insert(0, str(package))
    check_place(importlib.import_module('attnfree').__file__, package)
    table = {}
    for rows in (networks(), trainings(package)):
        for *key, value in rows:
            if tuple(key) in table: raise RuntimeError(f'{key} would be recorded twice')
            table[tuple(key)] = value
    return table


def read(file):
    "The conditions and the values of a table."
    with open(file, newline='', encoding='utf-8') as stream:
        rows = {tuple(key): value for *key, value in list(csv.reader(stream))[1:]}
    about = {name: value for (kind, name, _), value in rows.items() if kind == 'condition'}
    return about, {key: value for key, value in rows.items() if key[0] != 'condition'}


def write(stream, about, table):
    "Write a table, with its conditions on top."
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(['kind', 'name', 'what', 'value'])
    writer.writerows(['condition', name, '', value] for name, value in about.items())
    writer.writerows([*key, value] for key, value in table.items())


def check_conditions(old, new):
    "Stop where a table was recorded under other conditions."
    other = [f'  {name}: {old.get(name)} in the table, {new.get(name)} here'
             for name in {**old, **new} if old.get(name) != new.get(name)]
    if other: refuse('these bits cannot be compared, as the table was recorded elsewhere:\n'
        + '\n'.join(other) + '\nRecord the old commit in a git worktree on this machine, with '
        '--package and --out, and compare with that')


def compare(old, new):
    "Print how many values are equal and which are not; returns whether all are."
    keys = {**old, **new}
    different = [key for key in keys if old.get(key) != new.get(key)]
    for key in different:
        before, now = (table.get(key, 'nothing') for table in (old, new))
        print(f"{'; '.join(key)}: {before} in the table, {now} now")
    print(f'{len(keys) - len(different)} of {len(keys)} values are equal')
    return not different


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--package', type=Path, default=Path(__file__).parent.parent, metavar='DIR',
                        help='checkout whose package is recorded (default: this one)')
    parser.add_argument('--out', type=Path, metavar='FILE', help='write the table to this file')
    parser.add_argument('--compare', type=Path, metavar='FILE', help='compare with this table')
    args = parser.parse_args()
    about, package = conditions(), args.package.resolve()
    if not (package/'attnfree/__init__.py').is_file():
        refuse(f'--package {args.package} holds no attnfree/')
    if args.compare:
        old_about, old = read(args.compare)
        check_conditions(old_about, about)
    table = record(package)
    if args.out:
        with open(args.out, 'w', newline='', encoding='utf-8') as stream:
            write(stream, about, table)
    if not args.out and not args.compare: write(sys.stdout, about, table)
    return 0 if not args.compare or compare(old, table) else 1


if __name__ == '__main__': sys.exit(main())
