"""`report`: real runs of the trainer, the page's numbers, its files, and what a browser makes of it."""

import base64
import copy
import csv
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tiny
from conftest import needs
from PIL import Image
from typer.testing import CliRunner

from imlp.cli import app
from imlp.errors import ImlpError
from imlp.plot import run_figure
from imlp.reference import matrix
from imlp.spec.meter import PARTS
from imlp.study.optuna_search import Search
from imlp.study.report import figures, make, tables, write
from imlp.study.report.gather import gather
from imlp.study.report.weights import Weights, pictures
from imlp.study.scores import Arm, arms_of
from imlp.study.tasks import run_task
from imlp.train import checkpoint
from imlp.train.callbacks import Callback
from imlp.train.config import Lane
from imlp.train.export import parameters
from imlp.train.loop import Interrupted
from imlp.train.run_reader import find_runs, read_run

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><img src=x onerror=alert(1)>&\"' $x_1$ 100%"
ALPHAS = ("0", "1e-4", "1e-3", "1e-2", "0.1", "1")
LANES = tiny.lanes(
    *ALPHAS, ("0.01", {"every": "step"}), ("1", {"every": "step"}), "decay:0.5:2", ("decay:0.5:2", {"every": "step"}),
    "decay:0.5:4",
)  # fmt: skip


class Stop(Callback):
    """Asks the run to stop in its second epoch, as a signal's handler does."""

    def stepped(self, trainer, images):
        if trainer.state.epoch == 1:
            trainer.stop_requested = "SIGINT"


class Poison(Callback):
    """Makes lane 1 infinite in the second epoch, so that the trainer takes it out."""

    def stepped(self, trainer, images):
        if trainer.state.epoch == 1 and len(trainer.state.active) == 2:
            trainer.state.lanes.parameters["conv2.weight"][1, ..., 0] = np.inf


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """One arm of two seeds, and another with a run that is not finished and one with a lane that has stopped."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        tiny.run(root / "main" / f"seed{seed}", seed=seed, lanes=LANES)
    other = {"augment": "none", "lanes": tiny.lanes(0, 0.5)}
    tiny.run(root / "other" / "stopped", Poison(), **other)
    with pytest.raises(Interrupted):
        tiny.run(root / "other" / "unfinished", Stop(), seed=1, **other)
    main, others = arms_of(find_runs([root]))
    table = {"arm": "first arm", "model": HOSTILE, "mean": 50.5, "std": 1.5, "n": 2, "paper": 58.36, "paper_std": 0.44}
    experiment = {
        "name": "figure2", "title": "Figure 2 & more", "asks": "Is there a V?", "budget": "smoke",
        "command": "python cli.py reproduce figure2 --budget smoke",
        "arms": [
            {"name": "second arm", "key": others.key}, {"name": "first arm", "key": main.key},
            {"name": "absent arm", "key": "0"},
        ],
        "table": [
            table | {"difference": 50.5 - 58.36},
            table | {"model": "S-CNN"} | dict.fromkeys(("mean", "std", "paper", "paper_std", "difference")),
        ],
        "verdicts": [
            {"claim": "alpha 1 is the prior", "verdict": "holds", "because": "it is within 1 point"},
            {"claim": "the dip is near 5e-3", "verdict": "fails", "because": HOSTILE},
            {"claim": "it rises", "verdict": "cannot tell", "because": "two seeds are few"},
        ],
        "paper": [
            {"arm": "first arm", "model": "alpha 0.01", "alpha": 0.01, "value": 51.5, "std": 0.86},
            {"arm": "first arm", "model": "S-CNN", "alpha": None, "value": 62.6, "std": 1.2},
            {"arm": "second arm", "model": "alpha 0", "alpha": 0, "value": 58.36, "std": None},
        ],
    }  # fmt: skip
    (root / "main" / "experiment.json").write_text(json.dumps(experiment))
    return root


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory) -> Path:
    """The page, made by the command; its files are in the folder beside it."""
    path = tmp_path_factory.mktemp("page") / "deep" / "report.html"
    result = CliRunner().invoke(app, ["report", str(runs), "--out", str(path)])
    assert result.exit_code == 0, result.output
    assert f"written: {path} (open it in a browser); figures and tables: {path.parent / 'report'}/" in result.stdout
    return path


def run_all(tasks, data):
    return [run_task(task, data, ()) for task in tasks]


def run_trials(tasks, data):
    """As someone who presses Ctrl-C when the trials are done."""
    if tasks[0].folder.parent.name == "final":
        raise Interrupted("stopped by SIGINT", "")
    return run_all(tasks, data)


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    """A search over alpha with two seeds at the end, and one by layer that is not finished."""
    needs("optuna")
    root = tmp_path_factory.mktemp("searches")
    bars, settings = tiny.data(n=200), {"validation": 0.25, "trials": 14, "at_once": 7}
    Search(tiny.config(epochs=4), bars, root / "a", seeds=2, **settings).run(run_all)
    by_layer = Search(tiny.config(epochs=1), bars, root / "b", over="alpha-per-layer", **{**settings, "trials": 6})
    with pytest.raises(Interrupted):
        by_layer.run(run_trials)
    return root


@pytest.fixture(scope="module")
def page_of_searches(searched, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    result = CliRunner().invoke(app, ["report", str(searched), "--out", str(path)])
    assert result.exit_code == 0, result.output
    return path


def content_of(folder: Path) -> dict:
    return json.loads((folder / "search.json").read_text())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# Numbers


def test_the_table_holds_what_result_json_holds(runs, written):
    rows = {row["model"]: row for row in read_csv(written.with_suffix("") / "first-arm-results.csv")}
    results = [json.loads((runs / "main" / f"seed{seed}" / "result.json").read_text()) for seed in (0, 1)]
    assert len(rows) == 1 + len(LANES)
    for k, model in enumerate(results[0]["models"]):
        values = [100 * result["models"][k]["test_accuracy"] for result in results]
        prior = model["lane"] == "prior"
        row = rows["S-CNN (the prior)" if prior else model["name"]]
        assert float(row["mean, %"]) == pytest.approx(sum(values) / 2)
        assert float(row["std"]) == pytest.approx(statistics.stdev(values))
        assert [float(row["seed 0"]), float(row["seed 1"])] == pytest.approx(values)
        assert row["n"] == "2"
        assert int(row["parameters"]) == results[0]["parameters"]["prior" if prior else "dense"]
    step = rows["I-MLP alpha 0.01, every step"]
    assert (step["alpha"], step["cadence"]) == ("0.01", "every step")
    assert rows["I-MLP alpha decay:0.5:2, every epoch"]["alpha"] == "decay:0.5:2"
    seconds = [
        sum(value for name, value in json.loads(line).items() if name != "epoch")
        for seed in (0, 1)
        for line in (runs / "main" / f"seed{seed}" / "times.jsonl").read_text().splitlines()
    ]
    assert float(step["run time"]) == pytest.approx(sum(seconds) / 2)


def test_epochs_and_bias_are_means_over_the_seeds(runs, written):
    rows = [
        [json.loads(line) for line in (runs / "main" / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()]
        for seed in (0, 1)
    ]
    second = [next(row for row in own if row["epoch"] == 2 and row["lane"] == 5) for own in rows]
    table = read_csv(written.with_suffix("") / "first-arm-by-epoch.csv")
    assert [row["epoch"] for row in table] == ["1", "2", "3"]
    assert float(table[1]["I-MLP alpha 1, every epoch"]) == pytest.approx(
        50 * sum(row["test_accuracy"] for row in second)
    )
    last = [next(row for row in own if row["epoch"] == 3 and row["lane"] == 4) for own in rows]
    bias = read_csv(written.with_suffix("") / "first-arm-bias.csv")
    (found,) = [row for row in bias if (row["model"], row["layer"]) == ("I-MLP alpha 0.1, every epoch", "conv2")]
    for part in (*PARTS, "distance"):
        title = "distance to the prior" if part == "distance" else part
        assert float(found[title]) == pytest.approx(sum(row["bias"]["conv2"][part] for row in last) / 2)
    for part in PARTS:
        assert float(found[f"{part} in a random matrix"]) == last[0]["bias"]["conv2"][f"random_{part}"]


def write_old_rows(path):
    rows = tiny.in_old_form([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def test_runs_of_older_versions_show_what_is_shared(runs, tmp_path):
    """Alone, and beside a run of today: a mean over seeds is blank where one of them does not know it."""
    for seed in (0, 1):
        shutil.copytree(runs / "main" / f"seed{seed}", tmp_path / "both" / f"seed{seed}", symlinks=True)
    old = write_old_rows(tmp_path / "both" / "seed1" / "metrics.jsonl")
    shutil.copytree(tmp_path / "both" / "seed1", tmp_path / "alone" / "seed1")
    for folder in ("alone", "both"):
        (arm,) = gather(arms_of(find_runs([tmp_path / folder])))
        model = arm.models[-1]
        assert model.parts["local"][0] == model.parts["outside"][0] == [None] * 3
        shares = [row["bias"]["conv1"]["share"] for row in old if row["name"] == model.title]
        if folder == "alone":
            assert model.parts["shared"][0] == shares
            assert model.random["shared"][0] == old[1]["bias"]["conv1"]["random"]
            assert model.random["local"] == [None] * 3
        assert None not in model.parts["shared"][0]
        report = make([tmp_path / folder])
        (row, *_) = [row for row in rows_of(report, "bias") if row["layer"] == "conv1"]
        assert row["shared"]
        assert row["local"] == row["outside"] == ""
    assert "local or outside" in "".join(text.get_text() for text in meters(tmp_path / "alone" / "seed1"))


def rows_of(report, name):
    (content,) = [content for file, content in report.files.items() if file.endswith(f"-{name}.csv")]
    return list(csv.DictReader(io.StringIO(content.decode())))


def meters(folder):
    figure = run_figure(read_run(folder).rows, "test accuracy", "old")
    return figure.subfigs[1].legends[0].get_texts()


def test_the_figures_show_every_layer_of_every_lane(runs):
    """A bar per layer, cut at the parts: their lengths are the numbers of the last epoch."""
    folder = runs / "main" / "seed0"
    figure = run_figure(read_run(folder).rows, "test accuracy", "a run")
    last = read_run(folder).result["models"][1:]
    first, *panels = [axes for axes in figure.subfigs[1].axes if axes.patches]
    assert len(panels) == len(last) == len(LANES)
    for axes, prefix, row in zip([first, *panels], ["random_", *[""] * len(last)], [last[0], *last], strict=True):
        widths = np.reshape([bar.get_width() for bar in axes.patches], (3, 3))
        expected = [[own[prefix + part] for own in row["bias"].values()] for part in PARTS]
        np.testing.assert_allclose(widths, expected, atol=1e-12)
    assert [text.get_text() for text in first.get_yticklabels()] == list(last[0]["bias"])


def test_series_share_alpha_0_and_differ_in_alpha_alone(runs):
    (arm,) = gather(arms_of(find_runs([runs / "main"])))
    assert [series.name for series in arm.series] == ["once per epoch", "every step"]
    assert [series.alphas for series in arm.series] == [[0, 1e-4, 1e-3, 1e-2, 0.1, 1], [0, 0.01, 1]]
    assert arm.series[0].means[0] == arm.series[1].means[0] == arm.models[1].mean
    assert arm.series[0].fit is not None
    assert arm.series[1].fit is None
    assert arm.ticks == [0, 1e-4, 1e-3, 1e-2, 0.1, 1]


def test_no_two_models_are_drawn_alike(runs):
    (arm,) = gather(arms_of(find_runs([runs / "main"])))
    styles = [str(style) for style in figures._styles(arm.models, arm)]
    assert len(set(styles)) == len(styles) == 1 + len(LANES)
    shades = {model.title: (model.shade, model.series) for model in arm.models}
    assert shades["I-MLP alpha decay:0.5:2, every epoch"] == (shades["I-MLP alpha decay:0.5:2, every step"][0], 0)
    assert shades["I-MLP alpha decay:0.5:2, every step"][1] == shades["I-MLP alpha 1, every step"][1] == 1


def test_the_fit_is_written_out(written):
    (row,) = read_csv(written.with_suffix("") / "first-arm-fits.csv")
    text = written.read_text()
    assert f"meet at alpha {float(row['lines meet at alpha']):.2g}" in text
    for side in ("left", "right"):
        slope = float(row[f"{side}, points per decade"])
        assert f"{'rises' if slope >= 0 else 'falls'} by {abs(slope):.2f}" in text
        assert f"(R² {float(row[f'{side} R²']):.3f}" in text


def test_what_differs_tells_arms_apart(runs):
    names = [arm.name for arm in gather(arms_of(find_runs([runs])))]
    assert names == ["cnn on bars, augment pad", "cnn on bars, augment none"]


def test_where_arms_differ_in_much_only_what_is_not_the_default_is_told(tmp_path):
    for name, more in (("a", {}), ("b", {"augment": "none"}), ("c", {"augment": "none", "inputs": "unit"})):
        tiny.run(tmp_path / name, epochs=1, lanes=tiny.lanes(0), **more)
    names = [arm.name for arm in gather(arms_of(find_runs([tmp_path])))]
    assert names == ["cnn on bars", "cnn on bars, augment none", "cnn on bars, augment none, inputs unit"]


def test_many_remarks_are_folded(tmp_path):
    for seed in range(5):
        tiny.run(tmp_path / str(seed), epochs=1, seed=seed, lanes=tiny.lanes(0))
        (tmp_path / str(seed) / "result.json").unlink()
    assert "<summary>5 remarks</summary>" in make([tmp_path]).page
    shutil.rmtree(tmp_path / "4")
    page = make([tmp_path]).page
    assert "Not all is there" in page
    assert "remarks</summary>" not in page


# Searches


def test_the_trials_are_a_table_of_what_search_json_holds(searched, page_of_searches):
    for n, folder in enumerate(("a", "b"), start=1):
        content = content_of(searched / folder)
        rows = read_csv(page_of_searches.with_suffix("") / f"search{n}-trials.csv")
        trials = {trial["number"]: trial for trial in content["trials"]}
        assert sorted(int(row["trial"]) for row in rows) == sorted(trials)
        values = [float(row["validation accuracy, %"]) for row in rows if row["state"].startswith("complete")]
        assert values == sorted(values, reverse=True)
        for row in rows:
            trial = trials[int(row["trial"])]
            chosen = " (chosen)" * (trial["number"] == content["chosen"]["number"])
            assert (row["lane"], row["state"]) == (trial["title"], trial["state"] + chosen)
            assert float(row["validation accuracy, %"]) == trial["values"][-1]
            assert row["after epoch"] == str(len(trial["values"]))
            assert row["run"] == "{}, lane {}".format(*trial["run"])
            columns = {"all layers": "alpha"} if n == 1 else {c: f"alpha {c}" for c in ("conv1", "conv2", "conv3")}
            alphas = {layer: float(row[column]) for layer, column in columns.items()}
            same = trial["alphas"].get("all layers")
            assert alphas == (trial["alphas"] if same is None else dict.fromkeys(columns, same))
    assert {"complete", "pruned"} == {trial["state"] for trial in content_of(searched / "a")["trials"]}


def test_the_choice_stands_beside_alpha_0_alpha_1_and_the_prior(searched, page_of_searches):
    content, folder = content_of(searched / "a"), page_of_searches.with_suffix("")
    rows = {row["model"].removesuffix(" (chosen)"): row for row in read_csv(folder / "search1-final.csv")}
    assert {"S-CNN (prior)", "S-MLP (alpha 0)", "I-MLP alpha 1, every step", content["chosen"]["title"]} == set(rows)
    assert rows[content["chosen"]["title"]]["model"].endswith(" (chosen)")
    for final in content["final"]:
        row, seeds = rows[final["title"]], final["test"]["by_seed"].values()
        assert float(row["validation accuracy, %"]) == final["validation"]
        assert float(row["test accuracy, mean, %"]) == pytest.approx(statistics.mean(seeds))
        assert float(row["std"]) == pytest.approx(statistics.stdev(seeds))
        assert [float(row["seed 0"]), float(row["seed 1"])] == [*seeds]
    by_layer = {row["layer"]: row["alpha"] for row in read_csv(folder / "search1-chosen.csv")}
    assert by_layer == content["chosen"]["alpha"]
    text = page_of_searches.read_text()
    best = content["chosen"]
    assert f"Trial {best['number']}, {best['title']}: validation accuracy {best['value']:.2f} %" in text
    assert "judged by their accuracy on 50 of 200 training images, which were held out" in text


def test_an_unfinished_search_is_shown_as_such(searched, page_of_searches):
    text = page_of_searches.read_text()
    resume = "the same search command resumes it."
    assert f"<li>Search over alpha-per-layer: cnn on bars is unfinished; {resume}</li>" in text
    finished, unfinished = re.findall(r'<section class="search".*?</section>', text, re.S)
    assert "cnn on bars (unfinished)</h2>" in unfinished
    assert f"There is no test yet; {resume}" in unfinished
    assert "<h3>The best so far</h3>" in unfinished
    assert "unfinished" not in finished
    assert not (page_of_searches.with_suffix("") / "search2-final.csv").exists()


def test_validation_accuracy_is_never_called_test_accuracy(searched, page_of_searches):
    text, folder = page_of_searches.read_text(), page_of_searches.with_suffix("")
    arms = {arm.id: arm for arm in gather(arms_of(find_runs([searched])))}
    measures = {name: arm.measure for name, arm in arms.items()}
    judged = {"cnn-bars-validation-0-25", "cnn-bars-validation-0-25-2"}
    assert measures == {"cnn-bars": "test accuracy"} | dict.fromkeys(judged, "validation accuracy")
    sections = dict(re.findall(r'<section class="arm" id="([^"]+)"(.*?)</section>', text, re.S))
    assert sections.keys() == arms.keys()
    for name, measure in measures.items():
        other = ({"test accuracy", "validation accuracy"} - {measure}).pop()
        assert measure.capitalize() in sections[name]
        assert other not in sections[name].lower()
        files = [
            path
            for path in folder.iterdir()
            if re.fullmatch(rf"{name}-(alpha|epochs).svg|{name}-results.tex", path.name)
        ]
        assert len(files) == 3
        for path in files:
            drawn = path.read_text().lower()
            assert measure in drawn
            assert other not in drawn
    assert 'Trials of a search (<a href="#search1">Search over alpha: cnn on bars</a>)' in sections[min(judged)]


def test_a_search_without_its_runs_is_shown(searched, tmp_path):
    shutil.copy(searched / "a" / "search.json", tmp_path)
    report = make([tmp_path])
    assert '<section class="search"' in report.page
    assert '<section class="arm"' not in report.page


def test_hostile_names_in_a_search(searched, tmp_path):
    content = content_of(searched / "b")
    for trial in content["trials"]:
        trial |= {"title": HOSTILE, "kind": HOSTILE, "alphas": {HOSTILE: 0.5, "conv2": 0.5}, "run": [HOSTILE, 0]}
    (tmp_path / "search.json").write_text(json.dumps(content | {"data": HOSTILE, "every": HOSTILE, "over": HOSTILE}))
    report = make([tmp_path])
    found = Found()
    found.feed(report.page)
    assert found.outside == found.handlers == []
    assert found.tags.count("script") == 2
    ET.fromstring(report.files["search1-trials.svg"])
    for name in ("trials", "chosen"):
        check_latex(report.files[f"search1-{name}.tex"].decode())


# What is missing


def test_unfinished_runs_and_stopped_lanes_are_listed(runs, written):
    text = written.read_text()
    assert "4 runs (3 finished, 1 not) in 2 arms" in text
    assert "other/unfinished is unfinished: 1 of 3 epochs; it is in no mean." in text
    assert re.search(
        r"I-MLP alpha 0.5, every epoch stopped in \S*other/stopped: its loss was not finite in epoch 2, step", text
    )
    rows = {row["model"]: row for row in read_csv(written.with_suffix("") / "second-arm-results.csv")}
    assert rows["S-MLP (alpha 0)"]["remark"] == "seed 1 is unfinished"
    lost = rows["I-MLP alpha 0.5, every epoch"]
    assert (lost["mean, %"], lost["n"]) == ("", "0")
    assert lost["remark"] == "seed 0 stopped in epoch 2; seed 1 is unfinished"
    states = [row["state"] for row in read_csv(written.with_suffix("") / "second-arm-runs.csv")]
    assert states == ["finished; stopped: lane 1", "unfinished: 1 of 3 epochs"]


def test_a_run_without_an_epoch_is_listed(runs, tmp_path):
    shutil.copytree(runs / "other" / "unfinished", tmp_path / "new")
    for name in ("metrics.jsonl", "times.jsonl"):
        (tmp_path / "new" / name).unlink()
    report = make([tmp_path])
    assert "unfinished: 0 of 3 epochs" in report.page
    assert "No epoch is complete yet." in report.page
    assert not any(name.endswith("epochs.svg") for name in report.files)


def test_the_same_lane_and_seed_twice_is_told_if_the_results_differ(runs, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(runs / "other" / "stopped", tmp_path / name)
    assert "more than once" not in make([tmp_path]).page
    metrics = tmp_path / "b" / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps({**row, "test_accuracy": 0.5}) + "\n" for row in rows))
    warning = "S-MLP (alpha 0) was run more than once with seed 0, and differently; the last folder counts."
    assert warning in make([tmp_path]).page


# The first layer


def test_the_pictures_are_rows_of_the_trained_matrices(runs):
    """Against the arrays that `export` hands out."""
    (arm,) = gather(arms_of(find_runs([runs / "main"])))
    assert isinstance(arm.weights, Weights)
    assert arm.weights.where == "seed 0, after epoch 3"
    assert [title for title, _ in arm.weights.images][:2] == ["S-CNN (the prior): W_P", "S-MLP (alpha 0)"]
    assert len(arm.weights.images) == 1 + len(LANES)
    network, prior = parameters(runs / "main" / "seed0", "prior")
    rows = arm.weights.rows
    W_P = matrix(network.layers[0].spec, prior["conv1.weight"]).toarray()[rows]
    images = dict(arm.weights.images)
    np.testing.assert_array_equal(images["S-CNN (the prior): W_P"], pictures(W_P, (1, 8, 8)))
    _, lane = parameters(runs / "main" / "seed0", 4)  # one channel: its std is a factor that the scaling takes out
    np.testing.assert_allclose(
        images["I-MLP alpha 0.1, every epoch"], pictures(lane["conv1.weight"][rows], (1, 8, 8)), atol=1
    )
    np.testing.assert_array_equal(images["I-MLP alpha 1, every epoch"], images["S-CNN (the prior): W_P"])
    assert (images["S-MLP (alpha 0)"] != images["S-CNN (the prior): W_P"]).any()


def test_pictures_in_colour():
    row = np.zeros((1, 3, 2, 2))
    row[0, :, 0, 1] = 2, -2, 1
    (picture,) = pictures(row.reshape(1, 12), (3, 2, 2))
    assert picture[0, 1].tolist() == [255, 0, 191]
    assert picture[1, 1].tolist() == [128, 128, 128]


def test_a_run_without_its_weights_says_so(runs, tmp_path):
    shutil.copytree(runs / "main" / "seed0", tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoint"))
    report = make([tmp_path])
    assert "on record without their weights" in report.page
    assert not any("weights" in name for name in report.files)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    tiny.run(tmp_path / "run", lanes=LANES, keep_moments=True)
    newest, before = checkpoint.found(tmp_path / "run" / "checkpoint")
    newest.write_bytes(newest.read_bytes()[:100])
    (arm,) = gather(arms_of(find_runs([tmp_path])))
    assert isinstance(arm.weights, Weights)
    assert arm.weights.where == "seed 0, after epoch 2"
    before.unlink()
    (arm,) = gather(arms_of(find_runs([tmp_path])))
    assert isinstance(arm.weights, str)


def test_lanes_that_lie_in_several_runs_are_all_shown(tmp_path):
    for name, alpha in (("a", 0), ("b", 1)):
        tiny.run(tmp_path / name, epochs=1, lanes=tiny.lanes(alpha))
    (arm,) = gather(arms_of(find_runs([tmp_path])))
    assert isinstance(arm.weights, Weights)
    assert [title for title, _ in arm.weights.images][1:] == [
        Lane(alpha="0").title,
        Lane(alpha="1", every="epoch").title,
    ]


def test_an_mlp_trained_without_a_prior_is_the_s_mlp_of_its_arm(tmp_path):
    """`--coupling self --alpha 0` trains it alone; the prior's numbers come from the runs that have one."""
    for seed in (0, 1):
        tiny.run(tmp_path / f"alone{seed}", epochs=1, seed=seed, lanes=tiny.lanes(0, coupling="self"))
        tiny.run(tmp_path / f"mixed{seed}", epochs=1, seed=seed, lanes=tiny.lanes(1))
    (arm,) = arms_of(find_runs([tmp_path]))
    alone = arm.score(Lane(alpha="0"))
    assert alone is not None
    assert alone.n == 2
    (shown,) = gather([arm])
    assert [model.title for model in shown.models] == [
        "S-CNN (the prior)",
        "S-MLP (alpha 0)",
        Lane(alpha="1", every="epoch").title,
    ]
    assert all(model.epochs == [1] for model in shown.models)
    assert shown.series[0].alphas == [0, 1]
    assert len(shown.weights.images) == 3
    for order in (1, -1):  # whichever of the runs comes first
        (shown,) = gather([Arm(arm.runs[::order])])
        assert len(shown.weights.images) == 3
        assert all(model.epochs == [1] for model in shown.models)
    (alone,) = gather(arms_of(find_runs([tmp_path / "alone0"])))
    assert alone.models[0].remark == "not trained: no lane needs it"


def test_two_knobs_that_no_finished_run_has_are_not_drawn(tmp_path):
    """As while a grid of locality and sharing is being trained."""
    tiny.run(tmp_path / "plain", epochs=2, lanes=tiny.lanes(0, coupling="self"))
    grid = [{"alpha": "1", "alpha_sharing": "0"}, {"alpha": "0", "alpha_sharing": "1"}]
    lanes = [{"every": "step", "coupling": "self", **own} for own in grid]
    with pytest.raises(Interrupted):
        tiny.run(tmp_path / "grid", Stop(), epochs=2, lanes=lanes)
    (arm,) = gather(arms_of(find_runs([tmp_path])))
    assert [model.mean is None for model in arm.models] == [True, False, True, True]
    assert "knobs" not in figures.of_arm(arm)


def test_many_models_by_epoch_have_a_panel_for_each_series():
    """Each with the prior and the plain MLP, in colours of its own; a few models share one panel."""
    several = ["mixed once per epoch", "mixed every step", "others"]
    for name, titles in (("cnn-paper", several), ("decay", several), ("cnn-pad-mean", ["cnn on cifar10"])):
        (arm,) = gather(arms_of(find_runs([ROOT / "results" / name])))
        panels = figures.by_epoch(arm).axes
        assert [panel.get_title() for panel in panels] == titles
        drawn = [[(line.get_label(), line.get_color(), line.get_linestyle()) for line in p.get_lines()] for p in panels]
        lines = [{title: (colour, dashes) for title, colour, dashes in own} for own in drawn]
        assert {title for own in lines for title in own} == {model.title for model in arm.models}
        assert all({"S-CNN (the prior)", "S-MLP (alpha 0)"} < set(own) for own in lines)
        assert all(len(set(own.values())) == len(own) for own in lines)


def test_a_mixer_too(tmp_path):
    options = {"patch": 4, "channels": 6, "depth": 1}
    tiny.run(tmp_path / "run", epochs=1, network="mixer", options=options, lanes=tiny.lanes(0, 1))
    report = make([tmp_path])
    assert "MLP-Mixer (the prior)" in report.page
    assert "mixer-bars-weights.png" in report.files


# Files


def test_every_figure_and_table_is_a_file_and_a_link(written):
    folder = written.with_suffix("")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    figures = {f"first-arm-{name}" for name in ("alpha", "epochs", "bias", "weights")}
    assert {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")} <= names
    tables = {"results", "fits", "by-epoch", "bias", "runs", "settings", "environment"}
    wanted = {f"first-arm-{name}" for name in tables} | {"experiment1", "experiment1-verdicts"}
    assert {f"{name}.{suffix}" for name in wanted for suffix in ("csv", "tex")} <= names
    links = dict(re.findall(r'<a download="([^"]+)" href="data:[^;]+;base64,([^"]+)"', written.read_text()))
    assert links.keys() == names
    for name, content in links.items():
        assert base64.b64decode(content) == (folder / name).read_bytes()


def test_pictures_and_tables_parse(written):
    for path in written.with_suffix("").iterdir():
        match path.suffix:
            case ".svg":
                assert ET.parse(path).getroot().tag.endswith("svg")
            case ".png":
                with Image.open(path) as image:
                    image.load()
                    assert min(image.size) > 100
            case ".csv":
                with path.open(newline="") as file:
                    head, *rows = csv.reader(file)
                assert rows
                assert {len(row) for row in rows} == {len(head)}
            case ".tex":
                check_latex(path.read_text())


def check_latex(text: str) -> None:
    """A tabular with the rules in order, as many cells in each line as columns, and nothing special unescaped."""
    begin, *lines, end = [line for line in text.splitlines() if not line.startswith("%")]
    columns = len(re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", begin)[1])
    assert end == r"\end{tabular}"
    rules = [line for line in lines if line.startswith(("\\toprule", "\\midrule", "\\bottomrule"))]
    assert rules == ["\\toprule", "\\midrule", "\\bottomrule"]
    for line in (line for line in lines if line not in rules):
        assert line.endswith(r" \\")
        plain = re.sub(r"\\text\w+\{\}|\\[&%$#_{}]", "", line.removesuffix(r" \\"))
        assert plain.count("&") == columns - 1
        assert not set("%$#_{}~^\\<>") & set(plain), line


def test_the_svg_shows_the_paper_the_prior_and_the_fit(written):
    text = (written.with_suffix("") / "first-arm-alpha.svg").read_text()
    for part in ("the paper", "S-CNN", "once per epoch", "every step", "points per decade"):
        assert part in text


def test_the_same_runs_give_the_same_files(runs):
    assert make([runs / "other"]).files == make([runs / "other"]).files


def test_files_of_an_earlier_report_go_and_others_stay(runs, tmp_path):
    path, run, mine = (tmp_path / name for name in ("report.html", "run", "report/mine.csv"))
    shutil.copytree(runs / "other" / "stopped", run)
    assert CliRunner().invoke(app, ["report", str(run), "--out", str(path)]).exit_code == 0
    mine.write_text("kept")
    shutil.rmtree(run / "checkpoint")
    assert (tmp_path / "report" / "cnn-bars-weights.png").exists()
    assert CliRunner().invoke(app, ["report", str(run), "--out", str(path)]).exit_code == 0
    assert mine.read_text() == "kept"
    assert (tmp_path / "report" / "cnn-bars-results.csv").exists()
    assert not list((tmp_path / "report").glob("*weights*"))


# The page as text


class Found(HTMLParser):
    """Every tag and every attribute that could fetch something or run."""

    def __init__(self):
        super().__init__()
        self.tags, self.outside, self.handlers = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        addresses = [value for name, value in attributes if name in ("src", "href")]
        self.outside += [value for value in addresses if not value.startswith(("data:", "#"))]


def test_nothing_comes_from_outside_and_nothing_hostile_gets_in(written):
    text = written.read_text()
    found = Found()
    found.feed(text)
    assert found.outside == found.handlers == []
    assert found.tags.count("script") == 2
    assert "<img src=x" not in text
    assert "@import" not in text
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;" in text
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert [arm["name"] for arm in json.loads(embedded)] == ["second arm", "first arm"]  # in the experiment's order


def test_hostile_names_of_data_and_folders(tmp_path):
    folder = tmp_path / "<b onclick=x>"
    tiny.run(folder, epochs=1, data=HOSTILE, lanes=tiny.lanes(0))
    report = make([tmp_path])
    found = Found()
    found.feed(report.page)
    assert found.outside == found.handlers == []
    assert found.tags.count("script") == 2
    assert found.tags.count("b") == 0
    assert all(re.fullmatch(r"[a-z0-9-]+\.(svg|png|csv|tex)", name) for name in report.files)
    for name, content in report.files.items():
        if name.endswith(".svg"):
            ET.fromstring(content)
        if name.endswith(".tex"):
            check_latex(content.decode())


def test_the_experiment_comes_first(written):
    text = written.read_text()
    assert "<h1>Figure 2 &amp; more</h1>" in text
    assert text.index("Is there a V?") < text.index('<section class="arm"')
    assert "absent arm: no run of it" in text
    assert '<a href="#first-arm">first arm</a>' in text
    for mark, verdict in (("✓", "holds"), ("✗", "fails"), ("?", "cannot tell")):
        assert f"{mark}</span> {verdict}</strong>" in text
    ours, prior = read_csv(written.with_suffix("") / "experiment1.csv")
    assert float(ours["difference"]) == pytest.approx(-7.86)
    assert (ours["model"], ours["paper, %"], ours["paper's std"]) == (HOSTILE, "58.36", "0.44")
    assert prior["mean, %"] == ""


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "there is no folder nowhere; name folders that train, sweep or reproduce have written"),
        (("empty",), "there is no run in empty"),
        (("main", "--out", "page.txt"), "page.txt does not end in .html"),
        (("main", "--out", "folder.html"), "cannot write folder.html"),
        (("main", "--out", "file/report.html"), "cannot write file/report.html"),
        (("main/seed0", "--out", "taken.html"), "cannot make the folder taken"),
        (("broken",), "cannot read"),
        (("half",), "half/experiment.json: 'name' is missing; let reproduce write it again"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(runs, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("main").symlink_to(runs / "main")
    for name in ("empty", "folder.html"):
        Path(name).mkdir()
    for name in ("file", "taken"):
        Path(name).write_text("")
    for name in ("broken", "half"):
        shutil.copytree(runs / "main" / "seed0", name)
    Path("broken/metrics.jsonl").write_text('{"epoch": 1')
    Path("half/experiment.json").write_text('{"arms": []}')
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def without_each_key(value, path=()):
    """The value without one of its keys, for each of them; of a list only the last item is tried."""
    if isinstance(value, dict):
        for key in value:
            yield ".".join((*path, key)), {k: v for k, v in value.items() if k != key}
            yield from ((name, value | {key: inner}) for name, inner in without_each_key(value[key], (*path, key)))
    elif isinstance(value, list) and value:
        yield from ((name, [*value[:-1], inner]) for name, inner in without_each_key(value[-1], path))


def refused(path: Path, content, read) -> set[str]:
    """The keys without which the file is refused, in one line that names it; with the others missing it is read."""
    found, whole = {}, path.read_text()
    for name, broken in without_each_key(copy.deepcopy(content)):
        lines = [json.dumps(row) + "\n" for row in broken] if path.suffix == ".jsonl" else [json.dumps(broken)]
        path.write_text("".join(lines))
        try:
            read()
        except ImlpError as error:
            found[name] = str(error)
    path.write_text(whole)
    for message in found.values():
        assert message.startswith(f"cannot read {path.resolve()}")
        assert " is missing; " in message
        assert "\n" not in message
    return set(found)


def test_a_run_that_lacks_a_key_is_refused_by_the_name_of_the_file(runs, tmp_path):
    shutil.copytree(runs / "other" / "stopped", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint"))
    path = tmp_path / "run"

    def read():
        for arm in gather(arms_of(find_runs([tmp_path]))):
            tables.of_arm(arm)

    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    of_model = {"lane", "test_accuracy"}
    keys = ["", *(f".{of}{part}" for of in ("", "random_") for part in PARTS)]  # the distance needs a prior
    meter = {f"bias.{layer}{key}" for layer in ("conv1", "conv2", "conv3") for key in keys}
    assert refused(path / "metrics.jsonl", rows, read) == {"epoch", "bias"} | of_model | meter
    old = write_old_rows(path / "metrics.jsonl")
    meter = {f"bias.{layer}{key}" for layer in ("conv1", "conv2", "conv3") for key in ("", ".random", ".distance")}
    meter |= {f"bias.{layer}.share" for layer in ("conv1", "conv2", "conv3")}  # then it is no row of either version
    found = {name.replace(".shared", ".share") for name in refused(path / "metrics.jsonl", old, read)}
    assert found == {"epoch", "bias"} | of_model | meter
    prior = [row for row in rows if row["lane"] == "prior"]
    assert refused(path / "metrics.jsonl", prior, read) == {"epoch"} | of_model
    result = json.loads((path / "result.json").read_text())
    parts = {"models": of_model, "stopped": {"lane", "epoch", "step", "layer"}, "parameters": {"prior", "dense"}}
    wanted = {*parts} | {f"{part}.{key}" for part, keys in parts.items() for key in keys}
    assert refused(path / "result.json", result, read) == wanted
    env = json.loads((path / "env.json").read_text())
    assert refused(path / "env.json", env, read) == {"command", "started"}


def test_a_search_or_an_experiment_that_lacks_a_key_is_refused_by_the_name_of_the_file(runs, searched, tmp_path):
    shutil.copy(searched / "a" / "search.json", tmp_path)
    content = content_of(tmp_path)
    wanted = {name for name, _ in without_each_key(content)}
    free = {
        name for name in wanted if re.match(r"(trials|chosen)\.lane\.(?!every)|chosen.lane.every|final.lane\.", name)
    }
    free |= {name for name in wanted if re.match(r"(trials\.alphas|chosen\.alpha|final\.test\.by_seed)\.", name)}
    assert refused(tmp_path / "search.json", content, lambda: make([tmp_path])) == wanted - free
    shutil.copy(runs / "main" / "experiment.json", tmp_path)
    content = json.loads((tmp_path / "experiment.json").read_text())
    keys = {name for name, _ in without_each_key(content)}
    assert refused(tmp_path / "experiment.json", content, lambda: make([tmp_path])) == keys


@pytest.mark.parametrize("text", ["[]", "3", "null", '"text"', '{"lane": []}', '{"models": 3, "trials": {}}'])
def test_json_of_another_shape_is_one_line_too(runs, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    for name in ("metrics.jsonl", "times.jsonl", "result.json", "env.json", "experiment.json", "search.json"):
        shutil.copytree(runs / "other" / "stopped", "run", ignore=shutil.ignore_patterns("checkpoint"))
        (Path("run") / name).write_text(text)
        result = CliRunner().invoke(app, ["report", "run"])
        assert result.exit_code == 2, (name, result.output)
        assert f"run/{name}" in result.stderr
        assert result.stderr.count("\n") == 1
        shutil.rmtree("run")


def test_it_needs_no_torch(runs, tmp_path):
    code = "import sys; sys.modules['torch'] = None; from imlp.cli import app; app()"
    command = [sys.executable, "-c", code, "report", str(runs / "other"), "--out", str(tmp_path / "a.html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").exists()


# In a browser


def open_all(page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")


@pytest.fixture
def shown(page, written):
    page.goto(written.as_uri())
    open_all(page)
    page.wait_for_selector("#first-arm-bias-chart svg rect")
    return page


def test_one_experiment_is_open_and_the_rest_of_it_folded(page, written):
    page.goto(written.as_uri())
    assert page.locator("h1").inner_text() == "Figure 2 & more"
    assert page.locator("#first-arm-alpha-chart .plot svg").is_visible()
    assert not page.locator("#first-arm-bias-chart .plot svg").is_visible()
    assert page.locator("table.overview").count() == 0
    assert page.locator(".lead").inner_text().startswith("Test accuracy after 3 epochs, ")


def test_one_run_is_shown_as_one_run(page, runs, tmp_path):
    shutil.copytree(runs / "main" / "seed0", tmp_path / "runs" / "only")
    (tmp_path / "a.html").write_text(make([tmp_path / "runs"]).page)
    page.goto((tmp_path / "a.html").as_uri())
    assert page.locator("h1").inner_text() == "cnn on bars"
    assert page.locator("section").count() == 1
    assert page.locator("#cnn-bars-alpha-chart .plot svg").is_visible()
    assert page.locator(".weights img").first.is_visible()
    assert "1 seed:" in page.locator(".lead").inner_text()


def test_an_experiment_whose_runs_another_one_shows_has_their_figure_too(runs, tmp_path):
    shutil.copytree(runs / "main", tmp_path / "first")
    (tmp_path / "second").mkdir()
    experiment = json.loads((tmp_path / "first" / "experiment.json").read_text())
    (tmp_path / "second" / "experiment.json").write_text(json.dumps({**experiment, "name": "again"}))
    page = make([tmp_path]).page
    assert page.count('id="first-arm-alpha-chart"') == page.count('id="experiment2-first-arm-chart"') == 1


def test_several_are_a_table_whose_links_open_their_sections(page, page_of_searches):
    page.goto(page_of_searches.as_uri())
    assert page.locator("h1").inner_text() == "searches0: 2 searches, 3 other sets of runs"
    assert page.locator("#lead-chart .plot svg").is_visible()
    rows = page.locator("table.overview tbody tr")
    assert rows.count() == page.locator("main > section").count() == 5
    assert page.locator("details.part[open]").count() == 0
    rows.nth(1).get_by_role("link").click()
    assert page.locator("#search2 img.drawn").is_visible()
    assert page.locator("details.part[open]").count() == 1
    rows.nth(2).get_by_role("link").click()
    assert page.locator("details.part[open]").count() == 2


@pytest.fixture(scope="module")
def page_of_the_record(tmp_path_factory):
    """The report on the results of this repository."""
    path = tmp_path_factory.mktemp("record") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        path.write_text(make([Path("results")]).page)
    return path


def test_the_record_opens_with_its_finding(page, page_of_the_record):
    """One sentence, its figure, and a table short enough to look over."""
    first = tomllib.loads((ROOT / "results" / "findings.toml").read_text())["findings"][0]
    says, record = first["says"], first["rests"][0]["record"]
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(page_of_the_record.as_uri())
        assert page.locator(".lead").inner_text() == says.replace("+-", "±")
        assert page.locator("#lead-chart .plot svg").bounding_box()["y"] < 844
        assert page.evaluate("document.documentElement.scrollHeight") < 4000
        assert page.evaluate("document.documentElement.scrollWidth") == width
    data = "JSON.parse(document.getElementById('data').textContent)"
    arm = page.evaluate(f"{data}[document.getElementById('lead-chart').dataset.arm].id")
    assert f"results/{record}" in page.locator(f"#{arm}").text_content()


def test_of_many_sections_those_at_full_length_come_first(page, page_of_the_record):
    """The rest is folded, listed in a table of its own, and opened by a link to any of it."""
    page.goto(page_of_the_record.as_uri())
    first, rest = page.locator("table.overview").all()
    assert set(first.locator("tbody td:nth-of-type(2)").all_inner_texts()) == {"100"}
    assert "unfinished" not in first.inner_text()
    assert not rest.is_visible()
    links = rest.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert len(links) == page.locator("#more-sections section[id]:not(section section section)").count() > 5
    page.evaluate("to => { location.hash = to; }", links[-1])
    assert page.locator(f"{links[-1]} .plot svg").first.is_visible()
    lines = rest.locator("tbody tr").all_inner_texts()
    assert all("unfinished" in line or "39,100 steps" in line for line in lines)


def test_the_charts_are_drawn(shown):
    alpha = shown.locator("#first-arm-alpha-chart")
    assert alpha.locator("svg .fit").count() == 1
    assert alpha.locator(".plot circle").count() == 6  # once per epoch; every step has squares
    assert "S-CNN (the prior):" in alpha.locator(".legend").inner_text()
    assert "the paper" in alpha.locator(".legend").inner_text()
    titles = alpha.locator(".plot title").all_text_contents()
    assert "the paper, alpha 0.01: 51.50 ± 0.86 %" in titles
    assert any(title.startswith("every step, alpha 0.01: ") for title in titles)
    assert shown.locator("#first-arm-epochs-chart .curve").count() == 1 + len(LANES)
    assert shown.locator("#first-arm-bias-chart .cell").count() == 3 * (3 + 1)  # layers, epochs and a random matrix


def test_choosing_lanes_changes_the_chart(shown):
    chart = shown.locator("#first-arm-epochs-chart")
    chart.locator("input[data-lane='2']").uncheck()
    titles = chart.locator(".curve title").all_text_contents()
    assert len(titles) == len(LANES)
    assert "I-MLP alpha 0.0001, every epoch" not in titles
    chart.get_by_role("button", name="None").click()
    assert chart.locator(".curve").count() == 0
    chart.get_by_role("checkbox", name="S-CNN (the prior)").focus()
    shown.keyboard.press("Space")
    assert chart.locator(".curve title").all_text_contents() == ["S-CNN (the prior)"]


def test_arrow_keys_read_out_an_epoch(shown, written):
    chart = shown.locator("#first-arm-epochs-chart")
    chart.locator("svg[tabindex]").focus()
    shown.keyboard.press("End")
    assert chart.locator("output").inner_text().startswith("Epoch 3: S-CNN (the prior) ")
    shown.keyboard.press("ArrowLeft")
    row = read_csv(written.with_suffix("") / "first-arm-by-epoch.csv")[1]
    assert f"Epoch 2: S-CNN (the prior) {float(row['S-CNN (the prior)']):.2f} ±" in chart.locator("output").inner_text()


def test_choosing_a_lane_changes_the_bias_meter(shown):
    chart = shown.locator("#first-arm-bias-chart")
    chart.get_by_label("Lane").select_option(label="I-MLP alpha 1, every step")
    titles = chart.locator(".cell title").all_text_contents()
    measured = [title for title in titles if "epoch" in title]
    assert len(measured) == 9
    assert all(title.endswith(": shared 1.0000, local 0.0000, outside 0.0000") for title in measured)
    assert chart.locator(".legend").inner_text().split() == ["shared", "local", "outside"]
    chart.get_by_label("Lane").select_option(label="S-MLP (alpha 0)")
    for drawn, title in zip(
        chart.locator(".cell").all(), chart.locator(".cell title").all_text_contents(), strict=True
    ):
        shares = dict(zip(PARTS, map(float, re.findall(r"0\.\d+", title)), strict=True))
        heights = [float(part.get_attribute("height")) for part in drawn.locator("rect").all()]
        assert [height / sum(heights) for height in heights] == pytest.approx(list(shares.values()), abs=1e-4)
    chart.get_by_label("Lane").select_option(label="I-MLP alpha 1, every step")
    chart.get_by_label("Shown").select_option(label="distance to the prior")
    assert all(title.endswith(": 0.0000") for title in chart.locator(".cell title").all_text_contents())


def test_tables_sort_by_mouse_and_keyboard(shown):
    table = shown.locator("#table-first-arm-results")

    def column(title: str) -> list[str]:
        k = table.locator("thead th").all_text_contents().index(title)
        return [row.locator("th, td").nth(k).get_attribute("data-value") for row in table.locator("tbody tr").all()]

    before = column("model")
    button = table.get_by_role("button", name="mean, %")
    button.click()
    means = [float(value) for value in column("mean, %")]
    assert means == sorted(means)
    head = table.locator("th", has_text="mean, %")
    assert head.get_attribute("aria-sort") == "ascending"
    button.focus()
    shown.keyboard.press("Enter")
    means = [float(value) for value in column("mean, %")]
    assert means == sorted(means, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    assert column("model") != before
    table.get_by_role("button", name="alpha").click()
    assert head.get_attribute("aria-sort") == "none"
    alphas = column("alpha")
    assert [float(alpha) for alpha in alphas[:8]] == [0, 1e-4, 1e-3, 0.01, 0.01, 0.1, 1, 1]
    assert alphas[8:] == [
        "decay:0.5:2",
        "decay:0.5:2",
        "decay:0.5:4",
        "",
    ]  # what is no number after those that are, and nothing last


def test_the_keyboard_reaches_everything(shown):
    reached = set()
    for _ in range(400):
        shown.keyboard.press("Tab")
        tag = shown.evaluate("document.activeElement.tagName.toLowerCase()")
        if tag == "body":
            break
        reached.add((tag, shown.evaluate("document.activeElement.closest('figure, .scroll, nav, p') !== null")))
        visible = shown.evaluate("document.activeElement.matches(':focus-visible')")
        assert visible
    assert {"a", "button", "input", "select", "summary", "svg", "div"} <= {tag for tag, _ in reached}


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_horizontal_overflow(shown, width):
    shown.set_viewport_size({"width": width, "height": 844})
    shown.wait_for_timeout(200)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    box = shown.locator("#first-arm-alpha-chart svg").first.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert shown.locator("#first-arm-alpha-chart .plot svg").get_attribute("viewBox").split()[2] == str(
        round(box["width"])
    )


def test_dark_mode_differs_and_both_can_be_read(shown):
    def contrast() -> float:
        return shown.evaluate(
            """() => {
              const light = colour => {
                const [r, g, b] = colour.match(/[\\d.]+/g).map(c => c / 255)
                  .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const style = getComputedStyle(document.body);
              const quiet = getComputedStyle(document.querySelector(".quiet"));
              const [ink, paper] = [light(quiet.color), light(style.backgroundColor)];
              return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            }"""
        )

    found = {}
    for scheme in ("light", "dark"):
        shown.emulate_media(color_scheme=scheme)
        found[scheme] = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert contrast() >= 4.5
    assert found["light"] != found["dark"]
    shown.emulate_media(color_scheme="dark", media="print")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.set_viewport_size({"width": 760, "height": 1000})
    shown.evaluate("document.querySelectorAll('details:not(.printed, .part)').forEach(part => { part.open = false; })")
    assert shown.evaluate("document.documentElement.scrollWidth") == 760  # nothing scrolls on paper


@pytest.fixture
def shown_searches(page, page_of_searches):
    page.goto(page_of_searches.as_uri())
    open_all(page)
    page.wait_for_selector("section.arm svg .curve")
    return page


def test_a_search_has_its_picture_in_light_and_dark(shown_searches):
    picture = shown_searches.locator("#search2 img.drawn")
    picture.evaluate("image => image.decode()")  # waits until it is there
    assert picture.evaluate("image => image.naturalWidth > 2 * image.naturalHeight")  # three panels
    for scheme, dark in (("light", False), ("dark", True)):
        shown_searches.emulate_media(color_scheme=scheme)
        with Image.open(io.BytesIO(picture.screenshot())) as image:
            grey = np.asarray(image.convert("L"))
        assert (np.median(grey) < 60) == dark
        assert np.ptp(grey) > 180  # ink on it


@pytest.mark.parametrize("width", [390, 1280])
def test_searches_fit_the_window(shown_searches, width):
    shown_searches.set_viewport_size({"width": width, "height": 844})
    shown_searches.wait_for_timeout(200)
    assert shown_searches.evaluate("document.documentElement.scrollWidth") == width


def test_trials_sort_by_alpha(shown_searches):
    table = shown_searches.locator("#table-search1-trials")
    table.get_by_role("button", name="alpha", exact=True).click()
    k = table.locator("thead th").all_text_contents().index("alpha")
    alphas = [
        float(row.locator("th, td").nth(k).get_attribute("data-value")) for row in table.locator("tbody tr").all()
    ]
    assert alphas == sorted(alphas)
    assert (alphas[0], alphas[-1]) == (0, 1)


def test_the_axes_of_a_search_are_of_validation_accuracy(shown_searches):
    for name, label in (("cnn-bars-validation-0-25", "validation accuracy, %"), ("cnn-bars", "test accuracy, %")):
        for chart in ("alpha", "epochs"):
            texts = shown_searches.locator(f"#{name}-{chart}-chart .plot text").all_text_contents()
            assert label in texts


def test_it_prints(page, page_of_searches):
    page.goto(page_of_searches.as_uri())
    closed = page.locator("details.part:not([open])").count()
    assert closed == 5
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("details.part[open]").count() == closed
    assert page.locator("details.printed[open]").count() == 2 * 3 + 2  # of three arms settings and environment; trials


def test_a_link_downloads_its_file(shown, written):
    with shown.expect_download() as download:
        shown.locator("a[download='first-arm-results.csv']").click()
    downloaded = Path(download.value.path()).read_bytes()
    assert downloaded == (written.with_suffix("") / "first-arm-results.csv").read_bytes()


def test_a_hostile_page_runs_nothing(page, tmp_path):
    """The fixture fails on any error in the console, and the image of the name would ask for a file that is not."""
    tiny.run(tmp_path / "run", epochs=2, data=HOSTILE, lanes=tiny.lanes(0, 1))
    (tmp_path / "a.html").write_text(make([tmp_path]).page)
    page.on("dialog", lambda dialog: pytest.fail("a script ran"))
    page.goto((tmp_path / "a.html").as_uri())
    page.wait_for_selector(".curve")
    assert page.locator("img[src='x']").count() == 0
    assert HOSTILE.split("/")[-1] in page.locator("h1").inner_text()
    assert page.locator("section.arm h2").inner_text() == "Results"


def test_a_page_among_the_runs_is_refused(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(ImlpError, match="among the runs"):
        write([tmp_path / "runs" / "one"], tmp_path / "runs.html")


def test_the_heat_map_of_two_knobs_is_their_grid_alone():
    """Runs that moved both knobs together belong to the same arm, but would leave most of their rows empty."""
    runs = find_runs([ROOT / "results" / name for name in ("locality-or-sharing", "valley-without-a-prior")])
    (arm,) = gather(arms_of(runs))
    axes = figures.knobs(arm).axes[0]
    ticks = [[label.get_text() for label in labels] for labels in (axes.get_xticklabels(), axes.get_yticklabels())]
    assert ticks == [["0", "0.01", "1"]] * 2
    means = np.array(axes.get_images()[0].get_array())  # (locality, sharing)
    of = {model.knobs: model.mean for model in arm.models}
    assert means.tolist() == [[of[down, across] for across in (0, 0.01, 1)] for down in (0, 0.01, 1)]
    assert (0.1, 0.1) in of
