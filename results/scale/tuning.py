"""Data sets to choose settings by: part of the *training* examples is held out, no test example.

`digits_tuning`: 1,149 of the digits' 1,437 training images to train on, 288 held out.
`cifar10_tuning`: 45,000 of CIFAR-10's 50,000 training images to train on, 5,000 held out.
"""
from sklearn.model_selection import train_test_split

from attnfree.data import DataSet, register_data_set
from attnfree.data.images import cifar10, digits
from attnfree.data.sequences import Pixels


def split(images, share):
    "The training images alone, a share of each class held out."
    train = images.items[0]
    images.items = tuple(train_test_split(train, test_size=share, random_state=0,
                                          stratify=[label for _, label in train]))
    return images


def digits_tuning(): return split(digits(), 0.2)
def digits_tuning_pixels(): return Pixels(digits_tuning(), 17, mirror=False)
def cifar10_tuning(path=None): return split(cifar10(path), 0.1)


register_data_set(DataSet('digits_tuning', ('classification', 'pixels'), images=digits_tuning,
                          sequences=digits_tuning_pixels))
register_data_set(DataSet('cifar10_tuning', ('classification',), images=cifar10_tuning))
