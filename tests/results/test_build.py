"""`results/build.py`: the record holds what the runs produced, and a page that says something different is noticed."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import build
import figure2
import figure3
import pytest
import tiny_runs
from tiny_runs import OWN_EXPERIMENT, SMALL
from typer.testing import CliRunner

from imlp.cli import app
from imlp.study.scores import arms_of
from imlp.train.config import Lane
from imlp.train.run_reader import find_runs

ROOT = Path(__file__).parents[2]


def run(*arguments: str):
    return CliRunner().invoke(app, list(map(str, arguments)))


def build_record(*arguments: str):
    """`python results/build.py` on a record in the current folder."""
    return CliRunner().invoke(build.app, ["--folder", "results", *map(str, arguments)])


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """An experiment with two seeds, and a run that was stopped after its first epoch, both on record."""
    folder = tmp_path_factory.mktemp("built")
    with contextlib.chdir(folder):
        _build_in_current_folder(str(tiny_runs.save_npz(folder / "bars.npz")))
    return folder


@pytest.fixture
def record(built, tmp_path, monkeypatch) -> Path:
    """A copy of it; the data stay where they were, as the runs name them."""
    monkeypatch.chdir(shutil.copytree(built, tmp_path / "copy"))
    return Path("results")


def _build_in_current_folder(data: str) -> None:
    Path("mine.toml").write_text(OWN_EXPERIMENT.format(data=data, options="{ width = 64, strides = [1, 2, 2] }"))
    assert run("reproduce", "mine.toml", "--out", "runs/mine").exit_code == 0
    assert run("train", "--data", data, *SMALL, "--alpha", "0", "--out", "runs/half").exit_code == 0
    half = Path("runs/half")
    (half / "result.json").unlink()
    rows = (half / "metrics.jsonl").read_text().splitlines()
    (half / "metrics.jsonl").write_text("\n".join(rows[:2]) + "\n")
    for name in ("mine", "half"):
        result = build_record("--collect", f"runs/{name}")
        assert result.exit_code == 0, result.output


def test_the_page_has_every_model_and_what_is_not_finished(record):
    text = (record / "numbers.md").read_text()
    said = json.loads(Path("runs/mine/experiment.json").read_text())
    for row in said["table"]:
        assert any(
            line.startswith(f"| {row['model']} | {row['mean']:.2f} | {row['std']:.2f} |") for line in text.splitlines()
        )
    line = next(line for line in text.splitlines() if "| I-MLP alpha 1, every step |" in line)
    assert line.endswith(f"| 2 | 50.00 | 1.50 | {said['table'][2]['difference']:+.2f} |")
    assert "Not finished: seed 0, epoch 1 of 2: S-CNN " in text
    assert "alpha 1 is the prior (every step)" in text.partition("## The verdicts in full")[2]  # it can be judged


FINDING = """
[[findings]]
says = "All is well."
figure = "picture.png"
rests = [{{ record = "mine", claim = "alpha 1 is the prior (every step)", verdict = "{verdict}" }}]
[records.mine]
title = "of my own"
commit = "abc"
note = "As expected."
"""


def test_the_page_opens_with_the_findings_as_long_as_their_verdicts_stand(record):
    said = json.loads((record / "mine" / "experiment.json").read_text())
    (verdict,) = (one["verdict"] for one in said["verdicts"])
    (record / "findings.toml").write_text(FINDING.format(verdict=verdict))
    assert build_record("--check").exit_code == 1
    assert build_record().exit_code == 0
    text = (record / "README.md").read_text()
    assert text.index("**All is well.**") < text.index("![All is well.](picture.png)") < text.index("## ")
    numbers = (record / "numbers.md").read_text()
    assert "### mine: of my own" in numbers
    assert "| abc |" in numbers.partition("## Where the runs come from")[2]
    assert build_record("--check").exit_code == 0
    (record / "findings.toml").write_text(FINDING.format(verdict="fails" if verdict == "holds" else "holds"))
    result = build_record("--check")
    assert result.exit_code == 2
    assert f"which is now: {verdict}; say what the runs say" in result.stderr
    (record / "findings.toml").write_text('[[findings]]\nsays = "x"')
    assert "'findings[0].figure' is missing" in build_record().stderr


def test_only_small_files_are_kept(record):
    names = {path.name for path in record.rglob("*") if path.is_file()}
    pictures = {name for name in names if name.endswith((".png", ".svg"))}
    small = {
        "README.md",
        "numbers.md",
        "config.toml",
        "env.json",
        "experiment.json",
        "metrics.jsonl",
        "result.json",
        "times.jsonl",
    }
    assert names - pictures == small
    assert len(pictures) == 2 * 3  # PNG and SVG; two of the finished runs, one of those that were stopped
    assert "--out" not in "".join(path.read_text() for path in record.rglob("e*.json"))


def test_a_page_that_says_something_else_is_found_out(record):
    assert build_record("--check").exit_code == 0
    page = record / "numbers.md"
    good = page.read_text()
    page.write_text(good.replace("| 50.00 | 1.50 |", "| 50.01 | 1.50 |"))
    result = build_record("--check")
    assert result.exit_code == 1
    assert "is not what the runs give" in result.stderr


def test_results_that_were_changed_are_found_out(record):
    (path,) = list(record.glob("mine/*/seed1-*/result.json"))
    content = json.loads(path.read_text())
    content["models"][1]["test_accuracy"] += 0.01
    path.write_text(json.dumps(content))
    result = build_record("--check")
    assert result.exit_code == 1
    assert "experiment.json is not what the runs give" in result.stderr


def test_what_is_collected_is_drawn(record):
    """Whether or not a report was written beside it, and again if it is collected from the record itself."""
    drawn = {path.relative_to(record).as_posix() for path in record.glob("*/figures/*.png")}
    kinds = ("mine/figures/mine-alpha", "mine/figures/mine-epochs", "half/figures/cnn-bars-npz-epochs")
    assert drawn == {f"{kind}.png" for kind in kinds}
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    assert build_record("--collect", record / "mine").exit_code == 0
    assert {path: path.read_bytes() for path in record.rglob("*") if path.is_file()} == before
    for name in ("gone-alpha.png", "my-own.png"):
        (record / "mine" / "figures" / name).touch()
    assert build_record("--collect", record / "mine").exit_code == 0
    assert not (record / "mine" / "figures" / "gone-alpha.png").exists()
    assert (record / "mine" / "figures" / "my-own.png").exists()


def test_what_is_collected_counts_every_run_that_is_there(record):
    assert run("reproduce", "mine.toml", "--out", "runs/mine", "--seeds", "1", "--no-report").exit_code == 0
    assert build_record("--collect", "runs/mine").exit_code == 0
    assert build_record("--check").exit_code == 0
    assert json.loads((record / "mine" / "experiment.json").read_text())["table"][0]["n"] == 2


def test_no_link_of_a_foreign_folder_is_copied(record):
    times = next(Path("runs/mine").rglob("times.jsonl"))
    times.rename("elsewhere")
    times.symlink_to(Path("elsewhere").absolute())
    result = build_record("--collect", "runs/mine")
    assert result.exit_code == 2
    assert "is a symbolic link" in result.stderr


def test_a_damaged_file_and_a_bad_name_are_one_line(record):
    (record / "mine" / "experiment.json").write_text('{"name": "x"}')
    assert "'title' is missing" in build_record().stderr
    for name in ("../x", "..", "README.md"):
        assert "give the name of a folder" in build_record("--collect", "runs/mine", "--name", name).stderr


def test_a_page_of_somebody_else_is_left_alone(record):
    (record / "README.md").write_text("mine")
    assert "was not written by this program; move what it says into" in build_record().stderr
    assert (record / "README.md").read_text() == "mine"
    (record / "README.md").unlink()
    assert "cannot read" in build_record("--check").stderr


def test_figure_2_is_drawn_from_the_best_evidence():
    """Runs at the paper's setting come before short ones with more alphas, and only they have the paper's points."""
    runs = find_runs([ROOT / "results"])
    arm, short = figure2.best_arm(shortened(runs) + runs), figure2.best_arm(shortened(runs))
    assert (figure2.shortfall(arm), figure2.shortfall(short)) == ("", "7,900 of 39,100 steps")
    made = figure2.points(arm)
    for curve in made["curves"].values():
        assert (curve[0]["alpha"], len(curve) > figure2.FEWEST) == (0, True)
    prior = arm.score(None)
    assert made["prior"] == {
        "alpha": None, "accuracy": prior.mean / 100, "std": prior.std and prior.std / 100, "n": prior.n,
    }  # fmt: skip
    assert "the paper's setting" in figure2.described(arm, figure2.drawn(arm))
    (early,) = (line for line in figure2.figure(arm).axes[0].get_lines() if "lowest test loss" in line.get_label())
    drawn = dict(zip(*early.get_data(), strict=True))
    own = [run.rows_of(Lane(alpha="0")) for run in arm.runs if Lane(alpha="0") in run.lanes]
    best = [100 * min(rows, key=lambda row: row["test_loss"])["test_accuracy"] for rows in own]  # one for each seed
    assert (drawn[0], len(drawn)) == (pytest.approx(sum(best) / len(best)), len(made["curves"]["step"]))
    labels = [figure2.figure(one).axes[0].get_legend_handles_labels()[1] for one in (arm, short)]
    assert ["the paper" in own for own in labels] == [True, False]


def test_figure_3_has_every_schedule_and_the_paper_s_points_only_at_its_setting():
    """Drawn as they stand on record, and as if they had fewer images."""
    runs = find_runs([ROOT / "results"])
    table4 = {0: 60.98, 1: 48.34, 2: 53.88, 4: 59.96}
    for arm, paper in ((figure3.best_arm(shortened(runs)), {}), (figure3.best_arm(runs), table4)):
        assert bool(figure2.shortfall(arm)) == (not paper)
        left, right = figure3.figure(arm).axes
        assert [label.get_text() for label in right.get_xticklabels()] == ["0", "1", "2", "4"]
        scores = [arm.score(lane) for lane in (None, Lane(alpha="0"), *figure3.LANES.values())]
        ends = [line.get_ydata()[-1] for line in left.get_lines()]
        assert ends == pytest.approx([score.mean for score in scores if score])
        drawn = [one for one in right.containers if one.get_label() == "the paper"]
        assert [value for one in drawn for value in one.lines[0].get_ydata()] == list(paper.values())


def test_figure_3_leaves_out_a_seed_whose_lane_has_stopped():
    whole = figure3.best_arm(find_runs([ROOT / "results"]))
    lane = figure3.LANES[1]
    (run,) = (run for run in whole.runs if lane in run.lanes)
    rows = [row for row in run.rows if row not in run.rows_of(lane)[5:]]
    models = [row for row in run.result["models"] if row["lane"] != run.key_of(lane)]
    other_seed = dataclasses.replace(run.config, seed=7)
    stopped = dataclasses.replace(run, config=other_seed, rows=rows, result={**run.result, "models": models})
    (arm,) = arms_of([*whole.runs, stopped])
    assert arm.score(lane).n == whole.score(lane).n
    drawn = {line.get_label(): line.get_ydata()[-1] for line in figure3.figure(arm).axes[0].get_lines()}
    assert drawn["k = 1"] == pytest.approx(arm.score(lane).mean)


def shortened(runs):
    """The runs at the paper's setting as if they had a fifth of its images."""
    runs = [run for run in runs if run.folder.parent.name == "cnn-paper"]
    return [dataclasses.replace(run, config=dataclasses.replace(run.config, train_size=10_000)) for run in runs]


def test_runs_of_either_precision_make_one_curve():
    """Where a seed has a model in both, that in full precision counts."""
    runs = [run for run in find_runs([ROOT / "results"]) if run.folder.parent.name == "cnn-paper"]
    (arm,) = arms_of(runs)
    assert {run.config.products for run in arm.runs} == {"full", "bfloat16"}
    full = [run for run in runs if run.config.products == "full" and run.config.seed == 0 and run.result]
    (expected,) = (row["test_accuracy"] for run in full for row in run.result["models"] if row["lane"] == "prior")
    assert arm.score(None).by_seed[0] == 100 * expected
    assert figure2.described(arm, figure2.drawn(arm)).endswith("in part with products in bfloat16")


def test_the_record_of_this_repository_is_true():
    result = CliRunner().invoke(build.app, ["--check"])
    assert result.exit_code == 0, result.output


def test_figure_2_of_runs_without_losses_has_no_second_curve():
    runs = [run for run in find_runs([ROOT / "results"]) if run.folder.parent.name == "cnn-paper"]
    rows = {run.folder: [{k: v for k, v in row.items() if k != "test_loss"} for row in run.rows] for run in runs}
    (arm,) = arms_of(dataclasses.replace(run, rows=rows[run.folder]) for run in runs)
    labels = figure2.figure(arm).axes[0].get_legend_handles_labels()[1]
    assert not any("lowest test loss" in label for label in labels)


def test_figure_2_has_the_paper_s_interpolation_alone():
    (arm,) = arms_of(find_runs([ROOT / "results" / "valley-without-a-prior"]))
    assert any(lane.coupling == "self" for lane in arm.lanes)
    assert {lane.coupling for lane in figure2.drawn(arm)} == {"interpolate"}
    curve = figure2.points(arm)["curves"]["step"]
    scores = [arm.score(Lane(alpha=f"{point['alpha']:g}")) for point in curve]
    assert [point["accuracy"] for point in curve] == pytest.approx([score.mean / 100 for score in scores])


def test_a_figure_counts_the_seeds_of_what_it_draws():
    """A second seed of alpha 0 and 1 is one of figure 2's curve, and none of the schedules."""
    runs = [run for run in find_runs([ROOT / "results" / "cnn-paper"]) if run.config.seed == 0]
    (ends,) = (run for run in runs if run.folder.name == "ends")
    again = dataclasses.replace(ends, config=dataclasses.replace(ends.config, seed=1))
    (arm,) = arms_of([*runs, again])
    assert ", 1 to 2 seeds" in figure2.described(arm, figure2.drawn(arm))
    assert ", 1 seed," in figure2.described(arm, figure3.LANES.values())


@pytest.mark.parametrize("kilobytes", [20, 60])  # the files do not fit, or the figures do not
def test_a_full_disk_leaves_no_half_record(kilobytes, record):
    Path("small").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(Path("small").absolute())]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs takes root")
    try:
        result = CliRunner().invoke(build.app, ["--folder", "small", "--collect", "runs/mine"])
        assert result.exit_code == 2, result.output
        assert "No space left on device" in result.stderr
        assert list(Path("small").iterdir()) == []
    finally:
        subprocess.run(["umount", str(Path("small").absolute())], check=True)


def test_a_record_that_cannot_be_renewed_stays_as_it_was(record, monkeypatch):
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    (Path("runs/half") / "times.jsonl").write_text("")
    rename, calls = os.rename, []

    def full(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    monkeypatch.setattr(os, "rename", full)
    result = build_record("--collect", "runs/half")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert {path: path.read_bytes() for path in record.rglob("*") if path.is_file()} == before
