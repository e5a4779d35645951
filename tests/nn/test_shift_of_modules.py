"""The shift meter on modules."""

import pytest
from conftest import needs

needs("accel")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from imlp.nn import densify, shift_meter  # noqa: E402


def test_a_model_beside_its_prior():
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2, padding=1)
    prior = nn.Sequential(
        *layers, nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(32, 5)
    )
    prior = prior.double()
    x = torch.randn(6, 2, 8, 8, dtype=torch.float64)
    found = shift_meter(prior, x, fill=0.5)
    assert list(found) == ["0", "2", "output"]  # circular padding has no spec
    assert all(found[name]["error"] < 1e-12 for name in ("0", "2"))
    padded, squares, changed = F.pad(x, (1, 1, 1, 1), value=0.5), 0.0, 0.0
    for top, left in ((0, 1), (2, 1), (1, 0), (1, 2)):
        moved = prior(padded[:, :, top : top + 8, left : left + 8])
        squares += ((moved - prior(x)) ** 2).sum().item() / 4
        changed += (moved.argmax(1) != prior(x).argmax(1)).double().mean().item() / 4
    expected = {"error": (squares / (prior(x) ** 2).sum().item()) ** 0.5, "changed": changed}
    assert found["output"] == pytest.approx(expected)
    dense = shift_meter(densify(prior, (2, 8, 8), layers=["0", "2"], init="random"), x)
    by_name = type("ByName", (nn.Sequential,), {"forward": lambda own, x: own[0](input=x)})(prior[0])
    assert shift_meter(by_name, x)["0"]["error"] < 1e-12
    assert dense["0"]["error"] > 0.5 < dense["2"]["error"]
