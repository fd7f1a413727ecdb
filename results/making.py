"""Shared code of the scripts `make_*.py` in this folder: command line, and missing runs.

A script defines `makers`, functions that write files, with the runs that each reads, and
`commands`, which make these runs. Imports are light here and at the top of a script, so that
`--help` and the message about a missing run appear at once.
"""
import argparse, sys
from pathlib import Path


def missing(runs, names, commands):
    "A sentence about the first of the runs `names` that is not finished; `None` if all are."
    for name in names:
        if (runs/name/'model.safetensors').exists(): continue
        first = name.partition('/')[0]  # a sweep's runs are in the folder of the sweep
        command = f'{commands[first]} --out runs/{first}'.replace('runs/', f'{runs}/')
        return f'{runs/name} is missing; this command makes it: {command}'


def main(doc, makers, commands, argv=None):
    "Make what the command line asks for; `makers` are `(function, runs that it reads)` by name."
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', nargs='*', metavar='WHAT',
                        help=f"what to make, some of {', '.join(makers)}; by default all")
    parser.add_argument('--runs', type=Path, default=Path('runs'), metavar='DIR',
                        help='folder with the runs (default: runs)')
    parser.add_argument('--out', type=Path, default=Path('results'), metavar='DIR',
                        help='folder for the files (default: results)')
    args = parser.parse_args(argv)
    unknown = [name for name in args.what if name not in makers]
    if unknown: parser.error(f"there is no {unknown[0]}, only {', '.join(makers)}")
    chosen = args.what or [*makers]
    needed = [run for name in chosen for run in makers[name][1]]
    if complaint := missing(args.runs, needed, commands): sys.exit(f'{parser.prog}: {complaint}')
    args.out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        for file in makers[name][0](args.runs, args.out): print(f'{name}: {args.out/file}')
