"""A run's settings: in TOML, as options, and the identity that they define."""

import dataclasses
import datetime
import subprocess
import sys

import pytest
import tiny_runs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.commands.options import config_of
from imlp.errors import ConfigError, ImlpError
from imlp.train.config import Config, Lane, differences, from_mapping, read, to_toml

OTHER = {
    "network": "mixer", "options": {"residual": False, "patch": 4}, "data": "cifar10", "labels": "coarse",
    "train_size": 7, "test_size": 5, "augment": "none", "epochs": 3, "batch": 9, "lr": 0.5, "beta1": 0.5, "beta2": 0.6,
    "eps": 0.1, "seed": 4, "lanes": [{"alpha": "decay:0.5:2", "every": "7", "coupling": "add", "layers": ["embed"],
    "biases": False, "head": True}], "backend": "reference", "dtype": "float64", "device": "cpu", "threads": 3,
    "compile": True, "deterministic": True, "save_minutes": 2.5, "crop_area": "0.4,1", "crop_aspect": "1,1",
    "inputs": "unit", "held_out": 0.25, "validation": 50, "keep_moments": True, "densify": "conv*",
    "weight_decay": 0.1, "clip": 0.5, "schedule": "cosine", "warmup": 1.0, "mixup": 0.8, "label_smoothing": 0.3,
    "shift": "end",
}  # fmt: skip


def test_every_setting_survives_a_toml_file(tmp_path):
    config = from_mapping(Config, OTHER)
    (tmp_path / "c.toml").write_text(to_toml(config))
    assert from_mapping(Config, read(tmp_path / "c.toml")) == config
    own = from_mapping(Config, OTHER | {"network": "mine.py:mine", "source": "ab" * 32})
    (tmp_path / "c.toml").write_text(to_toml(own))
    assert from_mapping(Config, read(tmp_path / "c.toml")) == own
    assert {*OTHER, "source", "products", "optimizer", "momentum", "nesterov"} == {
        f.name for f in dataclasses.fields(Config)
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"products": "bfloat16"},
        {"save_minutes": float("inf")},
        {"data": "t\U0001f600\x7f.npz"},
        {"options": {"activated": None}},
    ],
)
def test_odd_values_survive_a_toml_file_too(settings, tmp_path):
    config = from_mapping(Config, settings)
    (tmp_path / "c.toml").write_text(to_toml(config), encoding="utf-8")
    assert from_mapping(Config, read(tmp_path / "c.toml")) == config


def test_every_setting_is_an_option_with_its_help():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}).stdout
    for f in (*dataclasses.fields(Config), *dataclasses.fields(Lane)):
        assert f.metadata["help"]
        if f.name not in ("lanes", "source", "coupling_source", "held_out"):
            assert f"--{f.name.replace('_', '-')}" in shown


def test_options_of_the_command_line_win_over_the_file(tmp_path):
    (tmp_path / "c.toml").write_text("epochs = 3\nlr = 0.5\n[options]\nresidual = false\n[[lanes]]\nalpha = 0.25\n")
    config = config_of(tmp_path / "c.toml", {"epochs": 4, "options": ["patch=4"], "network": "mixer", "head": True})
    assert (config.epochs, config.lr) == (4, 0.5)
    assert dict(config.options) == {"residual": False, "patch": 4}
    assert config.lanes == (Lane("0.25", head=True),)


def test_an_alpha_can_carry_its_cadence():
    config = config_of(None, {"alpha": ["0", "0.01@step", "1@5"], "coupling": "add"})
    assert [(lane.alpha, lane.every, lane.coupling) for lane in config.lanes] == [
        ("0", "epoch", "add"),
        ("0.01", "step", "add"),
        ("1", "5", "add"),
    ]


@pytest.mark.parametrize(
    ("lane", "every"),
    [
        ({"alpha": "0.01"}, "step"),
        ({"alpha": "decay:0.5:1"}, "step"),
        ({"alpha": "0.1", "coupling": "self"}, "step"),
        ({"alpha": "0", "coupling": "self", "alpha_sharing": "0.5"}, "step"),
        ({"alpha": "0"}, "epoch"),  # never mixed
        ({"alpha": "end:0.5"}, "epoch"),  # once
        ({"alpha": "once:2:1"}, "epoch"),
        ({"alpha": "0.5", "coupling": "add"}, "epoch"),  # after every step it would grow without bounds
        ({"coupling": "gate"}, "epoch"),  # mixes nothing
    ],
)
def test_lanes_are_mixed_after_every_step_unless_told_otherwise(lane, every):
    assert from_mapping(Lane, lane).every == every
    assert from_mapping(Config, {"lanes": [lane]}).lanes[0].every == every
    if "alpha" in lane:
        given = {**lane, "alpha": [lane["alpha"], "0.3@epoch"]}
        assert [own.every for own in config_of(None, given).lanes] == [every, "epoch"]


@pytest.mark.parametrize("name", sorted(OTHER))
def test_the_identity_changes_with_what_changes_the_result_and_with_nothing_else(name):
    changed = from_mapping(Config, {name: OTHER[name]} | ({"network": "mixer"} if name == "options" else {}))
    base = Config(network="mixer") if name == "options" else Config()
    matters = name not in ("device", "threads", "save_minutes", "keep_moments", "shift")
    assert (changed.identity != base.identity) is matters
    assert bool(differences(base, changed)) is matters


def test_the_identity_is_the_same_in_another_process():
    code = "from imlp.train.config import Config; print(Config().identity)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Config().identity


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 3}, "unknown setting: 'epoch'; did you mean 'epochs'"),
        ({"lanes": [{"alpah": 1}]}, "did you mean 'alpha'"),
        ({"epochs": 0}, "epochs is 0; give at least 1"),
        ({"epochs": "many"}, "give a value of type int"),
        ({"lr": -1.0}, "lr is -1.0; give a number above 0"),
        ({"beta1": 1.0}, "from 0 to below 1"),
        ({"augment": "crop"}, "use pad or pad-mean or resized or none"),
        ({"crop_area": "0.4"}, "crop_area is '0.4'; give two numbers above 0 in order, at most 1"),
        ({"crop_area": "0.4,2"}, "at most 1"),
        ({"crop_aspect": "4/3,3/4"}, "in order, for example"),
        ({"crop_aspect": "1/0,1"}, "crop_aspect is '1/0,1'"),
        ({"crop_aspect": "nan,1"}, "crop_aspect is 'nan,1'"),
        ({"inputs": "raw"}, "use standardised or unit"),
        ({"validation": -1}, "validation is -1; give at least 0"),
        ({"network": "cnm"}, "did you mean 'cnn'"),
        ({"lanes": {}}, "lanes is an empty table"),
        ({"lanes": [{"alpha": 2}]}, "from 0"),
        ({"lanes": [{"every": "week"}]}, "use epoch, step"),
        ({"lanes": [{"coupling": "mix"}]}, "use interpolate, add, self, relax, pathway, gate"),
        ({"backend": "jax"}, "use accel or reference"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ImlpError, match=message):
        from_mapping(Config, settings)


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read(tmp_path / "missing.toml")
    (tmp_path / "c.toml").write_text("epochs = = 3")
    with pytest.raises(ConfigError, match="is not TOML"):
        read(tmp_path / "c.toml")


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
        {"options": {"width": 10**9}},
        {"options": {"strides": {"a": 1}}},
        {"options": {"strides": [datetime.date(2026, 1, 1)]}},
        {"lanes": [{"coupling_options": 5}]},
        {"data": "\udcff"},
        {"lanes": [{"layers": ["conv1", "conv1"]}]},
        {"lanes": [{"layers": [["conv1"]]}]},
        {"lanes": [{"every": "9" * 5000}]},
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings):
    with pytest.raises(ConfigError):
        tiny_runs.config(**settings)


def test_what_could_be_meant_is_taken():
    assert Config(threads=64, seed=10**12, options={"activated": [1]}).threads == 64
    assert Lane(every="00012").steps == 12
