"""The table of the readings that the paper leaves open."""

from pathlib import Path
from typing import Any

import beside_paper
import pytest
import readings

from imlp.study.scores import arms_of
from imlp.train.config import Config, from_mapping
from imlp.train.run_reader import Run

LOWEST = "of the lowest test loss"
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
    (columns, rows) = readings.tables(runs)["finished"]
    assert columns[:4] == ["reading", "after the epoch", "S-CNN", "from the paper, in its std"]
    assert rows[::3] == [
        ["pad, the default", "last", "63.8", "+1.0", "58.8", "+1.0", "51.5", "+0.0"],
        ["pad-mean", "last", "60.2", "-2.0", "58.4", "+0.0", "50.6", "-1.0"],
        ["the paper", "", "62.6", "", "58.4", "", "51.5", ""],
    ]
    (_, last, lowest) = [row[1:3] for row in rows[:3]]
    assert (last, lowest) == (["last five, their mean", f"{63.8 * 0.98:.1f}"], [LOWEST, f"{63.8 * 0.9:.1f}"])


def test_linear_decay_stands_beside_table_4():
    lanes = [{"alpha": "0"}, {"alpha": "decay:0.5:1", "every": "step"}]
    columns, rows = readings.tables([run(rising((62.6, 58.36, 50.65), 100), inputs="unit", lanes=lanes)])["finished"]
    assert columns[-2:] == ["linear decay", "from the paper, in its std"]
    assert rows[0] == ["pixels from 0 to 1", "last", "62.6", "+0.0", "58.4", "+0.0", "50.6", "+1.0"]
    assert rows[-1][-2:] == ["48.3", ""]


def test_the_epoch_of_the_lowest_loss_is_found_by_the_images_held_out():
    """Halfway, in these runs; the test images decide only where none are held out."""
    (_, rows) = readings.tables([run(rising((60, 50, 40), 100), validation=5000)])["finished"]
    assert [row[1:3] for row in rows[:3:2]] == [["last", "60.0"], ["of the lowest validation loss", "30.0"]]


def test_a_run_that_is_not_finished_hides_no_other_of_its_name():
    whole, half = run(rising((60, 50, 40), 100)), run(rising((30, 20, 10), 50), deterministic=True)
    for runs in ([whole, half], [half, whole]):
        found = readings.tables(runs)
        assert [row[2] for row in found["finished"][1][:1]] == ["60.0"]
        stopped = run(rising((30, 20, 10), 50), inputs="unit")
        (_, rows) = readings.tables([*runs, stopped])["stopped early"]
        assert [row[-2:] for row in rows if row[0] == "pixels from 0 to 1"] == [["30.0", "25.0"]]


def test_runs_that_were_stopped_stand_beside_the_default_at_the_same_epoch():
    runs = [run(rising((60, 50, 40), 100)), run(rising((30, 20, 10), 50), inputs="unit", train_size=45_000)]
    (_, rows) = readings.tables(runs)["stopped early"]
    assert rows == [["pixels from 0 to 1, 45,000 images", "50", "15.0", "10.0", "5.0", "30.0", "25.0"]]
    (alone,) = readings.tables(runs[1:]).values()
    assert alone == (
        ["reading", "epoch", "S-CNN", "S-MLP", "alpha 0.01"],
        [["pixels from 0 to 1, 45,000 images", "50", "15.0", "10.0", "5.0"]],
    )


def test_the_mixer_stands_in_the_row_of_its_reading():
    runs = [run(rising((63.8, 58.8, 51.5), 100), augment="pad-mean")]
    runs += [run(rising((63.9, 1, 1), 100), network="mixer", **own) for own in ({"augment": "pad-mean"}, {})]
    runs += [run(rising((60, 1, 1), 50), network="mixer", options={"residual": False})]
    found = readings.tables(runs)
    columns, rows = found["finished"]
    assert columns[-2:] == ["MLP-Mixer", "from the paper, in its std"]
    assert rows[::3] == [
        ["pad, the default", "last", "", "", "", "", "", "", "63.9", "+1.0"],
        ["pad-mean", "last", "63.8", "+1.0", "58.8", "+1.0", "51.5", "+0.0", "63.9", "+1.0"],
        ["the paper", "", "62.6", "", "58.4", "", "51.5", "", "63.4", ""],
    ]
    columns, rows = found["stopped early"]
    assert columns == ["reading", "epoch", "MLP-Mixer"]
    assert rows == [["the Mixer not residual", "50", "30.0"]]


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
    (_, rows) = readings.tables([run(rising((60, 50, 40), 2), **settings)])["stopped early"]
    assert rows[0][0] == name


def test_the_paper_s_numbers_stand_beside_ours_read_in_three_ways():
    lanes = [{"alpha": "0.01"}, {"alpha": "end:0.5"}]
    runs = [run(rising((60, 50, 40), 100), lanes=lanes), run(rising((60, 50, 40), 100), inputs="unit")]
    columns, rows = beside_paper.table(arms_of(runs))
    assert columns[2:] == ["last epoch", "mean of the last five", "at the lowest test loss", "the paper"]
    assert rows == [
        ["cnn, cifar10", "S-CNN", "60.0", "58.8", "54.0", "62.6 ± 1.2"],
        ["cnn, cifar10", "I-MLP alpha 0.01", "50.0", "49.0", "45.0", "51.5 ± 0.9"],
        ["cnn, cifar10", "I-MLP alpha end:0.5", "40.0", "", "", "48.6 ± 1.7"],  # it is mixed after the last epoch only
    ]
    other = run(rising((60, 50, 40), 100), network="mlp2", options={"first_channels": 3, "first_stride": 1})
    assert readings.differences(other.config) == ["first channels 3", "first stride 1"]
    assert beside_paper.table(arms_of([other]))[1] == []
    short = run(rising((60, 50, 40), 100), train_size=10_000)
    assert beside_paper.table(arms_of([short]))[1] == []


@pytest.mark.parametrize("settings", [{"train_size": 10_000}, {"epochs": 10}, {"network": "mlp2"}, {"lr": 1e-3}])
def test_runs_of_another_kind_are_no_readings(settings):
    assert readings.tables([run(rising((60, 50, 40), 2), **settings)]) == {}
