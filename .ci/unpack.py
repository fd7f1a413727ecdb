"""A folder like the one of the data sets, in which CIFAR-10 is not packed.

    python .ci/unpack.py DATA FOLDER

All else in FOLDER are links. The files of CIFAR-10 are unpacked there, so that each of the many
checks that read it does not do so again: ten seconds each time.
"""
import lzma, shutil, sys
from pathlib import Path

CIFAR10 = 'cifar-10-batches-py'


def unpack(data, folder):
    "Fill `folder`."
    folder.mkdir()
    for item in data.iterdir():
        if item.name != CIFAR10: (folder/item.name).symlink_to(item)
    (folder/CIFAR10).mkdir()
    for item in (data/CIFAR10).iterdir():
        if item.suffix != '.xz': shutil.copy(item, folder/CIFAR10)
        else:
            with lzma.open(item) as packed, open(folder/CIFAR10/item.stem, 'wb') as file:
                shutil.copyfileobj(packed, file)


if __name__ == '__main__': unpack(*(Path(argument).resolve() for argument in sys.argv[1:]))
