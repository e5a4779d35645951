"""`findings.toml`, which is written by hand, is checked when it is read."""

import re
import shutil
from pathlib import Path

import archive
import build
import pytest
from results_page import filled, pages
from typer.testing import CliRunner

from imlp.errors import ConfigError

FINDING = """
missing = "much"
reading = "this"

[[findings]]
says = "a little is worse"
figure = "figure2.png"
rests = [{ record = "r", claim = "c", verdict = "holds" }]

[records.r]
title = "t"
commit = "c"
commits = { a = "b" }
note = "n"
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('missing = "much"', "missing = 5"),
        ('reading = "this"', "reading = ['a']"),
        ('reading = "this"', "readings = 'x'"),
        ("[[findings]]", "[findings]"),
        ('says = "a little is worse"', ""),
        ('says = "a little is worse"', "says = 5"),
        ('figure = "figure2.png"', "figure = 5"),
        ('figure = "figure2.png"', 'figure = "a"\nfigures = 1'),
        ('figure = "figure2.png"', 'figure = "a"\nmore = 1'),
        ('figure = "figure2.png"', 'figure = "a"\nalt = []'),
        ('rests = [{ record = "r", claim = "c", verdict = "holds" }]', "rests = 5"),
        ('rests = [{ record = "r", claim = "c", verdict = "holds" }]', "rests = [5]"),
        ('rests = [{ record = "r", claim = "c", verdict = "holds" }]', "rests = []"),
        ('record = "r", ', ""),
        ('verdict = "holds"', "verdict = 1"),
        ('claim = "c", ', "claim = [], "),
        ("[records.r]", "[records]"),
        ("[records.r]", "[[records]]"),
        ('title = "t"', "title = 3"),
        ('commits = { a = "b" }', "commits = 3"),
        ('commits = { a = "b" }', "commits = { a = 3 }"),
        ('note = "n"', "notes = 'n'"),
    ],
    ids=lambda text: text[:30],
)
def test_findings_that_are_not_what_they_should_be(old, new, tmp_path):
    assert old in FINDING
    (tmp_path / "findings.toml").write_text(FINDING.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape("findings.toml")):
        pages(tmp_path, [])


def test_the_findings_of_a_record_are_refused_in_one_line(tmp_path):
    root = Path(__file__).parents[2] / "results" / "cnn-resized"
    shutil.copytree(root, tmp_path / "cnn-resized")
    (tmp_path / "findings.toml").write_text("records = 5\n")
    result = CliRunner().invoke(build.app, ["--folder", str(tmp_path)])
    assert result.exit_code == 2, (result.output, result.exception)
    assert re.search("findings.toml: 'records' cannot be 5", result.stderr)


@pytest.fixture(scope="module")
def records():
    return archive.records(Path(__file__).parents[2] / "results")


def test_runs_on_record_have_the_identity_of_their_settings(records):
    finished = [run for record in records for run in record.runs if run.result]
    assert [run.result["identity"] for run in finished] == [run.config.identity for run in finished]


def test_numbers_that_a_sentence_cites_are_those_of_the_runs(records):
    (run,) = (run for record in records if record.name == "cnn-resized" for run in record.runs)
    prior, plain = ([100 * row["test_accuracy"] for row in run.rows if row["lane"] == lane] for lane in ("prior", 0))
    text = "{cnn-resized: S-CNN}, {cnn-resized: S-CNN | last five}, {cnn-resized: S-CNN | epoch 7}, "
    text += "{cnn-resized: S-MLP (alpha 0)}, {cnn-resized: S-CNN | seeds}, {cnn-resized: S-CNN | paper}"
    expected = [prior[-1], sum(prior[-5:]) / 5, prior[6], plain[-1]]
    assert filled(text, records) == ", ".join([*(f"{value:.1f}" for value in expected), "1", "62.6"])


def test_a_number_of_a_run_that_was_stopped_later_can_be_cited(records):
    (run,) = (run for record in records for run in record.runs if run.folder.name == "mean45")
    assert run.result is None
    (row,) = (row for row in run.rows if (row["lane"], row["epoch"]) == ("prior", 50))
    assert filled("{readings: S-CNN | epoch 50}", records) == f"{100 * row['test_accuracy']:.1f}"


@pytest.mark.parametrize("text", ["{nothing: S-CNN}", "{cnn-resized: CNN}", "{cnn-resized: S-CNN | best}"])
def test_a_number_that_is_not_on_record_is_refused(text, records):
    with pytest.raises(ConfigError, match=re.escape(text)):
        filled(f"It is {text} %.", records)
