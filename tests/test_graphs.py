"Sequences as graphs: exported for any batch, and traced, they compute what the network does."
import pytest, torch
from torch.testing import assert_close

from attnfree.language import create_model
from attnfree.mixer import randomise


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
