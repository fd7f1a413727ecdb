"Runs: planned, trained, evaluated, predicted with, compared, continued, swept, published."
from importlib import import_module

def __getattr__(name):
    "Load a function when it is asked for, since the Learner needs some of these modules."
    for module in ('plan', 'fitting', 'scoring', 'prediction', 'comparison', 'generation', 'sweep',
                   'workers', 'hub', 'export') if not name.startswith('_') else ():
        found = import_module(f'attnfree.run.{module}')
        if name in found.__all__: return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
