"Texts: tokenizers, corpora on disk, training objectives and networks."
from attnfree.text.tokens import *
from attnfree.text.corpus import *
from attnfree.text.objectives import *

def __getattr__(name):
    "A name of `attnfree.text.model`, imported at first use: data of texts need no network."
    from importlib import import_module
    if name == '__all__' or not name.startswith('_'):
        model = import_module('attnfree.text.model')
        globals().update((public, getattr(model, public)) for public in model.__all__)
        if name == '__all__': return [public for public in globals() if not public.startswith('_')]
        if name in globals(): return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
