"""A training with workers ends, whatever these do: three seconds after its last line it is gone.

What a worker does to stay is done by `wif`, which is called in each as it begins.
"""
import os, signal, subprocess, sys, threading, time
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

import pytest, torch

from attnfree.training.checkpoint import Checkpoint
from attnfree.training.loader import RepeatableDL

from running import end, finish, log, start

PLAIN = ['epochs=2', 'train_examples=704', 'valid_examples=128',
         'augment=rand-m5-mstd0.5-inc1']  # item by item


def ignores_the_end(dl):
    "It lingers after its last batch, and SIGTERM does not end it."
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Finalize(None, time.sleep, [600], exitpriority=0)


def hangs_in_a_read(dl):
    "The seventh and eighth batch of the second epoch cannot be read; both are asked for early."
    read = dl.create_item
    def create_item(s, *args):
        if dl.position[0] == 1 and calls[0] >= 6*64//2: time.sleep(600)
        calls[0] += dl.position[0].item()
        return read(s, *args)
    calls, dl.create_item = [0], create_item
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def prefetches_large_batches(dl):
    "Forty megabytes beside each batch, which the training does not look at."
    make = dl.create_batch
    dl.create_batch = lambda items: (*make(items), torch.zeros(10_000_000))


def training(stay, how=None, also=lambda: None):
    """For `prepare`: workers that do `stay` and note who they are; a training that is ended in
    its second epoch, at the fourth batch."""
    def prepare(folder):
        def wif(dl):
            own(dl)
            with open(f'{folder}.pids', 'a') as file: print(os.getpid(), file=file)
            stay(dl)
        def before_batch(self):
            if not self.training or (self.epoch, self.iter) != (1, 3): return
            Path(f'{folder}.stopped').touch()
            if how == 'error': raise ZeroDivisionError('in the middle')
            if how == 'killed': os.kill(pids(folder)[0], signal.SIGKILL)
            elif how: os.kill(os.getpid(), getattr(signal, how))
        own, on_device = RepeatableDL.wif, RepeatableDL._on_device
        RepeatableDL.wif, Checkpoint.before_batch = wif, before_batch
        RepeatableDL._on_device = lambda dl, batch: on_device(dl, batch[:2])
        also()
    return prepare


def pids(folder): return [int(line) for line in Path(f'{folder}.pids').read_text().split()]


def alive(pid):
    "Whether a process is there and not only waits for its parent to ask for its exit code."
    try: return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError: return False


def ended(process, folder):
    """Its exit code; it must be gone three seconds after its last line, and before PyTorch's ten
    for two workers have passed since it was stopped or had written its last metrics; its workers
    with it."""
    code = end(process, 60)
    stopped = Path(f'{folder}.stopped')
    stopped = stopped if stopped.exists() else folder/'metrics.csv'
    last, begin = (time.time() - file.stat().st_mtime for file in (Path(f'{folder}.log'), stopped))
    print(f'exit code {code}, {last:.2f} s after the last line, {begin:.2f} s after the stop')
    assert last < 3 and begin < 9, log(folder)
    assert pids(folder) and not [pid for pid in pids(folder) if alive(pid)]
    return code


def ends(folder, prepare):
    "The exit code of a training with two workers."
    return ended(start(folder, set=PLAIN, workers=2, prepare=partial(prepare, folder)), folder)


def nothing(dl): pass


def busy_threads():
    "Four threads that a forked worker does not have, while they hold the lock of a file."
    def busy():
        while True: print('.', end='', file=nowhere, flush=True)
    nowhere = open(os.devnull, 'w')
    for _ in range(4): threading.Thread(target=busy, daemon=True).start()


@pytest.mark.parametrize('stay', [nothing, ignores_the_end, prefetches_large_batches])
def test_a_training_to_its_end(tmp_path, stay):
    assert ends(tmp_path/'run', training(stay)) == 0, log(tmp_path/'run')


def test_a_training_with_threads(tmp_path):
    assert ends(tmp_path/'run', training(nothing, also=busy_threads)) == 0, log(tmp_path/'run')


@pytest.mark.parametrize('stay,how,code', [
    (ignores_the_end, 'SIGINT', 130), (hangs_in_a_read, 'SIGINT', 130),
    (hangs_in_a_read, 'SIGTERM', 143), (prefetches_large_batches, 'SIGTERM', 143),
    (ignores_the_end, 'error', 1), (hangs_in_a_read, 'error', 1)])
def test_a_training_that_is_stopped(tmp_path, stay, how, code):
    folder = tmp_path/'run'
    assert ends(folder, training(stay, how)) == code, log(folder)
    assert ('Go on with' if code > 1 else 'in the middle') in log(folder)


def test_a_worker_that_is_killed(tmp_path):
    "The training says so in one line, and goes on from its last checkpoint."
    folder = tmp_path/'run'
    assert ends(folder, training(nothing, 'killed')) == 1
    said = log(folder)
    assert 'a process that loads data was ended from outside' in said and 'Traceback' not in said
    finish(folder, workers=2)


def test_a_training_that_dies_while_workers_begin(tmp_path):
    "They look for their parent too late to see it die, and would wait for it for ever."
    def begin_late():
        def wif(dl):
            with open(f'{folder}.pids', 'a') as file: print(os.getpid(), file=file)
            if len(pids(folder)) == 2: os.kill(parent, signal.SIGKILL)
            while os.getppid() == parent: time.sleep(0.01)
            own(dl)
        parent, own, RepeatableDL.wif = os.getpid(), RepeatableDL.wif, wif
    folder = tmp_path/'run'
    process = start(folder, set=PLAIN, workers=2, prepare=begin_late)
    assert end(process) == -signal.SIGKILL
    begin = time.monotonic()
    while any(alive(pid) for pid in pids(folder)) and time.monotonic() - begin < 30: time.sleep(0.1)
    assert len(pids(folder)) == 2 and not [pid for pid in pids(folder) if alive(pid)]


SCRIPT = '''
import atexit, time
atexit.register(lambda: print(time.time()))  # the last to be called
import signal
from multiprocessing.util import Finalize
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Iterator
from attnfree.data import create_dls
made = Iterator.__init__
def pinned(self, loader):  # what PyTorch 2.11 and 2.12 do where memory is pinned
    made(self, loader)
    for worker in self._workers: atexit.register(worker.join, timeout=5)
Iterator.__init__ = pinned
def stay():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Finalize(None, time.sleep, [600], exitpriority=0)
dls = create_dls('digits', bs=64, workers=2, augment='rand-m5-mstd0.5-inc1')
for dl in dls.loaders: dl.wif = stay
for part in dls.loaders: next(iter(part))
print(*(worker.pid for dl in dls.loaders for worker in dl.workers._workers), time.time())
'''


def test_python_ends():
    "Where no fit has told the workers to: a loop over a loader, left early."
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', SCRIPT], timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    *workers, last, gone = done.stdout.split()
    print(f'{float(gone) - float(last):.2f} s after the last line')
    assert float(gone) - float(last) < 3
    assert len(workers) == 4 and not any(alive(pid) for pid in workers)
