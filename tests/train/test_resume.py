"""Nothing is lost: runs that are stopped, killed, damaged or disturbed, and go on to the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from safetensors.numpy import load_file
from typer.testing import CliRunner

from imlp import machine
from imlp.cli import app
from imlp.data import Dataset
from imlp.errors import RunError
from imlp.train import checkpoint
from imlp.train.callbacks import Callback
from imlp.train.loop import Interrupted, Trainer
from imlp.train.state import StateFactory

ROOT = Path(__file__).parents[2]


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize("steps", [1, 4, 6, 11])
def test_a_run_that_was_stopped_ends_with_the_same_bits(backend, steps, tmp_path):
    """Within an epoch, and (4 steps an epoch) at its end."""
    if backend == "accel":
        needs("accel")
    tiny_runs.run(tmp_path / "whole", backend=backend, lanes=tiny_runs.MANY_LANES)
    with pytest.raises(Interrupted, match="nothing is lost: continue with --resume"):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(steps), backend=backend, lanes=tiny_runs.MANY_LANES)
    tiny_runs.run(tmp_path / "stopped", backend=backend, lanes=tiny_runs.MANY_LANES, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_that_is_done_stays_as_it_is(tmp_path):
    tiny_runs.run(tmp_path / "a", lanes=tiny_runs.MANY_LANES)
    before = tiny_runs.outcome(tmp_path / "a")[0]
    assert tiny_runs.run(tmp_path / "a", lanes=tiny_runs.MANY_LANES, resume=True).state.epoch == 3
    assert tiny_runs.outcome(tmp_path / "a")[0] == before


def test_resume_starts_a_run_where_there_is_none(tmp_path):
    tiny_runs.run(tmp_path / "a", lanes=tiny_runs.MANY_LANES)
    tiny_runs.run(tmp_path / "b", lanes=tiny_runs.MANY_LANES, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "a", tmp_path / "b")


def test_another_configuration_is_refused_with_the_differences(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES)
    with pytest.raises(RunError, match=r"holds another run \(epochs: 3 there, 4 here; lr: 0.003 there, 0.1 here\)"):
        tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES, epochs=4, lr=0.1, resume=True)


def test_other_data_are_refused(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES)
    trainer = Trainer(tiny_runs.config(lanes=tiny_runs.MANY_LANES), tiny_runs.data(n=71), tmp_path)
    with pytest.raises(RunError, match="not those that"):
        trainer.run(resume=True)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES, keep_moments=True)
    names = [path.name for path in checkpoint.saved_files(tmp_path / "checkpoint")]
    assert names == ["epoch00003-step000000.safetensors", "epoch00002-step000000.safetensors"]


def test_of_a_run_that_has_ended_the_weights_are_kept(tmp_path):
    tiny_runs.run(tmp_path / "weights", lanes=tiny_runs.MANY_LANES)
    tiny_runs.run(tmp_path / "whole", lanes=tiny_runs.MANY_LANES, keep_moments=True)
    (last,) = checkpoint.saved_files(tmp_path / "weights" / "checkpoint")
    newest, before = checkpoint.saved_files(tmp_path / "whole" / "checkpoint")
    kept, whole = load_file(last), load_file(newest)
    moments = {name for name in whole if "/optimizer.first." in name or "/optimizer.second." in name}
    assert kept.keys() == whole.keys() - moments
    assert all(array.tobytes() == whole[name].tobytes() for name, array in kept.items())
    assert last.stat().st_size < 0.2 * (newest.stat().st_size + before.stat().st_size)
    for name in ("metrics.jsonl", "result.json"):
        assert (tmp_path / "weights" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_killed_between_its_weights_and_its_result_still_ends(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES)
    before = (tmp_path / "result.json").read_bytes()
    (tmp_path / "result.json").unlink()
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES, resume=True)
    assert (tmp_path / "result.json").read_bytes() == before


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_with_its_moments_a_run_can_be_given_more_epochs(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    common = {
        "backend": backend,
        "lanes": tiny_runs.lanes(0, ("0.3", {"every": "3"}), "list:0.5:0.2"),
        "keep_moments": True,
    }
    common["shift"] = "epoch"  # at the end alone, it would be measured where each run has ended
    tiny_runs.run(tmp_path / "whole", **common, epochs=5)
    tiny_runs.run(tmp_path / "a", **common, epochs=3)
    tiny_runs.run(tmp_path / "a", **common, epochs=5, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "a")
    for name in ("config.toml", "result.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_without_its_moments_it_says_what_is_missing(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES[:1])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    missing = r"ended after 3 epochs and kept its weights, not the optimizer's state; .* --again; with --keep-moments"
    with pytest.raises(RunError, match=missing):
        tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES[:1], epochs=4, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("alpha", ["decay:0.5:2", "end:1"])
def test_a_lane_that_depends_on_the_number_of_epochs_is_given_no_more(alpha, tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(alpha), keep_moments=True)
    with pytest.raises(RunError, match=r"holds another run \(epochs: 3 there, 4 here\)"):
        tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(alpha), epochs=4, keep_moments=True, resume=True)


def test_the_newest_checkpoint_is_that_of_the_largest_number(tmp_path):
    """Beyond 99,999 epochs and 999,999 steps names grow longer."""
    arrays, numbers = {"x": np.zeros(2)}, {"mean": [0.0], "std": [1.0]}
    state = {"image": [1, 8, 8], "classes": 2, "active": [], "rows": [], "stopped": [], "times": [], **numbers}
    for epoch, step in ((99_999, 0), (100_000, 999_999), (100_000, 1_000_000)):
        checkpoint.save(tmp_path, arrays, {**state, "epoch": epoch, "step": step})
    names = [path.stem for path in checkpoint.saved_files(tmp_path)]
    assert names == ["epoch100000-step1000000", "epoch100000-step999999"]
    assert checkpoint.newest(tmp_path, pytest.fail)[1] == {**state, "epoch": 100_000, "step": 1_000_000}


def changed_state(content: bytes) -> bytes:
    assert b"test_loss" in content
    return content.replace(b"test_loss", b"test_lass", 1)


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


@pytest.mark.parametrize(
    "harm", [truncated, flipped, changed_state, lambda content: b"", lambda content: b"\0" * len(content)]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(harm, tmp_path):
    tiny_runs.run(tmp_path / "whole", lanes=tiny_runs.MANY_LANES)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "a", tiny_runs.StopAt(10), lanes=tiny_runs.MANY_LANES)
    newest = checkpoint.saved_files(tmp_path / "a" / "checkpoint")[0]
    newest.write_bytes(harm(newest.read_bytes()))
    warnings = tiny_runs.Warnings()
    tiny_runs.run(tmp_path / "a", warnings, lanes=tiny_runs.MANY_LANES, resume=True)
    assert len(warnings.texts) == 1
    assert "is damaged" in warnings.texts[0]
    assert newest.name in warnings.texts[0]
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "a")


def test_when_no_checkpoint_is_whole_it_says_so(tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES)
    for path in checkpoint.saved_files(tmp_path / "checkpoint"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match=r"no checkpoint in .* is whole; start the run again: with --again"):
        tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES, resume=True)


@pytest.mark.parametrize(
    "forged",
    [
        {"rows": None}, {"rows": [1]}, {"stopped": {"a": 1}}, {"times": -1}, {"losses": None}, {"losses": "x"},
        {"losses": [0.0]}, {"active": []}, {"active": [0]},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_forged_under_a_valid_checksum_is_refused(forged, tmp_path):
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path, tiny_runs.StopAt(3), lanes=tiny_runs.lanes(0, 0.5))
    (path,) = checkpoint.saved_files(tmp_path / "checkpoint")
    arrays, state = checkpoint.read(path)
    checkpoint.save(path.parent, arrays, state | forged)
    with pytest.raises(RunError, match=r"is not of this run; train it again|no checkpoint in .* is whole"):
        tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, 0.5), resume=True)


# The same from outside, with processes


def command(folder: Path, data: Path, *more: str) -> list[str]:
    settings = (
        "--options width=64 --options strides=[1,2,2] --batch 4 --epochs 8 --lr 0.003 --dtype float64 --threads 1"
    )
    lanes = "--alpha 0 --alpha 0.3@3 --alpha decay:0.5:2"
    start = [sys.executable, "cli.py", "train", "--data", str(data), "--out", str(folder)]
    return [*start, *settings.split(), *lanes.split(), "--save-minutes", "0.002", "--no-verify", *more]


@pytest.mark.parametrize(("backend", "kills"), [("accel", 8), ("reference", 12)])
def test_kill_9_at_random_moments_and_the_same_bits_in_the_end(backend, kills, tmp_path):
    """Twenty kills in all, each at a random moment of training: after a checkpoint of its own, before the end."""
    if backend == "accel":
        needs("accel")
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = ["--backend", backend, "--epochs", "60"]
    subprocess.run(command(whole, data, *arguments), cwd=ROOT, check=True, capture_output=True)
    moments = random.Random(0)
    for _ in range(kills):
        before = checkpoint.saved_files(broken / "checkpoint")[:1]
        process = subprocess.Popen(command(broken, data, *arguments, "--resume"), cwd=ROOT, stdout=subprocess.DEVNULL)
        while checkpoint.saved_files(broken / "checkpoint")[:1] == before:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.2))
        assert process.poll() is None
        process.kill()
        process.wait()
        assert not (broken / "result.json").exists()
    subprocess.run(command(broken, data, *arguments, "--resume"), cwd=ROOT, check=True, capture_output=True)
    tiny_runs.assert_same_outcome(whole, broken)
    assert not list(broken.rglob("*.part"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(number, code, tmp_path):
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    folder = tmp_path / "run"
    arguments = ["--backend", "reference", "--epochs", "2000", "--save-minutes", "100"]
    process = subprocess.Popen(command(folder, data, *arguments), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (folder / "metrics.jsonl").exists():
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors.startswith(f"stopped by {number.name} in epoch")
    assert "nothing is lost: continue with --resume" in errors
    assert "Traceback" not in errors
    assert checkpoint.newest(folder / "checkpoint", pytest.fail) is not None


def test_two_processes_in_one_folder(tmp_path):
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    folder = tmp_path / "run"
    arguments = ["--backend", "reference", "--epochs", "2000"]
    first = subprocess.Popen(command(folder, data, *arguments), cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not (folder / "metrics.jsonl").exists():
            time.sleep(0.05)
        second = subprocess.run(
            command(folder, data, *arguments, "--resume"), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert "another process is training in" in second.stderr
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB: room for the first two checkpoints and not for a third."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a tmpfs takes root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing(small_disk, tmp_path):
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    folder = small_disk / "run"
    arguments = ["--backend", "reference", "--epochs", "4", "--alpha", "0", "--save-minutes", "100"]
    done = subprocess.run(command(folder, data, *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "free space" in done.stderr
    assert "Traceback" not in done.stderr
    assert checkpoint.newest(folder / "checkpoint", pytest.fail) is not None  # the one before is whole
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    subprocess.run(command(folder, data, *arguments, "--resume"), cwd=ROOT, check=True, capture_output=True)
    subprocess.run(command(tmp_path / "whole", data, *arguments), cwd=ROOT, check=True, capture_output=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", folder)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    arguments = command(tmp_path / "file" / "run", data, "--backend", "reference")
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "choose a folder that you may write to with --out" in done.stderr
    assert "Traceback" not in done.stderr


# Numbers that are not finite


class Poison(Callback):
    """Puts an infinity into one lane of the model under way, after so many steps."""

    def __init__(self, steps: int, lane: int, name: str):
        self.left, self.lane, self.name = steps, lane, name

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.state.lanes.parameters[self.name][self.lane, ..., 0] = np.inf


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_loss_that_is_not_finite_stops_the_lane_and_not_the_run(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    tiny_runs.run(tmp_path / "whole", backend=backend, lanes=tiny_runs.MANY_LANES)
    warnings = tiny_runs.Warnings()
    trainer = tiny_runs.run(
        tmp_path / "a", Poison(6, 1, "conv2.weight"), warnings, backend=backend, lanes=tiny_runs.MANY_LANES
    )
    assert trainer.state.stopped == [{"lane": 1, "epoch": 2, "step": 3, "layer": "conv2"}]
    assert trainer.state.active == [0, 2, 3]
    assert "lane 1 (I-MLP alpha 0.3, every 3 steps) stopped" in warnings.texts[0]
    assert "epoch 2, step 3, from conv2 on" in warnings.texts[0]
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert [row["lane"] for row in result["models"]] == ["prior", 0, 2, 3]
    whole = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    last = {row["lane"]: row for row in whole if row["epoch"] == 3}
    for row in result["models"]:  # the others end as if nothing had happened
        assert row["test_accuracy"] == last[row["lane"]]["test_accuracy"]
        assert row["test_loss"] == pytest.approx(last[row["lane"]]["test_loss"], rel=1e-9)


class PoisonPrior(Poison):
    """The same for the prior."""

    def __init__(self, steps: int, name: str):
        super().__init__(steps, 0, name)

    def stepped(self, trainer: Trainer, images: int) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.state.prior.parameters[self.name][..., 0] = np.nan


def all_finite(folder: Path) -> bool:
    paths = list(folder.rglob("*.safetensors"))
    return all(np.isfinite(array).all() for path in paths for array in checkpoint.read(path)[0].values())


@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize("steps", [4, 12])
def test_weights_that_the_last_step_of_an_epoch_broke_are_neither_saved_nor_reported(backend, steps, tmp_path):
    if backend == "accel":
        needs("accel")
    warnings = tiny_runs.Warnings()
    trainer = tiny_runs.run(
        tmp_path, Poison(steps, 1, "conv2.weight"), warnings, backend=backend, lanes=tiny_runs.MANY_LANES
    )
    assert trainer.state.stopped == [{"lane": 1, "epoch": steps // 4, "step": 4, "layer": "conv2"}]
    assert f"stopped: its weights are not finite after epoch {steps // 4}, in conv2" in warnings.texts[0]
    assert all_finite(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if row["lane"] == 1] == list(range(1, steps // 4))
    assert [row["lane"] for row in rows if row["epoch"] == 3] == ["prior", 0, 2, 3]


@pytest.mark.parametrize(("steps", "kept"), [(4, ""), (8, r"its last good state is in checkpoint/; ")])
def test_a_prior_that_the_last_step_of_an_epoch_broke_ends_the_run(steps, kept, tmp_path):
    message = rf"the prior's weights are not finite after epoch {steps // 4}, in conv2; {kept}try a smaller --lr"
    with pytest.raises(RunError, match=message):
        tiny_runs.run(tmp_path, PoisonPrior(steps, "conv2.weight"), lanes=tiny_runs.MANY_LANES)
    assert all_finite(tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_a_state_that_is_not_finite_is_not_saved_when_the_run_is_stopped(tmp_path):
    """The next step finds the lane, and only then the run stops: it ends as one that nobody stopped."""
    poison = {"lane": 1, "name": "conv2.weight"}
    tiny_runs.run(tmp_path / "whole", Poison(6, **poison), tiny_runs.Warnings(), lanes=tiny_runs.MANY_LANES)
    with pytest.raises(Interrupted, match="in epoch 2 after step 3 of 4"):
        tiny_runs.run(
            tmp_path / "a", Poison(6, **poison), tiny_runs.StopAt(6), tiny_runs.Warnings(), lanes=tiny_runs.MANY_LANES
        )
    assert all_finite(tmp_path)
    tiny_runs.run(tmp_path / "a", lanes=tiny_runs.MANY_LANES, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "a")


def test_a_test_loss_that_is_not_finite_stops_the_lane(tmp_path):
    """Weights that are finite, but so large that the logits of the test images are not."""

    class Grow(Callback):
        def stepped(self, trainer: Trainer, images: int) -> None:
            if trainer.state.step == 4:
                trainer.state.lanes.parameters["head.weight"][2] = 1e308

    warnings = tiny_runs.Warnings()
    trainer = tiny_runs.run(tmp_path, Grow(), warnings, lanes=tiny_runs.lanes(0, 0.5, 1), epochs=1)
    assert trainer.state.stopped == [{"lane": 2, "epoch": 1, "step": 4, "layer": "the test loss"}]
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    assert "its test loss is not finite after epoch 1" in warnings.texts[0]


@pytest.mark.parametrize("settings", ["--lr 1e38 --epochs 1", "--lr 1e38 --epochs 3"])
def test_a_learning_rate_that_breaks_everything_is_an_error(settings, tmp_path):
    needs("accel")
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    options = ["--options=width=64", "--options=strides=[1,2,2]", "--batch=16", "--train-size=16", "--no-verify"]
    arguments = ["train", f"--data={data}", f"--out={tmp_path / 'run'}", *options, *settings.split()]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: the prior's")
    assert "not finite after epoch 1" in result.stderr
    assert "last good state" not in result.stderr
    assert not list((tmp_path / "run").glob("checkpoint/*"))


def test_a_device_that_is_looked_at_now_and_then_saves_no_broken_lane(tmp_path, monkeypatch):
    """As on CUDA: the check of the steps misses it, the sum of the epoch does not."""
    monkeypatch.setattr(Trainer, "_check_finite", property(lambda trainer: False))
    trainer = tiny_runs.run(tmp_path, Poison(6, 1, "conv2.weight"), tiny_runs.Warnings(), lanes=tiny_runs.MANY_LANES)
    assert [stop["lane"] for stop in trainer.state.stopped] == [1]
    for path in checkpoint.saved_files(tmp_path / "checkpoint"):
        assert all(np.isfinite(array).all() for array in checkpoint.read(path)[0].values())


def test_when_every_lane_has_stopped_the_prior_goes_on(tmp_path):
    trainer = tiny_runs.run(tmp_path, Poison(2, 0, "head.bias"), tiny_runs.Warnings(), lanes=tiny_runs.lanes(0))
    assert trainer.state.lanes is None
    assert [row["lane"] for row in trainer.state.rows if row["epoch"] == 3] == ["prior"]


class SpoilThePrior(Callback):
    def epoch_ended(self, trainer: Trainer, rows, seconds) -> None:
        trainer.state.prior.parameters["head.bias"][...] = np.nan


def test_a_prior_that_is_not_finite_ends_the_run_with_the_last_good_state(tmp_path):
    with (
        np.errstate(all="ignore"),
        pytest.raises(RunError, match=r"the prior's loss is not finite in epoch 1, .* on; try a smaller --lr"),
    ):
        tiny_runs.run(tmp_path / "at once", lanes=tiny_runs.MANY_LANES, lr=1e200)
    with pytest.raises(RunError, match=r"not finite in epoch 2, .* its last good state is in checkpoint/"):
        tiny_runs.run(tmp_path, SpoilThePrior(), lanes=tiny_runs.MANY_LANES)
    arrays, _ = checkpoint.newest(tmp_path / "checkpoint", pytest.fail)
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_more_lanes_than_memory_are_refused_with_how_many_would_fit(tmp_path, monkeypatch):
    """20,000 lanes of the paper's CNN pair would take some 2.5 TB, and none of it is asked for."""
    needs("accel")
    x, y = np.zeros((8, 3, 32, 32), np.uint8), np.arange(8)
    config = tiny_runs.config(backend="accel", options={}, lanes=tiny_runs.lanes(0.5) * 20_000)
    trainer = Trainer(config, Dataset("black", x, y, x, y, tuple("abcdefgh")), tmp_path)
    monkeypatch.setattr(StateFactory, "new", pytest.fail)
    for begin in (trainer.run, trainer.seconds_a_step):
        with pytest.raises(
            RunError, match=r"cnn with 20000 lanes needs about .* GiB on cpu, where .* GiB are free; about"
        ):
            begin()


def test_lanes_that_do_not_fit_are_refused_with_how_many_would(tmp_path, monkeypatch):
    trainer = Trainer(tiny_runs.config(lanes=tiny_runs.lanes(0, 0.3, 1)), tiny_runs.data(), tmp_path)
    need = trainer.memory()
    monkeypatch.setattr(machine, "free_memory", lambda device: need.total - 1)
    with pytest.raises(RunError, match=r"cnn with 3 lanes needs about .*; about 2 would fit: run the others apart"):
        trainer.run()
    monkeypatch.setattr(machine, "free_memory", lambda device: need.once)
    with pytest.raises(RunError, match=r"are free; take a smaller --batch or network$"):
        trainer.run()
    assert not (tmp_path / "config.toml").exists()
    monkeypatch.setattr(machine, "free_memory", lambda device: need.total)
    trainer.run()


def test_an_old_part_of_a_file_does_no_harm(tmp_path):
    (tmp_path / "checkpoint").mkdir(parents=True)
    (tmp_path / "checkpoint" / ".epoch00001-step000000.safetensors.1.part").write_bytes(b"half")
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.MANY_LANES)
    assert trainer.state.epoch == 3
    assert os.path.exists(tmp_path / "result.json")
