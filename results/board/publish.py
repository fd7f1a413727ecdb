"""Takes networks of the board into the package: `attnfree/weights/NAME.TAG`, a folder for each.

The weights are those that the board keeps (float16), unchanged. Each is evaluated here, from these
very weights, and its card says what came out. Curves come from the runs' own folders where they are
still there, else from the table's row.

    python results/board/publish.py [--runs FOLDER ...] [--only NAME ...]
"""
import argparse, hashlib, json, shutil, sys
from pathlib import Path

import pandas as pd

from attnfree.families import WEIGHTS
from attnfree.learner import read_config, save_run
from attnfree.run import plan_evaluation
from attnfree.run.cards import model_card
from attnfree.run.sweep import read_rows

HERE = Path(__file__).resolve().parent
NETWORKS = {
    'digits': ['ff', 'gmlp', 'amlp', 'aft_simple', 'aft_full', 'aft_local', 'aft_conv', 'lavit',
               'vit', 'attn_only'],
    'cifar10': ['ff', 'gmlp', 'aft_conv', 'lavit', 'vit'],  # each paper's best first seed; ViT
    'bytes': ['gmlp', 'aft_local', 'attention']}  # the same, of a fixed state, attention
ABOUT = {
    'digits': dict(tag='digits', data='digits', unit='images', source=(
        "Optical Recognition of Handwritten Digits (UCI, CC BY 4.0), the part that scikit-learn "
        "brings along: 1,437 images to train on.")),
    'cifar10': dict(tag='cifar10', data='CIFAR-10', unit='images', source=(
        "CIFAR-10 (Krizhevsky 2009), 50,000 images to train on; its authors name no licence.")),
    'bytes': dict(tag='enwik8', data='enwik8', unit='windows', source=(
        "The first 4.15 MB of enwik8, text of the English Wikipedia of 2006 (GFDL), nine tenths "
        "of them to train on."))}


def folder_of(group, mixer):
    "Where the board keeps a network."
    found = [path for path in (HERE/'weights'/group).iterdir()
             if path.name.split('=')[1].removeprefix('lm_').startswith(
                 (f'{mixer}_micro', f'{mixer}_nano', f'{mixer}_mini'))]
    if len(found) != 1: sys.exit(f'{group}/{mixer}: {len(found)} folders')
    return found[0]


def curves(group, source, row, runs):
    "The table of metrics by epoch."
    for folder in runs:
        file = Path(folder)/group/f'{source.name}_1'/'metrics.csv'
        if file.exists(): return pd.read_csv(file)
    metric = [float(value) for value in row['curve'].split()]
    last = len(metric) - 1
    return pd.DataFrame({'epoch': range(len(metric)),
                         'train_loss': [float('nan')]*last + [row['train_loss']],
                         'valid_loss': [float('nan')]*last + [row['valid_loss']],
                         row['metric']: metric})


def evaluated(folder):
    "Number of held-out examples, and the row of all of them."
    plan = plan_evaluation(str(folder), bs=64)
    table = plan.dls.task.evaluate(plan.model, plan.dls, plan.loader,
                                   settings=plan.settings).table
    return len(plan.loader.dataset), table.iloc[-1]


def publish(group, mixer, runs):
    "One network into the package."
    source, about = folder_of(group, mixer), ABOUT[group]
    rows = read_rows(HERE/f'{group}.csv')
    row = rows[(rows.case.str.replace(' ', '_') == source.name) & (rows.seed == 1)].iloc[0]
    config = read_config(source)
    config['source'] = dict(config['source'], imports=[])  # of the baselines, not of these
    folder = WEIGHTS/f"{config['model']['name']}.{about['tag']}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source/'model.safetensors', folder/'model.safetensors')
    save_run(folder, config)
    examples, found = evaluated(folder)
    metric = row['metric']
    digest = hashlib.sha256((folder/'model.safetensors').read_bytes()).hexdigest()
    config['published'] = about | dict(
        sha256=digest, license='apache-2.0', metric=metric, value=round(float(found[metric]), 4),
        examples=examples, row=float(row[metric]), parameters=int(row['parameters']),
        minutes=round(row['processor_seconds']/60),
        command=f'python results/board/start.py --out RUNS --groups {group}')
    save_run(folder, config)
    table = curves(group, source, row, runs)
    table.to_csv(folder/'metrics.csv', index=False, float_format='%.6g')
    (folder/'README.md').write_text(model_card(folder.name))
    print(f"{folder.name}: {metric} {config['published']['value']} ({row[metric]} in the table), "
          f"{(folder/'model.safetensors').stat().st_size/1e6:.2f} MB")


def main():
    "Publish what is asked for."
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', nargs='*', default=[], help='folders with the runs themselves')
    parser.add_argument('--only', nargs='*', help='groups; by default all')
    args = parser.parse_args()
    for group, mixers in NETWORKS.items():
        for mixer in mixers if not args.only or group in args.only else ():
            publish(group, mixer, args.runs)


if __name__ == '__main__': main()
