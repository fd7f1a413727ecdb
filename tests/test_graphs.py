"""Networks as graphs: exported, compiled, traced and transformed they compute what they do.

`results/graphs/graphs.py` tries all families in every way; here are some of each kind, and the rows
of its table must say what is found.
"""
import csv, inspect, subprocess, sys
from pathlib import Path

import pytest, timm, torch
from torch.testing import assert_close

from attnfree.biased_mean import band_mean, full_mean
from attnfree.language import create_model
from attnfree.less_attention.plugin import with_less_attention
from attnfree.mixer import randomise

FOLDER = Path(__file__).parent.parent/'results'/'graphs'
sys.path.insert(0, str(FOLDER))
import graphs

QUICK = ['eager', 'export', 'onnx', 'onnx_float16', 'jit_trace', 'functional_call', 'vmap',
         'double_backward', 'fx']
SLOW = ['inductor_training', 'inductor_checkpointing', 'inductor_dynamic']
NETWORKS = ['aft_conv_micro_patch2_8', 'lavit_micro_8', 'pixels_gmlp_micro_8',
            'less_attention_swin']
CASES = [(network, check) for network in NETWORKS for check in QUICK]
CASES += [(NETWORKS[0], check) for check in SLOW] + [(NETWORKS[2], SLOW[0])]


def rows():
    with open(FOLDER/'graphs.csv', newline='') as lines:
        return {(row['network'], row['check']): row for row in csv.DictReader(lines)}


@pytest.mark.parametrize('network, check', CASES)
def test_the_table_says_what_is_found(network, check):
    row = rows()[network, check]
    torch.compiler.reset()
    built, *inputs = graphs.build(network)
    if check in SLOW: built.body.blocks = built.body.blocks[:2]  # of alike ones; compiled in C++
    try: graphs.CHECKS[check](built, *inputs)
    except Exception as error:
        assert row['works'] == 'False', error
        assert row['note'].startswith(type(error).__name__)
    else: assert row['works'] == 'True', row['note']


def test_the_table_is_whole():
    "Asked of a process of its own: here other tests may have registered families."
    asked = [sys.executable, '-W', 'ignore', '-c', 'import graphs; print(*graphs.networks())']
    names = subprocess.run(asked, cwd=FOLDER, capture_output=True, text=True).stdout.split()
    found = rows()
    assert set(found) == {(network, check) for network in names for check in graphs.CHECKS}
    assert len({row['versions'] for row in found.values()}) == 1


@pytest.mark.parametrize('name', ['aft_conv', 'aft_full', 'aft_local', 'gmlp'])
def test_a_causal_network(name):
    torch.manual_seed(0)
    network = randomise(create_model(f'pixels_{name}_micro_8'), std=0.05).eval()
    three, one = torch.randint(1, 17, (3, 64)), torch.randint(1, 17, (1, 64))
    with torch.no_grad():
        shapes = ({0: torch.export.Dim('batch')},)
        program = torch.export.export(network, (three,), dynamic_shapes=shapes)
        assert_close(program.module()(one), network(one))
        assert_close(torch.jit.trace(network, (three,))(one), network(one))


@pytest.mark.parametrize('name', ['pixels_aft_conv_micro_8', 'mlm_mixer_mini_128'])
def test_texts_are_traced_without_their_optional_inputs(name):
    network = randomise(create_model(name), std=0.05).eval()
    ids = torch.randint(1, 17, (2, 20))
    inputs = list(inspect.signature(network.forward).parameters)[1:]
    traced = torch.fx.symbolic_trace(network, concrete_args=dict.fromkeys(inputs))
    assert_close(traced(ids, *[None]*len(inputs)), network(ids), rtol=0, atol=0)


@pytest.mark.parametrize('name, keep', [('vit_tiny_patch16_224', 1),
                                        ('swin_tiny_patch4_window7_224', (2, 2, 4, 2))])
def test_less_attention_in_networks_of_timm_is_traced(name, keep):
    network = with_less_attention(randomise(timm.create_model(name), std=0.05), keep).eval()
    images = torch.randn(1, 3, 224, 224)
    assert_close(torch.fx.symbolic_trace(network)(images), network(images), rtol=0, atol=0)


@pytest.mark.parametrize('name', ['full, causal', 'band'])
def test_means_in_a_graph(name):
    "As the notebook on biased means has it for the others; here with the slower ways to sum."
    def mean(k, v, w, sums):
        if name != 'band': return full_mean(k, v, w, causal=True, sums=sums)
        near = (torch.arange(33)[:, None] + torch.arange(-4, 7)).clamp(0, 32)
        return band_mean(k, v, w.gather(1, near)[None], 4, 6, sums=sums)
    slow = 'double' if name == 'band' else 'exact'
    torch.manual_seed(0)
    for sums, hostile in (('fast', False), (slow, True)):
        k, v, w = torch.randn(2, 33, 3), torch.randn(2, 33, 3), torch.randn(33, 33)
        if hostile:
            k[:, 5] += 200
            w = torch.zeros(33, 33)
            w[:, 5] = -300
        k.requires_grad_()
        torch.compiler.reset()
        compiled = torch.compile(lambda *inputs: mean(*inputs, sums), fullgraph=True,
                                 backend='aot_eager')
        ours, = torch.autograd.grad(compiled(k, v, w).sum(), k)
        expected, = torch.autograd.grad(mean(k, v, w, sums).sum(), k)
        assert_close(ours, expected)
        assert_close(compiled(k, v, w), mean(k, v, w, sums))
