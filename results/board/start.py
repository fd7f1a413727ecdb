"""Trains groups of `board.toml` with the very version of the package that they name.

All rows of a table shall come from one version, whatever the checkout has become since. So a group
names its version and the commit that holds it. This builds a wheel of that commit, and for it an
environment below `--out`, with the libraries of `constraints.txt`; what is there already is used
again. Then that environment's attnfree_sweep trains what is left of the groups. All options that
are not listed here go to it.

    python results/board/start.py --out DIR --processes 2 --nice 19
    python results/board/start.py --out DIR --groups cifar10 --share 1/3
    python results/board/start.py --out DIR --status
"""
import argparse, os, subprocess, sys, tarfile, tempfile, tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def commit_of(file, names):
    "Version and commit of the groups `names`, all if there are none; they must have one commit."
    groups = tomllib.loads(file.read_text())
    for name in names or []:
        if name not in groups: sys.exit(f'{file} has no group {name!r}, but {", ".join(groups)}')
    found = {(group.get('version'), group.get('commit'))
             for name, group in groups.items() if not names or name in names}
    if len(found) != 1 or None in (one := found.pop()):
        sys.exit(f'{file}: choose by --groups some that name one version and one commit')
    return one


def build(version, commit, env):
    "An environment `env` with the package as it was at `commit`."
    if (env/'ready').exists(): return
    def run(*command, **options): subprocess.run([*map(str, command)], check=True, **options)
    with tempfile.TemporaryDirectory() as folder:
        with open(f'{folder}/source.tar', 'wb') as tar:
            run('git', 'archive', commit, cwd=HERE.parent.parent, stdout=tar)
        with tarfile.open(f'{folder}/source.tar') as tar: tar.extractall(f'{folder}/source')
        run(sys.executable, '-m', 'venv', '--clear', env)
        run(env/'bin'/'pip', 'wheel', '--quiet', '--no-deps', '-w', folder, f'{folder}/source')
        wheel, = Path(folder).glob('*.whl')
        run(env/'bin'/'pip', 'install', '--quiet', '-c', HERE/'constraints.txt',
            f'{wheel}[baselines]')
    has = subprocess.run([env/'bin'/'python', '-c', 'import attnfree; print(attnfree.__version__)'],
                         check=True, capture_output=True, text=True, cwd=env).stdout.strip()
    if has != version: sys.exit(f'{commit} holds attnfree {has}, and the groups are for {version}')
    (env/'ready').touch()


def main():
    "Build what is missing, and become attnfree_sweep."
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--file', type=Path, default=HERE/'board.toml', help='the file of runs')
    parser.add_argument('--out', type=Path, required=True, help='folder for environment and runs')
    parser.add_argument('--groups', nargs='+', help='groups of the file; by default all')
    args, others = parser.parse_known_args()
    version, commit = commit_of(args.file, args.groups)
    env = args.out.expanduser().resolve()/'.env'/f'{version}-{commit[:8]}'
    build(version, commit, env)
    command = [str(env/'bin'/'attnfree_sweep'), '--file', str(args.file), '--out', str(args.out)]
    if args.groups: command += ['--groups', *args.groups]
    os.environ.pop('PYTHONPATH', None) # it would put another version before that of the group
    os.execv(command[0], command + others)


if __name__ == '__main__': main()
