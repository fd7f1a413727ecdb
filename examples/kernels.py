"A convolution with a kernel for each of two heads, drawn by offset."
import torch
from torch import nn
from attnfree.families import register
from attnfree.mixer import check_tokens
from attnfree.vision import image_family

class Kernels(nn.Module):
    weights_by, weights_label = 'offset', 'weight'

    def __init__(self, dim, grid, *, prefix=0, causal=False):
        super().__init__()
        if prefix or causal: raise ValueError("Kernels are for images without a class token")
        self.grid, self.kernels = grid, nn.Parameter(torch.randn(2, 5, 5)/5)
        self.out = nn.Linear(dim, dim)
    def forward(self, x):
        check_tokens(x, self.grid)
        weight = self.kernels.repeat_interleave(x.shape[-1]//2, dim=0)[:,None]
        maps = x.mT.unflatten(-1, self.grid)
        maps = nn.functional.conv2d(maps, weight, padding=2, groups=x.shape[-1])
        return self.out(maps.flatten(2).mT)
    def spatial_weights(self): return self.kernels.detach()

register(image_family('kernels', Kernels))
