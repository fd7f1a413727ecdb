"""What every public function and class does with arguments that it cannot take: an error of ours.

A function is called with one wrong value and nothing else: the check comes before Python misses the
rest, so no call here computes anything. A new public function is among them by itself.
"""
import ast, importlib, inspect, json, pkgutil, re
from pathlib import Path

import numpy as np
import pytest, torch
from torch import nn

import attnfree
from attnfree.errors.arguments import ArgumentError, kind_of
from test_layout import PROMISED

# Of each kind of value one: what is none of the kinds that a parameter allows must be refused.
STRANGE = {'None': None, 'truth': True, 'number': 2.5, 'nan': float('nan'), 'negative': -7,
           'huge': 10**30, 'string': 'seven', 'bytes': b'7', 'object': object(),
           'list': ['x', None],
           'dictionary': {1: 2}, 'complex': 1j, 'array': np.zeros(2), 'class': int,
           'tensor': torch.zeros(2, dtype=torch.complex64), 'module': nn.Identity()}
ROOT = Path(__file__).parent.parent
COMMANDS = ('train', 'evaluate', 'generate', 'sweep', 'bench', 'hub', 'export')
INSIDE = ('attnfree.errors', 'attnfree.run.imports',
          *(f'attnfree.{command}' for command in COMMANDS))


def pages():
    "The code that people copy: examples, tutorials, results and the first page."
    nbs = ROOT/'nbs'
    for example in ROOT.glob('examples/*.py'): yield example.read_text(encoding='utf-8')
    for page in [nbs/'index.ipynb', *nbs.glob('tutorials/*.ipynb'), *nbs.glob('results/*.ipynb')]:
        for cell in json.loads(page.read_text(encoding='utf-8'))['cells']:
            code = ''.join(cell['source'])
            if cell['cell_type'] == 'code' and '#| hide' not in code:
                yield re.sub(r'^\s*[%!].*$', 'pass', code, flags=re.MULTILINE)


def imported(code):
    "`(module, name)` of what some code takes from the package, within functions too."
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.ImportFrom): continue
        module = 'attnfree.' * bool(node.level) + (node.module or '')
        if module.startswith('attnfree'): yield from ((module, a.name) for a in node.names)


def module_named(name):
    "A module of the package; `None` for what needs transformers, where it is not installed."
    try: return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != 'transformers': raise


def seams():
    "What people call, `(module, name)` to it: promised, or imported by pages and commands."
    names = {(f'attnfree.{module}', name) for module, names in PROMISED.items()
             for name in names.split()}
    for code in pages(): names.update(imported(code))
    for command in COMMANDS:
        names.update(imported((ROOT/f'attnfree/{command}.py').read_text(encoding='utf-8')))
    found = {}
    for module, name in names:
        if any(f'{module}.'.startswith(f'{inside}.') for inside in INSIDE): continue
        thing = getattr(module_named(module), name, None)
        if callable(thing) and thing.__module__.startswith('attnfree'):
            found[thing.__module__, thing.__name__] = thing
    return found


def constructor(thing):
    "The function behind a public name whose arguments are checked, or `None`."
    function = vars(thing).get('__init__') if inspect.isclass(thing) else thing
    if not getattr(function, 'checks_arguments', False): return None
    while getattr(function.__wrapped__, 'checks_arguments', False): function = function.__wrapped__
    return function # the check itself, beneath what is around it


def public():
    "`(module, name, what it is)` of all functions and classes that notebooks export."
    for found in pkgutil.walk_packages(attnfree.__path__, 'attnfree.'):
        if found.name.endswith('_modidx') or found.name.startswith('attnfree.kernels.'): continue
        module = module_named(found.name)
        for name in getattr(module, '__all__', []):
            thing = getattr(module, name)
            if callable(thing) and getattr(thing, '__module__', None) == module.__name__:
                yield module.__name__, name, thing


def without_arguments(thing):
    "Whether nothing can be given that has an annotation."
    function = vars(thing).get('__init__') if inspect.isclass(thing) else thing
    if function is None or not inspect.isfunction(function): return True # its base's, or none
    parameters = [*inspect.signature(function).parameters.values()]
    return not any(kind_of(p.annotation) for p in parameters
                   if p.kind != p.VAR_KEYWORD)


def test_what_people_call_is_checked():
    "All but `check_tokens`, the check that every `forward` begins with."
    assert len(seams()) > 100
    def plain(thing): return inspect.isclass(thing) and issubclass(thing, (tuple, BaseException))
    missing = [f'{module}.{name}' for (module, name), thing in seams().items()
               if not (constructor(thing) or without_arguments(thing) or plain(thing)
                       or name == 'check_tokens')]
    assert not missing, missing


def parameters(function):
    "Its own that take one value each, without those of a function that it hands them on to."
    for parameter in inspect.signature(function.__wrapped__).parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL): yield parameter


def wrong_calls():
    "`(function, parameter, what is wrong, value, kind)` for every checked parameter."
    for module, name, thing in public():
        function = constructor(thing)
        if function is None: continue
        for parameter in parameters(function):
            kind = kind_of(parameter.annotation)
            if kind is None: continue
            for what, value in STRANGE.items():
                default = parameter.default
                if kind.allows(value) or value is default: continue
                yield function, parameter, what, value


CALLS = [*wrong_calls()]


def call_with(function, wrong, value):
    "Call with `value` for one parameter and nothing else, for a constructor with an object."
    itself = [object()] if 'self' in inspect.signature(function.__wrapped__).parameters else []
    return function(*itself, **{wrong.name: value})


def test_every_wrong_argument_is_named():
    "Thousands of calls, each of which must end with the name of what is wrong with it."
    assert len(CALLS) > 8_000
    wrong = []
    for function, parameter, what, value in CALLS:
        try: call_with(function, parameter, value)
        except ArgumentError as error:
            if f'{parameter.name}=' in str(error) and '\n' not in str(error): continue
            wrong.append(f'{function.__qualname__}({parameter.name}={what}): {error}')
        except Exception as error:
            wrong.append(f'{function.__qualname__}({parameter.name}={what}): {error!r}')
        else: wrong.append(f'{function.__qualname__}({parameter.name}={what}): accepted')
    assert not wrong, f'{len(wrong)} of {len(CALLS)}: {wrong[:20]}'


def test_a_function_without_a_check_would_be_noticed():
    def plain(n:int): return n
    assert constructor(plain) is None and not without_arguments(plain)


def test_no_wrong_value_is_refused_for_its_default():
    "A default is a value that a function takes: it must be allowed, or be `None`."
    wrong = []
    for module, name, thing in public():
        function = constructor(thing)
        if function is None: continue
        for parameter in parameters(function):
            kind = kind_of(parameter.annotation)
            if kind is None or parameter.default in (None, inspect.Parameter.empty): continue
            if not kind.allows(parameter.default):
                wrong.append(f'{name}: {parameter.name}={parameter.default!r}')
    assert not wrong, wrong
