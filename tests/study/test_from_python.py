"""Sweeps, searches and experiments from Python: what the commands write, and nothing on the console."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

from imlp import paper, study
from imlp.cli import app
from imlp.errors import ConfigError
from imlp.study.watcher import Watcher

SETTINGS = {"epochs": 1, "train_size": 60, "test_size": 20, "threads": 1}
FILES = ("**/metrics.jsonl", "**/result.json", "**/search.json")


class Heard(Watcher):
    """Keeps the names of what it was told."""

    def __init__(self):
        self.heard = []

    def planned(self, tasks):
        self.heard.append("planned")

    def ended(self, outcome):
        self.heard.append("ended")

    def close(self):
        self.heard.append("closed")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for pattern in FILES for path in folder.glob(pattern)}


def test_a_sweep_returns_what_the_command_prints(tmp_path, capfd):
    config, watcher = tiny_runs.config(epochs=2), Heard()
    result = study.sweep(config, "0,0.5@step", seeds=2, out=tmp_path, data=tiny_runs.data(), watcher=watcher)
    content = result.as_dict()
    assert (content["folder"], content["failed"]) == (str(tmp_path), [])
    assert [model["lane"] and model["lane"]["every"] for model in content["models"]] == [None, "epoch", "step"]
    assert all(model["n"] == 2 for model in content["models"])
    assert watcher.heard == ["planned", "ended", "ended", "closed"]
    before = files(tmp_path)
    again = study.sweep(config, ["0", "0.5@step"], seeds=2, out=tmp_path, data=tiny_runs.data())
    assert again.as_dict() == content
    assert files(tmp_path) == before
    assert capfd.readouterr() == ("", "")


def test_a_search_returns_what_its_file_holds(tmp_path, capfd):
    needs("optuna")
    data = tiny_runs.data()
    result = study.search(tiny_runs.config(epochs=1), trials=3, validation=0.25, out=tmp_path, data=data)
    assert result.as_dict() == {"folder": str(tmp_path), **json.loads((tmp_path / "search.json").read_text())}
    assert (tmp_path / "search.png").exists()
    assert capfd.readouterr().out == ""


def test_an_experiment_is_the_same_as_by_its_command(tmp_path, monkeypatch, capfd):
    needs("accel")
    monkeypatch.setenv("IMLP_DATA", str(tmp_path / "data"))
    result = paper.reproduce("figure2-cnn", settings=SETTINGS, out=tmp_path / "python", report=False)
    assert capfd.readouterr() == ("", "")
    options = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = ["reproduce", "figure2-cnn", *options, "--out", str(tmp_path / "command"), "--no-report", "--json"]
    printed = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
    mine = result.as_dict()
    for content in (printed, mine):
        del content["folder"], content["command"]
    assert mine == printed
    assert files(tmp_path / "python") == files(tmp_path / "command")
    said = json.loads((tmp_path / "python" / "experiment.json").read_text())
    assert said["command"].startswith("imlp.paper.reproduce('figure2-cnn', budget='smoke'")
    assert {**said, "command": ""} == {**dataclasses.asdict(result.outcome), "command": ""}


def test_mistakes_are_errors_and_not_exits(tmp_path):
    with pytest.raises(ConfigError, match="seeds is 0"):
        study.sweep(tiny_runs.config(), seeds=0, out=tmp_path, data=tiny_runs.data())


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys; from imlp import paper, study; study.sweep, study.search, paper.reproduce; "
        "print(sorted({'torch', 'ray', 'optuna', 'typer', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    light = "import sys, imlp; print('imlp.study' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", light], capture_output=True, text=True).stdout.strip() == "False"


def test_more_trials_than_anybody_can_run_are_refused_by_name():
    needs("optuna")
    with pytest.raises(ConfigError, match="trials is too large"):
        study.search(trials=int("9" * 40))
