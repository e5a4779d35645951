"""The deviation that docs/equations.md predicts, against torch's own Adam on gradients that are noise."""

import runpy
from pathlib import Path

import pytest
from conftest import needs

PROGRAM = Path(__file__).parents[2] / "examples" / "deviation.py"


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_what_adam_and_the_pull_leave_standing(alpha):
    needs("accel")
    import torch

    draws = torch.Generator().manual_seed(0)
    deviation = torch.zeros(4000, dtype=torch.float64)
    adam = torch.optim.Adam([deviation], lr=1e-3)
    for _ in range(1200):
        deviation.grad = torch.randn(4000, generator=draws, dtype=torch.float64)
        adam.step()
        deviation *= 1 - alpha
    predicted = runpy.run_path(str(PROGRAM))["predicted"]
    assert float((deviation**2).mean() ** 0.5) == pytest.approx(predicted(1e-3, alpha), rel=0.06)
    if alpha < 0.1:
        assert predicted(1e-3, alpha) == pytest.approx(1e-3 / (2 * alpha) ** 0.5, rel=0.06)
