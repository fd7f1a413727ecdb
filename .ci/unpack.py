"""Makes a copy of the folder of data sets in which CIFAR-10 is not compressed.

    python .ci/unpack.py DATA FOLDER

Everything else in FOLDER is a link. Unpacking CIFAR-10 once saves ten seconds in each of the many
checks that read it.
"""
import lzma, shutil, sys
from pathlib import Path

CIFAR10 = 'cifar-10-batches-py'


def unpack(data, folder):
    "Fill `folder` with links to `data`, and with CIFAR-10 unpacked."
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
