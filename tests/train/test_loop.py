"""The loop against algorithm 1, written down plainly, and against what must follow from it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
from conftest import needs

from imlp import augment, reference
from imlp.errors import ConfigError, RunError
from imlp.optimizers import Adam
from imlp.spec.base import PARTS
from imlp.train import checkpoint
from imlp.train.callbacks import Callback
from imlp.train.images import STREAM_OF_CROPS, STREAM_OF_ORDER
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder


def algorithm_1(config, data, alpha: float) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
    """The paper's algorithm 1 for one I-MLP, with one matrix after the other; test accuracies and the last weights."""
    network = config.make_network(data.image, data.n_classes)
    prior = reference.init(network, dense=False, seed=config.seed)
    imlp = reference.init(network, dense=True, seed=config.seed)
    accuracies = []
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, STREAM_OF_ORDER, epoch]).permutation(len(data.x))
        for step, start in enumerate(range(0, len(order), config.batch)):
            rows = order[start : start + config.batch]
            rng = np.random.default_rng([config.seed, STREAM_OF_CROPS, epoch, step])
            draw = augment.draw(config.augment, len(rows), data.image, rng=rng)
            x, y = reference.batch(data.x, rows, draw, data.mean, data.std), data.y[rows]
            reference.train_step(imlp, x, y, optimizer=Adam(lr=config.lr))
            reference.train_step(prior, x, y, optimizer=Adam(lr=config.lr))
        x_test = reference.batch(data.x_test, np.arange(len(data.x_test)), None, data.mean, data.std)
        before = (reference.forward(imlp, x_test).argmax(1) == data.y_test).mean()
        for name in ("conv1", "conv2", "conv3"):
            spec = network.layer(name).spec
            W_P = reference.matrix(spec, prior.parameters[f"{name}.weight"]).toarray()
            b_P = reference.expand_bias(spec, prior.parameters[f"{name}.bias"])
            W, b = imlp.parameters[f"{name}.weight"], imlp.parameters[f"{name}.bias"]
            imlp.parameters[f"{name}.weight"] = (1 - alpha) * W + alpha * W_P
            imlp.parameters[f"{name}.bias"] = (1 - alpha) * b + alpha * b_P
        after = (reference.forward(imlp, x_test).argmax(1) == data.y_test).mean()
        prior_after = (reference.forward(prior, x_test).argmax(1) == data.y_test).mean()
        accuracies.append({"before": before, "after": after, "prior": prior_after})
    return accuracies, imlp.parameters


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_images_held_out_are_reported_and_never_trained_on(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    whole = tiny_runs.data()
    held = whole.validate(12, seed=0)
    settings = tiny_runs.config(backend=backend, validation=12, lanes=tiny_runs.lanes(0, 0.3))
    trainer = Trainer(settings, held, tmp_path / "a")
    trainer.run()
    assert (trainer.steps, len(held.x_validation)) == (3, 12)
    assert held.digest != whole.digest
    last = [row for row in trainer.state.rows if row["epoch"] == settings.epochs]
    x = trainer.backend.batch(trainer.images.validation, np.arange(12), None, held.mean, held.std, dtype="float64")
    y = trainer.backend.place(held.y_validation)
    for model, rows in ((trainer.state.prior, last[:1]), (trainer.state.lanes, last[1:])):
        correct, loss = (np.atleast_1d(trainer.backend.to_numpy(n)) for n in trainer.backend.evaluate(model, x, y))
        assert [row["validation_accuracy"] for row in rows] == (correct / 12).tolist()
        assert [row["validation_loss"] for row in rows] == (loss / 12).tolist()
    other = replace(held, x_validation=held.x_validation[::-1].copy())
    again = Trainer(settings, other, tmp_path / "b")
    again.run()
    kept = ("train_loss", "test_accuracy", "test_loss")
    assert [[row[key] for key in kept] for row in again.state.rows] == [
        [row[key] for key in kept] for row in trainer.state.rows
    ]


@pytest.mark.parametrize(("inputs", "black", "mean", "std"), [("unit", 0, 0.0, 1.0), ("signed", -1, 0.5, 0.5)])
@pytest.mark.parametrize("augmentation", ["pad", "pad-mean"])
@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_pixels_in_a_range_with_black_or_the_mean_colour_outside(
    backend, augmentation, inputs, black, mean, std, tmp_path
):
    if backend == "accel":
        needs("accel")
    trainer = tiny_runs.run(tmp_path, backend=backend, inputs=inputs, augment=augmentation, epochs=1)
    data, rows = trainer.data, np.arange(len(trainer.data.x))
    draw = augment.draw(augmentation, len(rows), data.image, rng=np.random.default_rng(0))
    batch = trainer.backend.to_numpy(trainer.images.batch(trainer.images.train, rows, draw)).reshape(-1, 8, 8)
    assert (batch.min(), batch.max()) == (black, 1)
    outside = black if augmentation == "pad" else (data.mean[0] - mean) / std
    up = next(n for n in rows if draw.top[n] < 0)
    np.testing.assert_allclose(batch[up, 0], outside, atol=1e-12)
    _, saved = checkpoint.newest(tmp_path / "checkpoint", print)
    assert (saved["mean"], saved["std"]) == ([mean], [std])


@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize("augmentation", ["pad", "pad-mean", "resized", "none"])
def test_the_loop_is_algorithm_1(backend, augmentation, tmp_path):
    if backend == "accel":
        needs("accel")
    settings = {"backend": backend, "augment": augmentation, "lanes": tiny_runs.lanes(0, 0.3)}
    trainer = tiny_runs.run(tmp_path, **settings)
    accuracies, parameters = algorithm_1(trainer.config, trainer.data, alpha=0.3)
    rows = trainer.state.rows
    assert [row["test_accuracy"] for row in rows if row["lane"] == 1] == [a["after"] for a in accuracies]
    assert [row["test_accuracy_before"] for row in rows if row["lane"] == 1] == [a["before"] for a in accuracies]
    assert [row["test_accuracy"] for row in rows if row["lane"] == "prior"] == [a["prior"] for a in accuracies]
    for name, found in tiny_runs.weights(trainer, 1).items():
        np.testing.assert_allclose(found, parameters[name], rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_lane_of_alpha_0_is_the_mlp_trained_alone(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    alone = tiny_runs.run(tmp_path / "alone", backend=backend, lanes=tiny_runs.lanes(0))
    among = tiny_runs.run(tmp_path / "among", backend=backend, lanes=tiny_runs.lanes(1, 0, ("0.5", {"every": "step"})))
    for name, expected in tiny_runs.weights(alone, 0).items():
        np.testing.assert_allclose(tiny_runs.weights(among, 1)[name], expected, rtol=0, atol=1e-10, err_msg=name)


class ComparedWithPrior(Callback):
    """After every step, the largest difference between the lane's logits and the prior's."""

    def __init__(self):
        self.differences = []

    def stepped(self, trainer: Trainer, images: int) -> None:
        x = trainer.images.batch(trainer.images.test, np.arange(30))
        prior, lane = (
            trainer.backend.to_numpy(trainer.backend.forward(m, x)) for m in (trainer.state.prior, trainer.state.lanes)
        )
        self.differences.append(np.abs(lane[0] - prior).max())


@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_alpha_1_at_every_step_with_the_head_is_the_prior_at_every_step(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    compared = ComparedWithPrior()
    tiny_runs.run(tmp_path, compared, backend=backend, lanes=tiny_runs.lanes(1, every="step", head=True))
    assert len(compared.differences) == 3 * 4
    assert max(compared.differences) < 1e-12


def test_alpha_1_at_every_epoch_is_the_prior_but_for_the_head(tmp_path):
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(1))
    prior = trainer.state.prior.parameters
    for name, found in tiny_runs.weights(trainer, 0).items():
        layer, _, part = name.rpartition(".")
        spec = trainer.network.layer(layer).spec
        expected = (
            reference.matrix(spec, prior[name]).toarray()
            if part == "weight"
            else reference.expand_bias(spec, prior[name])
        )
        assert np.array_equal(found, expected) is (layer != "head")


def test_test_time_interpolation_is_the_alpha_0_pair_mixed_once(tmp_path):
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, "end:0.5"))
    plain, mixed = tiny_runs.weights(trainer, 0), tiny_runs.weights(trainer, 1)
    spec = trainer.network.layer("conv2").spec
    w_p = reference.matrix(spec, trainer.state.prior.parameters["conv2.weight"]).toarray()
    np.testing.assert_allclose(mixed["conv2.weight"], 0.5 * plain["conv2.weight"] + 0.5 * w_p, atol=1e-14)
    last = {row["lane"]: row for row in trainer.state.rows}
    assert last[1]["test_accuracy_before"] == last[0]["test_accuracy"]


def test_cadence_in_steps_counts_over_epochs(tmp_path):
    """4 steps an epoch, every 3: after steps 3, 6, 9 and 12 of the run."""
    interpolated = []

    class Watching(Callback):
        def started(self, trainer):
            original = trainer.interpolation.after_step

            def moves(*arguments):
                found = original(*arguments)
                if found:
                    interpolated.append(trainer.state.epoch * trainer.steps + trainer.state.step + 1)
                return found

            trainer.interpolation.after_step = moves

    tiny_runs.run(tmp_path, Watching(), lanes=tiny_runs.lanes((0.5, {"every": "3"})))
    assert interpolated == [3, 6, 9, 12]


def test_layers_biases_and_addition_are_a_lanes_own(tmp_path):
    trainer = tiny_runs.run(
        tmp_path,
        epochs=1,
        lanes=tiny_runs.lanes(
            0, (1, {"layers": ["conv1"]}), (1, {"biases": False}), (1, {"coupling": "add"}), "conv3=0.5"
        ),
    )
    plain, first, no_biases, added, third = (tiny_runs.weights(trainer, lane) for lane in range(5))
    prior, network = trainer.state.prior.parameters, trainer.network
    w_p = {n: reference.matrix(network.layer(n).spec, prior[f"{n}.weight"]).toarray() for n in network.interpolated}
    for name in network.interpolated:
        W = plain[f"{name}.weight"]
        np.testing.assert_allclose(first[f"{name}.weight"], w_p[name] if name == "conv1" else W, atol=1e-13)
        np.testing.assert_array_equal(no_biases[f"{name}.weight"], w_p[name])
        np.testing.assert_allclose(no_biases[f"{name}.bias"], plain[f"{name}.bias"], atol=1e-13)
        np.testing.assert_allclose(added[f"{name}.weight"], W + w_p[name], atol=1e-13)
        expected = 0.5 * W + 0.5 * w_p[name] if name == "conv3" else W
        np.testing.assert_allclose(third[f"{name}.weight"], expected, atol=1e-13)


def test_the_files_of_a_run(tmp_path):
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, 0.5))
    names = {path.name for path in tmp_path.iterdir()} - {".lock"}
    assert names == {"config.toml", "env.json", "metrics.jsonl", "times.jsonl", "result.json", "checkpoint"}
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == json.loads(json.dumps(trainer.state.rows))
    assert [(row["epoch"], row["lane"]) for row in rows] == [(e, lane) for e in (1, 2, 3) for lane in ("prior", 0, 1)]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["models"] == rows[-3:]
    assert result["identity"] == trainer.config.identity
    assert json.loads((tmp_path / "env.json").read_text())["numpy"] == np.__version__


def test_the_bias_meter_rises_with_alpha(tmp_path):
    trainer = tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, 0.3, 1))
    last = {row["lane"]: row["bias"] for row in trainer.state.rows if row["lane"] != "prior"}
    for layer in trainer.network.interpolated:
        shares = [last[lane][layer]["shared"] for lane in range(3)]
        assert shares == sorted(shares)
        assert shares[2] == pytest.approx(1)
        assert last[2][layer]["distance"] == pytest.approx(0, abs=1e-12)
        assert 0.1 < shares[0] / last[0][layer]["random_shared"] < 10
        for lane in range(3):
            assert sum(last[lane][layer][part] for part in PARTS) == pytest.approx(1, abs=1e-12)
        spec, n = trainer.network.layer(layer).spec, np.prod(trainer.network.layer(layer).spec.matrix_shape)
        assert last[0][layer]["random_outside"] == 1 - spec.nnz / n


def test_a_layer_that_does_not_exist_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="the known ones are conv, conv1, conv2, conv3"):
        Trainer(tiny_runs.config(lanes=tiny_runs.lanes("conv9=1")), tiny_runs.data(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_reference_has_one_device():
    with pytest.raises(ConfigError, match="computes on the cpu"):
        Trainer(tiny_runs.config(device="cuda"), tiny_runs.data(), None)


def test_a_run_is_not_started_over_another(tmp_path):
    tiny_runs.run(tmp_path)
    with pytest.raises(RunError, match="resume it: --resume; or start it again: --again"):
        tiny_runs.run(tmp_path)


def test_a_prior_alone(tmp_path):
    """Its numbers are those that it has beside lanes; the folder says that there are none."""
    beside = tiny_runs.run(tmp_path / "beside", lanes=tiny_runs.lanes(0.5))
    alone = tiny_runs.run(tmp_path / "alone", lanes=[])
    rows = [row for row in beside.state.rows if row["lane"] == "prior"]
    assert alone.state.rows == rows
    assert RunFolder(tmp_path / "alone").read_config().lanes == ()
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(7), lanes=[])
    tiny_runs.run(tmp_path / "stopped", lanes=[], resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "alone", tmp_path / "stopped")
