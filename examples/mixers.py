"Fourier mixing (FNet, Lee-Thorp et al. 2021) for images, and a token shift for sequences."
from typing import NamedTuple

import torch
from torch import nn
from attnfree.families import register
from attnfree.language import text_family
from attnfree.mixer import check_tokens
from attnfree.vision import image_family

class Fourier(nn.Module):
    def __init__(self, dim, grid, *, prefix=0, causal=False):
        super().__init__()
        if causal: raise ValueError("Fourier reads all tokens: use causal=False")
        self.grid, self.prefix, self.out = grid, prefix, nn.Linear(dim, dim)
    def forward(self, x):
        check_tokens(x, self.grid, self.prefix)
        return self.out(torch.fft.fft2(x, dim=(1, 2), norm='ortho').real)

class Last(NamedTuple):
    token: torch.Tensor # The token before, `(b, d)`

class Shift(nn.Module):
    def __init__(self, dim, grid, *, prefix=0, causal=False):
        super().__init__()
        self.grid, self.mix = grid, nn.Linear(2*dim, dim)
    def forward(self, x):
        check_tokens(x, self.grid)
        return self.mix(torch.cat([x, nn.functional.pad(x, (0, 0, 1, -1))], dim=-1))
    def start(self, batch): return Last(self.mix.weight.new_zeros(batch, self.mix.out_features))
    def step(self, x_t, state): return self.mix(torch.cat([x_t, state.token], dim=-1)), Last(x_t)

register(image_family('fourier', Fourier))
register(text_family('shift', Shift, causal=True))
