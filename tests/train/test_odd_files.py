"""A full disk while the prior is recorded, and damaged checkpoints that a run encounters."""

import errno
import os

import numpy as np
import pytest
import tiny
from test_resume import Poison

from imlp.errors import ConfigError, FileError
from imlp.study.prior_recording import PriorRecording
from imlp.train import checkpoint
from imlp.train.callbacks import Callback
from imlp.train.config import Config, Lane
from imlp.train.loop import Trainer


@pytest.fixture
def path(tmp_path) -> PriorRecording:
    network = tiny.config().make_network((1, 8, 8), 3)
    made = PriorRecording(tmp_path / "run", network, [1], steps=100, dtype="float64", replays=False)
    made.begin()
    return made


def ones(path: PriorRecording) -> dict[str, np.ndarray]:
    return {name: np.ones(shape) for name, shape in path.shapes.items()}


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot allocate the blocks of a file")
def test_the_record_has_its_blocks_before_it_is_written_to(path):
    """Writing into a hole of a memory map raises SIGBUS if the disk is full."""
    path.record(0, 1, ones(path))
    (file,) = path.folder.glob("*.unfinished")
    found = file.stat()
    assert found.st_size > path.bytes(1)
    assert 512 * found.st_blocks >= found.st_size
    assert np.isnan(np.load(file)[1:, 0]).all()


def test_a_full_disk_is_an_error_and_leaves_nothing(path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(FileError, match=r"cannot write .*No space left on device"):
        path.record(0, 1, ones(path))
    assert os.listdir(path.folder) == ["cadences.json"]


class Damage(Callback):
    """Damages every checkpoint after the first epoch."""

    def epoch_ended(self, trainer: Trainer, rows, seconds) -> None:
        for path in checkpoint.found(trainer.folder / "checkpoint"):
            path.write_bytes(path.read_bytes()[:1000])


def test_a_lane_that_stops_beside_damaged_checkpoints_is_kept_as_it_began(tmp_path):
    trainer = tiny.run(tmp_path, Damage(), Poison(6, 1, "conv2.weight"), lanes=tiny.lanes(0, 0.5))
    assert [stop["lane"] for stop in trainer.state.stopped] == [1]
    arrays, _ = checkpoint.newest(tmp_path / "stopped-lane1", pytest.fail)
    assert arrays["adam.step"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": float("inf")},
        {"eps": float("inf")},
        {"lr": 10**400},
        {"threads": 10**30},
        {"epochs": 10**30},
        {"batch": 10**30},
        {"seed": 10**30},
        {"options": {"interpolated": []}},
        {"options": {"width": 10**9}},
        {"data": "\udcff"},
        {"lanes": [{"layers": ["conv1", "conv1"]}]},
        {"lanes": [{"layers": [["conv1"]]}]},
        {"lanes": [{"every": "9" * 5000}]},
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings):
    with pytest.raises(ConfigError):
        tiny.config(**settings)


def test_what_could_be_meant_is_taken():
    assert Config(threads=64, seed=10**12, options={"interpolated": ["conv1"]}).threads == 64
    assert Lane(every="00012").steps == 12
