"""`report`: its numbers are those of the runs, it writes what it is asked for, and it refuses what it cannot read."""

import json
import re
import shutil
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from PIL import Image
from runs_to_report import HOSTILE, LANES, Stop, rows_of, train_runs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.errors import FileError, RunError
from imlp.paper.experiments import from_paper
from imlp.report import figures, make, write
from imlp.report.gather import gather
from imlp.spec.base import PARTS
from imlp.study.optuna_search import Search
from imlp.study.outcomes import FromPaper, PaperPoint, Verdict
from imlp.study.scores import Arm, arms_of
from imlp.study.tasks import run_task
from imlp.train.config import Lane
from imlp.train.loop import Interrupted
from imlp.train.run_reader import find_runs, read_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def made(runs):
    return make([runs])


def metrics_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def gathered(*folders: Path):
    return gather(arms_of(find_runs(folders)))


# Numbers


def test_the_table_holds_what_result_json_holds(runs, made):
    rows = {row["model"]: row for row in rows_of(made.tables["first-arm-results"])}
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
        for name in ("test_loss", "shift_accuracy", "shift_logits", "shift_conv1"):  # as every number of metrics.jsonl
            mean, title = sum(result["models"][k][name] for result in results) / 2, name.replace("_", " ")
            expected = (f"{title}, %", 100 * mean) if "accuracy" in name else (title, mean)
            assert float(row[expected[0]]) == pytest.approx(expected[1])
    step = rows["I-MLP alpha 0.01, every step"]
    assert (step["alpha"], step["mixed"]) == ("0.01", "every step")
    assert rows["I-MLP alpha decay:0.5:2, every epoch"]["alpha"] == "decay:0.5:2"
    lines = [line for s in (0, 1) for line in (runs / "main" / f"seed{s}" / "times.jsonl").read_text().splitlines()]
    times = list(map(json.loads, lines))
    seconds = sum(value for row in times for name, value in row.items() if name != "epoch")
    assert float(step["run time"]) == pytest.approx(seconds / 2)


def test_epochs_and_bias_are_means_over_the_seeds(runs, made):
    rows = [metrics_of(runs / "main" / f"seed{seed}") for seed in (0, 1)]
    second = [next(row for row in own if row["epoch"] == 2 and row["lane"] == 5) for own in rows]
    own = [row for row in rows_of(made.tables["first-arm-by-epoch"]) if row["model"] == "I-MLP alpha 1, every epoch"]
    assert [row["epoch"] for row in own] == ["1", "2", "3"]
    assert float(own[1]["mean, %"]) == pytest.approx(50 * sum(row["test_accuracy"] for row in second))
    assert float(own[1]["train loss"]) == pytest.approx(sum(row["train_loss"] for row in second) / 2)
    last = [next(row for row in own if row["epoch"] == 3 and row["lane"] == 4) for own in rows]
    bias = {(row["model"], row["layer"]): row for row in rows_of(made.tables["first-arm-bias"])}
    found = bias["I-MLP alpha 0.1, every epoch", "conv2"]
    for part, title in (*((part, part) for part in PARTS), ("distance", "distance to the prior")):
        assert float(found[title]) == pytest.approx(sum(row["bias"]["conv2"][part] for row in last) / 2)
    for part in PARTS:
        assert float(found[f"random {part}"]) == last[0]["bias"]["conv2"][f"random_{part}"]


def test_the_figures_show_every_layer_of_every_lane(runs):
    """A bar per layer, cut at the parts: their lengths are the numbers of the last epoch."""
    folder = runs / "main" / "seed0"
    figure = figures.of_run(read_run(folder))
    by_name = {row["name"]: row for row in read_run(folder).result["models"][1:]}
    first, *panels = [axes for axes in figure.subfigs[1].axes if axes.patches]
    last = [by_name[axes.get_title()] for axes in panels]
    assert len(panels) == len(by_name) == len(LANES)
    for axes, prefix, row in zip([first, *panels], ["random_", *[""] * len(last)], [last[0], *last], strict=True):
        widths = np.reshape([bar.get_width() for bar in axes.patches], (3, 3))
        expected = [[own[prefix + part] for own in row["bias"].values()] for part in PARTS]
        np.testing.assert_allclose(widths, expected, atol=1e-12)
    assert [text.get_text() for text in first.get_yticklabels()] == list(last[0]["bias"])


def test_series_share_alpha_0_and_differ_in_alpha_alone(runs):
    (arm,) = gathered(runs / "main")
    assert [series.name for series in arm.series] == ["once per epoch", "every step"]
    assert [series.alphas for series in arm.series] == [[0, 1e-4, 1e-3, 1e-2, 0.1, 1], [0, 0.01, 1]]
    assert arm.series[0].scores[0].mean == arm.series[1].scores[0].mean == arm.models[1].score.mean
    assert [series.fit is None for series in arm.series] == [False, True]


def test_no_two_models_are_drawn_alike(runs):
    (arm,) = gathered(runs / "main")
    styles = figures.styles(arm.models)
    assert len({str(style) for style in styles}) == len(styles) == 1 + len(LANES)
    drawn = {model.title: style for model, style in zip(arm.models, styles, strict=True)}
    epoch, step = (drawn[f"I-MLP alpha decay:0.5:2, every {every}"] for every in ("epoch", "step"))
    assert epoch["color"] == step["color"]
    assert step["linestyle"] == drawn["I-MLP alpha 1, every step"]["linestyle"] != epoch["linestyle"]


def test_what_differs_tells_arms_apart(runs, tmp_path):
    assert [arm.name for arm in gathered(runs)] == [
        "CNN pair on bars: crops with a black margin", "CNN pair on bars: no crops or flips",
    ]  # fmt: skip
    for name, more in (("a", {}), ("b", {"augment": "none"}), ("c", {"augment": "none", "inputs": "unit"})):
        tiny_runs.run(tmp_path / name, epochs=1, lanes=tiny_runs.lanes(0), **more)
    names = [arm.name for arm in gathered(tmp_path)]  # of much that differs, what is not the default
    assert names == [
        "CNN pair on bars",
        "CNN pair on bars: no crops or flips",
        "CNN pair on bars: no crops or flips, pixels from 0 to 1",
    ]


def test_what_the_paper_says_is_handed_over(runs):
    """Of arms that no experiment names; the report itself knows nothing of the paper."""
    asked = []

    def compare(arm: Arm) -> FromPaper:
        asked.append(arm.key)
        return FromPaper((PaperPoint("", "alpha 0.5", 0.5, 33.25, 1.0),), (Verdict(HOSTILE, "fails", "it does not"),))

    made = make([runs / "other"], compare=compare)
    assert len(asked) == 1
    assert "it does not" in made.page
    (line,) = [own for own in made.figures["cnn-bars-alpha"].axes[0].containers if own.get_label() == "the paper"]
    assert line.lines[0].get_xydata().tolist() == [[0.5, 33.25]]
    assert make([runs], compare=compare).page
    assert len(asked) == 1


def test_the_paper_is_asked_about_runs_at_its_setting():
    (arm,) = arms_of(find_runs([ROOT / "results" / "cnn-pad-mean"]))
    found = from_paper(arm)
    assert {point.alpha for point in found.points} >= {0, 0.01}
    assert {verdict.verdict for verdict in found.verdicts} <= {"holds", "fails", "cannot tell"}


def test_validation_accuracy_is_never_called_test_accuracy(tmp_path):
    needs("optuna")
    search = Search(tiny_runs.config(epochs=1), tiny_runs.data(), tmp_path / "search", trials=2, validation=0.25)
    search.run(lambda tasks, data: [run_task(task, data, ()) for task in tasks])
    made, arms = make([tmp_path]), {arm.id: arm.arm.config.measure for arm in gathered(tmp_path)}
    assert arms == {"cnn-bars": "test accuracy", "cnn-bars-validation-0-25": "validation accuracy"}
    for name, measure in arms.items():
        assert made.tables[f"{name}-results"].title.startswith(measure.capitalize())
        for kind in ("alpha", "epochs"):
            drawn = figures.svg(made.figures[f"{name}-{kind}"]).decode()
            assert f"{measure}, %" in drawn
            assert ({"test accuracy", "validation accuracy"} - {measure}).pop() not in drawn
    assert made.page.count("Trials of a search: every accuracy here is on training images") == 1


# What is missing


def test_unfinished_runs_and_stopped_lanes_are_listed(made):
    assert "other/unfinished is unfinished: 1 of 3 epochs, and not part of any mean." in made.page
    stopped = r"I-MLP alpha 0.5, every epoch stopped in \S*other/stopped: its loss was not finite in epoch 2, step"
    assert re.search(stopped, made.page)
    rows = {row["model"]: row for row in rows_of(made.tables["second-arm-results"])}
    assert rows["S-MLP (alpha 0)"]["remark"] == "seed 1 is unfinished"
    lost = rows["I-MLP alpha 0.5, every epoch"]
    assert (lost["mean, %"], lost["n"]) == ("", "0")
    assert lost["remark"] == "seed 0 stopped in epoch 2; seed 1 is unfinished"
    states = [row["state"] for row in rows_of(made.tables["second-arm-runs"])]
    assert states == ["finished; stopped: lane 1", "unfinished: 1 of 3 epochs"]


def test_a_run_without_an_epoch_is_listed(runs, tmp_path):
    shutil.copytree(runs / "other" / "unfinished", tmp_path / "new")
    for name in ("metrics.jsonl", "times.jsonl"):
        (tmp_path / "new" / name).unlink()
    made = make([tmp_path])
    assert "unfinished: 0 of 3 epochs" in made.page
    assert not made.figures


def test_the_same_lane_and_seed_twice_is_told_if_the_results_differ(runs, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(runs / "other" / "stopped", tmp_path / name)
    assert not gathered(tmp_path)[0].warnings[2:]  # but for the two lanes that have stopped
    rows = [{**row, "test_accuracy": 0.5} for row in metrics_of(tmp_path / "b")]
    (tmp_path / "b" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert gathered(tmp_path)[0].warnings[2].startswith("S-MLP (alpha 0) was run more than once with seed 0")


def test_an_mlp_trained_without_a_prior_is_the_s_mlp_of_its_arm(tmp_path):
    """`--coupling self --alpha 0` trains it alone; the prior's numbers come from the runs that have one."""
    for seed in (0, 1):
        tiny_runs.run(tmp_path / f"alone{seed}", epochs=1, seed=seed, lanes=tiny_runs.lanes(0, coupling="self"))
        tiny_runs.run(tmp_path / f"mixed{seed}", epochs=1, seed=seed, lanes=tiny_runs.lanes(1))
    (arm,) = arms_of(find_runs([tmp_path]))
    for order in (1, -1):  # whichever of the runs comes first
        (shown,) = gather([Arm(arm.runs[::order])])
        titles = ["S-CNN (the prior)", "S-MLP (alpha 0)", Lane(alpha="1", every="epoch").title]
        assert [model.title for model in shown.models] == titles
        assert all([epoch.epoch for epoch in model.epochs] == [1] for model in shown.models)
        assert [model.score.n for model in shown.models] == [2, 2, 2]
        assert shown.matrices.corners.keys() == {"before training", *titles}
    (alone,) = gathered(tmp_path / "alone0")
    assert alone.models[0].remark == "not trained: no lane needs it"


# Figures


def test_two_knobs_that_no_finished_run_has_are_not_drawn(tmp_path):
    """As while a grid of locality and sharing is being trained."""
    tiny_runs.run(tmp_path / "plain", epochs=2, lanes=tiny_runs.lanes(0, coupling="self"))
    grid = [{"alpha": "1", "alpha_sharing": "0"}, {"alpha": "0", "alpha_sharing": "1"}]
    lanes = [{"every": "step", "coupling": "self", **own} for own in grid]
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "grid", Stop(), epochs=2, lanes=lanes)
    (arm,) = gathered(tmp_path)
    assert [model.score is None for model in arm.models] == [True, False, True, True]
    assert "knobs" not in figures.of_arm(arm)


def test_the_heat_map_of_two_knobs_is_their_grid_alone():
    """Runs that moved both knobs together belong to the same arm, but would leave most of their rows empty."""
    (arm,) = gathered(*(ROOT / "results" / name for name in ("locality-or-sharing", "valley-without-a-prior")))
    axes = figures.knobs(arm).axes[0]
    ticks = [[label.get_text() for label in labels] for labels in (axes.get_xticklabels(), axes.get_yticklabels())]
    assert ticks == [["0", "0.01", "1"]] * 2
    means = np.array(axes.get_images()[0].get_array())  # (locality, sharing)
    of = {figures.knobs_of(model.lane): model.score.mean if model.score else None for model in arm.models}
    assert means.tolist() == [[of[down, across] for across in (0, 0.01, 1)] for down in (0, 0.01, 1)]
    assert (0.1, 0.1) in of


def test_many_models_by_epoch_have_a_panel_for_each_series():
    """Each with the prior and the plain MLP, in colours of its own; a few models share one panel."""
    several = ["mixed once per epoch", "mixed every step", "others"]
    for name, titles in (("cnn-paper", several), ("cnn-pad-mean", ["CNN pair on CIFAR-10"])):
        (arm,) = gathered(ROOT / "results" / name)
        panels = figures.by_epoch(arm).axes
        assert [panel.get_title() for panel in panels] == titles
        lines = [{line.get_label(): (line.get_color(), line.get_linestyle()) for line in p.lines} for p in panels]
        assert {title for own in lines for title in own} == {model.title for model in arm.models}
        assert all({"S-CNN (the prior)", "S-MLP (alpha 0)"} < set(own) for own in lines)
        assert all(len(set(own.values())) == len(own) for own in lines)


def test_a_figure_is_the_same_every_time_and_keeps_the_numbers_in_its_text(runs):
    (arm,) = gathered(runs / "main")
    one, other = (figures.svg(figures.against_alpha(arm)) for _ in range(2))
    assert one == other
    assert b">0.0001<" in one  # only coordinates are rounded


# Files


def test_the_page_of_one_run_links_to_the_documentation(runs, tmp_path):
    """As pages where they are built, as text where they are not."""
    write([next(runs.rglob("result.json")).parent], tmp_path / "page.html")
    (link,) = re.findall(r'href="([^"]+)">the documentation</a>', (tmp_path / "page.html").read_text())
    assert (tmp_path / link).resolve().relative_to(ROOT / "docs").name in ("index.html", "start.md")


def test_files_are_written_only_if_they_are_asked_for(runs, tmp_path):
    page, folder = tmp_path / "deep" / "report.html", tmp_path / "files"
    result = CliRunner().invoke(app, ["report", str(runs), "--out", str(page)])
    assert result.exit_code == 0, result.output
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    folder.mkdir()
    (folder / "mine.csv").write_text("kept")
    result = CliRunner().invoke(app, ["report", str(runs), "--out", str(page), "--files", str(folder)])
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert {f"first-arm-{kind}.{suffix}" for kind in ("alpha", "epochs", "bias") for suffix in ("png", "svg")} <= names
    assert {f"first-arm-{name}.csv" for name in ("results", "by-epoch", "bias", "runs", "settings")} <= names
    assert "experiment1-beside-paper.csv" in names
    assert (folder / "mine.csv").read_text() == "kept"
    (folder / "first-arm-runs.csv").write_text("mine")
    page.unlink()
    refused = CliRunner().invoke(app, ["report", str(runs), "--out", str(page), "--files", str(folder)])
    assert "already exists" in refused.stderr
    assert (folder / "first-arm-runs.csv").read_text() == "mine"
    assert not page.exists()
    for path in folder.iterdir():
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 100


def test_a_page_from_plot_is_refused_and_report_named(runs, tmp_path):
    run = str(runs / "main" / "seed0")
    result = CliRunner().invoke(app, ["plot", run, "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert "report" in result.stderr
    assert not (tmp_path / "page.html").exists()


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "there is no folder nowhere"),
        (("empty",), "there is no run in empty"),
        (("main", "--out", "page.txt"), "page.txt does not end in .html"),
        (("main", "--out", "folder.html"), "cannot write folder.html"),
        (("main", "--out", "file/report.html"), "cannot write file/report.html"),
        (("broken",), "broken/metrics.jsonl"),
        (("half",), "half/experiment.json: 'name' is missing"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(runs, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("main").symlink_to(runs / "main")
    for name in ("empty", "folder.html"):
        Path(name).mkdir()
    Path("file").write_text("")
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


@pytest.mark.parametrize("text", ["[]", "3", "null", '"text"', '{"lane": []}', '{"models": 3}'])
def test_json_of_another_shape_names_its_file(runs, tmp_path, text):
    for name in ("metrics.jsonl", "times.jsonl", "result.json", "env.json", "experiment.json"):
        shutil.copytree(runs / "other" / "stopped", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint"))
        (tmp_path / "run" / name).write_text(text)
        with pytest.raises(RunError, match=f"run/{name}"):
            make([tmp_path])
        shutil.rmtree(tmp_path / "run")


def test_a_page_needs_a_name_that_a_browser_knows(runs, tmp_path):
    with pytest.raises(FileError, match=r"page\.txt"):
        write([runs], tmp_path / "page.txt")


def test_it_needs_no_torch(runs, tmp_path):
    code = "import sys; sys.modules['torch'] = None; from imlp.cli import app; app()"
    command = [sys.executable, "-c", code, "report", str(runs / "other"), "--out", str(tmp_path / "a.html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").exists()
