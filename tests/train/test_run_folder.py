"""One list says what a run's folder holds: what is deleted, what travels, and what is kept with the results."""

from pathlib import Path

import pytest
import tiny

from imlp.errors import RunError
from imlp.train.run_folder import RunFolder

SMALL = ["config.toml", "env.json", "metrics.jsonl", "result.json", "times.jsonl"]


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny.run(tmp_path / "run", epochs=1)
    return tmp_path / "run"


def test_the_small_files_are_kept_with_the_results(folder):
    assert sorted(path.name for path in RunFolder(folder).archived()) == SMALL


def test_a_worker_fetches_all_that_resuming_takes_and_no_result(folder):
    stopped = "stopped-lane0/epoch00001-step000001.safetensors"
    (folder / stopped).parent.mkdir()
    for name in (stopped, "plays.json", "run.png", "checkpoint/.half.part"):
        (folder / name).write_bytes(b"")
    expected = ["checkpoint/epoch00001-step000000.safetensors", stopped, "plays.json", *SMALL]
    assert sorted(RunFolder(folder).needed_to_resume()) == sorted(set(expected) - {"result.json"})


def test_a_run_is_deleted_and_nothing_beside_it(folder):
    others = {"notes.txt", "figures"}
    (folder / "notes.txt").write_text("mine")
    (folder / "figures").mkdir()
    for name in ("prior-path", "tensorboard", "stopped-lane0"):
        (folder / name).mkdir()
    for name in ("run.png", "lane0.onnx", "prior.npz", "error.log", "plays.json", ".config.toml.1.part"):
        (folder / name).write_text("")
    RunFolder(folder).delete()
    assert {path.name for path in folder.iterdir()} == {*others, ".lock"}


def test_what_is_not_a_run_is_not_deleted(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not a run's folder; --again deletes runs only"):
        RunFolder(tmp_path).delete()
    assert (tmp_path / "notes.txt").exists()


def test_it_says_how_far_a_run_has_come(folder, tmp_path):
    new = RunFolder(tmp_path / "new")
    assert (new.has_begun, new.is_finished, new.replays_a_prior) == (False, False, False)
    done = RunFolder(folder)
    assert (done.has_begun, done.is_finished, done.replays_a_prior) == (True, True, False)
    done.result.unlink()
    assert (done.has_begun, done.is_finished) == (True, False)
    done.delete_checkpoints()
    assert not done.has_begun
    assert RunFolder.find(tmp_path) == RunFolder.find(tmp_path, "*") == [folder]
