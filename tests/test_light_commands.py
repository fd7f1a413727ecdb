"""Commands are thin: `--help` answers without PyTorch, fastai and timm, and sooner than they load.

The modules of the commands hold parameters and choices; what a command does is imported when it
begins.
"""
import os, re, statistics, subprocess, sys, time
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = 'torch', 'fastai', 'timm', 'pandas', 'matplotlib'
ENVIRONMENT = os.environ | dict(PYTHONPATH=str(ROOT), COLUMNS='120', PYTHONWARNINGS='ignore')
# What an installed command is, and what it has imported in the end.
SCRIPT = '''import sys
from {module} import {name}
try: {name}()
finally: print(*sorted(module for module in sys.modules if '.' not in module), file=sys.stderr)
'''


def commands():
    "Name, and module and function, of all console scripts."
    parser = ConfigParser(delimiters=['='])
    parser.read(ROOT/'settings.ini', encoding='utf-8')
    entries = parser['DEFAULT']['console_scripts'].split()
    return dict(entry.split('=') for entry in entries)


def python(*arguments):
    "The finished process and the seconds that it took."
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done, time.perf_counter() - begin


@pytest.fixture(scope='module')
def scripts(tmp_path_factory):
    "A file for each command, as pip writes it."
    folder = tmp_path_factory.mktemp('bin')
    for command, where in commands().items():
        module, _, name = where.partition(':')
        (folder/command).write_text(SCRIPT.format(module=module, name=name))
    return folder


def test_there_are_nine():
    names = 'train bench eval predict plot generate sweep hub export'.split()
    assert [*commands()] == [f'attnfree_{name}' for name in names]


@pytest.mark.parametrize('command', commands())
def test_help_is_complete_and_imports_nothing_heavy(scripts, command):
    done, _ = python(scripts/command, '--help')
    assert done.stdout.startswith(f'usage: {command} [-h]')
    assert '--imports IMPORTS' in done.stdout
    options = done.stdout.partition('options:')[2].split('\n  -')[1:]
    assert len(options) > 2
    for option in options:  # each is explained, by more than its default
        said = re.sub(r'\(default: .*?\)', '', option.partition('  ')[2], flags=re.DOTALL)
        assert said.split(), option
    loaded = done.stderr.splitlines()[-1].split()
    assert 'fastcore' in loaded and not {*HEAVY} & {*loaded}


def test_the_module_run_as_a_script_is_light_too():
    done = subprocess.run([sys.executable, '-X', 'importtime', '-m', 'attnfree.train', '--help'],
                          capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith('usage: train.py [-h]')
    loaded = {line.rpartition('|')[2].strip() for line in done.stderr.splitlines()}
    assert 'fastcore.script' in loaded and not {*HEAVY} & loaded


def test_help_is_sooner_there_than_torch(scripts):
    "Medians of three, all in turn: at most 0.6 of the time of `import torch`."
    calls = {'torch': ('-c', 'import torch')}
    calls |= {command: (scripts/command, '--help') for command in commands()}
    seconds = {name: [] for name in calls}
    for _ in range(3):
        for name, arguments in calls.items(): seconds[name].append(python(*arguments)[1])
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print({name: round(value, 2) for name, value in medians.items()})
    slow = {name: value for name, value in medians.items() if value > 0.6*medians['torch']}
    assert [*slow] == ['torch'], medians
