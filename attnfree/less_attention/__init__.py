"Attention scores that are reused (LaViT, Zhang et al. 2024): the layer. `pyramid` and `plugin` are imported by their own names."
from attnfree.less_attention.layer import *

def __getattr__(name):
    "Load `with_less_attention` when it is asked for, since it needs timm."
    if name != 'with_less_attention':
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attnfree.less_attention.plugin import with_less_attention
    return with_less_attention
