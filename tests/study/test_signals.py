"""A signal that comes while a run is evaluated or saved, or between two runs, stops the whole study."""

import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
from conftest import needs

ROOT = Path(__file__).parents[2]
SENDS = """
import os, signal, sys
from importlib import import_module
module, kind, name = sys.argv.pop(1).split(":")
kind = getattr(import_module(module), kind)
original, sent = getattr(kind, name), []

def sending(self, *arguments, **options):
    if not sent:
        sent.append(name)
        os.kill(os.getpid(), signal.SIGTERM)
    return original(self, *arguments, **options)

setattr(kind, name, sending)
from imlp.cli import app
app()
"""  # the command, which sends itself the signal when that is called first
MOMENTS = {
    "evaluating": "imlp.train.loop:Trainer:_evaluate_lanes",
    "saving": "imlp.train.loop:Trainer:save",
    "the result": "imlp.train.run_folder:RunFolder:write_result",
    "between two runs": "imlp.commands.sweep_display:Board:ended",
    "before the first": "imlp.commands.sweep_display:Board:planned",
}
EXPERIMENT = """
title = "Two arms"
asks = "What?"
[settings]
data = "bars.npz"
epochs = 1
batch = 20
backend = "reference"
options = { width = 64, strides = [1, 2, 2] }
[[arms]]
name = "one"
alphas = "0"
[[arms]]
name = "two"
alphas = "1"
[budgets.smoke]
seeds = 1
"""
OPTIONS = ["--options", "width=64", "--options", "strides=[1,2,2]", "--backend", "reference"]
SMALL = ["--data", "bars.npz", "--epochs", "1", "--batch", "20", *OPTIONS]
COMMANDS = {  # with the number of their runs
    "sweep": (["sweep", *SMALL, "--alpha", "0", "--seeds", "3"], 3),
    "search": (["search", *SMALL, "--trials", "4", "--lanes-at-once", "2", "--validation", "0.3"], 3),
    "reproduce": (["reproduce", "two.toml", "--no-report"], 2),
}
CASES = [("sweep", moment) for moment in MOMENTS]
CASES += [(command, moment) for command in ("search", "reproduce") for moment in ("evaluating", "between two runs")]


@pytest.mark.parametrize(("command", "moment"), CASES)
def test_a_signal_at_any_moment_stops_a_study_and_nothing_is_lost(command, moment, tmp_path):
    if command == "search":
        needs("optuna")
    tiny_runs.save_npz(tmp_path / "bars.npz")
    (tmp_path / "two.toml").write_text(EXPERIMENT)
    given, runs = COMMANDS[command]
    arguments = [*given, "--out", "out", "--quiet", "--no-verify"]
    stopped = run([sys.executable, "-c", SENDS, MOMENTS[moment], *arguments], tmp_path)
    assert stopped.returncode == 143, stopped.stderr
    assert stopped.stderr.startswith("stopped by SIGTERM")
    assert stopped.stderr.endswith("run the same command again\n")
    done = {path: path.read_bytes() for path in tmp_path.rglob("result.json")}
    assert len(done) == (0 if moment == "before the first" else 1)
    again = run([sys.executable, str(ROOT / "cli.py"), *arguments], tmp_path)
    assert again.returncode == 0, again.stderr
    assert len(list(tmp_path.rglob("result.json"))) == runs
    assert all(path.read_bytes() == content for path, content in done.items())


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, timeout=300, check=False)
