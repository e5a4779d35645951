"""Products in bfloat16: as `torch.autocast` computes them, in dense layers only."""

import numpy as np
import pytest
import tiny_runs
from conftest import needs

from imlp import networks
from imlp.errors import ConfigError
from imlp.train.config import Config
from imlp.train.loop import Interrupted
from imlp.train.run_reader import read_run

needs("accel")

import torch  # noqa: E402

from imlp import accel  # noqa: E402
from imlp.accel.precision import computing, multiplied_in  # noqa: E402

NETWORK = networks.make("cnn", image=(3, 8, 8), classes=5)


def batch():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(64, 192))).float()
    return x, torch.from_numpy(rng.integers(0, 5, 64))


def as_module(model):
    """The same dense network in `torch.nn`, with the same numbers."""
    modules = []
    for operation in NETWORK.operations(dense=True):
        if isinstance(operation, networks.Layer):
            layer = torch.nn.Linear(*reversed(operation.spec.matrix_shape))
            with torch.no_grad():
                layer.weight.copy_(model.parameters[f"{operation.name}.weight"])
                layer.bias.copy_(model.parameters[f"{operation.name}.bias"])
            modules.append(layer)
        elif isinstance(operation, networks.Norm):
            modules.append(torch.nn.LayerNorm(operation.features, elementwise_affine=False))
        else:
            modules.append(torch.nn.GELU())
    return torch.nn.Sequential(*modules)


def test_gradients_are_those_of_autocast():
    x, y = batch()
    model = accel.init(NETWORK, dense=True, seed=0)
    module = as_module(model)
    with torch.autocast("cpu", torch.bfloat16):
        expected = torch.nn.functional.cross_entropy(module(x).float(), y)
    expected.backward()
    exact, exact_grads = accel.loss_and_grads(model, x, y)
    with computing(products="bfloat16"):
        loss, grads = accel.loss_and_grads(model, x, y)
    assert loss != exact
    assert float(loss) == pytest.approx(float(expected.detach()), rel=5e-3)
    layers = (*NETWORK.layers, NETWORK.head)
    names = [f"{layer.name}.{part}" for layer in layers for part in ("weight", "bias")]
    for name, theirs in zip(names, module.parameters(), strict=True):
        ours, full, size = grads[name], exact_grads[name], exact_grads[name].norm()
        assert ours.dtype == torch.float32
        assert (ours - theirs.grad).norm() < 0.03 * size, name  # bfloat16 has 8 bits: steps of 0.4 per cent
        assert 0 < (ours - full).norm() < 0.03 * size, name


def test_the_prior_is_not_concerned():
    x, y = batch()
    each = []
    for precision in ("full", "bfloat16"):
        prior = accel.init(NETWORK, dense=False, seed=0)
        with computing(products=precision):
            for _ in range(3):
                accel.train_step(prior, x, y)
        each.append(prior.parameters)
    assert all(torch.equal(each[0][name], each[1][name]) for name in each[0])


@pytest.mark.bits
def test_a_lane_does_not_depend_on_its_company():
    x, y = batch()
    one, three = (accel.init(NETWORK, dense=True, seed=0, lanes=lanes) for lanes in (1, 3))
    with computing(products="bfloat16"):
        for _ in range(3):
            accel.train_step(one, x, y)
            accel.train_step(three, x, y)
    for name, stack in one.parameters.items():
        assert all(torch.equal(stack[0], other) for other in three.parameters[name]), name


def test_the_precision_ends_with_its_block():
    with pytest.raises(RuntimeError), computing(products="bfloat16"):
        raise RuntimeError
    assert multiplied_in() == "full"


def test_it_needs_float32_and_accel():
    with pytest.raises(ConfigError, match="bfloat16 with float64; use it with the backend accel and dtype float32"):
        Config(products="bfloat16", dtype="float64")
    with pytest.raises(ConfigError, match="bfloat16 with reference"):
        Config(products="bfloat16", backend="reference")


def test_runs_of_either_precision_are_not_the_same_run():
    assert Config().identity == Config(products="full").identity != Config(products="bfloat16").identity


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path):
    settings = {
        "backend": "accel",
        "dtype": "float32",
        "products": "bfloat16",
        "lanes": tiny_runs.lanes(0, 0.3, every="step"),
    }
    tiny_runs.run(tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(5), **settings)
    tiny_runs.run(tmp_path / "stopped", resume=True, **settings)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    tiny_runs.run(tmp_path / "full", **{**settings, "products": "full"})
    rounded, full = (read_run(tmp_path / name).rows[-1]["train_loss"] for name in ("whole", "full"))
    assert rounded != full
    assert rounded == pytest.approx(full, rel=0.02)
