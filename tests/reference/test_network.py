"""Whole networks in the reference: gradients, the identity at alpha 1, the interpolation step, saving."""

import numpy as np
import pytest
from small_networks import SMALL, batch

from imlp import init as initial
from imlp import networks, reference
from imlp.errors import AlphaError, ArrayError, ConfigError, SpecError
from imlp.optimizers import Adam

EVERY = pytest.mark.parametrize("network", SMALL.values(), ids=SMALL)


def trained(network, steps=3, **form):
    """A model after some training, so that norms and biases no longer have their special initial values."""
    model = reference.init(network, seed=1, **form)
    for step in range(steps):
        reference.train_step(model, *batch(network, seed=step), optimizer=Adam(lr=0.01))
    return model


def copied(model):
    return reference.restore(model.network, reference.export(model), dense=model.dense)


@EVERY
@pytest.mark.parametrize("form", [{"dense": False}, {"dense": True}, {"dense": True, "lanes": 2}], ids=str)
def test_gradients_are_those_of_finite_differences(network, form):
    """Every number of every parameter. A lane's loss depends on its own numbers only, so the losses can be added."""
    model = trained(network, **form)
    if model.lanes:
        for parameter in model.parameters.values():
            parameter[1] *= 1.1  # lanes that differ
    x, y = batch(network, seed=9)
    _, grads = reference.loss_and_grads(model, x, y)
    assert sorted(grads) == sorted(model.parameters)
    h = 1e-6
    for name, parameter in model.parameters.items():
        numeric = np.empty_like(parameter)
        for index in np.ndindex(parameter.shape):
            value = parameter[index]
            losses = []
            for moved in (value + h, value - h):
                parameter[index] = moved
                losses.append(_loss(model, x, y))
            parameter[index] = value
            numeric[index] = (losses[0] - losses[1]) / (2 * h)
        np.testing.assert_allclose(grads[name], numeric, rtol=0, atol=2e-8, err_msg=name)


def _loss(model, x, y):
    """Cross entropy written out again, summed over lanes."""
    logits = reference.forward(model, x)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(p[..., np.arange(len(y)), y]).mean(-1).sum()


@EVERY
def test_at_alpha_1_with_the_priors_head_the_i_mlp_is_the_prior(network):
    model, prior = trained(network, dense=True), trained(network, dense=False)
    x, y = batch(network, n=20)
    shared = [layer.name for layer in network.layers if f"{layer.name}.weight" in prior.parameters]
    reference.mix(model, prior, 1.0, layers=shared, head=True)
    for name in model.parameters:
        if name in prior.parameters and ".norm." in f".{name}":
            model.parameters[name][...] = prior.parameters[name]  # learned norms are not interpolated
    below = networks.Network("below", network.image, network.classes, _without_dense_only(network))
    if below.body != network.body:  # upper layers of its own, without a prior: compare what reaches them
        upper = set(model.parameters) - set(below.shapes(dense=True))
        arrays = {k: v for k, v in reference.export(model).items() if not k.endswith(tuple(upper))}
        model = reference.restore(below, arrays, dense=True)
    np.testing.assert_allclose(reference.forward(model, x), reference.forward(prior, x), rtol=0, atol=1e-12)
    assert reference.evaluate(model, x, y)[0] == reference.evaluate(prior, x, y)[0]


def _without_dense_only(network):
    return tuple(one for one in network.body if not isinstance(one, networks.DenseOnly))


@pytest.mark.parametrize("name", ["cnn", "mixer", "mlp2", "resnet"])
def test_at_alpha_1_at_the_papers_sizes(name):
    network = networks.make(name)
    model, prior = (reference.init(network, dense=dense, seed=2) for dense in (True, False))
    reference.mix(model, prior, 1, layers=[layer.name for layer in network.layers], head=True)
    x, _ = batch(network, n=4)
    np.testing.assert_allclose(reference.forward(model, x), reference.forward(prior, x), rtol=0, atol=1e-12)


def test_the_interpolation_step_layer_by_layer():
    network = SMALL["cnn"]
    prior, before = trained(network, dense=False), trained(network, dense=True, lanes=3)
    after = reference.mix(copied(before), prior, [0.25, None, 0.0])
    for layer in network.layers:
        w_p = reference.matrix(layer.spec, prior.parameters[f"{layer.name}.weight"]).toarray()
        b_p = reference.expand_bias(layer.spec, prior.parameters[f"{layer.name}.bias"])
        for part, moved in (("weight", w_p), ("bias", b_p)):
            old, new = (model.parameters[f"{layer.name}.{part}"] for model in (before, after))
            np.testing.assert_allclose(new[0], 0.75 * old[0] + 0.25 * moved, rtol=0, atol=1e-15)
            np.testing.assert_array_equal(new[1:], old[1:])
    for name in ("head.weight", "head.bias"):
        np.testing.assert_array_equal(after.parameters[name], before.parameters[name])
    for group in ("first", "second"):
        for name, moment in before.state[group].items():
            np.testing.assert_array_equal(after.state[group][name], moment)


def test_alpha_can_differ_by_layer_and_biases_and_layers_can_be_left_out():
    network = SMALL["mixer"]
    prior, before = trained(network, dense=False), trained(network, dense=True, lanes=2)

    def changed(**options):
        alpha = options.pop("alpha", 0.5)
        after = reference.mix(copied(before), prior, alpha, **options)
        return {name for name, array in after.parameters.items() if not np.array_equal(array, before.parameters[name])}

    assert changed(layers=["embed"]) == {"embed.weight", "embed.bias"}
    assert changed(layers=["embed"], biases=False) == {"embed.weight"}
    assert changed(layers=["embed"], head=True) == {"embed.weight", "embed.bias", "head.weight", "head.bias"}
    assert changed(alpha={"embed": None, "block1.token1": [0.5, None]}) == {
        "block1.token1.weight",
        "block1.token1.bias",
    }
    assert changed(coupling="add", layers=["embed"]) == {"embed.weight", "embed.bias"}
    assert changed(alpha=None) == set()
    added = reference.mix(copied(before), prior, 1, coupling="add", layers=["embed"])
    w_p = reference.matrix(network.layer("embed").spec, prior.parameters["embed.weight"]).toarray()
    expected = before.parameters["embed.weight"] + w_p
    np.testing.assert_allclose(added.parameters["embed.weight"], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("alpha", "options", "error", "message"),
    [
        (1.5, {}, AlphaError, "alpha is 1.5"),
        ([0.1, 0.2, 0.3], {}, AlphaError, "3 alphas for 2 lanes; give one number, or a list of 2"),
        ({"conv7": 0.1}, {}, SpecError, "unknown layer in alpha: 'conv7'; did you mean 'conv"),
        (0.1, {"layers": ["conv7"]}, SpecError, "unknown layer of cnn with a prior: 'conv7'"),
        (0.1, {"coupling": "mix"}, ConfigError, "coupling is 'mix'"),
        (0.1, {"coupling": "gate"}, ArrayError, "give a coupling that has an alpha"),
        ("half", {}, AlphaError, "alpha is 'half'"),
    ],
)
def test_a_bad_injection_is_refused_before_anything_is_changed(alpha, options, error, message):
    network = SMALL["cnn"]
    prior, model = trained(network, dense=False), trained(network, dense=True, lanes=2)
    before = copied(model)
    with pytest.raises(error, match=message):
        reference.mix(model, prior, alpha, **options)
    for name, array in before.parameters.items():
        np.testing.assert_array_equal(model.parameters[name], array)


def test_inject_wants_an_i_mlp_and_its_prior():
    prior, model = trained(SMALL["cnn"], dense=False), trained(SMALL["cnn"], dense=True)
    with pytest.raises(ArrayError, match="give the I-MLP"):
        reference.mix(prior, model, 0.5)
    with pytest.raises(ArrayError, match="a prior of mixer for cnn"):
        reference.mix(model, trained(SMALL["mixer"], dense=False), 0.5)


@EVERY
def test_export_and_load_go_on_exactly(network):
    for form in ({"dense": False}, {"dense": True, "lanes": 2}):
        model = trained(network, **form)
        again = copied(model)
        assert (again.step, again.lanes) == (3, model.lanes)
        x, y = batch(network, seed=5)
        np.testing.assert_array_equal(reference.train_step(model, x, y), reference.train_step(again, x, y))
        for name, array in reference.export(model).items():
            np.testing.assert_array_equal(reference.export(again)[name], array)


def test_export_is_a_copy():
    model = trained(SMALL["cnn"], dense=True)
    arrays = reference.export(model)
    kept = arrays["conv1.weight"].copy()
    reference.train_step(model, *batch(SMALL["cnn"]))
    np.testing.assert_array_equal(arrays["conv1.weight"], kept)


def test_load_refuses_what_does_not_fit():
    network = SMALL["cnn"]
    arrays = reference.export(trained(network, dense=True))
    with pytest.raises(ArrayError, match=r"array conv1.weight has shape \(16, 32\); it must have \(1, 2, 3, 3\)"):
        reference.restore(network, arrays, dense=False)
    with pytest.raises(ArrayError, match=r"array optimizer\.step is missing"):
        reference.restore(network, {k: v for k, v in arrays.items() if k != "optimizer.step"}, dense=True)
    with pytest.raises(ArrayError, match="has no array extra"):
        reference.restore(network, arrays | {"extra": np.zeros(1)}, dense=True)


@pytest.mark.bits
@pytest.mark.parametrize(
    "network", [SMALL["cnn"], SMALL["cnn, learned norm"], SMALL["mixer"]], ids=lambda own: own.name
)
@pytest.mark.parametrize("n", [5, 20, 37])
def test_no_bit_of_a_lane_depends_on_the_lanes_beside_it(network, n):
    """Neither its numbers nor the losses that are reported."""
    (x, y), found = batch(network, n=n), []
    for lanes in (1, 2, 5):
        model = reference.init(network, dense=True, seed=0, lanes=lanes)
        losses = [reference.train_step(model, x, y, optimizer=Adam(lr=0.003))[0] for _ in range(4)]
        arrays = [own[0].tobytes() for own in model.parameters.values()]
        found.append((losses, reference.evaluate(model, x, y)[1][0], arrays))
    assert found[0] == found[1] == found[2]


def test_lanes_start_alike_train_as_if_alone_and_can_be_selected():
    network = SMALL["mlp2"]
    lanes = reference.init(network, dense=True, seed=3, lanes=3)
    alone = reference.init(network, dense=True, seed=3)
    prior = trained(network, dense=False)
    reference.mix(lanes, prior, [0.0, 0.3, 1.0])
    reference.mix(alone, prior, 0.3)
    for step in range(4):
        x, y = batch(network, seed=step)
        losses = reference.train_step(lanes, x, y)
        np.testing.assert_allclose(losses[1], reference.train_step(alone, x, y), rtol=0, atol=1e-13)
    chosen = reference.select(lanes, [1, 2])
    assert chosen.lanes == 2
    assert chosen.step == 4
    for ours, theirs in (
        (chosen.parameters, alone.parameters),
        *((chosen.state[key], alone.state[key]) for key in chosen.state),
    ):
        for name, array in theirs.items():
            np.testing.assert_allclose(ours[name][0], array, rtol=0, atol=1e-12)
    with pytest.raises(ArrayError, match="there is no lane 3; the lanes are 0 to 2"):
        reference.select(lanes, [3])
    with pytest.raises(ArrayError, match="no lane axis"):
        reference.select(alone, [0])
    with pytest.raises(ArrayError, match="no lanes selected"):
        reference.select(lanes, [])


def test_prior_and_i_mlp_draw_from_streams_of_their_own_within_pytorchs_bounds():
    network = networks.cnn()
    prior, dense = (initial.network_parameters(network, dense=dense, seed=0) for dense in (False, True))
    assert not np.array_equal(prior["head.weight"], dense["head.weight"])
    for parameters in (prior, dense):
        for layer in (*network.layers, network.head):
            weight, bias = (parameters[f"{layer.name}.{part}"] for part in ("weight", "bias"))
            bound = np.prod(weight.shape[1:]) ** -0.5
            assert 0.95 * bound < np.abs(weight).max() <= bound or weight.size < 100
            assert np.abs(bias).max() <= bound
    again = initial.network_parameters(network, dense=True, seed=0)
    assert all(np.array_equal(again[name], array) for name, array in dense.items())
    other = initial.network_parameters(network, dense=True, seed=1)
    assert not np.array_equal(other["conv1.weight"], dense["conv1.weight"])
    learned = initial.network_parameters(SMALL["mlp2"], dense=True, seed=0)
    assert (learned["conv1.norm.weight"] == 1).all()
    assert (learned["conv1.norm.bias"] == 0).all()


def test_evaluate_adds_up_over_batches():
    network = SMALL["mixer"]
    model = trained(network, dense=True, lanes=2)
    x, y = batch(network, n=23)
    correct, total = reference.evaluate(model, x, y, batch=7)
    logits = reference.forward(model, x)
    np.testing.assert_array_equal(correct, (logits.argmax(-1) == y).sum(-1))
    loss, _ = reference.loss_and_grads(model, x, y)
    np.testing.assert_allclose(total, 23 * loss, rtol=1e-12)
    single = reference.evaluate(trained(network, dense=False), x, y)
    assert single[0].shape == single[1].shape == ()


def test_a_small_network_learns():
    """Two classes that differ in the place of a bright pixel: the loss falls a long way in forty steps."""
    network = networks.cnn(image=(1, 4, 4), classes=2, width=16, strides=(1, 2))
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 64)
    x = 0.1 * rng.standard_normal((64, 16))
    x[np.arange(64), np.where(y == 0, 5, 10)] += 1
    for dense in (False, True):
        model = reference.init(network, dense=dense, seed=0)
        losses = [reference.train_step(model, x, y, optimizer=Adam(lr=0.01)) for _ in range(40)]
        assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: reference.forward(m, np.zeros((2, 5))),
            r"images of shape \(2, 5\) for cnn; flatten them to \(N, 32\)",
        ),
        (lambda m: reference.train_step(m, np.zeros((2, 32)), [0]), r"labels of shape \(1,\) for 2 images"),
        (lambda m: reference.train_step(m, np.zeros((2, 32)), [0, 1], compile=True), "cannot compile"),
        (lambda m: reference.init(m.network, dense=False, seed=0, lanes=2), "2 lanes of a prior"),
        (lambda m: reference.init(m.network, dense=True, seed=0, lanes=0), "lanes is 0; give at least 1"),
        (lambda m: reference.init(m.network, dense=True, seed=-1), "seed is -1"),
        (lambda m: reference.init(m.network, dense=True, seed=0, dtype="float32"), "float64 on the cpu only"),
        (lambda m: reference.init(m.network, dense=True, seed=0, device="cuda"), "float64 on the cpu only"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ArrayError, match=message):
        call(reference.init(SMALL["cnn"], dense=True, seed=0))
