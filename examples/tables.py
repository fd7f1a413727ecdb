"Two folders of pictures, and a table of numbers, each a data set for classes."
from pathlib import Path
import numpy as np
from attnfree.data import DataSet, Images, register_data_set

def folders(path):
    "FOLDER/CLASS/*.png: every fifth picture is held out."
    files = sorted(Path(path).glob('*/*.png'))
    pairs = [(file, file.parent.name) for file in files]
    held = pairs[::5]
    train = [pair for i, pair in enumerate(pairs) if i % 5]
    return Images((train, held), ([0.5]*3, [0.25]*3), sorted({label for _, label in pairs}))

def table(path):
    "A csv with a row for each image: its class, then the greys of a square from 0 to 255."
    rows = np.loadtxt(path, delimiter=',', dtype='uint8')
    side = int((rows.shape[1] - 1)**0.5)
    pairs = [(row[1:].reshape(side, side), str(row[0])) for row in rows]
    cut = len(pairs)*4//5
    pixels = rows[:cut,1:]/255
    classes = sorted({label for _, label in pairs})
    return Images((pairs[:cut], pairs[cut:]), ([pixels.mean()], [pixels.std()]), classes)

register_data_set(DataSet('folders', ('classification',), images=folders, needs='CLASS/*.png'))
register_data_set(DataSet('table', ('classification',), images=table, needs='a csv'))
