"""The data set `noise`, as large as CIFAR-10 and of random numbers: for rates of trainings."""
import numpy as np

from attnfree.data.datasets import DataSet, register_data_set
from attnfree.data.images import Images


def noise():
    "50,000 images of 32 pixels to train on, 10,000 held out, ten classes."
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (60_000, 32, 32, 3), dtype=np.uint8)
    classes = [str(i) for i in range(10)]
    pairs = [(image, classes[i % 10]) for i, image in enumerate(pixels)]
    half = [0.5]*3
    return Images((pairs[:50_000], pairs[50_000:]), (half, half), classes)


register_data_set(DataSet('noise', ('classification',), images=noise, needs='nothing'))
