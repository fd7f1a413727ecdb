"""Trainings in processes of their own, for the tests that kill them.

The children are forked, so that the imports are paid for once.
"""
import atexit, csv, faulthandler, multiprocessing, os
import shutil, signal, sys, threading, time, warnings
from pathlib import Path

warnings.filterwarnings('ignore')
os.environ['OMP_NUM_THREADS'] = '1'
import torch

torch.set_num_threads(1) # before the first fork: a pool of threads does not survive one
import attnfree.training.checkpoint, attnfree.train, attnfree.run.fitting

FORK = multiprocessing.get_context('fork')
STEPS, BATCH = 11, 16  # of an epoch: enough to be killed in
RECIPE = ['mixup=0.2', 'ema=0.9', 'drop_path=0.1', 'augment=rand-m5-mstd0.5-inc1', 'epochs=3',
          f'bs={BATCH}', f'train_examples={BATCH*STEPS}', 'valid_examples=128']
LIMIT = 300  # seconds of a training


def _child(log, environment, options, prepare):
    "What a forked process does: the command, its output in a file, without the slow pictures."
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1), os.dup2(file, 2)
    sys.stdout = open(1, 'w', buffering=1, closefd=False)  # pytest has others
    sys.stderr = open(2, 'w', buffering=1, closefd=False)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # none takes so long: say where it hangs
    faulthandler.register(signal.SIGUSR1)
    os.environ.update(environment)
    attnfree.run.fitting.draw_run = lambda *args: []
    if prepare: prepare()
    attnfree.train.attnfree_train(**options)


def start(folder, environment=None, prepare=None, **options):
    "A process that trains in `folder`; its output goes to a file beside it."
    options = dict(out=str(folder)) | options
    arguments = f'{folder}.log', environment or {}, options, prepare
    process = FORK.Process(target=_child, args=arguments, name=f'{folder}.log')
    process.start()
    atexit.register(process.kill)  # or Python would wait for one that a failed test has left
    return process


def killed_at(step, seconds=0, how=signal.SIGKILL):
    "What kills a training so long after it has begun a step: in it, or while it saves."
    def kill(): os.kill(os.getpid(), how)
    def begin(self):
        if self.training and self.train_iter == step: threading.Timer(seconds, kill).start()
    def prepare(): attnfree.training.checkpoint.Checkpoint.before_batch = begin
    return prepare


def end(process, timeout=120):
    "The exit code, once the process has ended."
    begin = time.monotonic()
    while process.exitcode is None:  # join() would wait for its workers, too, five seconds
        if time.monotonic() - begin > timeout:
            os.kill(process.pid, signal.SIGUSR1)  # it writes down where it is
            time.sleep(1)
            process.kill()
            raise TimeoutError(f'did not end:\n{Path(process.name).read_text()[-5000:]}')
        time.sleep(0.01)
    return process.exitcode


def log(folder): return Path(f'{folder}.log').read_text()


def result(folder):
    "What must be the same in the end: the weights, and the metrics without times."
    weights = (Path(folder)/'model.safetensors').read_bytes()
    with open(Path(folder)/'metrics.csv') as file: rows = list(csv.DictReader(file))
    times = 'seconds', 'processor_seconds', 'images/s', 'waiting'
    return weights, [{k: v for k, v in row.items() if k not in times} for row in rows]


def finish(folder, **options):
    "Resume what was killed, or begin anew if it had not yet written its configuration."
    if not (Path(folder)/'config.json').exists():
        shutil.rmtree(folder, ignore_errors=True)
        process = start(folder, **options)
    else:
        again = {k: v for k, v in options.items() if k in ('workers', 'every', 'imports')}
        process = start(folder, resume=True, **again)
    assert end(process, 280) == 0, log(folder)
