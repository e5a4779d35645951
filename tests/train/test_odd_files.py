"""Damaged checkpoints that a run encounters, and settings that cannot be."""

import pytest
import tiny
from test_resume import Poison

from imlp.errors import ConfigError
from imlp.train import checkpoint
from imlp.train.callbacks import Callback
from imlp.train.config import Config, Lane
from imlp.train.loop import Trainer


class Damage(Callback):
    """Damages every checkpoint after the first epoch."""

    def epoch_ended(self, trainer: Trainer, rows, seconds) -> None:
        for path in checkpoint.found(trainer.folder / "checkpoint"):
            path.write_bytes(path.read_bytes()[:1000])


def test_a_lane_that_stops_beside_damaged_checkpoints_is_kept_as_it_began(tmp_path):
    trainer = tiny.run(tmp_path, Damage(), Poison(6, 1, "conv2.weight"), lanes=tiny.lanes(0, 0.5))
    assert [stop["lane"] for stop in trainer.state.stopped] == [1]
    arrays, _ = checkpoint.newest(tmp_path / "stopped-lane1", pytest.fail)
    assert arrays["optimizer.step"] == 0


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
