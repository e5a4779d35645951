"""The deviation of finished runs, beside Adam's own on noise and what was done by hand."""

import csv
import runpy
import sys
from pathlib import Path

import deviation
import numpy as np
import pytest
import tiny_runs
from conftest import needs

from imlp import reference
from imlp.init import network_parameters
from imlp.train.run_reader import read_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "deviation.py"


def test_many_equal_steps_leave_what_the_formula_says():
    formula = runpy.run_path(str(EXAMPLE))["predicted"]
    for alpha in (0.01, 0.3, 1.0):
        assert deviation.predicted([(1e-3, alpha)] * 2000, 0.5, 0.9) == pytest.approx(formula(1e-3, alpha), rel=1e-6)


def test_few_steps_with_a_falling_rate_leave_what_torch_leaves_of_noise():
    """The learning rate falls to a tenth, alpha with it, and mixing comes every third step."""
    needs("accel")
    import torch

    draws = torch.Generator().manual_seed(0)
    deviations = 0.05 * torch.randn(20000, generator=draws, dtype=torch.float64)
    start, steps = float((deviations**2).mean() ** 0.5), 240
    adam = torch.optim.Adam([deviations], lr=1e-3, betas=(0.9, 0.999))
    pairs = [(1e-3 * (1 - 0.9 * s / steps), (s % 3 == 2) * 60e-3 * (1 - 0.9 * s / steps)) for s in range(steps)]
    for lr, alpha in pairs:
        adam.param_groups[0]["lr"] = lr
        deviations.grad = torch.randn(20000, generator=draws, dtype=torch.float64)
        adam.step()
        deviations *= 1 - alpha
    assert deviation.predicted(pairs, start, 0.9) == pytest.approx(float((deviations**2).mean() ** 0.5), rel=0.04)


def test_a_run(tmp_path, monkeypatch, capsys):
    lanes = tiny_runs.lanes(0, ("rate:20", {"every": "3"}), 0.25, ("0.5", {"coupling": "add"}))
    trainer = tiny_runs.run(tmp_path / "adam", lanes=lanes, schedule="cosine", epochs=2, seed=3)
    tiny_runs.run(tmp_path / "sgd", lanes=lanes, optimizer="sgd", epochs=1)
    monkeypatch.setattr(sys, "argv", ["deviation.py", str(tmp_path)])
    runpy.run_path(deviation.__file__, run_name="__main__")
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    mixed = [trainer.config.lanes[n].title for n in (1, 2)]
    names = trainer.network.interpolated
    assert [(row["run"], row["model"], row["layer"]) for row in rows] == [
        ("adam", title, name) for title in mixed for name in names
    ]
    first, first_prior = (network_parameters(trainer.network, dense=dense, seed=3) for dense in (True, False))
    rates = [trainer.rate.at(s) for s in range(8)]
    alphas = [[20 * 3 * rate * (s % 3 == 2) for s, rate in enumerate(rates)], [0.25 * (s in (3, 7)) for s in range(8)]]
    for row, (lane, name) in zip(rows, [(lane, name) for lane in (1, 2) for name in names], strict=True):
        spec, key = trainer.network.layer(name).spec, f"{name}.weight"

        def rms(W, w, spec=spec):
            return float(np.sqrt(np.mean((W - reference.matrix(spec, w).toarray()) ** 2)))

        measured = rms(tiny_runs.weights(trainer, lane)[key], trainer.state.prior.parameters[key])
        assert float(row["measured"]) == pytest.approx(measured, rel=1e-12)
        expected = deviation.predicted(
            zip(rates, alphas[lane - 1], strict=True), rms(first[key], first_prior[key]), 0.9
        )
        assert float(row["predicted"]) == pytest.approx(expected, rel=1e-12)
        assert measured == pytest.approx(expected, rel=0.15)
    assert read_run(tmp_path / "sgd").result is not None  # it is left out as there is no prediction for it
