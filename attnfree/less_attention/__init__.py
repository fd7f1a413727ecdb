"Attention scores that are reused (LaViT, Zhang et al. 2024): the layer. `pyramid` and `plugin` are imported by their own names."
from attnfree.less_attention.layer import *
