"""The line from a lane to the prior of its run, on the embedded images."""

import json

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

from imlp import reference
from imlp.cli import app
from imlp.errors import ConfigError
from imlp.model.align import align_
from imlp.networks import mixer
from imlp.train.config import Config, Lane, from_mapping
from imlp.train.export import trained
from imlp.train.line import line
from imlp.train.loop import Interrupted, Trainer
from imlp.train.prepare import load_data

SETTINGS = {
    "train_size": 200, "test_size": 50, "epochs": 2, "batch": 50, "lr": 3e-3, "backend": "reference",
    "options": {"width": 64, "strides": [4, 2]},
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Lane 0 is never mixed; the others are the same until they are mixed after the last epoch."""
    folder = tmp_path_factory.mktemp("run")
    lanes = [{"alpha": alpha} for alpha in ("0", "end:1", "end:0.5", "end:conv2=0.5", "end:1")]
    lanes[3] = {"alpha": "conv2=end:0.5"}
    lanes[4] |= {"head": True}
    config = from_mapping(Config, {**SETTINGS, "lanes": lanes})
    result = Trainer(config, load_data(config), folder).run()
    return folder, {row["lane"]: (row["test_accuracy"], row["test_loss"]) for row in result["models"]}


def test_its_points_are_what_interpolation_at_test_time_recorded(run):
    folder, recorded = run
    found = line(folder, 0, points=3)
    assert list(found) == ["all layers", "conv1", "conv2"]
    assert [point[1:] for point in found["all layers"]] == [recorded[lane] for lane in (0, 2, 1)]
    assert found["conv2"][1][1:] == recorded[3]
    with_head = line(folder, 0, points=2, head=True)["all layers"][1]
    assert with_head[1:] == recorded[4]
    np.testing.assert_allclose(with_head[1:], recorded["prior"], atol=1e-9)


def test_the_command(run):
    folder, recorded = run
    result = CliRunner().invoke(app, ["line", str(folder), "--points", "2", "--align", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    np.testing.assert_allclose(found["all layers"]["loss"][0], recorded[0][1], atol=1e-9)  # the same function
    assert (folder / "line0.png").exists()
    shown = CliRunner().invoke(app, ["line", str(folder), "--points", "2", "--lane", "1"])
    assert shown.exit_code == 0, shown.output
    assert "barrier" in shown.stdout
    assert CliRunner().invoke(app, ["line", str(folder), "--lane", "9"]).exit_code == 2
    own = folder.parent / "mine.png"
    own.write_text("kept")
    assert "already exists" in CliRunner().invoke(app, ["line", str(folder), "--out", str(own)]).stderr
    assert own.read_text() == "kept"


def test_alignment_of_a_trained_lane(run):
    """Nearer to the prior than before, and the same function."""
    folder, _ = run
    lane, prior = (trained(folder, which)[2] for which in (0, "prior"))
    model = reference.restore(lane.network, reference.export(lane), dense=True)
    x = np.random.default_rng(0).standard_normal((7, 3072))
    before = reference.forward(model, x)
    orders = align_(reference, model, prior)
    assert set(orders) == {"conv1", "conv2"}
    assert any((order != np.arange(len(order))).any() for order in orders.values())
    np.testing.assert_allclose(reference.forward(model, x), before, atol=1e-12)


def test_alignment_keeps_the_function_of_a_mixer():
    network = mixer((2, 4, 4), 3, patch=2, channels=3, depth=2, learned_norm=True)
    model, prior = (reference.init(network, dense=dense, seed=seed) for seed, dense in ((0, True), (1, False)))
    x = np.random.default_rng(0).standard_normal((7, 32))
    before = reference.forward(model, x)
    assert set(align_(reference, model, prior)) == {
        f"block{n}.{kind}1" for n in (1, 2) for kind in ("token", "channel")
    }
    np.testing.assert_allclose(reference.forward(model, x), before, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_lane_is_aligned_before_it_is_first_mixed(tmp_path, backend):
    """Its hidden units change places, so it trains as before; only what the prior adds to them differs."""
    if backend == "accel":
        needs("accel")
    lanes = [{"alpha": "once:2:0.5"}, {"alpha": "once:2:0.5", "align": "once"}]
    config = from_mapping(Config, {**SETTINGS, "backend": backend, "dtype": "float64", "epochs": 3, "lanes": lanes})
    Trainer(config, load_data(config), tmp_path / "whole").run()
    with pytest.raises(Interrupted):
        Trainer(config, load_data(config), tmp_path / "stopped", [tiny_runs.StopAt(4)]).run()
    Trainer(config, load_data(config), tmp_path / "stopped").run(resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    rows = [json.loads(line) for line in tiny_runs.outcome(tmp_path / "whole")[0].splitlines()]
    plain, aligned = ([row for row in rows if row["lane"] == lane] for lane in (0, 1))
    assert plain[0]["test_loss"] == aligned[0]["test_loss"]
    assert aligned[1]["train_loss"] == pytest.approx(plain[1]["train_loss"], rel=1e-9)
    assert aligned[1]["bias"]["conv1"]["distance"] != pytest.approx(plain[1]["bias"]["conv1"]["distance"], rel=1e-3)
    assert config.lanes[1].title.endswith("aligned once")


def test_align_is_refused_where_it_means_nothing():
    for lane in ({"align": "twice"}, {"align": "once", "coupling": "self"}, {"align": "once", "coupling": "pathway"}):
        with pytest.raises(ConfigError, match="align"):
            from_mapping(Config, {**SETTINGS, "lanes": [lane]})
    assert from_mapping(Lane, {"align": "none"}).identity == Lane().identity
