"""Commands killed at random moments or at each file that they write: given again, they end as if undisturbed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import kill
import pytest
import tiny_runs
from conftest import needs
from sweeps import BASE, LANES, Watch, sweep
from typer.testing import CliRunner

from imlp.cli import app
from imlp.errors import RunError
from imlp.study.optuna_search import Search
from imlp.study.tasks import plan, run_here
from imlp.train.loop import Trainer
from imlp.train.run_reader import read_run

BRIEF = tiny_runs.config(epochs=2)


@pytest.mark.parametrize("engine", kill.ENGINES)
@pytest.mark.parametrize("command", kill.COMMANDS)
def test_a_command_killed_at_random_moments_ends_the_same(command, engine):
    """A few kills of each kind; IMLP_KILLS=100 asks for more. On Ray, which starts slowly, only when asked."""
    if command == "search":
        needs("optuna")
    if engine != "local":
        needs("ray")
    kills = int(os.environ.get("IMLP_KILLS", 2 if engine == "local" else 0))
    if not kills:
        pytest.skip("killing commands on Ray takes minutes: set IMLP_KILLS to the number of kills")
    assert kill.kill(command, engine, kills).endswith("all with the same bits")


class Killed(BaseException):
    """Ends a command at once; none of our code catches it."""


class Writes:
    """Counts the files that are renamed to their final names, and kills the command before or after one of them."""

    def __init__(self, monkeypatch):
        self.replace, self.left, self.after = os.replace, -1, False
        monkeypatch.setattr(os, "replace", self)

    def kill_at(self, number: int, *, after: bool) -> None:
        self.left, self.after = number, after

    def __call__(self, source, target):
        self.left -= 1
        if self.left == -1 and not self.after:
            raise Killed
        self.replace(source, target)
        if self.left == -1:
            raise Killed


@pytest.fixture
def writes(monkeypatch) -> Writes:
    return Writes(monkeypatch)


def killed_everywhere(command: Callable[[Path], object], writes: Writes, tmp_path: Path, *, stride: int = 1) -> int:
    """Kill the command at its first file, its second, ..., each time in a new folder; returns how often."""
    command(tmp_path / "whole")
    expected, kills = kill.bits(tmp_path / "whole"), 0
    while True:
        folder = tmp_path / "broken"
        writes.kill_at(kills // 2 * stride, after=bool(kills % 2))
        try:
            command(folder)
            return kills
        except Killed:
            kills += 1
        writes.kill_at(-1, after=False)
        command(folder)
        assert kill.bits(folder) == expected
        assert not list(folder.rglob("*.part"))
        shutil.rmtree(folder)


def test_a_sweep_killed_at_any_file_ends_the_same(writes, tmp_path):
    """Two groups of lanes, each a run."""
    options = {"base": BRIEF, "lanes": LANES[:4], "seeds": [0], "at_once": 2}
    assert killed_everywhere(lambda folder: sweep(folder, **options), writes, tmp_path, stride=2) > 15


def test_a_search_killed_at_any_file_ends_the_same(writes, tmp_path):
    needs("optuna")

    def run(folder: Path) -> None:
        search = Search(BRIEF, tiny_runs.data(), folder, trials=5, at_once=3, validation=0.25)
        search.run(lambda tasks, data: run_here(tasks, data, Watch()))

    assert killed_everywhere(run, writes, tmp_path, stride=4) > 12


def only_config_left(folder: Path) -> None:
    """A folder as left by a process that was killed between the first and the second file of a run."""
    for path in folder.iterdir():
        if path.name != "config.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_run_that_has_not_begun_is_no_obstacle_to_its_sweep(tmp_path):
    whole = sweep(tmp_path / "whole", seeds=[0])
    (task,) = plan(BASE, LANES, [0], tmp_path / "broken", at_once=99)
    shutil.copytree(tmp_path / "whole" / task.folder.name, task.folder)
    only_config_left(task.folder)
    assert [o.result for o in sweep(tmp_path / "broken", seeds=[0])] == [o.result for o in whole]
    assert read_run(task.folder).env["command"]


def test_a_report_shows_a_run_that_has_not_begun(tmp_path):
    needs("accel")
    tiny_runs.run(tmp_path / "done", lanes=tiny_runs.lanes(0, 0.5))
    tiny_runs.run(tmp_path / "killed", lanes=tiny_runs.lanes(0, 0.5), seed=1)
    only_config_left(tmp_path / "killed")
    for folders in (["done", "killed"], ["killed"]):
        page = tmp_path / f"{len(folders)}.html"
        result = CliRunner().invoke(app, ["report", *(str(tmp_path / name) for name in folders), "--out", str(page)])
        assert result.exit_code == 0, result.output
        assert "unfinished: 0 of 3 epochs" in page.read_text()


def test_a_finished_run_without_its_environment_is_named(tmp_path):
    tiny_runs.run(tmp_path)
    (tmp_path / "env.json").unlink()
    with pytest.raises(RunError, match=r"cannot read .*env\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("left", [".config.toml.123.part", "error.log"])
def test_again_takes_a_folder_in_which_nothing_was_begun(left, tmp_path):
    (tmp_path / left).write_text("")
    Trainer(BASE, tiny_runs.data(), tmp_path).run(again=True)
    assert json.loads((tmp_path / "result.json").read_text())["epochs"] == 3
    assert not (tmp_path / left).exists()
