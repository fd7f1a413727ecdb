"""The data set `noise`, as large as CIFAR-10 and of random numbers: for rates of trainings."""
import numpy as np
from fastai.vision.augment import AffineCoordTfm, PadMode, flip_mat

from attnfree.data.datasets import DataSet, register_data_set
from attnfree.data.images import Images, shift_mat


def noise():
    "50,000 images of 32 pixels to train on, 10,000 held out, ten classes; changed like CIFAR-10's."
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (60_000, 32, 32, 3), dtype=np.uint8)
    classes = [str(i) for i in range(10)]
    pairs = [(image, classes[i % 10]) for i, image in enumerate(pixels)]
    half = [0.5]*3
    change = [AffineCoordTfm([flip_mat, shift_mat], mode='nearest', pad_mode=PadMode.Zeros,
                             align_corners=True)]
    return Images((pairs[:50_000], pairs[50_000:]), (half, half), classes, change=change)


register_data_set(DataSet('noise', ('classification',), images=noise, needs='nothing'))
