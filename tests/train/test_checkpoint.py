"""A checkpoint knows which run it belongs to: files beside it that are missing or changed are refused by name."""

from pathlib import Path

import pytest
import tiny_runs
from sweeps import sweep

from imlp.errors import RunError
from imlp.train import checkpoint
from imlp.train.config import to_toml
from imlp.train.loop import Interrupted


@pytest.fixture
def stopped(tmp_path) -> Path:
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "a", tiny_runs.StopAt(6), lanes=tiny_runs.MANY_LANES)
    return tmp_path / "a"


@pytest.mark.parametrize("settings", [{}, {"lr": 0.1}, {"lanes": tiny_runs.MANY_LANES[:2]}, {"seed": 1}])
def test_a_run_whose_configuration_is_gone_is_refused(settings, stopped):
    (stopped / "config.toml").unlink()
    with pytest.raises(RunError, match=r"config\.toml is missing, .*; put it back as it was, or choose another folder"):
        tiny_runs.run(stopped, **{"lanes": tiny_runs.MANY_LANES, **settings}, resume=True)


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"lr": 0.1}, r"lr: 0\.003 there, 0\.1 here"), ({"lanes": tiny_runs.MANY_LANES[:2]}, "lanes: S-MLP .* here")],
)
def test_a_configuration_that_was_changed_by_hand_is_refused(settings, what, stopped):
    given = {"lanes": tiny_runs.MANY_LANES, **settings}
    (stopped / "config.toml").write_text(to_toml(tiny_runs.config(**given)))
    with pytest.raises(RunError, match=rf"config\.toml is not that of the checkpoints beside it \({what}\)"):
        tiny_runs.run(stopped, **given, resume=True)


def test_settings_of_the_machine_may_change(stopped):
    tiny_runs.run(stopped, lanes=tiny_runs.MANY_LANES, save_minutes=99.0, threads=1, resume=True)


def forget(folder: Path) -> None:
    """Make checkpoints that do not say which run they are of."""
    for path in checkpoint.saved_files(folder / "checkpoint"):
        arrays, state = checkpoint.read(path)
        assert state.pop("run")["config"]["lr"] == 0.003
        path.unlink()
        checkpoint.save(folder / "checkpoint", arrays, state)


def test_a_checkpoint_that_does_not_say_what_it_is_of_is_refused(stopped):
    forget(stopped)
    with pytest.raises(RunError, match="do not say which run they are of"):
        tiny_runs.run(stopped, lanes=tiny_runs.MANY_LANES, resume=True)


def test_a_finished_run_whose_configuration_is_gone_fails_in_its_sweep_alone(tmp_path):
    first, second = sweep(tmp_path, lanes=tiny_runs.config().lanes)
    (first.task.folder / "config.toml").unlink()
    failed, good = sweep(tmp_path, lanes=tiny_runs.config().lanes)
    assert "config.toml is missing" in failed.error
    assert good.result == second.result
