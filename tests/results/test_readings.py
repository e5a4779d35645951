"""The table of the readings that the paper leaves open."""

from pathlib import Path
from typing import Any

import pytest
import readings

from imlp.study.scores import arms_of
from imlp.train.config import Config, from_mapping
from imlp.train.run_reader import Run

LANES = [{"alpha": "0"}, {"alpha": "0.01"}]


def run(accuracies: list[tuple[float, float, float]], **settings: Any) -> Run:
    """A run with these accuracies of the S-CNN, the S-MLP and alpha 0.01 by epoch; finished if there are 100.

    The lowest test loss is that of the 90th epoch, and the lowest loss of images held out that of the 50th.
    """
    config = from_mapping(Config, {"data": "cifar10", "lanes": LANES, **settings})
    rows = [
        {"epoch": epoch + 1, "lane": lane, "test_accuracy": value / 100, "test_loss": abs(epoch - 89)}
        | ({"validation_loss": abs(epoch - 49)} if settings.get("validation") else {})
        for epoch, values in enumerate(accuracies)
        for lane, value in zip(("prior", 0, 1), values, strict=True)
    ]
    result = {"models": rows[-3:]} if len(accuracies) == 100 else None
    return Run(Path("run"), config, rows, [], {}, result)


def rising(top: tuple[float, float, float], epochs: int) -> list[tuple[float, float, float]]:
    return [tuple(value * (epoch + 1) / 100 for value in top) for epoch in range(epochs)]


def test_finished_runs_stand_beside_the_paper_in_its_standard_deviations():
    runs = [run(rising((63.8, 58.8, 51.5), 100)), run(rising((60.2, 58.36, 50.64), 100), augment="pad-mean")]
    accuracies, distances = readings.tables(runs)
    assert accuracies == (
        ["reading", "epoch", "S-CNN", "S-MLP", "alpha 0.01"],
        [
            ["pad, the default", "100", "63.8", "58.8", "51.5"],
            ["pad-mean", "100", "60.2", "58.4", "50.6"],
            ["the paper", "100", "62.6", "58.4", "51.5"],
        ],
    )
    assert distances[1][::3] == [
        ["pad, the default", "last epoch", "+1.0", "+1.0", "+0.0"],
        ["pad-mean", "last epoch", "-2.0", "+0.0", "-1.0"],
    ]
    five, lowest = (f"{(63.8 * share - 62.6) / 1.2:+.1f}" for share in (0.98, 0.9))
    assert [row[1:3] for row in distances[1][1:3]] == [["mean of the last five", five], ["lowest loss", lowest]]


def test_linear_decay_stands_beside_table_4():
    lanes = [{"alpha": "0"}, {"alpha": "decay:0.5:1", "every": "step"}]
    accuracies, distances = readings.tables([run(rising((62.6, 58.36, 50.65), 100), inputs="unit", lanes=lanes)])
    assert accuracies[0][-1] == distances[0][-1] == "linear decay"
    assert [row[-1] for row in accuracies[1]] == ["50.6", "48.3"]
    assert distances[1][0] == ["pixels from 0 to 1", "last epoch", "+0.0", "+0.0", "+1.0"]


def test_the_epoch_of_the_lowest_loss_is_found_by_the_images_held_out():
    """Halfway, in these runs; the test images decide only where none are held out."""
    _, distances = readings.tables([run(rising((60, 50, 40), 100), validation=5000)])
    assert distances[1][2][1:3] == ["lowest loss", f"{(30 - 62.6) / 1.2:+.1f}"]


def test_a_run_that_was_stopped_stands_with_its_epoch_unless_its_reading_is_finished():
    whole, half = run(rising((60, 50, 40), 100)), run(rising((30, 20, 10), 50), deterministic=True)
    stopped = run(rising((30, 20, 10), 50), inputs="unit", train_size=45_000)
    for runs in ([whole, half, stopped], [stopped, half, whole]):
        (_, rows), _ = readings.tables(runs)
        assert rows[:2] == [
            ["pad, the default", "100", "60.0", "50.0", "40.0"],
            ["pixels from 0 to 1, 45,000 images", "50", "15.0", "10.0", "5.0"],
        ]
    assert [row[0] for row in readings.tables([stopped])[0][1]] == ["pixels from 0 to 1, 45,000 images", "the paper"]


def test_the_mixer_stands_in_the_row_of_its_reading():
    runs = [run(rising((63.8, 58.8, 51.5), 100), augment="pad-mean")]
    runs += [run(rising((63.9, 1, 1), 100), network="mixer", **own) for own in ({"augment": "pad-mean"}, {})]
    runs += [run(rising((60, 1, 1), 50), network="mixer", options={"residual": False})]
    columns, rows = readings.tables(runs)[0]
    assert columns[-1] == "MLP-Mixer"
    assert rows == [
        ["pad, the default", "100", "", "", "", "63.9"],
        ["pad-mean", "100", "63.8", "58.8", "51.5", "63.9"],
        ["the Mixer not residual", "50", "", "", "", "30.0"],
        ["the paper", "100", "62.6", "58.4", "51.5", "63.4"],
    ]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"augment": "resized", "crop_area": "0.4,1", "crop_aspect": "1,1"}, "resized, area 0.4 to 1, aspect 1 to 1"),
        ({"validation": 5000}, "5,000 held out"),
        ({"train_size": 45_000}, "45,000 images"),
        ({"options": {"activated": [1, 5]}}, "norms after layers 1 and 5"),
    ],
)
def test_a_reading_is_named_by_what_is_not_the_default(settings, name):
    ((_, rows),) = readings.tables([run(rising((60, 50, 40), 2), **settings)])
    assert rows[0][0] == name


def test_the_paper_s_numbers_stand_beside_ours_read_in_four_ways():
    lanes = [{"alpha": "0.01"}, {"alpha": "end:0.5"}]
    runs = [run(rising((60, 50, 40), 100), lanes=lanes), run(rising((60, 50, 40), 100), inputs="unit")]
    columns, rows = readings.beside_paper(arms_of(runs))
    assert columns[2:] == ["last epoch", "mean of the last five", "at the lowest test loss", "highest", "the paper"]
    assert rows == [
        ["cnn, cifar10", "S-CNN", "60.0 (1)", "58.8", "54.0", "60.0", "62.6 ± 1.2"],
        ["cnn, cifar10", "I-MLP alpha 0.01", "50.0 (1)", "49.0", "45.0", "50.0", "51.5 ± 0.9"],
        [
            "cnn, cifar10",
            "I-MLP alpha end:0.5",
            "40.0 (1)",
            "",
            "",
            "",
            "48.6 ± 1.7",
        ],  # it is mixed after the last epoch only
    ]
    other = run(rising((60, 50, 40), 100), network="mlp2", options={"first_channels": 3, "first_stride": 1})
    assert readings.differences(other.config) == ["first channels 3", "first stride 1"]
    assert readings.beside_paper(arms_of([other]))[1] == []
    short = run(rising((60, 50, 40), 100), train_size=10_000)
    assert readings.beside_paper(arms_of([short]))[1] == []


@pytest.mark.parametrize("settings", [{"train_size": 10_000}, {"epochs": 10}, {"network": "mlp2"}, {"lr": 1e-3}])
def test_runs_of_another_kind_are_no_readings(settings):
    assert readings.tables([run(rising((60, 50, 40), 2), **settings)]) == []
