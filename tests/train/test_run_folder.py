"""One list says what a run's folder holds: what is deleted, what travels, and what is kept with the results."""

import shutil
from pathlib import Path

import pytest
import tiny_runs

from imlp.errors import FileError, RunError
from imlp.train import checkpoint
from imlp.train.run_folder import RunFolder

SMALL = ["config.toml", "env.json", "metrics.jsonl", "result.json", "times.jsonl"]


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny_runs.run(tmp_path / "run", epochs=1)
    return tmp_path / "run"


def test_the_small_files_are_kept_with_the_results(folder):
    code = ["coupling.py", "coupling2.py", "network.py"]  # of others; without its text, a run could not be repeated
    for name in code:
        (folder / name).write_text("")
    assert sorted(path.name for path in RunFolder(folder).archived()) == sorted(SMALL + code)


def test_a_worker_fetches_all_that_resuming_takes_and_no_result(folder):
    for name in ("run.png", "checkpoint/.half.part"):
        (folder / name).write_bytes(b"")
    expected = ["checkpoint/epoch00001-step000000.safetensors", *SMALL]
    assert sorted(RunFolder(folder).needed_to_resume()) == sorted(set(expected) - {"result.json"})


OURS = [
    "checkpoint/epoch00009-step000001.safetensors", "checkpoint/.epoch00009-step000002.safetensors.77.part",
    "tensorboard/events.out.tfevents.1.host.2.0", "run.png", "lane0.onnx", "lane10.safetensors", "prior.npz",
    "error.log", "network.py", ".config.toml.1.part", ".metrics.jsonl.part",
]  # fmt: skip
THEIRS = [
    "notes.txt", "figures/one.png", "lane-notes.txt", "lane1.txt", "laneA.npz", "lanes.csv", "prior.bib", "prior.md",
    ".x.part", ".notes.txt.1.part", "checkpoint/notes.txt", "run.png.txt",
    "checkpoint/best.safetensors", "checkpoint/.mine.part", "tensorboard/notes.txt",
]  # fmt: skip


def test_a_run_is_deleted_by_exact_names_and_nothing_beside_it(folder):
    for name in (*OURS, *THEIRS):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    RunFolder(folder).delete_partial_files()
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.part")}
    assert files == {name for name in THEIRS if name.endswith(".part")}
    RunFolder(folder).delete_checkpoints()
    left = {f"checkpoint/{path.name}" for path in (folder / "checkpoint").iterdir()}
    assert left == {name for name in THEIRS if name.startswith("checkpoint/")}
    RunFolder(folder).delete()
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {*THEIRS, ".lock"}


def test_only_plain_digits_number_a_checkpoint(tmp_path):
    (tmp_path / "epoch\N{ARABIC-INDIC DIGIT THREE}-step1.safetensors").write_text("mine")
    assert checkpoint.saved_files(tmp_path) == []


def test_what_only_looks_like_a_leftover_is_not_deleted_for_a_run(tmp_path):
    (tmp_path / ".x.part").write_text("mine")
    with pytest.raises(RunError, match="is not a run's folder"):
        RunFolder(tmp_path).delete()
    assert (tmp_path / ".x.part").exists()


def test_a_run_does_not_write_through_links(folder, tmp_path):
    RunFolder(folder).result.unlink()
    (tmp_path / "victims").mkdir()
    for name in ("metrics.jsonl", "checkpoint/.epoch00003-step000000.safetensors.1.part", ".lock"):
        victim = tmp_path / "victims" / Path(name).name
        victim.write_text("precious")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
        with pytest.raises(FileError, match="is a symbolic link, which is not followed"):
            tiny_runs.run(folder, epochs=3, resume=True)
        assert victim.read_text() == "precious"
        (folder / name).unlink()
    shutil.move(folder / "checkpoint", tmp_path / "victims" / "checkpoint")
    (folder / "checkpoint").symlink_to(tmp_path / "victims" / "checkpoint")
    before = sorted((tmp_path / "victims" / "checkpoint").iterdir())
    with pytest.raises(FileError, match="is a symbolic link"):
        tiny_runs.run(folder, epochs=1, resume=True)
    RunFolder(folder).delete()  # the link, and not what it points to
    assert sorted((tmp_path / "victims" / "checkpoint").iterdir()) == before
    assert not (folder / "checkpoint").is_symlink()


def test_what_is_not_a_run_is_not_deleted(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not a run's folder; --again deletes runs only"):
        RunFolder(tmp_path).delete()
    assert (tmp_path / "notes.txt").exists()


def test_it_says_how_far_a_run_has_come(folder, tmp_path):
    new = RunFolder(tmp_path / "new")
    assert (new.checkpoints(), new.result.exists()) == ([], False)
    done = RunFolder(folder)
    assert (len(done.checkpoints()), done.result.exists()) == (1, True)
    done.result.unlink()
    done.delete_checkpoints()
    assert (done.checkpoints(), done.result.exists()) == ([], False)
    assert RunFolder.find(tmp_path) == RunFolder.find(tmp_path, "*") == [folder]
