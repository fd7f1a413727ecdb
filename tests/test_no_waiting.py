"Forward, backward and generation never ask a tensor for its numbers: a GPU would have to wait."
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pytest, torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from attnfree.training.metrics import BitsPer, Perplexity
from attnfree.training.callbacks import LOOK_EVERY, MeanLoss, SmoothLoss, StopOnNaN, TopK
from attnfree.language import create_model as language_model, model_names as text_names
from attnfree.vision import create_model, model_names as vision_names

sys.path.append(str(Path(__file__).parents[1]/'results/gpu'))
from measure import check_no_waiting


class Waited(Exception): pass


class NoWaiting(TorchDispatchMode):
    "Raises where a tensor goes from one device to another and the program waits for it."
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get('device')
        if function is torch.ops.aten._to_copy.default and device is not None:
            moved = args[0].device.type != torch.device(device).type
            if moved and not kwargs.get('non_blocking'): raise Waited(f'for {args[0].shape}')
        return function(*args, **kwargs)


def to_fake(model, mode, device):
    "A copy of a network whose parameters and buffers have shapes, a device, and no numbers."
    model = deepcopy(model)
    for part in model.modules():
        for tensors in (part._parameters, part._buffers):
            for name, t in tensors.items():
                if t is None: continue
                with mode: fake = torch.empty(t.shape, dtype=t.dtype, device=device)
                tensors[name] = torch.nn.Parameter(fake) if tensors is part._parameters else fake
    return model


IMAGES = [name for name in vision_names() if '_micro_' in name]
SMALL = '_mini_', '_micro_', '_d64'
WORDS = [name for name in text_names() if any(size in name for size in SMALL)]


def device_on_gpu(model, shape, dtype):
    "The device of what a network makes of inputs on a GPU, none of which is there."
    mode = FakeTensorMode()
    model = to_fake(model.eval(), mode, 'cuda')
    with mode, NoWaiting():
        x = torch.ones(shape, dtype=dtype, device='cuda')
        if getattr(model.body, 'causal', False): model.step(x[:,0], model.start(len(x)))
        if dtype == torch.long: # two texts in a row
            model(x[:1], cu_seqlens=torch.empty(3, dtype=torch.int32, device='cuda'))
        return model(x).device.type


def all_get_gradients(model, shape, dtype):
    "Whether each parameter of a network gets a gradient, on a processor without numbers."
    mode = FakeTensorMode()
    model = to_fake(model.train(), mode, 'cpu')
    with mode:
        model(torch.ones(shape, dtype=dtype)).float().logsumexp(dim=-1).mean().backward()
        torch.optim.AdamW(model.parameters()).step()
    return all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize('name', IMAGES)
def test_images(name):
    model, x = create_model(name, in_chans=3, num_classes=10), ((2, 3, 8, 8), torch.float32)
    assert device_on_gpu(model, *x) == 'cuda' and all_get_gradients(model, *x)


@pytest.mark.parametrize('name', WORDS)
def test_words(name):
    model, x = language_model(name), ((2, 32), torch.long)
    assert device_on_gpu(model, *x) == 'cuda' and all_get_gradients(model, *x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
@pytest.mark.parametrize('name', IMAGES)
def test_a_training_step_on_a_gpu(name):
    "PyTorch raises an error where anything waits for the GPU."
    check_no_waiting(name, 'cuda')


class Step:
    "What a callback or metric reads of a Learner at a step, with tensors on a GPU without numbers."
    epoch, n_iter, train_iter, iter = 0, 100, 1, 1

    def __init__(self, scores, targets):
        self.pred, self.y, self.yb = scores, targets, (targets,)
        self.loss = scores.float().square().mean()

    def to_detach(self, x, cpu): return x.detach()


def test_metrics_and_losses_of_a_step():
    with FakeTensorMode():
        scores = torch.ones(2, 7, 5, device='cuda', requires_grad=True)
        targets = torch.ones(2, 7, dtype=torch.long, device='cuda')
        step = Step(scores, targets)
        for metric in (TopK(), TopK(3), Perplexity(), BitsPer(), MeanLoss()):
            metric.reset()
            for _ in range(3): metric.accumulate(step)
            assert metric.total.device.type == 'cuda'
        smooth, watch = SmoothLoss(), StopOnNaN()
        smooth.reset()
        watch.learn, watch.recent, smooth.shown = step, [], 'as at the last look'
        for _ in range(LOOK_EVERY - 1):
            smooth.accumulate(step)
            watch.after_loss()
        assert smooth.val.device.type == 'cuda' and smooth.value == 'as at the last look'
        smooth.accumulate(step)
        assert smooth.value.device.type == 'cpu'
        with pytest.raises(Exception, match='aten._local_scalar_dense'): watch.after_loss()


def test_a_loss_that_was_not_finite_is_named_late():
    "The losses of 50 steps are read at once: the first that is not finite is the one named."
    watch, losses = StopOnNaN(), torch.ones(9)
    losses[4:6] = torch.tensor([torch.inf, torch.nan])
    watch.learn, watch.recent = Step(torch.ones(1), torch.ones(1)), [*enumerate(losses)]
    watch.learn.opt = SimpleNamespace(clear_state=lambda: None)
    watch.learn.model, watch.good = torch.nn.Module(), {}  # as in an epoch
    with pytest.raises(FloatingPointError, match='the loss is inf at step 4 '): watch.after_train()
    watch.recent = [*enumerate(losses[:4])]
    watch.after_train()
