"What a training does on a GPU, as far as it can be seen without one; what cannot waits for one."
from types import SimpleNamespace

import pytest, torch
from fastai.callback.core import Callback
from fastai.torch_core import TensorCategory, TensorImage
from fastai.vision.augment import AffineCoordTfm, Normalize, PadMode, flip_mat
from fastai.vision.core import IntToFloatTensor
from torch._subclasses import FakeTensorMode

from attnfree.training.callbacks import Erase, MixupCutMix
from attnfree.training.checkpoint import Checkpoint, load_state, save_state
from attnfree.data.images import cifar_stats, digits, shift_mat
from attnfree.learner import attnfree_learner, fit_recipe
from attnfree.training.loader import (RepeatableDL, random_states, seed_all, seeded,
                                      set_random_states)
from attnfree.vision import create_model
from test_no_waiting import NoWaiting, Waited


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')


def moved(pinned):
    "The device of a batch of a loader for a GPU, without numbers."
    dl = RepeatableDL(list(range(8)), bs=4, pin_memory=pinned, device=torch.device('cuda'))
    with FakeTensorMode(), NoWaiting():
        return [part.device.type for part in dl._on_device([torch.ones(4, 3), torch.ones(4)])]


def test_batches_in_pinned_memory_are_not_waited_for():
    assert moved(True) == ['cuda']*2
    with pytest.raises(Waited): moved(False)


class Gpus:
    "A module for two GPUs whose generators are those of processors."
    def __init__(self): self.generators = [torch.Generator().manual_seed(i) for i in range(2)]
    def get_rng_state(self, device): return self.generators[device.index].get_state()
    def set_rng_state(self, state, device): self.generators[device.index].set_state(state)
    def manual_seed(self, seed): raise AssertionError('only of one GPU')
    def manual_seed_all(self, seed):
        for generator in self.generators: generator.manual_seed(seed)
    def draw(self): return torch.stack([torch.rand(3, generator=g) for g in self.generators])


@pytest.fixture
def gpus(monkeypatch):
    gpus = Gpus()
    monkeypatch.setattr(torch.accelerator, 'current_accelerator', lambda: torch.device('cuda'))
    monkeypatch.setattr(torch.accelerator, 'device_count', lambda: 2)
    monkeypatch.setattr(torch, 'get_device_module', lambda device: gpus)
    return gpus


def test_random_numbers_of_all_gpus(gpus, tmp_path, monkeypatch):
    before = random_states(gpus=True)
    expected = gpus.draw()
    with seeded(1, 2, gpus=True): first = gpus.draw()
    set_random_states(before)
    torch.testing.assert_close(gpus.draw(), expected, rtol=0, atol=0)
    seed_all(1, 2, gpus=True)
    torch.testing.assert_close(gpus.draw(), first, rtol=0, atol=0)
    assert first.unique().numel() == 3 and (first != expected).all()

    save_state(tmp_path/'state.safetensors', dict(random=before))
    saved = load_state(tmp_path/'state.safetensors')['random']
    set_random_states(saved)
    torch.testing.assert_close(gpus.draw(), expected, rtol=0, atol=0)
    monkeypatch.setattr(torch.accelerator, 'device_count', lambda: 1) # go on where there is one
    set_random_states(saved)
    again = gpus.draw()
    torch.testing.assert_close(again[0], expected[0], rtol=0, atol=0)
    assert (again[1] != expected[1]).all()


def test_without_a_gpu_only_the_processors_are_seeded(monkeypatch):
    monkeypatch.setattr(torch.accelerator, 'device_count', lambda: 0)
    assert random_states(gpus=True)[3] == {}
    seed_all(3, gpus=True)
    expected = torch.rand(3)
    seed_all(3)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def changed(*changes):
    "Images of 32 pixels without numbers, after changes to their batch."
    x = torch.ones(8, 3, 32, 32, dtype=torch.uint8, device='meta').as_subclass(TensorImage)
    with NoWaiting():
        for change in (IntToFloatTensor(), *changes):
            x, _ = change((x, TensorCategory(torch.ones(8, dtype=torch.long, device='meta'))),
                          split_idx=0)
    return x


def test_changes_to_a_batch_do_not_wait():
    normalize = Normalize.from_stats(*cifar_stats, cuda=False)
    assert normalize.mean.device.type == 'cpu'
    with pytest.raises(Waited): changed(lambda batch, split_idx: (batch[0].cpu(), batch[1]))
    normalize.mean, normalize.std = (t.to('meta') for t in (normalize.mean, normalize.std))
    x = changed(AffineCoordTfm([flip_mat, shift_mat], mode='nearest', pad_mode=PadMode.Zeros,
                               align_corners=True), normalize)
    assert x.device.type == 'meta' and x.dtype == torch.float32


def test_erasing_and_mixing_do_not_wait():
    for callback in (Erase(1.), MixupCutMix(1., 0.), MixupCutMix(0., 1.)):
        x, y = (torch.ones(8, 3, 32, 32, device='meta'),
                torch.ones(8, dtype=torch.long, device='meta'))
        learn = SimpleNamespace(x=x, y=y, xb=(x,), yb=(y,), dls=SimpleNamespace(vocab=range(10)))
        callback.learn = learn
        with NoWaiting():
            if hasattr(type(callback), 'before_fit'): callback.before_fit()
            callback.before_batch()
        assert learn.xb[0].device.type == 'meta' and learn.xb[0].shape == x.shape


class Stop(Callback):
    "Ends a training in the middle of its second epoch, after the checkpoint of a step."
    order = 80
    def after_batch(self):
        assert torch.backends.cudnn.deterministic
        if self.train_iter == 8: raise InterruptedError('stopped')


def trained(folder, precision, callbacks=(), resume=False):
    "The weights of a network with dropout after two epochs."
    settings = dict(epochs=2, bs=16, lr=1e-3, precision=precision, train_examples=80,
                    valid_examples=32)
    network = create_model('aft_conv_micro_patch2_8', num_classes=10, in_chans=1, drop_rate=0.1)
    kept, data = Checkpoint(folder, every=3, resume=resume), digits().dls(bs=16)
    learn = attnfree_learner(data, network, settings, cbs=[kept, *callbacks])
    with learn.no_bar(), learn.no_logging(): fit_recipe(learn, settings)
    return {name: value.cpu() for name, value in network.state_dict().items()}


PRECISIONS = [pytest.param('fp32'), pytest.param('fp16', marks=GPU), pytest.param('bf16')]


@pytest.mark.parametrize('precision', PRECISIONS)
def test_a_training_with_dropout_goes_on_to_the_bit(precision, tmp_path, monkeypatch):
    "On a GPU, where there is one: its generator draws the dropout."
    monkeypatch.setattr(torch.backends.cudnn, 'deterministic', False)  # `set_seed` leaves it True
    seed_all(5, gpus=True)
    whole = trained(tmp_path/'whole', precision)
    seed_all(5, gpus=True)
    with pytest.raises(InterruptedError): trained(tmp_path/'half', precision, [Stop()])
    seed_all(6, gpus=True)
    resumed = trained(tmp_path/'half', precision, resume=True)
    assert not torch.backends.cudnn.deterministic  # as it was before
    for name, value in whole.items(): assert torch.equal(resumed[name], value), name
