"""ONNX graphs of every causal family, by onnxruntime: a step, pieces and the whole text give what
`model.step` gives, over 200 tokens; and no file says on which machine it was made."""
import numpy as np, onnx, onnxruntime, pytest, torch
from torch.testing import assert_close

from attnfree.language import create_model
from attnfree.mixer import randomise
from attnfree.run.export import OnnxSteps, export_network, export_run, export_step

FAMILIES = ['aft_simple', 'aft_local', 'aft_conv', 'aft_full', 'gmlp', 'amlp', 'attention']


def small(family):
    "A network of one block for up to 256 bytes, with random weights."
    torch.manual_seed(0)
    window = dict(window=8) if family in ('aft_local', 'aft_conv') else None
    model = create_model(f'lm_{family}_mini_256', mixer=window)
    model.body.blocks = model.body.blocks[:1]
    return randomise(model, std=0.1).eval().requires_grad_(False)


@pytest.mark.parametrize('family', FAMILIES)
def test_all_forms_equal_steps(family, tmp_path):
    model = small(family)
    ids = torch.randint(0, 256, (256, 1), generator=torch.Generator().manual_seed(1))
    state, expected = model.start(1), []
    for token in ids[:200]:
        scores, state = model.step(token, state)
        expected.append(scores)
    expected = torch.stack(expected, dim=1)

    file = export_step(model, tmp_path/'step.onnx', steps=2)
    reading = OnnxSteps(file, export_step(model, tmp_path/'piece.onnx', piece=64))
    whole = onnxruntime.InferenceSession(str(export_network(model, tmp_path/'whole.onnx')))
    found = {'step': np.stack([reading.step(token) for token in ids[:200]], axis=1)}
    stepped = reading.state
    reading.restart()
    found['pieces'] = reading.prefill(ids[:200].T)
    found['whole'] = whole.run(None, dict(ids=ids.T.numpy()))[0][:, :200]
    for scores in found.values():
        worst = (torch.from_numpy(scores) - expected).abs().max()
        assert worst < 1e-5*max(1, expected.abs().max())
    for name, part in stepped.items():
        assert_close(torch.from_numpy(reading.state[name]), torch.from_numpy(part), rtol=1e-4,
                     atol=1e-4)
    for path in tmp_path.glob('*.onnx'):
        assert not any(node.metadata_props for node in onnx.load(path).graph.node)


def test_pieces_and_steps_of_half_the_size(tmp_path):
    model = small('gmlp')
    step = export_step(model, tmp_path/'step.onnx', half=True)
    pieces = export_step(model, tmp_path/'pieces.onnx', piece=5, half=True)
    assert pieces.stat().st_size < 2.5*sum(weight.numel() for weight in model.parameters())
    prompt = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(2))
    scores = torch.from_numpy(OnnxSteps(step, pieces).prefill(prompt))
    assert_close(scores, model.prefill(prompt, model.start(1))[0], rtol=0, atol=5e-4)


def test_a_step_that_differs_is_not_written(tmp_path, monkeypatch):
    model, file = small('gmlp'), tmp_path/'step.onnx'
    before = b'as before, written by attnfree'
    file.write_bytes(before)
    monkeypatch.setattr('onnxruntime.InferenceSession.run',
                        lambda *args: [np.zeros((2, 256), 'float32')])
    with pytest.raises(ValueError, match='was not written'): export_step(model, file, batch=2)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_what_is_yours_is_not_replaced(tmp_path):
    for name in ('network.onnx', '.network.onnx'): (tmp_path/name).write_bytes(b'mine')
    with pytest.raises(FileExistsError, match='is there already'):
        export_run('ff_micro_patch2_8', tmp_path/'network.onnx')
    for _ in range(2): export_run('ff_micro_patch2_8', tmp_path/'new.onnx')  # ours, the second time
    (tmp_path/'.new.onnx').write_bytes(b'mine')
    export_run('ff_micro_patch2_8', tmp_path/'new.onnx')
    mine = [path.name for path in tmp_path.iterdir() if path.read_bytes() == b'mine']
    assert sorted(mine) == ['.network.onnx', '.new.onnx', 'network.onnx']


def test_a_network_of_timm_without_training(tmp_path):
    file = tmp_path/'network.onnx'
    assert export_run('timm:resnet10t', file, untrained=True).startswith(str(file))
    names = onnxruntime.InferenceSession(str(file)).get_modelmeta().custom_metadata_map
    assert 'labels' not in names
