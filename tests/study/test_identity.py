"""A checkpoint knows which run it belongs to: files beside it that are missing or changed are refused by name."""

import shutil
from pathlib import Path

import pytest
import tiny
from test_sweep import sweep

from imlp.errors import RunError
from imlp.study.prior_recording import CADENCES
from imlp.train import checkpoint
from imlp.train.config import to_toml
from imlp.train.loop import Interrupted
from imlp.train.run_folder import RECORDING, REPLAYED


@pytest.fixture
def stopped(tmp_path) -> Path:
    with pytest.raises(Interrupted):
        tiny.run(tmp_path / "a", tiny.StopAt(6), lanes=tiny.MANY_LANES)
    return tmp_path / "a"


@pytest.mark.parametrize("settings", [{}, {"lr": 0.1}, {"lanes": tiny.MANY_LANES[:2]}, {"seed": 1}])
def test_a_run_whose_configuration_is_gone_is_refused(settings, stopped):
    (stopped / "config.toml").unlink()
    with pytest.raises(RunError, match=r"config\.toml is missing, .*; put it back as it was, or choose another folder"):
        tiny.run(stopped, **{"lanes": tiny.MANY_LANES, **settings}, resume=True)


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"lr": 0.1}, r"lr: 0\.003 there, 0\.1 here"), ({"lanes": tiny.MANY_LANES[:2]}, "lanes: S-MLP .* here")],
)
def test_a_configuration_that_was_changed_by_hand_is_refused(settings, what, stopped):
    given = {"lanes": tiny.MANY_LANES, **settings}
    (stopped / "config.toml").write_text(to_toml(tiny.config(**given)))
    with pytest.raises(RunError, match=rf"config\.toml is not that of the checkpoints beside it \({what}\)"):
        tiny.run(stopped, **given, resume=True)


def test_settings_of_the_machine_may_change(stopped):
    tiny.run(stopped, lanes=tiny.MANY_LANES, save_minutes=99.0, threads=1, resume=True)


def forget(folder: Path) -> None:
    """Make checkpoints as earlier versions wrote them."""
    for path in checkpoint.found(folder / "checkpoint"):
        arrays, state = checkpoint.read(path)
        assert state.pop("run")["config"]["lr"] == 0.003
        path.unlink()
        checkpoint.save(folder / "checkpoint", arrays, state)


def test_old_checkpoints_are_taken_where_the_configuration_agrees(stopped, tmp_path):
    tiny.run(tmp_path / "whole", lanes=tiny.MANY_LANES)
    forget(stopped)
    tiny.run(stopped, lanes=tiny.MANY_LANES, resume=True)
    tiny.assert_same_outcome(tmp_path / "whole", stopped)


def test_a_finished_run_whose_configuration_is_gone_fails_in_its_sweep_alone(tmp_path):
    first, second = sweep(tmp_path, lanes=tiny.config().lanes)
    (first.task.folder / "config.toml").unlink()
    failed, good = sweep(tmp_path, lanes=tiny.config().lanes)
    assert "config.toml is missing" in failed.error
    assert good.result == second.result


# Runs of a sweep that share a prior: the first 12 steps are those of the run that records it


SHARED = {"seeds": [0], "at_once": 3}


def interrupted(folder: Path, steps: int) -> tuple[Path, Path | None]:
    """The recording and the replaying runs of a sweep that was stopped after `steps` steps."""
    with pytest.raises(Interrupted):
        sweep(folder, **SHARED, stop=steps)
    (recorder,) = (path.parent for path in folder.glob(f"*/{RECORDING}"))
    return recorder, next((path.parent for path in folder.glob(f"*/{REPLAYED}")), None)


@pytest.mark.parametrize("text", [None, "", '{"prior": "seed1-0"}'])
def test_a_run_that_no_longer_says_whose_prior_it_takes_is_refused(text, tmp_path):
    recorder, player = interrupted(tmp_path, 12 + 7)
    before = (player / REPLAYED).read_text()
    (player / REPLAYED).unlink() if text is None else (player / REPLAYED).write_text(text)
    _, failed = sweep(tmp_path, **SHARED)
    assert f"{REPLAYED} is missing or not what it was: this run took its prior from {recorder.name}" in failed.error
    assert failed.error.endswith(f"put back {before.strip()}, or delete {player}")
    (player / REPLAYED).write_text(before)
    assert all(outcome.result for outcome in sweep(tmp_path, **SHARED))


NONSENSE = ["[0]", "[]", "[2]", "{}", '"x"', "[3.5]", "[true]", "", "[" * 100_000, None]


@pytest.mark.parametrize("steps", [6, 12 + 7])
@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: "missing" if text is None else text[:5] or "empty")
def test_cadences_that_are_not_those_of_the_record_are_refused(text, steps, tmp_path):
    recorder, _ = interrupted(tmp_path, steps)
    path = recorder / RECORDING / CADENCES
    path.unlink() if text is None else path.write_text(text)
    outcomes = sweep(tmp_path, **SHARED)
    failed = [outcome for outcome in outcomes if outcome.error]
    assert failed
    assert all(str(path) in outcome.error for outcome in failed)
    assert all(f"or delete {recorder / RECORDING}: the prior is then trained again" in one.error for one in failed)
    shutil.rmtree(recorder / RECORDING)
    again, whole = sweep(tmp_path, **SHARED), sweep(tmp_path.with_name("whole"), **SHARED)
    assert [outcome.result["models"] for outcome in again] == [outcome.result["models"] for outcome in whole]
    shutil.rmtree(tmp_path.with_name("whole"))


def test_cadences_changed_before_the_first_run_that_needs_them_are_refused(tmp_path):
    recorder, player = interrupted(tmp_path, 12 + 7)
    shutil.rmtree(player)
    (recorder / RECORDING / CADENCES).write_text("[2]")
    _, failed = sweep(tmp_path, **SHARED)
    assert f"{CADENCES} holds [2], but was [3]" in failed.error


def test_a_record_with_other_rows_than_its_cadences_say_is_refused(tmp_path):
    recorder, _ = interrupted(tmp_path, 12 + 7)
    shutil.copyfile(recorder / RECORDING / "epoch-0001.npy", recorder / RECORDING / "epoch-0002.npy")
    path = recorder / RECORDING / "epoch-0003.npy"
    path.write_bytes(path.read_bytes()[:200])
    failed = sweep(tmp_path, **SHARED)[1].error
    assert "does not hold the prior of epoch" in failed


def test_a_file_that_was_cut_off_while_it_was_made_is_made_again(tmp_path):
    whole = sweep(tmp_path / "whole", **SHARED)
    recorder, _ = interrupted(tmp_path / "broken", 6)
    (unfinished,) = (recorder / RECORDING).glob("*.unfinished")
    unfinished.write_bytes(unfinished.read_bytes()[:100])
    assert [o.result["models"] for o in sweep(tmp_path / "broken", **SHARED)] == [o.result["models"] for o in whole]
