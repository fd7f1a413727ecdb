"""Networks of the package with one thing changed.

Initial values, for digits. Names say them: `gmlp_w0_b1_micro_patch2_8` begins as the package's own
gMLP does, `aft_full_std001_micro_patch2_8` as its own AFT-full.

| part of the name | what it sets                                                                 |
|------------------|------------------------------------------------------------------------------|
| w0, xavier       | the gate's W: normal with std 1e-6, or Xavier's 1/sqrt(n)                    |
| b1, b0           | the gate's b: 1, which gMLP's paper calls critical, or 0                     |
| std001, std01    | the factors u and v of AFT's biases: std 0.01 or 0.1. The paper prints       |
|                  | N(0, 10^-2), which may be either                                             |

`vit12_nano_patch4_32`, `vit12_less_nano_patch4_32`: a ViT of 12 blocks, and the same with less
attention in the last 6.
"""
from functools import partial
from itertools import product

from torch import nn

from attnfree.aft.variants import AFTFull, AFTLocal
from attnfree.families import Family, family_of, register
from attnfree.less_attention.plugin import with_less_attention
from attnfree.sgu import GatedMLP
from attnfree.vision import image_family

MICRO = 'micro_patch2_8'


def gated(dim, grid, *, xavier, bias, **options):
    "gMLP's mixer with other initial values of its gate."
    mixer = GatedMLP(dim, grid, **options)
    weight = mixer.gate.weight
    if xavier: nn.init.normal_(weight, std=weight.shape[-1]**-0.5)
    nn.init.constant_(mixer.gate.bias, bias)
    return mixer


def with_factors(dim, grid, *, mixer, std, **options):
    "AFT-full or AFT-local with another scale of the factors of its biases."
    mixer = mixer(dim, grid, **options)
    for factor in (mixer.u, mixer.v): nn.init.normal_(factor, std=std)
    return mixer


for (scale, xavier), bias in product(dict(w0=False, xavier=True).items(), (1, 0)):
    register(image_family(f'gmlp_{scale}_b{bias}', partial(gated, xavier=xavier, bias=bias),
                          [MICRO], class_token=True, positions=False, pre_logits=True,
                          block=dict(ff=None)))
for name, mixer in dict(aft_full=AFTFull, aft_local=partial(AFTLocal, window=3)).items():
    for label, std in dict(std001=0.01, std01=0.1).items():
        register(image_family(f'{name}_{label}', partial(with_factors, mixer=mixer, std=std),
                              [MICRO], class_token=True))


vit = family_of('vit_nano_patch4_32')
DEEP = vit.networks['vit_nano_patch4_32'] | dict(depth=12)


def less(size, **options):
    "A ViT that compares tokens in the first half of its blocks alone."
    return with_less_attention(vit.build(size, **options), keep=size['depth']//2)


register(Family('vit12', 'images', vit.build, dict(vit12_nano_patch4_32=DEEP)))
register(Family('vit12_less', 'images', less, dict(vit12_less_nano_patch4_32=DEEP)))
