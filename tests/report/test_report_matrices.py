"""The pictures of matrices show what the networks compute with."""

import io

import numpy as np
import pytest
import tiny_runs
from PIL import Image

from imlp.init import network_parameters
from imlp.reference import matrix
from imlp.report.matrices import Matrices, matrices, picture, shown_layer
from imlp.study.scores import arms_of
from imlp.train import checkpoint
from imlp.train.export import parameters
from imlp.train.run_reader import find_runs

BRANCHES = [{"coupling": "pathway"}, {"coupling": "gate", "gate": 0.9}, {"coupling": "gate", "layers": ["conv3"]}]


def found_in(folder) -> Matrices | str:
    (arm,) = arms_of(find_runs([folder]))
    return matrices(arm)


def test_every_network_before_training_and_after(tmp_path):
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, (0.1, {"every": "step"}), (1, {"every": "step"})))
    found = found_in(tmp_path)
    titles = ["S-MLP (alpha 0)", "I-MLP alpha 0.1, every step", "I-MLP alpha 1, every step"]
    assert list(found.corners) == ["before training", *titles, "S-CNN (the prior)"]
    assert found.where == "seed 0, after epoch 3"
    layer = shown_layer(trainer.network)
    key = f"{layer.name}.weight"
    network, prior = parameters(tmp_path, "prior")
    expected = {"S-CNN (the prior)": matrix(layer.spec, prior[key]).toarray()}
    rows, columns = found.part
    strongest = np.unravel_index((prior[key] ** 2).sum(axis=(2, 3)).argmax(), prior[key].shape[:2])
    assert (rows.start, columns.start) == (
        strongest[0] * (rows.stop - rows.start),
        strongest[1] * (columns.stop - columns.start),
    )
    expected["before training"] = network_parameters(network, dense=True, seed=0)[key]
    expected |= {title: parameters(tmp_path, n)[1][key] for n, title in enumerate(titles)}
    for title, values in expected.items():
        np.testing.assert_array_equal(found.corners[title], values[rows, columns], err_msg=title)


def test_a_layer_of_two_parts_is_shown_as_their_sum(tmp_path):
    """Of `pathway` and `gate` not `U` alone."""
    trainer = tiny_runs.run(tmp_path, lanes=BRANCHES)
    found = found_in(tmp_path)
    rows, columns = found.part
    whole = trainer.backend.weight(trainer.state.lanes, found.layer.name)
    U = trainer.state.lanes.parameters[f"{found.layer.name}.weight"]
    assert "before training" not in found.corners  # it would be U alone
    for n, lane in enumerate(trainer.config.lanes):
        shown = found.corners[lane.title]
        np.testing.assert_allclose(shown, whole[n, rows, columns], atol=1e-12, err_msg=lane.title)
        assert np.allclose(shown, U[n, rows, columns]) == (n == 2)  # which has no second part in this layer


def test_a_mixer_has_the_features_of_a_patch_as_its_corner(tmp_path):
    options = {"patch": 4, "channels": 6, "depth": 1}
    trainer = tiny_runs.run(tmp_path, epochs=1, network="mixer", options=options, lanes=tiny_runs.lanes(0, 1))
    found = found_in(tmp_path)
    whole = trainer.backend.weight(trainer.state.lanes, found.layer.name)
    rows, columns = found.part
    np.testing.assert_array_equal(found.corners["S-MLP (alpha 0)"], whole[0, rows, columns])
    assert "MLP-Mixer (the prior)" in found.corners


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    tiny_runs.run(tmp_path / "run", lanes=tiny_runs.lanes(0, 1), keep_moments=True)
    newest, before = checkpoint.saved_files(tmp_path / "run" / "checkpoint")
    newest.write_bytes(newest.read_bytes()[:100])
    assert found_in(tmp_path).where == "seed 0, after epoch 2"
    before.unlink()
    assert isinstance(found_in(tmp_path), str)


def test_lanes_that_lie_in_several_runs_are_all_shown(tmp_path):
    for name, alpha in (("a", 0), ("b", 1)):
        tiny_runs.run(tmp_path / name, epochs=1, lanes=tiny_runs.lanes(alpha))
    found = found_in(tmp_path)
    assert {"S-MLP (alpha 0)", "I-MLP alpha 1, every epoch"} < found.corners.keys()
    assert found.row("S-MLP (alpha 0)").shape == found.layer.spec.in_shape[1:]


@pytest.mark.parametrize("scale", [0, 1e-30, 1e30])
def test_a_picture_is_white_at_0_and_red_and_blue_at_the_ends(scale):
    with Image.open(io.BytesIO(picture(scale * np.array([[-1.0, 0.0, 1.0]])))) as image:
        (low, middle, high), *_ = np.asarray(image.convert("RGB")).astype(int)
    assert (middle > 230).all()
    assert (low[0] > low[2] and high[2] > high[0]) or scale == 0
