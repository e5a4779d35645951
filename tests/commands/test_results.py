"""`results`: the record holds what the runs produced, and a page that says something different is noticed."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imlp.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import tiny
from test_experiments import OWN, SMALL

ROOT = Path(__file__).parents[2]


def run(*arguments: str):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def record(tmp_path, monkeypatch) -> Path:
    """An experiment with two seeds, and a run that was stopped after its first epoch."""
    monkeypatch.chdir(tmp_path)
    data = str(tiny.save_npz(tmp_path / "bars.npz"))
    Path("mine.toml").write_text(OWN.format(data=data, options="{ width = 64, strides = [1, 2, 2] }"))
    assert run("reproduce", "mine.toml", "--out", "runs/mine").exit_code == 0
    assert run("train", "--data", data, *SMALL, "--alpha", "0", "--out", "runs/half").exit_code == 0
    half = Path("runs/half")
    (half / "result.json").unlink()
    rows = (half / "metrics.jsonl").read_text().splitlines()
    (half / "metrics.jsonl").write_text("\n".join(rows[:2]) + "\n")
    for name in ("mine", "half"):
        result = run("results", "--collect", f"runs/{name}")
        assert result.exit_code == 0, result.output
    return Path("results")


def test_the_page_has_every_model_and_what_is_not_finished(record):
    text = (record / "README.md").read_text()
    said = json.loads(Path("runs/mine/experiment.json").read_text())
    for row in said["table"]:
        ours = f"{row['mean']:.2f} +- {row['std']:.2f}"
        assert any(row["model"] in line and ours in line for line in text.splitlines())
    line = next(line for line in text.splitlines() if "| I-MLP alpha 1 |" in line)
    assert "| 50.00 +- 1.50 |" in line
    assert f"| {said['table'][2]['difference']:+.2f} | 2 | 2 | all |" in line
    assert "| S-CNN, seed 0, not finished |" in text
    assert "1 of 2" in text
    assert "alpha 1 is the prior (every epoch)" in text


def test_only_small_files_are_kept(record):
    names = {path.name for path in record.rglob("*") if path.is_file()}
    pictures = {name for name in names if name.endswith((".png", ".svg"))}
    small = {"README.md", "config.toml", "env.json", "experiment.json", "metrics.jsonl", "result.json", "times.jsonl"}
    assert names - pictures == small
    assert len(pictures) == 4
    assert "--out" not in "".join(path.read_text() for path in record.rglob("e*.json"))


def test_a_page_that_says_something_else_is_found_out(record):
    assert run("results", "--check").exit_code == 0
    page = record / "README.md"
    good = page.read_text()
    page.write_text(good.replace("50.00 +- 1.50", "50.01 +- 1.50"))
    result = run("results", "--check")
    assert result.exit_code == 1
    assert "is not what the runs give" in result.stderr
    page.write_text(good.replace("# Results", "# Results\n\nText around the table is free."))
    assert run("results", "--check").exit_code == 0


def test_results_that_were_changed_are_found_out(record):
    (path,) = list(record.glob("mine/*/seed1-*/result.json"))
    content = json.loads(path.read_text())
    content["models"][1]["test_accuracy"] += 0.01
    path.write_text(json.dumps(content))
    result = run("results", "--check")
    assert result.exit_code == 1
    assert "experiment.json is not what its runs give" in result.stderr


def test_what_is_collected_counts_every_run_that_is_there(record):
    assert run("reproduce", "mine.toml", "--out", "runs/mine", "--seeds", "1", "--no-report").exit_code == 0
    assert run("results", "--collect", "runs/mine").exit_code == 0
    assert run("results", "--check").exit_code == 0
    assert json.loads((record / "mine" / "experiment.json").read_text())["table"][0]["n"] == 2


def test_a_damaged_file_and_a_bad_name_are_one_line(record):
    (record / "mine" / "experiment.json").write_text('{"name": "x"}')
    assert "'budget' is missing" in run("results").stderr
    assert "give the name of a folder" in run("results", "--collect", "runs/mine", "--name", "../x").stderr


def test_without_a_place_for_the_table_or_without_a_page(record):
    (record / "README.md").write_text("nothing")
    assert "put these two lines into it" in run("results").stderr
    (record / "README.md").unlink()
    assert "cannot read" in run("results", "--check").stderr


def test_the_record_of_this_repository_is_true():
    result = run("results", "--folder", str(ROOT / "results"), "--check")
    assert result.exit_code == 0, result.output
