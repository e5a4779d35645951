"""The same words mean the same in train, sweep, search and reproduce."""

import json
from pathlib import Path

import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.commands.sweep_display import accuracies
from imlp.train.config import Config, from_mapping, read

OPTIONS = ["--options", "width=64", "--options", "strides=[1,2,2]"]
SMALL = ["--backend", "reference", *OPTIONS, "--batch", "20", "--epochs", "1"]


@pytest.fixture
def bars(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return ["--data", str(tiny_runs.save_npz(tmp_path / "bars.npz")), *SMALL]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lanes(folder: Path) -> list[tuple[str, str]]:
    return [(lane.alpha, lane.every) for lane in from_mapping(Config, read(folder / "config.toml")).lanes]


@pytest.mark.parametrize(
    "alphas",
    [
        ["--alpha", "0,0.01..1:3log,0.5@epoch", "--alpha", "conv1=0.5,conv2=0.1"],
        ["--alpha", "0", "--alpha", "0.01..1:3log", "--alpha", "0.5@epoch", "--alpha", "conv1=0.5,conv2=0.1"],
    ],
)
def test_alpha_is_a_number_a_list_a_range_by_layer_or_with_its_cadence(bars, alphas, tmp_path):
    expected = [("0", "epoch"), ("0.01", "step"), ("0.1", "step"), ("1", "step"), ("0.5", "epoch")]
    expected += [("conv1=0.5,conv2=0.1", "step")]
    run("train", *bars, *alphas, "--out", "trained", "--json")
    assert lanes(tmp_path / "trained") == expected
    run("sweep", *bars, *alphas, "--seeds", "1", "--out", "swept", "--json", "--lanes-at-once", "9")
    (folder,) = (tmp_path / "swept").glob("seed*")
    assert lanes(folder) == expected


def test_every_is_a_list_in_train_too(bars, tmp_path):
    run("train", *bars, "--alpha", "0,0.5", "--every", "epoch,step", "--out", "trained", "--json")
    assert lanes(tmp_path / "trained") == [("0", "epoch"), ("0.5", "epoch"), ("0.5", "step")]


def test_an_experiment_can_be_run_at_another_cadence(bars):
    options = ["--estimate", "--json", "--threads", "1"]
    assert json.loads(run("reproduce", "figure2-cnn", "--every", "epoch,step", *options))["lanes"] == 11


@pytest.mark.parametrize("command", ["train", "sweep", "search"])
def test_estimate_says_how_long_and_trains_nothing(bars, command, tmp_path):
    if command == "search":
        needs("optuna")
    expected = json.loads(run(command, *bars, "--estimate", "--json", "--out", "here"))
    assert expected["seconds"] > 0
    assert "about" in run(command, *bars, "--estimate", "--out", "here")
    assert not (tmp_path / "here").exists()


def test_an_experiment_can_be_estimated():
    needs("accel")
    expected = json.loads(run("reproduce", "figure2-cnn", "--estimate", "--json", "--threads", "1"))
    assert (expected["arms"], expected["lanes"], expected["seeds"]) == (1, 6, 1)
    assert expected["seconds"] > 0


def test_a_lane_is_not_shown_as_the_prior_that_no_lane_needs():
    rows = [{"lane": lane, "test_accuracy": accuracy} for lane, accuracy in (("prior", 0.9), (0, 0.5), (1, 0.25))]
    assert accuracies(rows) == ("90.00", "25.00 to 50.00")
    assert accuracies(rows[1:]) == ("", "25.00 to 50.00")
