"""`Dense` is a module like any other: it is saved, copied, compiled, run in lower precision and on two processes."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import two_processes
from conftest import needs
from torch import nn

import imlp.nn
from imlp.errors import ArrayError, ModuleError
from imlp.nn import Dense
from imlp.spec import Conv, Shared

needs("accel")

CONV = Conv((3, 6, 6), out_channels=4, kernel=3, stride=2, padding=1)


def network():
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    return nn.Sequential(*layers)


def test_shapes_and_text():
    layer = Dense(CONV)
    assert (layer.weight.shape, layer.bias.shape) == ((36, 108), (36,))
    assert layer(torch.zeros(5, 3, 6, 6)).shape == (5, 4, 3, 3)
    assert layer(torch.zeros(3, 6, 6)).shape == (4, 3, 3)
    assert layer(torch.zeros(2, 5, 3, 6, 6)).shape == (2, 5, 4, 3, 3)
    assert "Conv(in_shape=(3, 6, 6), out_channels=4" in repr(layer)
    assert "(3, 6, 6) -> (4, 3, 3), bias=True" in repr(layer)
    tokens = Dense(Shared(4, 6, 5), (2, 2, 6), (2, 2, 5), bias=False)
    assert tokens.bias is None
    assert tokens(torch.zeros(3, 2, 2, 6)).shape == (3, 2, 2, 5)
    with pytest.raises(ArrayError, match=r"input of shape \(5, 108\) for Dense; it must end with \(3, 6, 6\)"):
        layer(torch.zeros(5, 108))
    with pytest.raises(ModuleError, match=r"in_shape \(7,\) has 7 numbers; .* has 108"):
        Dense(CONV, (7,))


def test_state_dict_copies_and_files(tmp_path):
    prior = network()
    model = imlp.nn.densify(prior, (3, 6, 6), init="random")
    assert set(model.state_dict()) == set(prior.state_dict())
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = imlp.nn.densify(prior, (3, 6, 6), init="random")
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = torch.randn(4, 3, 6, 6)
    model.eval(), other.eval()
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    torch.save(model, tmp_path / "whole.pt")
    assert torch.equal(torch.load(tmp_path / "whole.pt", weights_only=False)(x), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_scripted_and_traced():
    prior = network().eval()
    model, x = imlp.nn.densify(prior, (3, 6, 6)), torch.randn(4, 3, 6, 6)
    for made in (torch.jit.script(model), torch.fx.symbolic_trace(model), torch.jit.trace(model, x[:1])):
        torch.testing.assert_close(made(x), prior(x))
    with pytest.raises(ArrayError, match="it must end with"):
        torch.fx.symbolic_trace(model)(x[:, :, :, :5])


def test_compiled():
    needs("g++")
    prior = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten())
    model = imlp.nn.densify(prior, (3, 6, 6), init="prior")
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(4, 3, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), prior(x))
        imlp.nn.interpolate_(compiled, prior, 0.5)  # finds the layers inside
        torch.testing.assert_close(compiled(x), prior(x))


def test_autocast():
    prior = network()
    model = imlp.nn.densify(prior, (3, 6, 6), init="prior")
    x = torch.randn(4, 3, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        y = model[0](x)
        model(x).float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert model[0].weight.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), prior[0](x), rtol=0.05, atol=0.05)


def test_two_processes_train_as_one(tmp_path):
    paths = [str(Path(imlp.__file__).parents[1]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = f"from two_processes import train; train(1, {str(tmp_path / 'meet')!r})"
    other = subprocess.Popen([sys.executable, "-c", command], env=environment)
    alone, first = two_processes.train(None, ""), two_processes.train(0, str(tmp_path / "meet"))
    assert other.wait(timeout=120) == 0
    second = torch.load(tmp_path / "meet.1.pt", weights_only=True)
    for name, tensor in alone.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], tensor, rtol=0, atol=1e-12)
