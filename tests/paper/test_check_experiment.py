"""What an experiment's file and `findings.toml` cannot say: refused when they are read, in one line."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imlp.cli import app
from imlp.errors import ConfigError
from imlp.paper.experiments import names, read_experiment

GOOD = """
title = "one"
asks = "what"
assumed_std = 0.5

[settings]
network = "cnn"

[[arms]]
name = "pair"
alphas = "0,0.1,1"
more = [{ alpha = "once:10%:1" }, { coupling = "relax", relax_after = "50%" }]

[budgets.smoke]
seeds = 1
settings = { data = "shapes", train_size = 100, test_size = 50, epochs = 1 }

[budgets.paper]
settings = { epochs = 2 }

[[paper]]
arm = "pair"
lane = { alpha = "0" }
shapes = [50.0, 1.0]

[[claims]]
kind = "dip"
claim = "it dips"
needs = "paper"
arm = "pair"
between = [1e-3, 0.1]

[[claims]]
kind = "above"
claim = "one is above"
higher = { arm = "pair", alpha = "1" }
lower = [{ arm = "pair", alpha = "0" }, { arm = "pair" }]

[[claims]]
kind = "stays-near"
claim = "it stays"
arm = "pair"
lanes = [{ coupling = "relax", relax_after = "50%" }]
shared = 0.9

[[claims]]
kind = "overfits"
claim = "it overfits"
arm = "pair"
alphas = ["0"]
"""
BAD = [
    ('title = "one"', ""),
    ('title = "one"', "title = 1"),
    ('title = "one"', 'title = "one"\nname = "two"'),
    ('asks = "what"', "asks = []"),
    ("assumed_std = 0.5", "assumed_std = nan"),
    ("assumed_std = 0.5", "assumed_std = true"),
    ("assumed_std = 0.5", "assumed_std = -1"),
    ('[settings]\nnetwork = "cnn"', "settings = -1"),
    ('network = "cnn"', "network = 5"),
    ('network = "cnn"', "networks = 'cnn'"),
    ('name = "pair"', "name = 5"),
    ('name = "pair"', ""),
    ('alphas = "0,0.1,1"', "alphas = 'x'"),
    ('alphas = "0,0.1,1"', "alphas = 3"),
    ('alphas = "0,0.1,1"', "alphas = [1]"),
    (
        'alphas = "0,0.1,1"\nmore = [{ alpha = "once:10%:1" }, { coupling = "relax", relax_after = "50%" }]',
        "alphas = []",
    ),
    ('"once:10%:1"', '"once:x%:1"'),
    ('relax_after = "50%" }]\n\n', 'relax_after = "x%" }]\n\n'),
    ("seeds = 1", "seeds = 0"),
    ("seeds = 1", "seeds = true"),
    ("seeds = 1", "seeds = 1.5"),
    ("seeds = 1", "every = 3"),
    ("epochs = 2", "epochs = -2"),
    ("settings = { epochs = 2 }", "settings = 3"),
    ("[budgets.paper]", "[budgets]\nx = 3\n[budgets.paper]"),
    ('arm = "pair"\nlane', "arm = 5\nlane"),
    ('arm = "pair"\nlane', 'arm = "other"\nlane'),
    ('lane = { alpha = "0" }', "lane = 3"),
    ('lane = { alpha = "0" }', "lane = { alpha = 7 }"),
    ("[50.0, 1.0]", "'x'"),
    ("[50.0, 1.0]", "[]"),
    ("[50.0, 1.0]", "[1, 2, 3]"),
    ("[50.0, 1.0]", "inf"),
    ("[50.0, 1.0]", "1e30"),
    ("[50.0, 1.0]", "[50.0, -1]"),
    ("[1e-3, 0.1]", "nan"),
    ("[1e-3, 0.1]", "[0.1]"),
    ("[1e-3, 0.1]", "[nan, 1]"),
    ("[1e-3, 0.1]", "['a', 'b']"),
    ("[1e-3, 0.1]", "[0.1, 0.01]"),
    ("between = [1e-3, 0.1]", ""),
    ('needs = "paper"', "needs = 5"),
    ('needs = "paper"', "needs = 'all'"),
    ('kind = "dip"', "kind = 'dips'"),
    ('kind = "dip"', "kind = []"),
    ('claim = "it dips"', "claim = 7"),
    ('claim = "it dips"', ""),
    ('higher = { arm = "pair", alpha = "1" }', "higher = 5"),
    ('higher = { arm = "pair", alpha = "1" }', 'higher = { alpha = "1" }'),
    ('higher = { arm = "pair", alpha = "1" }', 'higher = { arm = 5, alpha = "1" }'),
    ('{ arm = "pair" }]', '{ arm = "pair", alfa = 1 }]'),
    ('lower = [{ arm = "pair", alpha = "0" }, { arm = "pair" }]', "lower = []"),
    ('lower = [{ arm = "pair", alpha = "0" }, { arm = "pair" }]', 'lower = { arm = "pair" }'),
    ('lanes = [{ coupling = "relax", relax_after = "50%" }]', ""),
    ('lanes = [{ coupling = "relax", relax_after = "50%" }]', "lanes = [3]"),
    ("shared = 0.9", "shared = '1'"),
    ("shared = 0.9", "shared = 5"),
    ("shared = 0.9", "sharing = 1"),
    ('alphas = ["0"]', "alphas = ['x']"),
    ('alphas = ["0"]', "alphas = '0'"),
    ('alphas = ["0"]', "alphas = []"),
    ("[[arms]]", "[arms]"),
    ("[[paper]]", "[paper]"),
]


def test_a_good_one_is_read(tmp_path):
    (tmp_path / "own.toml").write_text(GOOD)
    experiment = read_experiment(str(tmp_path / "own.toml"))
    assert [plan.name for plan in experiment.plans("smoke")] == ["pair"]
    for name in names():
        assert read_experiment(name).title


@pytest.mark.parametrize(("old", "new"), BAD, ids=lambda text: text[:30])
def test_a_wrong_one_is_refused_before_anything_is_trained(old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert old in GOOD
    Path("own.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape("own.toml")):
        read_experiment("own.toml")
    result = CliRunner().invoke(app, ["reproduce", "own.toml"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]


def test_reading_an_experiment_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise RuntimeError('it was run')\n")
    Path("own.toml").write_text(GOOD.replace('network = "cnn"', 'network = "evil.py:f"'))
    assert read_experiment("own.toml").title == "one"
