"""Two baselines beside the papers' mixers, as easy as libraries make them.

`linear`: linear attention as the package linear-attention-transformer computes it, in ViT's block.
For images that is the efficient attention of Shen et al. 2018: a softmax of the query over its
channels, of the key over tokens. For sequences the key is e^k, and sums and their normaliser run
along the tokens as in Katharopoulos et al. 2020, who have elu + 1 for both. `convmixer`: ConvMixer
(Trockman and Kolter 2022; timm), depthwise convolutions between tokens; it has no causal form.

    pip install attnfree[baselines]
"""
from timm.models.convmixer import ConvMixer

try: from attnfree.models.baselines import LinearAttention
except ModuleNotFoundError:  # the version that board.toml names has it here
    from attnfree.baselines import LinearAttention
from attnfree.families import Family, register
from attnfree.language import text_family
from attnfree.vision import image_family

SIZES = ['micro_patch2_8', 'nano_patch4_32']
register(image_family('linear', LinearAttention, SIZES, class_token=True))
register(text_family('linear', LinearAttention, causal=True))


def build(size, *, img_size=None, in_chans=3, num_classes=1000, global_pool=None, drop_rate=0,
          drop_path_rate=0):
    "A ConvMixer of a size; it reads images of any size."
    return ConvMixer(size['dim'], size['depth'], kernel_size=5, patch_size=size['patch_size'],
                     in_chans=in_chans, num_classes=num_classes, drop_rate=drop_rate)


register(Family('convmixer', 'images', build, {
    'convmixer_micro_patch2_8': dict(dim=128, depth=8, patch_size=2, img_size=8),
    'convmixer_nano_patch4_32': dict(dim=192, depth=8, patch_size=4, img_size=32)}))
