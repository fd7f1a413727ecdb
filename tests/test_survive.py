"Interrupted runs resume to the last bit: real processes, real signals, a disk that is full."
import csv, os, random, resource, signal, subprocess, sys, threading, time
from pathlib import Path

import pytest
from attnfree.learner import load, save_run
from attnfree.run.scoring import plan_evaluation, run_evaluation
from attnfree.training.checkpoint import Checkpoint, load_state
from attnfree.training.folder import Run

from running import BATCH, FORK, RECIPE, STEPS, end, finish, killed_at, log, result, start


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    "The end of a run that nothing happens to, and the seconds it takes."
    folder = tmp_path_factory.mktemp('whole')/'run'
    begin = time.monotonic()
    assert end(start(folder, set=RECIPE, every=4)) == 0, log(folder)
    return result(folder), time.monotonic() - begin


@pytest.mark.parametrize('workers', [0, 2])
def test_killed_at_ten_instants(tmp_path, undisturbed, workers):
    expected, _ = undisturbed
    moments = random.Random(workers)
    steps = len(expected[1])*STEPS
    found = []
    for i in range(10):
        folder = tmp_path/f'{i}'
        step, seconds = moments.randrange(steps), moments.uniform(0, 0.05)
        process = start(folder, set=RECIPE, every=1 if i % 2 else 4, workers=workers,
                        prepare=killed_at(step, seconds))
        assert end(process) in (0, -signal.SIGKILL), log(folder) # 0: in the last milliseconds
        checkpoint = folder/'checkpoint.safetensors'
        position = load_state(checkpoint)['position'] if checkpoint.exists() else None
        finish(folder, set=RECIPE, every=4, workers=workers)
        equal = result(folder) == expected
        found.append((step, process.exitcode, position, equal))
        verdict = 'equal' if equal else 'DIFFERENT'
        print(f'workers {workers}: SIGKILL {1e3*seconds:.0f} ms into step {step}, '
              f'last checkpoint (epoch, batch) {position}: {verdict}')
    assert all(equal for *_, equal in found), found
    assert sum(code < 0 for _, code, *_ in found) >= 9
    assert len({position for _, _, position, _ in found}) >= 7  # the instants were different ones


@pytest.mark.parametrize('last', ['config.json', '.process'])
def test_killed_before_there_is_a_configuration(tmp_path, undisturbed, last):
    "The same command goes on; what the killed writer has left is gone in the end."
    def prepare():
        real = os.replace
        def kill(old, new):
            if Path(new).name == last: os.kill(os.getpid(), signal.SIGKILL)
            real(old, new)
        os.replace = kill
    folder = tmp_path/'run'
    assert end(start(folder, set=RECIPE, every=4, prepare=prepare)) == -signal.SIGKILL
    assert [*folder.glob(f'.{last}.*.part')] and not (folder/'config.json').exists()
    assert end(start(folder, resume=True)) == 1
    assert 'run the same command without --resume' in log(folder)
    assert end(start(folder, set=RECIPE, every=4)) == 0, log(folder)
    assert result(folder) == undisturbed[0]
    assert not [*folder.glob('.*')]


def _evaluated(run, told):
    try: run_evaluation(plan_evaluation(str(run), examples=20))
    except BaseException as error: told.put(repr(error))
    else: told.put('')


def test_evaluations_of_one_run_do_not_meet(tmp_path, undisturbed):
    run = tmp_path/'run'
    model, config = load('ff_micro_patch2_8')
    run.mkdir()
    save_run(run, config, model)
    told = FORK.SimpleQueue()
    for _ in range(2):
        processes = [FORK.Process(target=_evaluated, args=(run, told), daemon=True)
                     for _ in range(3)]
        for process in processes: process.start()
        for process in processes: process.join(120)
        assert [process.exitcode for process in processes] == [0]*3
        assert [told.get() for _ in processes] == ['']*3
    assert not [*run.glob('.*')]


def test_a_compiled_training_resumes_to_the_bit(tmp_path):
    "Erasing and Mixup by batch, examples looked up on the device, an average of the weights."
    settings = [*RECIPE[:3], 'epochs=2', f'bs={BATCH}', f'train_examples={BATCH*STEPS}',
                'valid_examples=40', 'erasing=0.5', 'data_on=gpu', 'compile=true']
    whole, killed = tmp_path/'whole', tmp_path/'killed'
    assert end(start(whole, set=settings), 300) == 0, log(whole)
    assert end(start(killed, set=settings, every=4, prepare=killed_at(STEPS + 6, 0)), 300) == (
        -signal.SIGKILL), log(killed)
    finish(killed, set=settings, every=4)
    assert result(killed) == result(whole)


def test_one_folder_is_trained_in_once(tmp_path, undisturbed):
    def wait(self):
        while self.training and self.train_iter == 8 and not go.exists(): time.sleep(0.01)
    def prepare(): Checkpoint.before_batch = wait
    folder, go = tmp_path/'run', tmp_path/'go'
    process = start(folder, set=RECIPE, every=4, prepare=prepare)
    while not (folder/'checkpoint.safetensors').exists() and process.is_alive(): time.sleep(0.01)
    second = start(tmp_path/'second', out=str(folder), resume=True)
    assert end(second) == 1
    go.touch()
    assert f'is being trained by process {process.pid} on ' in log(tmp_path/'second')
    assert end(process) == 0, log(folder)
    assert result(folder) == undisturbed[0]
    assert not [*folder.glob('.*')]


def test_a_lock_that_orphans_hold_for_a_while_is_waited_for(tmp_path):
    "Loading processes of a killed training do, where filelock does not close it in forks."
    code = ("import fcntl, sys, time; lock = open(sys.argv[1], 'w'); "
            "fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); time.sleep(3)")
    run = Run(tmp_path)
    orphan = subprocess.Popen([sys.executable, '-c', code, run.locks[0]], stdout=subprocess.PIPE)
    orphan.stdout.readline()
    assert orphan.poll() is None
    with run.alone(): assert orphan.wait() == 0


@pytest.mark.parametrize('what', ['a bit', 'a page of zeros'])
def test_a_damaged_checkpoint_is_not_trusted(tmp_path, undisturbed, what):
    folder = tmp_path/'run'
    process = start(folder, set=RECIPE, every=4, prepare=killed_at(2*STEPS - 3, 0))
    assert end(process) < 0
    file = folder/'checkpoint.safetensors'
    content = bytearray(file.read_bytes())
    middle = len(content)//2
    if what == 'a bit': content[middle] ^= 4
    else: content[middle:middle+4096] = bytes(4096)
    file.write_bytes(content)
    finish(folder, every=4)
    assert 'Going on from the checkpoint before it, at batch' in log(folder)
    assert result(folder) == undisturbed[0]


def test_what_is_whole_of_a_damaged_run_is_gone_on_from(tmp_path):
    "Both checkpoints are damaged: the weights of the best epoch and its metrics are left."
    folder = tmp_path/'run'
    process = start(folder, set=RECIPE, every=4, prepare=killed_at(2*STEPS - 3, 0))
    assert end(process) < 0
    begun = result_rows(folder)
    for name in ('checkpoint', 'previous'): (folder/f'{name}.safetensors').write_bytes(b'broken')
    finish(folder, every=4)
    assert 'goes on from best.safetensors, the weights after ' in log(folder)
    assert "Lost: all that came after, the optimiser's running means" in log(folder)
    rows = result_rows(folder)
    assert len(rows) == 3 and rows[:1] == begun[:1]


def result_rows(folder):
    "Epoch and losses of `metrics.csv`."
    with open(folder/'metrics.csv') as file: rows = [*csv.DictReader(file)]
    return [[row[name] for name in ('epoch', 'train_loss', 'valid_loss')] for row in rows]


def signalled(send):
    "For `prepare`: call `send` in the second epoch."
    def begin(self):
        if self.training and self.train_iter == STEPS + 4: send()
    def prepare(): Checkpoint.before_batch = begin
    return prepare


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM'])
def test_a_signal_saves_first(tmp_path, undisturbed, name):
    folder = tmp_path/'run'
    prepare = signalled(lambda: os.kill(os.getpid(), getattr(signal, name)))
    process = start(folder, set=RECIPE, prepare=prepare)
    assert end(process) == 128 + getattr(signal, name), log(folder)
    assert f'{name} after step ' in log(folder)
    assert f'Go on with: attnfree_train --resume --out {folder}' in log(folder)
    finish(folder)
    assert result(folder) == undisturbed[0]


def test_a_signal_during_validation(tmp_path, undisturbed):
    "The epoch has no step left then, but its metrics are still to be written."
    def stop(self):
        if not self.training and self.epoch == 0: os.kill(os.getpid(), signal.SIGTERM)
    def prepare(): Checkpoint.before_batch = stop
    folder = tmp_path/'run'
    assert end(start(folder, set=RECIPE, prepare=prepare)) == 128 + signal.SIGTERM, log(folder)
    assert not (folder/'metrics.csv').exists() or not result_rows(folder)
    finish(folder)
    assert result(folder) == undisturbed[0]


@pytest.mark.parametrize('when', ['training', 'validation'])
def test_resume_in_the_last_epoch_of_a_run_in_steps(tmp_path, when):
    "That epoch is a short one: 50 steps are two of 22 and 6; stopped after 48, or after all."
    own = ('epochs', 'train', 'bs')
    fields = [field for field in RECIPE if not field.startswith(own)] + ['steps=50']
    def stop(self):
        now = self.train_iter == 47 if when == 'training' else self.train_iter == 50
        if now and self.training == (when == 'training'): os.kill(os.getpid(), signal.SIGTERM)
    def prepare(): Checkpoint.before_batch = stop
    whole, folder = tmp_path/'whole', tmp_path/'run'
    assert end(start(whole, set=fields, every=1)) == 0, log(whole)
    assert [row[0] for row in result_rows(whole)] == ['0', '1', '2']
    assert end(start(folder, set=fields, prepare=prepare)) == 128 + signal.SIGTERM, log(folder)
    assert len(result_rows(folder)) == 2
    finish(folder)
    assert result(folder) == result(whole)


def test_a_signal_to_the_whole_group(tmp_path, undisturbed):
    "What torchrun and batch systems do: the loader's workers must not be taken along."
    folder = tmp_path/'run'
    def prepare():
        os.setpgid(0, 0)
        signalled(lambda: os.killpg(os.getpid(), signal.SIGTERM))()
    process = start(folder, set=RECIPE, workers=2, prepare=prepare)
    assert end(process) == 128 + signal.SIGTERM, log(folder)
    finish(folder, workers=2)
    assert result(folder) == undisturbed[0]


def test_resume_with_other_pieces(tmp_path):
    "Mixed precision, accumulated gradients, clipping, rates by layer."
    more = ['precision=bf16', 'clip=1', 'bs=66', 'accumulate=3', 'layer_decay=0.8',
            'channels_last=true', 'train_examples=264']
    fields = [field for field in RECIPE if not field.startswith(('bs', 'train'))] + more
    whole, folder = tmp_path/'whole', tmp_path/'run'
    assert end(start(whole, set=fields)) == 0, log(whole)
    assert end(start(folder, set=fields, every=1, prepare=killed_at(17))) < 0, log(folder)
    assert (folder/'metrics.csv').exists()  # of the first epoch
    finish(folder)
    assert result(folder) == result(whole)


def test_resume_sequences(tmp_path):
    "Windows of a text that begin anywhere, dropout, activations computed anew."
    story = tmp_path/'story.txt'
    story.write_text(' '.join(f'{i} green bottles' for i in range(400)))
    fields = ['size=32', 'bs=16', 'epochs=2', 'warmup_steps=2', 'drop=0.1', 'augment=true',
              'checkpointing=true']
    options = dict(data='text', task='lm', path=str(story), set=fields,
                   environment=dict(FASTAI_HOME=str(tmp_path/'home')))
    whole, folder = tmp_path/'whole', tmp_path/'run'
    assert end(start(whole, **options)) == 0, log(whole)
    assert end(start(folder, every=1, prepare=killed_at(17), **options)) < 0, log(folder)
    assert (folder/'metrics.csv').exists()  # of the first epoch
    finish(folder)
    assert result(folder) == result(whole)


def test_full_disk(tmp_path, undisturbed):
    folder = tmp_path/'run'
    assert end(start(folder, set=RECIPE, every=4, prepare=killed_at(STEPS + 6, 0))) < 0
    kept = (folder/'checkpoint.safetensors').read_bytes()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    assert end(start(folder, prepare=limit, resume=True, every=4)) == 1
    # the checkpoint, or the best weights before it
    assert 'could not be written (File too large)' in log(folder)
    assert (folder/'checkpoint.safetensors').read_bytes() == kept
    assert not list(folder.glob('.*.part'))
    finish(folder)
    assert result(folder) == undisturbed[0]


def test_infinite_loss(tmp_path):
    folder = tmp_path/'run'
    assert end(start(folder, set=['epochs=3', 'lr=100', 'wd=100', 'warmup_epochs=1.5'])) == 1
    said = log(folder)
    assert 'the loss is nan at step' in said or 'is not finite after step' in said, said
    checkpoint = folder/'checkpoint.safetensors'
    if checkpoint.exists():
        assert all(value.isfinite().all() for value in load_state(checkpoint)['model'].values())


def test_twenty_epochs_need_no_more_memory(tmp_path):
    "Resident memory of the process and its workers, after epochs 5 and 20."
    from attnfree.data import create_dls
    from attnfree.training.loader import end_workers
    dls = create_dls('digits', bs=64, workers=2, augment='rand-m5-mstd0.5-inc1')
    def resident():
        "In megabytes."
        processes = [os.getpid(), *(worker.pid for worker in dls.train.workers._workers)]
        pages = [int(Path(f'/proc/{pid}/statm').read_text().split()[1]) for pid in processes]
        return sum(pages)*os.sysconf('SC_PAGE_SIZE')/1e6
    sizes = []
    for _ in range(20):
        for _ in dls.train: pass
        sizes.append(resident())
    end_workers(dls.train)
    print(f'{sizes[4]:.0f} MB after 5 epochs, {sizes[-1]:.0f} MB after 20')
    assert sizes[-1] - sizes[4] < 20
