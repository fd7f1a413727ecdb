"""One shell for every mixer, so that only the mixer differs: `controlled_MIXER_nano_patch4_32`.

The shell: patches of 4 x 4 pixels, learned positions, 4 blocks of 128 channels (norm, mixer, add;
norm, channel network, add), a mean over tokens, a linear classifier; initial weights by Xavier's
rule. HIDDEN is the width of the channel network. It makes up for the parameters that a mixer has or
lacks, so that all networks have as many as attention's with the usual 4 x 128, within 2 %.

What still differs: attention, AFT and linear attention project channels to queries, keys and values
and back, FF and the gate do not, so these have wider channel networks; the gate has a norm of its
own, FF a GELU between tokens; weights and biases between tokens are not decayed; multiply-adds
(51 to 59 million); and each mixer has its own learning rate, chosen as controlled.toml says. gMLP's
gate is used in its multiplicative form, on a token's channels as they are: the form that the paper
prefers, split, returns half of the channels, so it has no place in this shell.

    python results/board/controlled.py   # the table of parameters, and of what still differs
"""
from functools import partial

from attnfree.aft.conv import AFTConv
from attnfree.aft.variants import AFTFull, AFTLocal, AFTSimple
from attnfree.attention import Attention
from attnfree.block import channel_ff
from attnfree.families import register
from attnfree.ff import FeedForwardMixer
from attnfree.sgu import SpatialGatingUnit
from attnfree.vision import create_model, image_family
try: from attnfree.models.baselines import LinearAttention
except ModuleNotFoundError:  # the version that controlled.toml names has it here
    from attnfree.baselines import LinearAttention

DIM, SIZE = 128, 'nano_patch4_32'
MIXERS = {
    'attention': Attention,
    'ff': FeedForwardMixer,
    'gate': partial(SpatialGatingUnit, form='multiplicative'),
    'aft_simple': AFTSimple,
    'aft_full': AFTFull,
    'aft_local': partial(AFTLocal, window=3),
    'aft_conv': AFTConv,
    'linear': LinearAttention,
}
HIDDEN = {'attention': 512, 'ff': 640, 'gate': 752, 'aft_simple': 513, 'aft_full': 449,
          'aft_local': 449, 'aft_conv': 545, 'linear': 512}

for name, mixer in MIXERS.items():
    block = dict(ff=partial(channel_ff, ratio=HIDDEN[name]/DIM))
    register(image_family(f'controlled_{name}', mixer, [SIZE], block=block))


def differences():
    "A row for each mixer: what is made equal, and what still differs."
    import pandas as pd
    import torch
    from attnfree.measure.count import cost
    rows = {}
    for name in MIXERS:
        model = create_model(f'controlled_{name}_{SIZE}', num_classes=10)
        mixer = model.body.blocks[0].mixer
        own = getattr(mixer, 'no_weight_decay', set)()
        count = cost(model, torch.empty(1, 3, 32, 32))
        rows[name] = {
            'parameters': count['parameters'], 'M multiply-adds': round(count['macs']/1e6, 1),
            'hidden': HIDDEN[name], 'in a mixer': sum(p.numel() for p in mixer.parameters()),
            'projects channels': hasattr(mixer, 'qkv') or hasattr(mixer, 'layer'),
            'without weight decay': ', '.join(sorted(own)) or '-'}
    return pd.DataFrame(rows).T


if __name__ == '__main__': print(differences().to_string())
