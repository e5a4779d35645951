"""The shift meter against shifts made by hand, and in a run."""

import json

import numpy as np
import pytest
import tiny_runs
from conftest import needs

from imlp import reference
from imlp.model.shift import comparable, squares
from imlp.spec import Conv, Local
from imlp.train.run_folder import RunFolder

SPECS = [
    Conv((2, 8, 7), 3, kernel=3, padding=1),
    Conv((2, 8, 9), 3, kernel=(3, 2), stride=2, padding=1),
    Conv((1, 9, 9), 2, kernel=3, stride=(1, 3), padding=2, dilation=2),
    Conv((4, 4, 4), 2, kernel=3, stride=2, padding=1),
]


def layer(W):
    return lambda x: x @ W.T


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_exactly_zero_for_a_convolution(spec):
    """Of whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 6, (6, spec.matrix_shape[1])).astype(float)
    W = reference.matrix(spec, rng.integers(-5, 6, spec.weight_shape).astype(float)).toarray()
    error, scale = squares(spec, x, x @ W.T, layer(W))
    assert error == 0 < scale
    other = W.copy()
    other[W.shape[0] // 2] *= 2
    assert squares(spec, x, x @ other.T, layer(other))[0] > 0


def test_a_dense_layer_against_rolled_pictures():
    """`torch.roll`, and only those outputs whose window does not reach the border that the roll has broken."""
    needs("accel")
    import torch

    spec, rng = Local((2, 6, 6), 3, kernel=3, padding=1), np.random.default_rng(1)
    x, W = (torch.tensor(rng.standard_normal(shape)) for shape in ((5, 72), spec.matrix_shape))
    y, error, scale = (x @ W.T).view(5, 3, 6, 6), 0.0, 0.0
    for direction in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        moved = torch.roll(x.view(5, 2, 6, 6), direction, (2, 3))
        lost = [0 if step == 1 else -1 for step in direction]
        if direction[0]:
            moved[:, :, lost[0]] = 0
        else:
            moved[:, :, :, lost[1]] = 0
        cut = [slice(1, 5) if step else slice(None) for step in direction]
        here, there = (moved.flatten(1) @ W.T).view(5, 3, 6, 6), torch.roll(y, direction, (2, 3))
        error += ((here - there)[:, :, cut[0], cut[1]] ** 2).sum().item()
        scale += (there[:, :, cut[0], cut[1]] ** 2).sum().item()
    np.testing.assert_allclose(squares(spec, x, y.flatten(1), layer(W)), (error, scale), rtol=1e-12)
    assert 1.2 < (error / scale) ** 0.5 < 1.6


def test_windows_that_lose_something_are_left_out():
    assert comparable(Conv((1, 2, 2), 1, kernel=3, padding=1), 0, 1) == range(0)
    assert comparable(Conv((1, 4, 4), 1, kernel=3, stride=2, padding=1), 1, 1) == range(1, 2)


def rows(folder):
    return [json.loads(line) for line in RunFolder(folder).metrics.read_text().splitlines()]


def test_in_a_run(tmp_path):
    lanes = tiny_runs.lanes(0, ("1", {"every": "step"}), ("gate", {}))
    lanes[2] = {"coupling": "gate"}
    for name in ("none", "end", "epoch"):
        tiny_runs.run(tmp_path / name, shift=name, lanes=lanes, epochs=2)
    plain, end, each = (rows(tmp_path / name) for name in ("none", "end", "epoch"))
    names = ["shift_accuracy", "shift_logits", "shift_conv1", "shift_conv2", "shift_conv3"]
    without = [{key: value for key, value in row.items() if key not in names} for row in each]
    assert without == plain
    assert end == [*plain[:4], *each[4:]]
    assert set(each[0]) - set(plain[0]) <= set(names)
    by_lane = {row["lane"]: row for row in each[4:]}
    for layer_name in ("shift_conv1", "shift_conv2"):
        assert by_lane["prior"][layer_name] < 1e-12
        assert by_lane[1][layer_name] < 1e-12  # it is the prior's matrix
        assert by_lane[0][layer_name] > 0.5
    assert by_lane[1]["shift_logits"] > 0


def test_the_accuracy_on_moved_images_and_the_other_backend(tmp_path):
    """The pictures moved by hand, black at the border; and accel computes the same."""
    needs("accel")
    from imlp.train.shift import measure_shift

    found = {}
    for backend in ("reference", "accel"):
        trainer = tiny_runs.run(
            tmp_path / backend, backend=backend, network="resnet", options={"width": 64, "strides": [1, 2]}
        )
        found[backend] = measure_shift(trainer.images, trainer.state)
    for key, numbers in found["reference"].items():
        assert numbers == pytest.approx(found["accel"][key], abs=1e-9)
    trainer = tiny_runs.run(tmp_path / "again", network="resnet", options={"width": 64, "strides": [1, 2]})
    x, y, (mean, std) = trainer.data.x_test, trainer.data.y_test, trainer.data.statistics("standardised")
    correct = 0
    for n in range(4):
        moved = np.zeros_like(x)
        to = [np.s_[:, :, 1:], np.s_[:, :, :-1], np.s_[:, :, :, 1:], np.s_[:, :, :, :-1]]
        moved[to[n]] = x[to[n ^ 1]]
        z = (moved / 255 - mean[:, None, None]) / std[:, None, None]
        correct += (reference.forward(trainer.state.prior, z.reshape(len(z), -1)).argmax(1) == y).mean()
    assert found["reference"]["prior"]["shift_accuracy"] == pytest.approx(correct / 4)
