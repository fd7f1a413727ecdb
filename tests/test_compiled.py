"""Trainings of compiled networks: one graph to train and one to evaluate, without a break, and
none more in a second epoch or for a last, smaller batch."""
import pytest, torch
from torch import nn
from torch._dynamo.utils import counters
from fastai.callback.core import Callback
from attnfree.data.datasets import create_dls
from attnfree.learner import attnfree_learner
from attnfree.run import train
from attnfree.run.recipes import recipe
from attnfree.tasks import build_network, task_of

IMAGES = ['ff_micro_patch2_8', 'vit_micro_patch2_8', 'attn_only_micro_patch2_8',
          'aft_simple_micro_patch2_8', 'aft_full_micro_patch2_8', 'aft_local_micro_patch2_8',
          'aft_conv_micro_patch2_8', 'gmlp_micro_patch2_8', 'amlp_micro_patch2_8', 'lavit_micro_8']
PIXELS = ['attention', 'aft_full', 'aft_local', 'aft_conv', 'aft_simple', 'gmlp', 'amlp']
MASKED = ['bert', 'mixer', 'gmlp', 'amlp']
CASES = {name: dict(data='digits') for name in IMAGES}
CASES |= {f'pixels_{name}_micro_8': dict(data='digits', task='pixels') for name in PIXELS}
CASES |= {f'mlm_{name}_mini_128': dict(data='text', task='mlm', size=32) for name in MASKED}
CASES |= {'recall_aft_conv_d64': dict(data='recall', task='recall', size=32)}


class Graphs(Callback):
    "Count graphs after each half of an epoch; `compile` is that of all modules."
    def __init__(self): self.made, self.seen = [], []
    def compile(self, module, **options):
        self.options = options
        def note(graph, inputs):
            self.made.append(graph)
            return graph.forward
        module._compiled_call_impl = torch.compile(module._call_impl, backend=note)
    def after_train(self): self.seen.append(len(self.made))
    def after_validate(self): self.seen.append(len(self.made))


def learner(monkeypatch, model, **fields):
    "A Learner for six training batches of four examples, and held-out ones of four, four and two."
    torch._dynamo.reset()
    counters.clear()
    graphs = Graphs()
    monkeypatch.setattr(nn.Module, 'compile', lambda module, **how: graphs.compile(module, **how))
    settings = recipe(dict(fields, model=model, bs=4, epochs=2, train_examples=24,
                           valid_examples=10))
    dls = create_dls(settings.data, settings.task, bs=4, size=settings.size)
    arguments, _ = task_of(dls).networks.arguments(task_of(dls), settings, dls.source.about(dls))
    network = build_network(task_of(dls), arguments)
    if 'lavit' not in model: network.body.blocks = network.body.blocks[:2]  # of alike ones
    return attnfree_learner(dls, network, settings, cbs=graphs), graphs


@pytest.mark.parametrize('model', CASES)
def test_two_graphs_without_a_break(model, monkeypatch):
    learn, graphs = learner(monkeypatch, model, compile=True, **CASES[model])
    with learn.no_bar(), learn.no_logging(): learn.fit(2, 1e-3)
    print(model, graphs.seen, dict(counters['graph_break']))
    assert graphs.seen == [1, 2, 2, 2] and not counters['graph_break']
    assert graphs.options == {}


def test_single_items_make_no_graph(monkeypatch):
    learn, graphs = learner(monkeypatch, IMAGES[0], compile=True, **CASES[IMAGES[0]])
    with learn.no_bar(), learn.no_logging():
        learn.fit(1, 1e-3)
        learn.predict(learn.dls.valid_ds[0][0])
    assert len(graphs.made) == 2


def test_each_training_of_a_process_is_compiled(monkeypatch, tmp_path):
    "PyTorch compiles so many graphs of one function, and all networks have the same backbone's."
    graphs = Graphs()
    monkeypatch.setattr(nn.Module, 'compile', lambda module, **how: graphs.compile(module, **how))
    fields = dict(data='digits', bs=4, epochs=1, train_examples=24, valid_examples=8, compile=True,
                  warmup_epochs=0)
    with torch._dynamo.config.patch(recompile_limit=3):
        for count, model in enumerate(IMAGES[:3], 1):
            train(recipe(dict(fields, model=model)), create_dls('digits', bs=4), tmp_path/model)
            assert len(graphs.made) == 2*count


def test_graphs_of_a_gpu_are_asked_for(monkeypatch):
    learn, graphs = learner(monkeypatch, IMAGES[0], compile='graphs', **CASES[IMAGES[0]])
    marks = []
    monkeypatch.setattr(torch.compiler, 'cudagraph_mark_step_begin', lambda: marks.append(1))
    with learn.no_bar(), learn.no_logging(): learn.fit(1, 1e-3)
    assert graphs.options == dict(mode='reduce-overhead') and len(marks) == 9
