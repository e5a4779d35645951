"""The picture of what makes the valley, of whatever runs are on record."""

import contextlib
import csv
import dataclasses
import io
import runpy
import shutil
import sys
from pathlib import Path

import build
import deviation
import pytest
import tiny_runs
import valley
from typer.testing import CliRunner

from imlp.errors import ConfigError
from imlp.train.config import Lane
from imlp.train.run_reader import find_runs

ALPHAS = "0", "0.05", "0.5", "1"
MAIN = tiny_runs.config(epochs=2)
SETTINGS = {
    "valley-annealed/constant/seed0": {},
    "valley-annealed/constant/seed1": {"seed": 1},
    "valley-annealed/cosine/cosine0": {"schedule": "cosine"},
    "valley-annealed/longer/longer0": {"epochs": 3},
    "valley-position/slow/slow0": {"lr": 1e-3},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two epochs of a small pair: seeds, schedules, cadences and learning rates; and one run of three epochs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, settings in SETTINGS.items():
        lanes = tiny_runs.lanes(*ALPHAS, every="step")
        if "schedule" in settings:
            lanes += tiny_runs.lanes("rate:100", ("rate:400", {"biases": False}), every="step")
        if "lr" in settings:
            lanes += tiny_runs.lanes("0.5", every="2")
        tiny_runs.run(folder / name, lanes=lanes, **{"epochs": 2, **settings})
    return folder


def drawn(folder: Path):
    arms = valley.best_arms(find_runs([folder]))
    return arms, {curve.label(MAIN): points for curve, points in valley.curves(arms).items()}


def test_each_curve_has_its_lanes_at_their_alpha_per_step(runs):
    arms, curves = drawn(runs)
    assert {name: list(points) for name, points in curves.items()} == {
        "learning rate constant": [0, 0.05, 0.5, 1],
        "learning rate constant at 0.001": [0, 0.05, 0.5, 1],
        "learning rate constant at 0.001, every 2 steps": [0.25],
        "learning rate falls (cosine)": [0, 0.05, 0.5, 1],
        "learning rate and alpha fall (cosine)": [0, pytest.approx(0.3), 1],  # 100 times the first learning rate
    }
    assert {arm.config.epochs for arm in arms} == {2}
    (falling,) = (arm for arm in arms if arm.config.schedule == "cosine")
    followed = curves["learning rate and alpha fall (cosine)"]
    assert [score.lane for score in followed.values()] == [Lane(alpha=alpha) for alpha in ("0", "rate:100", "1")]
    assert all(score is falling.score(score.lane) for score in followed.values())
    assert [score.n for score in curves["learning rate constant"].values()] == [2, 2, 2, 2]


@pytest.mark.parametrize("name", SETTINGS)
def test_any_one_run_is_drawn(name, runs):
    arms, curves = drawn(runs / name)
    made = valley.figure(arms, {})
    (axes,) = made.axes
    for container, points in zip(axes.containers, curves.values(), strict=True):
        assert container.lines[0].get_ydata() == pytest.approx([score.mean for score in points.values()])


def test_of_unfinished_runs_nothing_is_drawn(runs):
    unfinished = [dataclasses.replace(run, result=None) for run in find_runs([runs])]
    assert valley.best_arms(unfinished) == valley.best_arms([]) == []


def test_the_record_gets_the_picture_with_the_deviation_beside_it(runs, tmp_path, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["deviation.py", str(runs / "valley-annealed")])
    with contextlib.redirect_stdout(out):
        runpy.run_path(deviation.__file__, run_name="__main__")
    rows = list(csv.DictReader(out.getvalue().splitlines()))
    shutil.copytree(runs / "valley-annealed", tmp_path / "valley-annealed")
    arms, _ = drawn(tmp_path)
    assert valley.deviations(tmp_path, arms) == {}
    (tmp_path / "valley-annealed" / "deviation.csv").write_text(out.getvalue())
    result = CliRunner().invoke(build.app, ["--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "predicted, nothing fitted" in (tmp_path / "valley.svg").read_text()
    found = valley.deviations(tmp_path, arms)
    alphas = {curve.label(MAIN): list(points) for curve, points in found.items()}
    assert alphas == {
        "learning rate constant": [0.05, 0.5],  # at alpha 1 nothing is left standing
        "learning rate falls (cosine)": [0.05, 0.5],
        "learning rate and alpha fall (cosine)": [pytest.approx(0.3)],
    }
    of_seeds = [row for row in rows if row["run"] in ("seed0", "seed1") and "alpha 0.5," in row["model"]]
    (points,) = (points for curve, points in found.items() if curve.schedule == "constant")
    assert len(points[0.5]) == len(of_seeds) > 0
    assert [one.measured for one in points[0.5]] == [float(row["measured"]) for row in of_seeds]
    _, right = valley.figure(arms, found).axes
    assert right.containers[0].lines[0].get_ydata() == pytest.approx(
        [sum(one.measured for one in layers) / len(layers) for layers in points.values()]
    )
    assert "W_P, range of layers" in right.get_legend_handles_labels()[1]


def test_a_deviation_of_a_run_that_is_not_on_record_is_refused(runs, tmp_path):
    record = shutil.copytree(runs / "valley-annealed" / "cosine", tmp_path / "valley-annealed")
    arms, _ = drawn(tmp_path)
    for run, model in (("gone", "I-MLP alpha 0.5, every step"), ("cosine0", "I-MLP alpha 0.7, every step")):
        (record / "deviation.csv").write_text(f'run,lr,model,layer,measured,predicted\n{run},0.1,"{model}",conv1,1,1\n')
        with pytest.raises(ConfigError, match=f"there are 0 of {model} in runs called {run}"):
            valley.deviations(tmp_path, arms)
