"""Rules for the initial weights of small networks, to be compared by `scale.toml`.

Each small network is registered once for each rule, as NETWORK_RULE, such as
`gmlp_micro_patch2_8_xavier`. A rule gives a standard deviation to each matrix of the network; what
a mixer initialises by itself (position biases, gates, kernels, less attention's transforms) stays
as it is. The digits are those of `tuning.py`.

| rule   | standard deviation of a matrix from `fan_in` to `fan_out` channels                   |
|--------|--------------------------------------------------------------------------------------|
| deit   | 0.02 for linear layers and tables; convolutions as PyTorch makes them                |
| xavier | sqrt(2/(fan_in + fan_out)); of tables of tokens and positions 1/sqrt(channels)       |
| fan_in | 1/sqrt(fan_in); of tables as before                                                  |
| depth  | as fan_in, but for the last layer of each of n branches: that divided by sqrt(n)     |
| layers | as fan_in, but for tables: 0.02                                                      |
"""
import math
from functools import partial

from timm.layers import trunc_normal_
from torch import nn

from attnfree.families import Family, NETWORKS, register
from attnfree.language import model_names as language_names
from attnfree.vision import model_names as vision_names

import tuning  # it registers the data set

RULES = 'deit', 'xavier', 'fan_in', 'depth', 'layers'
TABLES = 'words', 'positions', 'class_token', 'segments'  # a vector for each token or place
ENDS = '.mixer.out', '.mixer.fc2', '.ff.fc2'  # the last layers of the branches


def std_of(rule, fan_in, fan_out):
    "The standard deviation of a matrix."
    if rule == 'deit': return 0.02
    return (2/(fan_in + fan_out))**0.5 if rule == 'xavier' else fan_in**-0.5


def begin_by(net, rule):
    "Give a network the initial weights of a rule."
    branches = sum(name.endswith(ENDS) for name, _ in net.named_modules())
    own = [name + '.' for name, part in net.named_modules() if hasattr(part, 'init_weights')]
    for name, part in net.named_modules():
        if any((name + '.').startswith(path) for path in own): continue
        if rule == 'deit' and isinstance(part, nn.Conv2d): part.reset_parameters()
        elif isinstance(part, (nn.Linear, nn.Conv2d)):
            weight = part.weight
            std = std_of(rule, weight[0].numel(), len(weight))
            if rule == 'depth' and name.endswith(ENDS): std /= math.sqrt(branches)
            trunc_normal_(weight, std=std)
            if part.bias is not None: nn.init.zeros_(part.bias)
    for name, p in net.named_parameters():
        last = [part for part in name.split('.') if part != 'weight'][-1]
        if last in TABLES or name == 'readout.weight':
            trunc_normal_(p, std=0.02 if rule in ('deit', 'layers') else p.shape[-1]**-0.5)
    return net


def build(size, *, network, rule, **options):
    "A small network by a rule."
    return begin_by(NETWORKS[network].build(size, **options), rule)


SMALL = [name for name in [*vision_names(), *language_names()]
         if name.endswith(('micro_patch2_8', 'micro_8'))]
for name in SMALL:
    family = NETWORKS[name]
    for rule in RULES:
        register(Family(f'{family.name}_{rule}', family.inputs,
                        partial(build, network=name, rule=rule),
                        {f'{name}_{rule}': family.networks[name]}))
