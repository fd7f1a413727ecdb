"Data sets as fastai DataLoaders: images, texts and sequences."
from attnfree.data.images import *
from attnfree.data.texts import *
from attnfree.data.sequences import *
from attnfree.data.recall import *
from attnfree.data.datasets import *
