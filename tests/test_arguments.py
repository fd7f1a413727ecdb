"""What every public function and class does with arguments that it cannot take: an error of ours.

A function is called with one wrong value and nothing else: the check comes before Python misses the
rest, so no call here computes anything. A new public function is among them by itself.
"""
import importlib, inspect, pkgutil

import numpy as np
import pytest, torch
from torch import nn

import attnfree
from attnfree.errors.arguments import ArgumentError, parameter_kind

# Of each kind of value one: what is none of the kinds that a parameter allows must be refused.
STRANGE = {'None': None, 'truth': True, 'number': 2.5, 'nan': float('nan'), 'negative': -7,
           'huge': 10**30, 'string': 'seven', 'bytes': b'7', 'object': object(),
           'list': ['x', None],
           'dictionary': {1: 2}, 'complex': 1j, 'array': np.zeros(2), 'class': int,
           'tensor': torch.zeros(2, dtype=torch.complex64), 'module': nn.Identity()}
# Parts of steps and means, which have no time for it; what calls them is checked.
UNCHECKED = {
    'attnfree.sequences': {'check_state', 'check_step', 'check_waits', 'check_room', 'from_front',
                           'hold', 'append_tokens', 'count_seen', 'piece_positions', 'last_tokens',
                           'step_as_piece', 'step_or_wait', 'without_waiting', 'to_front'},
    'attnfree.aft.variants': {'no_tokens', 'add_token', 'add_tokens', 'as_token',
                              'factors_to_band'},
    'attnfree.weighted_mean': {'safe_denominator', 'gated', 'sums_for_span', 'full_precision',
                               'choose_sums', 'row_top', 'run_sums', 'largest_span', 'in_scale',
                               'running_max', 'fits_kernels', 'kernels_for',
                               'prepare_keys_values', 'value_scale', 'linear_scan',
                               'kernels_work'},
    'attnfree.biased_mean': {'band_logits'}, 'attnfree.attention': {'visible_tokens'},
    'attnfree.packing': {'texts_of', 'Texts'},
    'attnfree.mixer': {'readable', 'check_tokens', 'call_whole'},
    'attnfree.tasks.classes': {'check_scores'},
}
# Checked by argparse, by Triton, or before anything of ours is loaded.
ELSEWHERE = ('attnfree.kernels.', 'attnfree.run.imports', 'attnfree.errors.arguments',
             'attnfree.measure.gpu')


def modules():
    for found in pkgutil.walk_packages(attnfree.__path__, 'attnfree.'):
        if not found.name.endswith('_modidx') and not found.name.startswith(ELSEWHERE):
            yield importlib.import_module(found.name)


def constructor(thing):
    "The function behind a public name whose arguments are checked, or `None`."
    function = vars(thing).get('__init__') if inspect.isclass(thing) else thing
    if not getattr(function, 'checks_arguments', False): return None
    while getattr(function.__wrapped__, 'checks_arguments', False): function = function.__wrapped__
    return function # the check itself, beneath what is around it


def public():
    "`(module, name, what it is)` of all functions and classes that notebooks export."
    for module in modules():
        for name in getattr(module, '__all__', []):
            thing = getattr(module, name)
            if callable(thing) and getattr(thing, '__module__', None) == module.__name__:
                yield module.__name__, name, thing


def without_arguments(thing):
    "Whether nothing can be given that has an annotation."
    function = vars(thing).get('__init__') if inspect.isclass(thing) else thing
    if function is None or not inspect.isfunction(function): return True # its base's, or none
    parameters = [*inspect.signature(function).parameters.values()]
    return not any(parameter_kind(p.name, p.annotation) for p in parameters
                   if p.kind != p.VAR_KEYWORD)


def test_all_that_is_public_is_checked():
    missing = []
    for module, name, thing in public():
        exempt = name in UNCHECKED.get(module, ()) or name.startswith('attnfree_')
        tuples = inspect.isclass(thing) and issubclass(thing, (tuple, BaseException))
        if exempt or tuples or constructor(thing) or without_arguments(thing): continue
        missing.append(f'{module}.{name}')
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
            kind = parameter_kind(parameter.name, parameter.annotation)
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
    assert len(CALLS) > 10_000
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
            kind = parameter_kind(parameter.name, parameter.annotation)
            if kind is None or parameter.default in (None, inspect.Parameter.empty): continue
            if not kind.allows(parameter.default):
                wrong.append(f'{name}: {parameter.name}={parameter.default!r}')
    assert not wrong, wrong
