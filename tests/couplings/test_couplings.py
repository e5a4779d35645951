"""The couplings: what each does by its formula, in both backends, and through a whole run."""

import dataclasses
import json
from itertools import permutations

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SMALL, batch
from strategies import SPECS, convs
from typer.testing import CliRunner

import imlp
from imlp import networks, reference
from imlp.cli import app
from imlp.couplings import Branch, Move, coupling
from imlp.errors import ArrayError, ConfigError
from imlp.optimizers import Adam
from imlp.study.scores import arms_of
from imlp.train.config import Config, Lane, from_mapping, to_toml
from imlp.train.loop import Interrupted
from imlp.train.run_reader import find_runs, read_run

NETWORK = SMALL["cnn"]
GATES = {"pathway": {}, "gate": {"gate": 0.3}}
LAYERED = [spec for spec in SPECS if spec.parameters]
ALPHAS = st.sampled_from([0.0, 0.3, 1.0])
LANES = [
    {"alpha": "0"},
    {"alpha": "0.3", "every": "3", "moments": "zero"},
    {"coupling": "self", "alpha": "0.2", "every": "step"},
    {"coupling": "self", "alpha_locality": "0.5", "alpha_sharing": "0.1"},
    {"coupling": "relax", "relax_after": 2},
    {"coupling": "pathway", "decay_prior": 1e-3},
    {"coupling": "gate", "gate": 0.3, "layers": ["conv2"]},
    {"coupling": "relax", "relax_after": 3},
]


def dense(spec, seed=0):
    return np.random.default_rng(seed).standard_normal(spec.matrix_shape)


def Pi(W, spec):
    return reference.matrix(spec, reference.project(W, spec), layout="dense")


# self


@pytest.mark.parametrize("spec", LAYERED, ids=str)
def test_pi_is_an_orthogonal_projection(spec):
    A, B = dense(spec), dense(spec, 1)
    np.testing.assert_allclose(Pi(Pi(A, spec), spec), Pi(A, spec), atol=1e-12)
    np.testing.assert_allclose((Pi(A, spec) * B).sum(), (A * Pi(B, spec)).sum(), atol=1e-10)


@pytest.mark.parametrize("spec", LAYERED, ids=str)
def test_one_alpha_is_the_mean_of_w_and_pi(spec):
    W = dense(spec)
    np.testing.assert_allclose(reference.pull(W, spec, 0.3), 0.7 * W + 0.3 * Pi(W, spec), atol=1e-12)


def test_each_knob_moves_its_own_part():
    spec, W = SPECS[0], dense(SPECS[0])
    before = reference.measure(W, spec)
    local = reference.measure(reference.pull(W, spec, locality=1, sharing=0), spec)
    shared = reference.measure(reference.pull(W, spec, locality=0, sharing=1), spec)
    assert local["outside"] == pytest.approx(0, abs=1e-12)
    assert local["local"] / local["shared"] == pytest.approx(before["local"] / before["shared"])
    assert shared["local"] == pytest.approx(0, abs=1e-12)
    assert shared["outside"] / shared["shared"] == pytest.approx(before["outside"] / before["shared"])


@pytest.mark.parametrize("spec", LAYERED, ids=str)
@pytest.mark.parametrize("least", [1, 10**9], ids=["C", "views"])
def test_accel_pulls_as_the_reference_does(spec, least, monkeypatch):
    needs("accel")
    import torch

    from imlp import accel
    from imlp.accel import rows

    monkeypatch.setattr(rows, "LEAST", least)
    W, b = dense(spec), np.random.default_rng(2).standard_normal(spec.matrix_shape[0])
    for locality, sharing in ((0.3, None), (1, 1), (0, 0.2), (0.3, 0), (1, 0), (0, 1), (0.3, 0.2)):
        found = accel.pull(torch.tensor(W), spec, locality, sharing)
        np.testing.assert_allclose(found, reference.pull(W, spec, locality, sharing), atol=1e-12)
    stack = torch.tensor(np.stack([W, 2 * W]))
    assert accel.pull(stack, spec, [0.3, 0.0]) is stack
    np.testing.assert_allclose(stack, np.stack([reference.pull(W, spec, 0.3), 2 * W]), atol=1e-12)
    found = accel.pull_bias(torch.tensor(b), spec, 0.3)
    np.testing.assert_allclose(found, reference.pull_bias(b, spec, 0.3), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(spec=convs(), locality=ALPHAS, sharing=ALPHAS)
def test_the_pass_in_c_on_any_geometry(spec, locality, sharing):
    needs("accel")
    import torch

    from imlp.accel import rows

    if not rows.status()[0]:
        pytest.skip(rows.status()[1])
    W = torch.tensor(dense(spec))
    rows.pull(W, spec, locality, sharing)
    np.testing.assert_allclose(W, reference.pull(dense(spec), spec, locality, sharing), atol=1e-12)


def test_without_gradients_the_share_follows_its_formula():
    """`s / (s + (1 - s) (1 - alpha)^(2n))` after n times."""
    spec, alpha, n = SPECS[0], 0.2, 5
    W = dense(spec)
    s = reference.measure(W, spec)["shared"]
    for _ in range(n):
        W = reference.pull(W, spec, alpha)
    expected = s / (s + (1 - s) * (1 - alpha) ** (2 * n))
    assert reference.measure(W, spec)["shared"] == pytest.approx(expected, rel=1e-12)


def test_alpha_one_with_sgd_is_a_convolution_whose_taps_learn_at_their_own_rates():
    """Plain SGD and `self` with alpha 1 after every step: tap k learns at `lr / c_k`, to 1e-12."""
    network, lr = NETWORK, 0.05
    prior = reference.init(network, dense=False, seed=0)
    model = reference.select(reference.relax(prior, None), [0])
    moves = {name: [Move(coupling("self"), (1.0,))] for name in network.interpolated}
    specs = {name: network.layer(name).spec for name in network.interpolated}
    for step in range(20):
        x, y = batch(network, seed=step)
        for own in (model, prior):
            _, grads = reference.loss_and_grads(own, x, y)
            for name, gradient in grads.items():
                layer, _, part = name.rpartition(".")
                rate = lr
                if own is prior and layer in specs:  # c_k: how many entries of W, or of b, the number fills
                    spec = specs[layer]
                    ones = np.ones(spec.matrix_shape) if part == "weight" else np.ones(spec.matrix_shape[0])
                    adjoint = reference.adjoint if part == "weight" else reference.adjoint_bias
                    rate = lr / np.maximum(adjoint(spec, ones), 1)
                own.parameters[name] -= rate * gradient
        reference.mix(model, None, moves)
    for name, spec in specs.items():
        W_P = reference.matrix(spec, prior.weight_of(name, spec), layout="dense")
        np.testing.assert_allclose(model.parameters[f"{name}.weight"][0], W_P, atol=1e-12)
    x, _ = batch(network, seed=99)
    np.testing.assert_allclose(reference.forward(model, x)[0], reference.forward(prior, x), atol=1e-12)


def test_what_cannot_be_pulled_is_refused():
    with pytest.raises(ArrayError, match="has no weight to pull towards"):
        reference.pull(np.ones((6, 6)), imlp.Transpose(2, 3), 0.5)
    model = reference.init(NETWORK, dense=True, seed=0, lanes=2)
    with pytest.raises(ArrayError, match="interpolate needs a prior"):
        reference.mix(model, None, {"conv1": [Move(coupling("interpolate"), (0.5,)), None]})
    with pytest.raises(ArrayError, match="1 moves of conv1 for 2 lanes; give one per lane"):
        reference.mix(model, None, {"conv1": [Move(coupling("self"), (0.5,))]})


# relax


@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize("name", ["cnn", "cnn, learned norm", "mixer", "resnet"])
def test_a_relaxed_lane_is_the_prior_and_stays_there_without_learning(backend, name):
    if backend == "accel":
        needs("accel")
    verbs, network = imlp.backend(backend), SMALL[name]
    options = {"dtype": "float64"} if backend == "accel" else {}
    prior = verbs.init(network, dense=False, seed=0, **options)
    lanes = verbs.init(network, dense=True, seed=0, lanes=2, **options)
    x, y = (verbs.place(array) for array in batch(network))
    for _ in range(3):
        verbs.train_step(prior, x, y, optimizer=Adam(lr=1e-2))
        verbs.train_step(lanes, x, y, optimizer=Adam(lr=1e-2))
    before = verbs.export(lanes)
    relaxed = verbs.relax(prior, lanes)
    logits = verbs.to_numpy(verbs.forward(prior, x))
    np.testing.assert_allclose(verbs.to_numpy(verbs.forward(relaxed, x))[2], logits, atol=1e-12)
    for key, array in before.items():
        assert key == "optimizer.step" or (verbs.export(relaxed)[key][:2] == array).all(), key
    verbs.train_step(relaxed, x, y, optimizer=Adam(lr=1e-300))
    np.testing.assert_allclose(verbs.to_numpy(verbs.forward(relaxed, x))[2], logits, atol=1e-12)


def test_a_relaxed_lane_starts_adam_again():
    """Its first step is that of a new network: `lr` times the gradient's sign, as far as epsilon allows."""
    prior = reference.init(NETWORK, dense=False, seed=0)
    x, y = batch(NETWORK)
    for _ in range(5):
        reference.train_step(prior, x, y, optimizer=Adam(lr=1e-3))
    lane = reference.relax(prior, None)
    W, (_, grads) = lane.parameters["conv2.weight"].copy(), reference.loss_and_grads(lane, x, y)
    reference.train_step(lane, x, y, optimizer=Adam(lr=1e-3, eps=1e-30))
    moved = np.abs(grads["conv2.weight"]) > 1e-12
    step = (W - lane.parameters["conv2.weight"])[moved]
    np.testing.assert_allclose(step, 1e-3 * np.sign(grads["conv2.weight"][moved]), rtol=1e-6)


def test_a_network_with_layers_that_its_prior_lacks_cannot_be_relaxed(tmp_path):
    with pytest.raises(ArrayError, match="cannot become the prior"):
        reference.relax(reference.init(SMALL["mlp1"], dense=False, seed=0), None)


def test_a_lane_relaxed_after_the_last_epoch_is_the_prior(tmp_path):
    tiny_runs.run(tmp_path, lanes=LANES)
    last = {row["lane"]: row for row in read_run(tmp_path).rows if row["epoch"] == 3}
    assert last[7]["test_accuracy"] == last["prior"]["test_accuracy"]
    assert last[7]["test_loss"] == pytest.approx(last["prior"]["test_loss"], rel=1e-9)
    assert last[7]["train_loss"] == last["prior"]["train_loss"]
    epochs = [row["epoch"] for row in read_run(tmp_path).rows if row["lane"] == 4]
    assert epochs == [2, 3]  # it sleeps in the first


# pathway and gate


def branched(backend="reference", name="pathway", **settings):
    verbs = imlp.backend(backend)
    branch = Branch(coupling(name, **settings), NETWORK.interpolated)
    options = {"dtype": "float64"} if backend == "accel" else {}
    return verbs, verbs.init(NETWORK, dense=True, seed=0, branches=[branch], **options)


def test_a_pathway_without_u_is_the_prior_bit_for_bit():
    """All of its trunk; the head, which is the same layer in both, is another product in the prior."""
    verbs, model = branched()
    prior = verbs.init(NETWORK, dense=False, seed=0)
    for name in NETWORK.interpolated:
        for part in ("weight", "bias"):
            model.parameters[f"{name}.{part}"][...] = 0
    for part in ("head.weight", "head.bias"):
        model.parameters[part][...] = prior.parameters[part]
    x, y = batch(NETWORK)
    seen = [[], []]
    for own, found in zip((model, prior), seen, strict=True):
        logits = verbs.forward(own, x, watch=lambda name, result, found=found: found.append((name, result)))
    for (name, ours), (_, theirs) in zip(*seen, strict=True):
        assert name == "head" or ours.tobytes() == theirs.tobytes(), name
    np.testing.assert_allclose(verbs.forward(model, x), logits, rtol=1e-13)
    (_, own), (_, theirs) = verbs.loss_and_grads(model, x, y), verbs.loss_and_grads(prior, x, y)
    for name in NETWORK.interpolated:
        for part in ("weight", "bias"):
            np.testing.assert_allclose(own[f"{name}.prior.{part}"], theirs[f"{name}.{part}"], atol=1e-14)


def test_a_pathway_without_w_is_the_plain_mlp():
    verbs, model = branched()
    plain = verbs.init(NETWORK, dense=True, seed=0)
    for name, parameter in model.parameters.items():
        if ".prior." in name:
            parameter[...] = 0
    x, y = batch(NETWORK)
    np.testing.assert_allclose(verbs.forward(model, x), verbs.forward(plain, x), atol=1e-14)
    (_, own), (_, theirs) = verbs.loss_and_grads(model, x, y), verbs.loss_and_grads(plain, x, y)
    for name, gradient in theirs.items():
        np.testing.assert_allclose(own[name], gradient, atol=1e-14)


@pytest.mark.parametrize("name", ["pathway", "gate"])
def test_gradients_of_branches_against_finite_differences(name):
    verbs, model = branched(name=name, **GATES[name])
    x, y = batch(NETWORK)
    _, grads = verbs.loss_and_grads(model, x, y)
    rng, h = np.random.default_rng(0), 1e-6
    for name in (key for key in model.parameters if ".prior." in key or key.endswith(".gate")):
        direction = rng.standard_normal(model.parameters[name].shape)
        losses = []
        for sign in (1, -1):
            moved = dataclasses.replace(model, parameters={n: p.copy() for n, p in model.parameters.items()})
            moved.parameters[name] = moved.parameters[name] + sign * h * direction
            losses.append(verbs.loss_and_grads(moved, x, y)[0])
        np.testing.assert_allclose((losses[0] - losses[1]) / (2 * h), (grads[name] * direction).sum(), atol=1e-8)


@pytest.mark.parametrize("name", ["pathway", "gate"])
def test_the_gradient_of_w_is_the_adjoint_of_that_of_the_whole_matrix(name):
    verbs, model = branched(name=name, **GATES[name])
    x, y = batch(NETWORK)
    _, grads = verbs.loss_and_grads(model, x, y)
    for layer in NETWORK.interpolated:
        spec = NETWORK.layer(layer).spec
        ratio = 0.3 / 0.7 if name == "gate" else 1  # dw = g adjoint(dW), dU = (1 - g) dW
        expected = reference.adjoint(spec, ratio * grads[f"{layer}.weight"])
        np.testing.assert_allclose(grads[f"{layer}.prior.weight"], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["pathway", "gate"])
@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_branched_network_is_the_mlp_of_its_whole_matrices(backend, name):
    if backend == "accel":
        needs("accel")
    verbs, model = branched(backend, name, **GATES[name])
    plain = reference.init(NETWORK, dense=True, seed=0)
    g, kept = (0.3, 0.7) if name == "gate" else (1, 1)
    for name in NETWORK.interpolated:
        b, small = (verbs.to_numpy(model.parameters[f"{name}.{part}"]) for part in ("bias", "prior.bias"))
        plain.parameters[f"{name}.weight"] = verbs.to_numpy(verbs.weight(model, name))
        plain.parameters[f"{name}.bias"] = kept * b + g * reference.expand_bias(NETWORK.layer(name).spec, small)
    x, _ = batch(NETWORK)
    found = verbs.to_numpy(verbs.forward(model, verbs.place(x)))
    np.testing.assert_allclose(found, reference.forward(plain, x), atol=1e-12)


def test_weight_decay_pulls_each_part_by_its_own_number():
    """With no gradient but the decay's, the first step of Adam is `lr` against the sign of each number."""
    model = branched(decay_prior=0.5, decay_rest=0.0)[1]
    before = {name: p.copy() for name, p in model.parameters.items()}
    from imlp.reference.adam import adam
    from imlp.reference.gradients import prepared

    settings = Adam(lr=0.01, eps=1e-30)
    model.keep_state(settings, np.zeros_like)
    zeros = {name: np.zeros(p.shape) for name, p in before.items()}
    adam(model, prepared(model, zeros, settings), settings)
    np.testing.assert_allclose(
        model.parameters["conv1.prior.weight"],
        before["conv1.prior.weight"] - 0.01 * np.sign(before["conv1.prior.weight"]),
    )
    assert (model.parameters["conv1.weight"] == before["conv1.weight"]).all()


# All of them, in both backends and through a run


def all_couplings(verbs, **options):
    names = NETWORK.interpolated
    branches = [
        None,
        None,
        Branch(coupling("pathway", decay_prior=1e-3), names),
        Branch(coupling("gate", gate=0.3), names[1:]),
        None,
    ]
    model = verbs.init(NETWORK, dense=True, seed=0, lanes=5, branches=branches, **options)
    prior = verbs.init(NETWORK, dense=False, seed=0, **options)
    moved = [
        Move(coupling("interpolate"), (0.1,), moments="zero"),
        Move(coupling("self"), (0.2, 0.05), moments="zero"),
        None,
        None,
        Move(coupling("add"), (0.01,), biases=False),
    ]
    for step in range(20):
        x, y = (verbs.place(array) for array in batch(NETWORK, seed=step))
        verbs.train_step(prior, x, y, optimizer=Adam(lr=3e-3))
        if step == 10:
            model = verbs.relax(prior, model, [*model.branches, None])
            moved.append(None)
        moves = dict.fromkeys(names, moved) if step % 2 else {}
        verbs.train_step(model, x, y, optimizer=Adam(lr=3e-3), prior=prior, moves=moves)
    return verbs.export(model)


def test_the_backends_agree_on_every_coupling_after_twenty_steps():
    needs("accel")
    ours, theirs = all_couplings(imlp.backend("reference")), all_couplings(imlp.backend("accel"), dtype="float64")
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(theirs[name], array, atol=1e-9, err_msg=name)


@pytest.mark.bits
@pytest.mark.parametrize("name", ["interpolate", "add", "self"])
@pytest.mark.parametrize("moments", ["keep", "zero"])
def test_mixing_within_the_step_has_the_bits_of_mixing_after_it(name, moments):
    needs("accel")
    verbs, way = imlp.backend("accel"), coupling(name)
    x, y = (verbs.place(array) for array in batch(NETWORK))
    found = []
    for within in (True, False):
        prior, model = (verbs.init(NETWORK, dense=d, seed=0, lanes=3 if d else None) for d in (False, True))
        first, last = Move(way, (0.1,), moments=moments), Move(way, (0.5,), moments=moments)
        moves = {name: [first, None, last] for name in NETWORK.interpolated}
        for _ in range(3):
            verbs.train_step(model, x.float(), y, prior=prior, moves=moves if within else None)
            if not within:
                verbs.mix(model, prior, moves)
        found.append(verbs.export(model))
    for name, array in found[0].items():
        assert array.tobytes() == found[1][name].tobytes(), name


def test_a_prior_of_another_type_is_refused():
    needs("accel")
    accel, network = imlp.backend("accel"), networks.cnn()
    model = accel.init(network, dense=True, seed=0, lanes=1)
    prior = accel.init(network, dense=False, seed=0, dtype="float64")
    x, y = (accel.place(array) for array in batch(network))
    moves = {name: [Move(coupling("interpolate"), (0.5,))] for name in network.interpolated}
    with pytest.raises(ArrayError, match=r"weight of torch\.float64, the rest"):
        accel.train_step(model, x.float(), y, prior=prior, moves=moves)


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize("steps", [3, 7, 9])
def test_every_coupling_is_resumed_exactly(backend, steps, tmp_path):
    """4 steps an epoch; lanes wake after the second and after the third."""
    if backend == "accel":
        needs("accel")
    tiny_runs.run(tmp_path / "whole", backend=backend, lanes=LANES)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(steps), backend=backend, lanes=LANES)
    tiny_runs.run(tmp_path / "stopped", backend=backend, lanes=LANES, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.bits
def test_a_lane_does_not_depend_on_the_couplings_of_others(tmp_path):
    needs("accel")
    tiny_runs.run(tmp_path / "all", backend="accel", lanes=LANES)
    rows = read_run(tmp_path / "all").rows
    for k, lane in enumerate(LANES):
        tiny_runs.run(tmp_path / str(k), backend="accel", lanes=[lane])
        alone = [row for row in read_run(tmp_path / str(k)).rows if row["lane"] == 0]
        beside = [{**row, "lane": 0} for row in rows if row["lane"] == k]
        for row in (*alone, *beside):  # without a prior there is no distance from it
            row["bias"] = {layer: {**own, "distance": None} for layer, own in row["bias"].items()}
        assert alone == beside


def test_self_pathway_and_gate_train_no_prior(tmp_path):
    tiny_runs.run(tmp_path, lanes=[LANES[2], LANES[5]])
    run = read_run(tmp_path)
    assert {row["lane"] for row in run.rows} == {0, 1}
    assert "distance" not in run.rows[0]["bias"]["conv1"]
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "report.html")])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["plot", str(tmp_path), "--out", str(tmp_path / "plot.png")])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["export", str(tmp_path), "--lane", "prior", "--format", "npz"])
    assert result.exit_code == 2
    assert "has no trained lane 'prior'" in result.output


def test_a_branched_lane_is_exported_as_one_mlp(tmp_path):
    needs("accel")
    import torch

    trainer = tiny_runs.run(tmp_path, backend="accel", lanes=LANES)
    x = np.random.default_rng(0).uniform(size=(4, 1, 8, 8))
    mean, std = trainer.data.statistics("standardised")
    flat = ((x - mean[0]) / std[0]).reshape(4, -1)
    logits = trainer.backend.forward(trainer.state.lanes, torch.tensor(flat))
    for k in (5, 6, 4):
        found = imlp.load(tmp_path, k)(torch.tensor(x))
        np.testing.assert_allclose(found.detach(), logits[trainer.state.active.index(k)], atol=1e-6)


def test_the_order_of_lanes_is_not_that_in_which_runs_were_begun(tmp_path):
    """On a cluster any of them may be the first."""
    own = [
        {"coupling": "gate"},
        {"coupling": "relax", "relax_after": 2},
        {"coupling": "pathway"},
        {"alpha": "decay:0.5:2", "every": "epoch"},
    ]
    for k, lane in enumerate(own):
        tiny_runs.run(tmp_path / str(k), lanes=[lane], epochs=2)
    runs = find_runs([tmp_path])
    found = {tuple(arms_of(order)[0].lanes) for order in permutations(runs)}
    assert len(found) == 1
    assert [lane.coupling for lane in found.pop()] == ["interpolate", "relax", "pathway", "gate"]


# Settings


def test_both_knobs_have_one_spelling():
    assert Lane(coupling="self", alpha_locality="0.1", alpha_sharing="0.1") == Lane(coupling="self", alpha="0.1")
    one = Lane(coupling="self", alpha_locality="0.1", alpha_sharing="0")
    assert one == Lane(coupling="self", alpha="0.1", alpha_sharing="0")
    assert one.title == "I-MLP locality 0.1, sharing 0, every step, self"
    assert Lane(coupling="self", alpha="0").title == "S-MLP (alpha 0)"


def test_settings_of_lanes_survive_their_file(tmp_path):
    config = from_mapping(Config, {"epochs": 4, "lanes": LANES, "data": "bars"})
    (tmp_path / "config.toml").write_text(to_toml(config))
    from imlp.train.config import read

    assert from_mapping(Config, read(tmp_path / "config.toml")) == config


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"coupling": "mix"}, "coupling is 'mix'; use interpolate, add, self"),
        ({"coupling": "relax", "alpha": "0.5"}, "alpha is 0.5, but relax has none; leave --alpha out"),
        ({"alpha_sharing": "0.5"}, "alpha_sharing is for the coupling self, not interpolate"),
        ({"relax_after": 3}, "relax_after is for the coupling relax, not interpolate"),
        ({"coupling": "relax", "relax_after": 0}, "relax_after is 0; give the number of an epoch, from 1"),
        ({"coupling": "gate", "gate": 1.0}, "gate is 1.0; give a number between 0 and 1"),
        ({"coupling": "pathway", "decay_rest": -1.0}, "decay_rest is -1.0; give a number from 0"),
        ({"coupling": "pathway", "moments": "zero"}, "moments is for the coupling interpolate or add or self"),
        ({"moments": "half"}, "moments is 'half'; use keep or zero"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        from_mapping(Lane, settings)


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf")])
def test_a_branch_without_a_weight_decay_from_zero_is_refused(decay):
    for name in ("decay_prior", "decay_rest"):
        with pytest.raises(ConfigError, match=f"{name} is"):
            coupling("pathway", **{name: decay})


def test_relax_after_the_last_epoch_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="give relax_after from 1 to 3"):
        tiny_runs.run(tmp_path, lanes=[{"coupling": "relax", "relax_after": 4}])


@pytest.mark.parametrize("coupling", ["interpolate", "add", "self", "relax", "pathway", "gate"])
def test_every_coupling_trains_by_its_name(coupling, tmp_path):
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    options = ["--backend=reference", "--epochs=2", "--batch=20", "--options=width=64", "--options=strides=[1,2,2]"]
    command = ["train", f"--coupling={coupling}", f"--data={data}", f"--out={tmp_path / 'run'}", "--json", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    (lane,) = (row for row in json.loads(result.stdout)["models"] if row["lane"] == 0)
    assert 0 <= lane["test_accuracy"] <= 1


@pytest.mark.parametrize("coupling", ["self", "relax", "gate"])
def test_a_sweep_of_every_coupling(coupling, tmp_path):
    """Also in groups, of which those of `self` have no prior to record."""
    data = tiny_runs.save_npz(tmp_path / "bars.npz")
    options = ["--backend=reference", "--epochs=2", "--batch=20", "--options=width=64", "--options=strides=[1,2,2]"]
    alphas = ["--alpha=0,0.1", "--every=step"] if coupling == "self" else []
    command = ["sweep", f"--coupling={coupling}", f"--data={data}", "--seeds=2", "--lanes-at-once=1", *alphas, *options]
    result = CliRunner().invoke(app, [*command, f"--out={tmp_path / 'runs'}", "--json"])
    assert result.exit_code == 0, result.output
    models = json.loads(result.stdout)["models"]
    lanes = [model["lane"]["coupling"] for model in models if model["lane"] is not None]
    assert lanes == [coupling] * (2 if coupling == "self" else 1)
    assert any(model["lane"] is None for model in models) == (coupling == "relax")
