"Attention scores that are reused (LaViT, Zhang et al. 2024): the layer, a pyramid of it, and the same in timm's networks."
from attnfree.less_attention.layer import *
from attnfree.less_attention.pyramid import *
from attnfree.less_attention.plugin import *
