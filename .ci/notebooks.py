"""Runs the notebooks as `nbdev_test` does, with a line for each as it ends: result, name, seconds.

    python .ci/notebooks.py                        # all, about ten minutes on two cores
    python .ci/notebooks.py --path nbs/mixers      # a folder or a notebook
    python .ci/notebooks.py --flags data           # with the cells that need ATTNFREE_DATA

A notebook fails by an error, which is shown, or by taking more than a minute of processor time both
next to others and once more alone: machines are shared, so waiting for a processor does not count,
and a notebook slowed down by others gets a second try. The minute is for a processor that imports
torch in 1.8 seconds; a slower one gets longer in proportion.

It also fails where a cell prints other text than the notebook shows: other words, or numbers that
differ by more than a half and 0.05. That is wide, since processors round differently and trainings
go on from there. A cell whose output depends on the machine, such as a time, says
`# output differs`. Not seen is text before what is shown in notebooks with `clear_output()`.
The last line is `notebooks: N passed, M failed`.
"""
import argparse, contextlib, functools, io, multiprocessing, os, re, subprocess, sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from execnb.shell import CaptureShell

LIMIT = 60 # seconds of processor time
IMPORT = 1.8 # seconds that it takes to import torch there
ROOT = Path.cwd()


def processor_seconds():
    "Processor time of this process and of its children that have ended."
    return sum(os.times()[:4])


@functools.cache
def limit():
    "The processor seconds that a notebook may take on this machine."
    def imported():
        before = processor_seconds()
        subprocess.run([sys.executable, '-c', 'import torch'], check=True)
        return processor_seconds() - before
    return LIMIT*max(1, min(imported() for _ in range(3))/IMPORT)


NUMBER = re.compile(r'(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?')


def printed(cell):
    "The text that a cell shows, without what it draws: its words, and its numbers."
    text = []
    for output in getattr(cell, 'outputs', None) or []:
        data = output.get('data', {})
        if output.get('name') == 'stderr' or any('image' in kind for kind in data): continue
        table = re.sub(r'<style.*?</style>|<[^>]+>', ' ', ''.join(data.get('text/html', '')),
                       flags=re.S)  # text is wrapped by the width of a terminal
        text.append(table or ''.join(output.get('text') or data.get('text/plain') or ''))
    text = ' '.join(text).replace('\x1b[2K\r', '')  # what clear_output() prints here
    text = re.sub(' at 0x[0-9a-f]+', '', text)  # which nbdev_clean removes
    numbers = [float(number.replace(',', '')) for number in NUMBER.findall(text)]
    words = re.sub(r'\s*([][(),])\s*', r'\1', NUMBER.sub('#', text))  # tensors leave room for signs
    return re.sub(r'[\s.-]+', ' ', words).strip(), numbers


def difference(cell, before, clears):
    """How a cell's text differs from what it was; `None` if it does not. `clears`: its notebook
    calls clear_output(), which clears nothing here, so there may be text before."""
    words, numbers = printed(cell)
    if not before[0] or '# output differs' in cell.source: return None
    if words != before[0] and not (clears and words.endswith(before[0])):
        same = len(os.path.commonprefix([words, before[0]]))
        shown, found = (text[max(0, same - 30):same + 60] for text in (before[0], words))
        return f'shows ... {shown!r}, and prints ... {found!r}'
    for shown, found in zip(before[1], numbers[-len(before[1]):]):
        if not abs(shown - found) <= 0.05 + 0.5*max(abs(shown), abs(found)) and shown == shown:
            return f'shows {shown:g}, and prints {found:g}'


class Shell(CaptureShell):
    "Runs cells, and notes which print something else than their notebook shows."
    different, clears = [], False

    def cell(self, cell, **options):
        before, cell.outputs = printed(cell), []
        super().cell(cell, **options)
        if cell.cell_type != 'code' or self.exc: return
        if how := difference(cell, before, self.clears):
            first = next(line for line in cell.source.splitlines() if not line.startswith('#|'))
            self.different.append(f'cell {cell.get("id")} ({first[:50]}): {how[:600]}')


def run(path, flags):
    """Run one notebook by nbdev's own function; returns whether it passed, its wall-clock and
    processor seconds, and its errors."""
    import nbdev.test
    from nbdev.config import get_config
    nbdev.test.CaptureShell, Shell.different = Shell, []
    Shell.clears = 'clear_output(' in path.read_text(encoding='utf-8')
    skip = get_config().tst_flags.split()
    compiler = sys.modules.get('torch._dynamo')
    if compiler: compiler.reset()  # forget what the previous notebook compiled
    errors, paths = io.StringIO(), [*sys.path]
    before = processor_seconds()
    with contextlib.redirect_stderr(errors):
        passed, seconds = nbdev.test.test_nb(path, skip_flags=skip, force_flags=flags,
                                             basepath=ROOT)
    busy = processor_seconds() - before
    sys.path[:] = paths  # a notebook adds its folder
    said = '' if passed else errors.getvalue()
    if Shell.different: passed, said = False, said + '\n'.join(Shell.different) + '\n'
    return passed, seconds, busy, said


def name_of(path): return path.relative_to(ROOT/'nbs').with_suffix('').as_posix()


def attempt(paths, flags, workers):
    "`(notebook, *what run returns)` as they end; a process that dies counts as failed."
    context = multiprocessing.get_context('fork')  # as nbdev_test
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = {pool.submit(run, path, flags): path for path in paths}
        for future in as_completed(futures):
            try: yield futures[future], *future.result()
            except Exception as error:
                yield futures[future], False, 0, 0, f'did not end: {error!r}\n'


def main(paths, flags, workers):
    "Run all, and the slow ones once more alone; returns how many passed and how many failed."
    count = {True: 0, False: 0}
    for path, passed, seconds, busy, errors in attempt(paths, flags, workers):
        if passed and busy > LIMIT and busy > limit():
            (_, passed, seconds, busy, errors), = attempt([path], flags, 1)
            if busy > limit():
                passed, errors = False, f'took over {limit():.0f} s of a processor, also alone\n'
        count[passed] += 1
        verdict = 'passed' if passed else 'FAILED'
        took = f'{seconds:5.1f} s, processor {busy:5.1f} s'
        print(f'{verdict}  {name_of(path):32} {took}', flush=True)
        if errors: print(errors, flush=True)
    return count[True], count[False]


def command():
    "What the command line asks for; the exit code says whether all passed."
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--path', default='nbs', help='a folder or a notebook (default: all)')
    parser.add_argument('--flags', default='', help='flags of cells that are run too, such as data')
    parser.add_argument('--workers', type=int, default=2, help='notebooks side by side')
    args = parser.parse_args()
    os.environ.setdefault('OMP_NUM_THREADS', '1')  # several at once: one thread each
    chosen = Path(args.path).resolve()
    paths = [chosen] if chosen.is_file() else sorted(chosen.rglob('*.ipynb'))
    paths = [path for path in paths if '.ipynb_checkpoints' not in path.parts]
    if not paths: parser.error(f'--path {args.path}: there is no notebook')
    passed, failed = main(paths, args.flags.split(), args.workers)
    print(f'notebooks: {passed} passed, {failed} failed')
    return bool(failed)


if __name__ == '__main__':
    # A notebook replaces `__main__` in the process that runs it, so what runs there must be
    # importable under another name.
    import notebooks
    sys.exit(notebooks.command())
