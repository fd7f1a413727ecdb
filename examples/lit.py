"How many pixels of a digit are lit? A regression on images that others have prepared."
import numpy as np
import torch.nn.functional as F
from fastai.metrics import AvgMetric
from attnfree.tasks import ImageTask, Prediction, register_task

def mean_error(scores, share): return (scores[:,0] - share).abs().mean()
mean_error.higher_is_better = False

class Lit(ImageTask):
    "The share of an image's pixels that are lit."
    name, data, unit = 'lit', ('digits',), 'share of the pixels'
    recipe = dict(model='aft_conv_micro_patch2_8', epochs=9, bs=16, lr=3e-3, augment=False)
    def target(self, example): return (np.asarray(example.image) > 0).mean()
    def loss(self, settings): return lambda scores, share: F.mse_loss(scores[:,0], share)
    def metrics(self, dls): return [AvgMetric(mean_error)]
    def monitor(self, metrics): return 'mean_error'
    def predictions(self, scores, data): return [Prediction('lit', scores[0].item(), 0)]

register_task(Lit())
