"One, two and three processes: the same losses and accuracies; and what happens if one dies."
import csv, os, signal, socket, subprocess, sys
from pathlib import Path

import pytest
from attnfree.data import images

from running import end, killed_at, log, start

PLAIN = ['augment=false', 'bs=48', 'epochs=2', 'precision=fp32']


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def start_all(folder, world, last={}, **options):
    "Start `world` processes of one training; `last`: options of the last."
    shared = dict(WORLD_SIZE=str(world), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()))
    ranks = [dict(RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(world)]
    own = [{}]*(world - 1) + [last]
    return [start(folder, shared | rank, **options | one) for rank, one in zip(ranks, own)]


def metrics(folder):
    "Losses and accuracy by epoch."
    with open(Path(folder)/'metrics.csv') as file: rows = list(csv.DictReader(file))
    names = 'train_loss', 'valid_loss', 'accuracy'
    return [{name: float(row[name]) for name in names} for row in rows]


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp('alone')/'run'
    assert end(start(folder, set=PLAIN)) == 0, log(folder)
    return metrics(folder)


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours['train_loss'] - theirs['train_loss']) < 1e-5
        assert abs(ours['valid_loss'] - theirs['valid_loss']) < 1e-5
        assert ours['accuracy'] == theirs['accuracy']


@pytest.mark.parametrize('world', [2, 3])
def test_several_are_as_one(tmp_path, alone, world):
    folder = tmp_path/'run'
    for process in start_all(folder, world, set=PLAIN): assert end(process) == 0, log(folder)
    print(f'1 process: {alone}\n{world} processes: {metrics(folder)}')
    same(metrics(folder), alone)
    assert log(folder).count('The run is in') == 1


SCRIPT = """
import os, torch
from attnfree.training.processes import join_processes
join_processes()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
model(torch.randn(4, 3)).sum().backward()
del model
torch.distributed.destroy_process_group()
print('threads', len(os.listdir('/proc/self/task')))
"""


def test_no_thread_outlives_the_group():
    "One that lets a tensor go while Python ends makes PyTorch abort the process."
    shared = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()),
                  ACCELERATE_USE_CPU='true')
    ranks = [subprocess.Popen([sys.executable, '-W', 'ignore', '-c', SCRIPT], text=True,
                              stdout=subprocess.PIPE, env=os.environ | shared | dict(RANK=rank))
             for rank in '01']
    try: assert [rank.communicate(timeout=100)[0] for rank in ranks] == ['threads 1\n']*2
    finally:
        for rank in ranks: rank.kill()


def test_killed_and_resumed(tmp_path):
    "One of two processes is killed: the other ends by itself and says so; both resume as if not."
    whole, folder = tmp_path/'whole', tmp_path/'run'
    settings = ['bs=48', 'epochs=3', 'drop_path=0.2']
    for process in start_all(whole, 2, set=settings): assert end(process) == 0, log(whole)
    processes = start_all(folder, 2, dict(prepare=killed_at(40)), set=settings, every=3)
    assert [end(process) for process in processes] == [1, -signal.SIGKILL], log(folder)
    assert 'rank 0 of 2 stops, because another process of this run did' in log(folder)
    for process in start_all(folder, 2, resume=True): assert end(process) == 0, log(folder)
    assert (folder/'model.safetensors').read_bytes() == (whole/'model.safetensors').read_bytes()


def test_signal_to_one_of_two(tmp_path):
    folder = tmp_path/'run'
    last = dict(prepare=killed_at(40, how=signal.SIGTERM))
    processes = start_all(folder, 2, last, set=['bs=48', 'epochs=3'])
    assert [end(process) for process in processes] == [128 + signal.SIGTERM]*2, log(folder)
    assert 'Go on with' in log(folder)


def test_nobody_at_the_address(tmp_path):
    folder = tmp_path/'run'
    alone = dict(WORLD_SIZE='2', RANK='1', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()))
    process = start(folder, alone, timeout=1.)
    assert end(process) == 1
    assert "did not meet the others at MASTER_ADDR='127.0.0.1'" in log(folder)


def test_batch_that_cannot_be_shared(tmp_path):
    folder = tmp_path/'run'
    for process in start_all(folder, 2, set=['bs=47']): assert end(process) == 1
    assert 'bs=47 cannot be divided among 2 processes' in log(folder)


def fewer_digits():
    all_of_them = images.load_digits
    images.load_digits = lambda **options: [part[:1000] for part in all_of_them(**options)]


@pytest.mark.parametrize('last, said', [
    (dict(set=[*PLAIN, 'seed=7']), 'seed=42 in process 0 and 7 in process 1'),
    (dict(prepare=fewer_digits), 'items to train on=1437 in process 0 and 800 in process 1')])
def test_one_of_two_differs(tmp_path, last, said):
    folder = tmp_path/'run'
    for process in start_all(folder, 2, last, set=PLAIN): assert end(process) == 1, log(folder)
    assert said in log(folder)
    assert not (folder/'config.json').exists()


@pytest.mark.parametrize('launcher', [
    'torch.distributed.run --nproc-per-node 2 --master-port',
    'accelerate.commands.launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no '
    '--dynamo_backend no --main_process_port'])
def test_launchers(tmp_path, alone, launcher):
    command = [sys.executable, '-W', 'ignore', '-m', *launcher.split(), str(free_port()),
               '-m', 'attnfree.train', '--out', str(tmp_path/'run')]
    for setting in PLAIN: command += ['--set', setting]
    environment = os.environ | dict(OMP_NUM_THREADS='1', MPLBACKEND='agg')
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    same(metrics(tmp_path/'run'), alone)


def test_two_machines(tmp_path, alone):
    "Two launchers that meet at an address, each with one process."
    place = ['--nnodes', '2', '--nproc-per-node', '1', '--rdzv-backend', 'c10d',
             '--rdzv-endpoint', f'127.0.0.1:{free_port()}', '--rdzv-id', 'run']
    command = [sys.executable, '-W', 'ignore', '-m', 'torch.distributed.run', *place,
               '-m', 'attnfree.train', '--out', str(tmp_path/'run')]
    for setting in PLAIN: command += ['--set', setting]
    environment = os.environ | dict(OMP_NUM_THREADS='1', MPLBACKEND='agg')
    machines = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
                for _ in range(2)]
    for machine in machines:
        _, errors = machine.communicate(timeout=300)
        assert machine.returncode == 0, errors[-3000:]
    same(metrics(tmp_path/'run'), alone)
