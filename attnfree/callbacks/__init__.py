"Callbacks and metrics for fastai Learners."
from attnfree.callbacks.training import *
from attnfree.callbacks.text import *
from attnfree.callbacks.penalties import *
