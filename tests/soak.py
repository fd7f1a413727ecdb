"""What a long training does to memory, open files and disk, and whether killed ones end equal.

    python tests/soak.py steps --steps 2000  # two workers, EMA, a checkpoint every ten steps
    python tests/soak.py kills --kills 60    # trainings killed twice at random, then compared

Not in CI: 2,000 steps take a minute, 100 kills ten. Prints a table and ends with 1
if something grew or differed. The figures of a run stand in the page "Guarantees".
"""
import argparse, os, random, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import running

SETTINGS = ['model=aft_simple_micro_patch2_8', 'bs=8', 'ema=0.9', 'drop_path=0.1', 'precision=fp32',
            'augment=rand-m5-mstd0.5-inc1', 'threads=1']  # image by image, so workers load


def family(pid):
    "A process and its children."
    pids = [pid]
    for task in Path(f'/proc/{pid}/task').glob('*/children'):
        try: pids += [child for part in task.read_text().split() for child in family(int(part))]
        except OSError: pass
    return pids


def looked_at(pid, folder):
    "Resident memory in MiB, open files, processes, size of the folder in KiB."
    memory = files = 0
    page = os.sysconf('SC_PAGESIZE')
    pids = family(pid)
    for one in pids:
        try:
            memory += int(Path(f'/proc/{one}/statm').read_text().split()[1])*page
            files += len(os.listdir(f'/proc/{one}/fd'))
        except OSError: pass # it has ended
    size = sum(path.stat().st_size for path in Path(folder).rglob('*') if path.is_file())
    return memory/2**20, files, len(pids), size/2**10


def steps_done(folder):
    try: return int((Path(folder)/'steps.csv').read_text().splitlines()[-1].split(',')[0])
    except (OSError, ValueError): return 0


def soak(steps):
    "Whether nothing grew between a quarter of the way and the end."
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)/'run'
        running.LIMIT = 10**6
        process = running.start(folder, recipe='digits', workers=2, every=10,
                                set=[*SETTINGS, f'steps={steps}', 'epochs=none'])
        rows, begun = [], time.monotonic()
        while process.exitcode is None:
            process.join(2)
            if process.exitcode is not None: break
            try: rows.append((time.monotonic() - begun, steps_done(folder),
                              *looked_at(process.pid, folder)))
            except OSError: pass
        if process.exitcode: raise SystemExit(running.log(folder)[-2000:])
    during = [row for row in rows if row[1] >= steps/4]
    middle = len(during)//2
    print('seconds  steps  MiB  open files  processes  folder KiB')
    for row in rows[::max(1, len(rows)//12)]: print('  '.join(f'{value:.0f}' for value in row))
    def median(part, i): return sorted(row[i] for row in part)[len(part)//2]
    grown = []
    for i, name, slack in ((2, 'memory', 1.05), (3, 'open files', 1.1), (5, 'folder', 1.25)):
        early, late = median(during[:middle], i), median(during[middle:], i)
        print(f'{name}: {early:.0f} early, {late:.0f} late')
        if late > early*slack: grown.append(name)
    print('grew: ' + ', '.join(grown) if grown else 'nothing grew')
    return not grown


def kill_again(kills, seed):
    "Whether every training that was killed ends as the one that was not."
    generator, equal, killed = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as place:
        options = dict(recipe='digits', every=2, set=[*SETTINGS, 'epochs=2', 'train_examples=160'])
        whole = Path(place)/'whole'
        assert running.end(running.start(whole, **options)) == 0, running.log(whole)
        expected = running.result(whole)
        for number in range(kills):
            folder = Path(place)/f'{number}'
            step = 0
            for _ in range(2): # of 40 steps, and of those that are left
                again = (folder/'config.json').exists()
                step = generator.randrange(step, 40)
                at = running.killed_at(step, generator.uniform(0, 0.02))
                given = dict(resume=True, every=2) if again else options
                killed += running.end(running.start(folder, prepare=at, **given)) < 0
            running.finish(folder, **options)
            equal += running.result(folder) == expected
            print(f'{number + 1}: {killed} kills, {equal} of {number + 1} equal', flush=True)
    print(f'{killed} kills, {equal} of {kills} trainings ended equal')
    return equal == kills <= killed


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', choices=['steps', 'kills'])
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--kills', type=int, default=60)
    parser.add_argument('--seed', type=int, default=0)
    chosen = parser.parse_args()
    good = soak(chosen.steps) if chosen.what == 'steps' else kill_again(chosen.kills, chosen.seed)
    sys.exit(not good)
