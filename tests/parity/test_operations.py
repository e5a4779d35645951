"""Mistakes in the operations of a network, and in how the tree of them is run, are noticed by comparing gradients."""

import numpy as np
import pytest
from broken_code import break_code
from conftest import needs
from small_networks import SMALL, batch

needs("accel")

import torch  # noqa: E402

from imlp import accel, reference  # noqa: E402
from imlp.accel import layers, operations  # noqa: E402

MUTANTS = {
    "a slope below zero": (layers, "torch.ops.aten.threshold_backward(dy, y, 0)", "dy"),
    "a mean over channels": (layers, "dim = 2 if channels_first else 1", "dim = 1"),
    "a mean that comes back as a sum": (layers, "dy.unsqueeze(dim) / positions", "dy.unsqueeze(dim)"),
    "a forgotten shortcut": (operations, "return beside + body, back", "return body, back"),
    "a shortcut forgotten on the way back": (operations, "else dx_beside + dx", "else dx"),
    "a body forgotten on the way back": (operations, "else dx_beside + dx", "else dx_beside"),
    "activations skipped on the way back": (operations, "if first and not is_trained", "if not is_trained"),
    "the same name for all gradients": (operations, 'f"{name}.{part}": gradient', 'f"head.{part}": gradient'),
}


def survives() -> bool:
    for name in ("in another order", "resnet, learned norm", "norm first"):
        network, (x, y) = SMALL[name], batch(SMALL[name])
        for dense in (False, True):
            fast = accel.init(network, dense=dense, seed=0, dtype="float64")
            slow = reference.init(network, dense=dense, seed=0)
            try:
                found = accel.loss_and_grads(fast, torch.tensor(x), torch.tensor(y))[1]
            except (RuntimeError, ValueError):
                return False
            expected = reference.loss_and_grads(slow, x, y)[1]
            if found.keys() != expected.keys():
                return False
            if not all(np.allclose(found[name], own, rtol=0, atol=1e-12) for name, own in expected.items()):
                return False
    return True


def test_the_right_code_survives():
    assert survives()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name, monkeypatch):
    break_code(*MUTANTS[name], name, monkeypatch)
    assert not survives()
