"""The knob does what the verbs do, on modules; the S-CNN pair trained with it is that of `imlp.accel`."""

import copy
import math
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch
import torch_models
from conftest import needs
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import imlp
import imlp.nn
from imlp import networks
from imlp.errors import AlphaError, ModuleError
from imlp.nn import Interpolation
from imlp.optimizers import Adam
from imlp.spec.base import PARTS

needs("accel")

accel, reference = imlp.backend("accel"), imlp.backend("reference")


def pair(dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    layers = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 3)
    prior = nn.Sequential(*layers).to(dtype)
    return imlp.nn.densify(prior, (2, 6, 6), **{"init": "random"} | options), prior


def matrix(model, prior, name):
    return reference.matrix(model[name].spec, prior[name].weight.detach().numpy()).toarray()


@pytest.mark.parametrize(
    ("coupling", "rule"),
    [
        ("interpolate", lambda W, P, Pi, a: (1 - a) * W + a * P),
        ("add", lambda W, P, Pi, a: W + a * P),
        ("self", lambda W, P, Pi, a: (1 - a) * W + a * Pi),
    ],
)
def test_each_coupling_against_the_reference(coupling, rule):
    model, prior = pair()
    before = {k: (model[k].weight.detach().numpy().copy(), model[k].bias.detach().numpy().copy()) for k in (0, 2)}
    knob = Interpolation(model, None if coupling == "self" else prior, 0.3, coupling=coupling)
    knob.step()
    for k, (W, b) in before.items():
        spec = model[k].spec
        nearest = reference.matrix(spec, reference.project(W, spec)).toarray()
        P, p = matrix(model, prior, k), reference.expand_bias(spec, prior[k].bias.detach().numpy())
        means = np.repeat(b.reshape(spec.out_channels, -1).mean(1), b.size // spec.out_channels)
        np.testing.assert_allclose(model[k].weight.detach().numpy(), rule(W, P, nearest, 0.3), rtol=0, atol=1e-14)
        np.testing.assert_allclose(model[k].bias.detach().numpy(), rule(b, p, means, 0.3), rtol=0, atol=1e-14)


@pytest.mark.parametrize("coupling", ["pathway", "gate"])
def test_branches_of_modules_against_the_reference(coupling):
    """The result is that of the matrix of both parts; the gradient of `w` is the adjoint of that of the matrix."""
    model, prior = pair()
    U = {k: model[k].weight.detach().numpy().copy() for k in (0, 2)}
    coupled = imlp.nn.couple(model, prior, coupling, gate=0.3)
    g, kept = (0.3, 0.7) if coupling == "gate" else (1.0, 1.0)
    whole = imlp.nn.densify(prior, (2, 6, 6), init="random")
    for k in (0, 2):
        branches, dense = coupled[k], whole[k]
        P = reference.matrix(dense.spec, prior[k].weight.detach().numpy()).toarray()
        p = reference.expand_bias(dense.spec, prior[k].bias.detach().numpy())
        with torch.no_grad():
            dense.weight.copy_(torch.tensor(g * P + kept * U[k]))
            dense.bias.copy_(torch.tensor(g * p + kept * branches.dense.bias.detach().numpy()))
    whole[4].load_state_dict(coupled[4].state_dict())
    x = torch.randn(7, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(coupled(x), whole(x), rtol=0, atol=1e-12)
    for network in (coupled, whole):
        network(x).square().sum().backward()
    for k in (0, 2):
        dW, spec = whole[k].weight.grad, whole[k].spec
        np.testing.assert_allclose(
            coupled[k].prior.weight.grad, g * reference.adjoint(spec, dW.numpy()), rtol=0, atol=1e-10
        )
        torch.testing.assert_close(coupled[k].dense.weight.grad, kept * dW, rtol=0, atol=1e-10)
    if coupling == "gate":
        for k in (0, 2):
            gate, losses = coupled[k].gate, []
            with torch.no_grad():
                for step in (1e-6, -2e-6):
                    gate += step
                    losses.append(float(coupled(x).square().sum()))
                gate += 1e-6
            assert float(gate.grad) == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-5)


def test_a_pathway_begins_as_the_prior_where_the_rest_is_zero():
    model, prior = pair()
    coupled = imlp.nn.couple(model, prior, "pathway")
    with torch.no_grad():
        for own in coupled.modules():
            if isinstance(own, imlp.nn.Dense):
                own.weight.zero_()
                own.bias.zero_()
    coupled[4].load_state_dict(prior[4].state_dict())
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    assert torch.equal(coupled(x), prior(x))
    assert all(own.prior is not prior[k] for k, own in ((0, coupled[0]), (2, coupled[2])))


def test_a_relaxed_model_is_the_prior_and_its_optimizer_starts_again():
    model, prior = pair(torch.float32)
    optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(3, 2, 6, 6)
    model(x).square().sum().backward()
    optimizer.step()
    assert optimizer.state
    imlp.nn.relax_(model, prior, optimizer=optimizer)
    torch.testing.assert_close(model(x), prior(x), rtol=0, atol=1e-5)
    assert not optimizer.state
    before = copy.deepcopy(model.state_dict())
    other = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), *prior[1:4], nn.Linear(8, 1))
    with pytest.raises(ModuleError, match="the prior has no"):
        imlp.nn.relax_(model, other)
    with pytest.raises(ModuleError, match=r"4.weight is \(1, 8\) in the prior, but \(3, 8\) in the model; .*rest="):
        imlp.nn.project_(other, model)
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())


def test_self_pulls_towards_the_subspace_as_the_formula_says():
    model, prior = pair()
    s, n, a = imlp.nn.bias_meter(model, prior)["0"]["shared"], 4, 0.2
    knob = Interpolation(model, None, a, coupling="self")
    for _ in range(n):
        knob.step()
    expected = s / (s + (1 - s) * (1 - a) ** (2 * n))
    assert imlp.nn.bias_meter(model, prior)["0"]["shared"] == pytest.approx(expected, abs=1e-12)


def test_training_the_cnn_pair_as_modules_is_training_it_with_accel():
    """The same numbers to 1e-9 after 20 steps of Adam, with the interpolation after each."""
    network = networks.cnn((3, 8, 8), 5, width=64, strides=(1, 2, 2))
    options = {"seed": 1, "dtype": "float64"}
    small, lanes = accel.init(network, dense=False, **options), accel.init(network, dense=True, lanes=1, **options)

    prior = torch_models.cnn((3, 8, 8), 5).double()
    model = imlp.nn.densify(prior, (3, 8, 8), init="random")
    prior.load_state_dict(
        {name: torch.tensor(array) for name, array in accel.export(small).items() if "optimizer" not in name}
    )
    model.load_state_dict(
        {name: torch.tensor(array[0]) for name, array in accel.export(lanes).items() if "optimizer" not in name}
    )
    optimizers = [torch.optim.Adam(each.parameters(), lr=1e-3) for each in (prior, model)]
    knob = Interpolation(model, prior, alpha=0.05)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = torch.tensor(rng.standard_normal((16, 3, 8, 8)))
        y = torch.tensor(rng.integers(0, 5, 16))
        for each, optimizer in zip((prior, model), optimizers, strict=True):
            loss = nn.functional.cross_entropy(each(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        knob.step()
        for each in (small, lanes):
            accel.train_step(each, x.flatten(1), y, optimizer=Adam(lr=1e-3))
        accel.mix(lanes, small, 0.05)
    for module, found in ((prior, small.parameters), (model, {n: p[0] for n, p in lanes.parameters.items()})):
        for name, parameter in module.named_parameters():
            assert (parameter - found[name]).abs().max() < 1e-9, name


def test_alpha_as_schedule_function_and_mapping():
    model, prior = pair()

    def alphas(alpha, n=4, **options):
        knob, found = Interpolation(model, prior, alpha, **options), []
        for _ in range(n):
            found.append(knob.alphas)
            knob.step()
        return found

    assert alphas("list:0.5:0.4", 3) == [{"0": 0.5, "2": 0.5}, {"0": 0.4, "2": 0.4}, {"0": 0.4, "2": 0.4}]
    assert [each.get("0") for each in alphas("decay:0.5:1", 6, steps=4)] == [0.5, 0.375, 0.25, 0.125, None, None]
    assert [each.get("0") for each in alphas("end:1", 3, steps=3)] == [None, None, 1.0]
    assert [each["2"] for each in alphas("decay:1:1", 4, steps=4, every=2)] == [1, 1, 0.5, 0.5]
    assert [each["0"] for each in alphas(lambda step: 0.1 * step, 3)] == pytest.approx([0, 0.1, 0.2])
    assert alphas({"2": 0.1, "*": 0.2}, 1) == [{"0": 0.2, "2": 0.1}]
    assert alphas({nn.Conv2d: "once:2:1"}, 2) == [{}, {"0": 1.0, "2": 1.0}]
    assert alphas({"0": 0.3}, 1) == [{"0": 0.3}]
    with pytest.raises(AlphaError, match=r"alpha decay:0.5:2 depends on how long the training is; give steps="):
        alphas("decay:0.5:2")
    with pytest.raises(AlphaError, match=r"alpha is 1.5; give a number from 0"):
        alphas(lambda step: 1.5)
    with pytest.raises(AlphaError, match=r"alpha is '0=0.5,2=0.1'; give a mapping: \{'0': '0.5', '2': '0.1'\}"):
        alphas("0=0.5,2=0.1")
    with pytest.raises(ModuleError, match="alpha has '7', which is none of the layers; there are 0, 2"):
        alphas({"7": 0.5})


def test_every_layers_biases_and_resuming():
    model, prior = pair()
    W, b = (p.detach().clone() for p in (model[0].weight, model[0].bias))
    other = model[2].weight.detach().clone()
    knob = Interpolation(model, prior, 0.5, every=3, layers="0", biases=False)
    for n in range(1, 5):
        knob.step()
        assert torch.equal(model[0].weight, W) == (n < 3)
    assert torch.equal(model[0].bias, b)
    assert torch.equal(model[2].weight, other)
    fresh = Interpolation(model, prior, 0.5, every=3, biases=False)
    fresh.load_state_dict(knob.state_dict())
    assert fresh.state_dict() == knob.state_dict()
    assert fresh.state_dict()["calls"] == 4
    others = {"biases=False, and this one has True": {}, "'interpolate', .* has 'add'": {"coupling": "add"}}
    for match, options in others.items():
        with pytest.raises(ModuleError, match=match):
            Interpolation(model, prior, 0.5, **options).load_state_dict(knob.state_dict())
    at = model[0].weight.detach().clone()
    fresh.step()
    assert torch.equal(model[0].weight, at)
    fresh.step()
    assert not torch.equal(model[0].weight, at)


def test_alpha_is_read_and_set_like_a_learning_rate():
    model, prior = pair()
    knob = Interpolation(model, prior, 0.5)
    assert (knob.alpha, knob.get_last_alpha()) == (0.5, {})
    knob.step()
    knob.alpha = 0.25
    assert (knob.alpha, knob.alphas, knob.get_last_alpha()) == (0.25, {"0": 0.25, "2": 0.25}, {"0": 0.5, "2": 0.5})
    W = model[0].weight.detach().numpy().copy()
    knob.step()
    expected = 0.75 * W + 0.25 * matrix(model, prior, 0)
    np.testing.assert_allclose(model[0].weight.detach().numpy(), expected, rtol=0, atol=1e-15)
    assert knob.get_last_alpha() == {"0": 0.25, "2": 0.25}
    knob.alpha = {"2": "once:3:1"}
    with pytest.raises(TypeError, match="does not support item assignment"):
        knob.alpha["0"] = 0.5
    assert repr(knob) == "Interpolation(coupling='interpolate', alpha={'2': 'once:3:1'}, every=1, layers=['0', '2'])"
    for wrong in (2, "decay:0.5:1", {"7": 0.1}):
        with pytest.raises((AlphaError, ModuleError)):
            knob.alpha = wrong
    with pytest.raises(ModuleError, match="alpha_sharing is for the coupling self"):
        knob.alpha_sharing = 0.5
    two = Interpolation(model, None, 0.5, coupling="self", alpha_sharing=0.1, every=5)
    two.alpha_sharing = 0.2
    assert repr(two) == "Interpolation(coupling='self', alpha=0.5, alpha_sharing=0.2, every=5, layers=['0', '2'])"


def test_a_state_has_all_that_a_knob_was_set_to(tmp_path):
    model, prior = pair()
    knob = Interpolation(model, prior, "decay:0.5:1", steps=10)
    knob.step()
    knob.alpha, knob.every = {"0": 0.125, "2": lambda step: 0.01 * step}, 2
    torch.save(knob.state_dict(), tmp_path / "knob.pt")
    fresh = Interpolation(model, prior, {nn.Conv2d: lambda step: 0.02 * step})
    fresh.load_state_dict(torch.load(tmp_path / "knob.pt", weights_only=True))
    assert fresh.state_dict() == knob.state_dict()
    assert (fresh.calls, fresh.every, fresh.steps, fresh.alphas) == (1, 2, 10, {"0": 0.125, "2": 0.02})
    with pytest.raises(
        ModuleError, match="alpha of 2 was a function when the state was saved; give the function again"
    ):
        Interpolation(model, prior, 0.5).load_state_dict(knob.state_dict())


def test_a_knob_is_copied_and_pickled_attached_or_not():
    model, prior = pair()
    knob, optimizer = Interpolation(model, prior, 0.5), torch.optim.SGD(model.parameters(), lr=0.1)
    knob.attach(optimizer)
    for other in (copy.deepcopy(knob), pickle.loads(pickle.dumps(knob))):
        other.step()
        assert (other.calls, knob.calls) == (1, 0)
        assert not torch.equal(other.pairs["0"].dense.weight, model[0].weight)


def train(model, prior, knob, optimizers, *, micro=1, skip=(), steps=4):
    """Steps of both optimizers, through scalers whose step is skipped where the gradient of the model is not finite."""
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0) for _ in optimizers]
    draw = torch.Generator().manual_seed(0)
    for step in range(steps):
        for network, optimizer, scaler in zip((prior, model), optimizers, scalers, strict=True):
            for _ in range(micro):
                x = torch.randn(4, 2, 6, 6, generator=draw)
                loss = network(x).square().mean() * (float("inf") if network is model and step in skip else 1)
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if knob is not None and step not in skip:
            knob.step()


@pytest.mark.parametrize("fused", [False, True])
def test_an_attached_knob_mixes_once_per_step_of_the_later_optimizer(fused):
    """The bits of a knob that is stepped by hand, with accumulated gradients and a step that the scaler skips."""
    trained = []
    for by_hand in (True, False):
        model, prior = pair(torch.float32)
        optimizers = [torch.optim.Adam(own.parameters(), lr=0.01, fused=fused) for own in (prior, model)]
        knob = Interpolation(model, prior, 0.1)
        if not by_hand:
            knob.attach(optimizers[0])
            handle = knob.attach(optimizers[1])  # and to the first no more
        train(model, prior, knob if by_hand else None, optimizers, micro=4, skip=(2,))
        assert knob.calls == 3
        trained.append(model.state_dict())
    assert all(torch.equal(tensor, trained[1][name]) for name, tensor in trained[0].items())
    handle.remove()
    optimizers[1].step()
    assert knob.calls == 3
    with pytest.raises(ModuleError, match=r"attach was given 'adam'; give a torch.optim.Optimizer"):
        knob.attach("adam")


def test_a_compiled_step_of_the_optimizer_mixes():
    trained = []
    for compiled in (False, True):
        model, prior = pair()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        knob = Interpolation(model, prior, 0.1)
        knob.attach(optimizer)
        step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        for n in range(3):
            optimizer.zero_grad()
            model(torch.full((2, 2, 6, 6), 0.1 * n, dtype=torch.float64)).square().sum().backward()
            step()
        assert knob.calls == 3
        trained.append(model[0].weight)
    torch.testing.assert_close(*trained, rtol=0, atol=1e-12)


def test_an_optimizer_that_never_calls_its_hooks_is_refused():
    """Such as Lookahead of timm, which does not call the initialisation of its class."""

    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self._optimizer_step_post_hooks, self._inner = {}, inner

        def step(self, closure=None):
            return self._inner.step(closure)

    model, prior = pair()
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ModuleError, match=r"Around does not call the hooks of its steps; call knob.step\(\) after"):
        Interpolation(model, prior, 0.5).attach(optimizer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_small_alphas_do_not_stall_in_half_precision(dtype):
    """0.999^1000 = 0.368 of the distance is left; rounded after each step, bfloat16 had 0.93."""
    model, prior = pair(dtype)
    wide = imlp.nn.densify(prior, (2, 6, 6), init="prior")[0].weight.double()
    before = (model[0].weight.double() - wide).norm()
    knob = Interpolation(model, prior, 0.001, layers="0")
    for _ in range(900):
        knob.step()
    resumed, state = copy.deepcopy(model), knob.state_dict()
    for _ in range(100):
        knob.step()
    assert model[0].weight.dtype == dtype
    assert float((model[0].weight.double() - wide).norm() / before) == pytest.approx(0.999**1000, rel=0.01)
    other = Interpolation(resumed, prior, 0.1, layers="0")
    other.load_state_dict(state)
    for _ in range(100):
        other.step()
    assert torch.equal(resumed[0].weight, model[0].weight)
    assert torch.equal(resumed[0].bias, model[0].bias)

    wide = copy.deepcopy(model).float()
    later, at = Interpolation(wide, copy.deepcopy(prior).float(), 0, layers="0"), wide[0].weight.clone()
    later.load_state_dict(knob.state_dict())
    later.alpha = 1e-12
    for _ in range(100):  # in a wider type nothing is kept, and nothing added again and again
        later.step()
    torch.testing.assert_close(wide[0].weight, at, rtol=3e-7, atol=0)

    model[0].weight.mul_(1e-3)  # what was kept of other numbers is not added to new ones
    at = model[0].weight.detach().double()
    knob.alpha = 1e-9
    knob.step()
    torch.testing.assert_close(model[0].weight.double(), at, rtol=2 * torch.finfo(dtype).eps, atol=1e-7)


def test_autograd_notices_a_step_between_forward_and_backward():
    model, prior = pair()
    loss = model(torch.randn(2, 2, 6, 6, dtype=torch.float64)).square().sum()
    imlp.nn.interpolate_(model, prior, 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_nearest_prior_the_meter_and_verify():
    model, prior = pair(init="prior")
    _, other = pair(seed=7)
    imlp.nn.project_(other, model)
    for name, tensor in prior.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=1e-14)
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    table = imlp.nn.verify(model, prior, x)
    assert list(table) == ["0", "2", "output"]
    assert max(row["error"] for row in table.values()) < 1e-14
    meter = imlp.nn.bias_meter(model, prior)
    assert meter["0"]["shared"] == pytest.approx(1)
    assert meter["0"]["distance"] == pytest.approx(0, abs=1e-12)
    assert str(meter).splitlines()[0].split() == ["layer", *PARTS, "distance", *(f"random_{part}" for part in PARTS)]

    worse = copy.deepcopy(model)
    worse[2].weight.data[0, 0] = math.nan
    assert [row["error"] for row in imlp.nn.verify(worse, prior, x).values()][1:] == [math.inf, math.inf]
    with torch.no_grad():  # one entry of the second matrix that is wrong is found there, and not in the first
        model[2].weight[5, 9] += 1
    table = imlp.nn.verify(model, prior, x)
    assert table["0"]["error"] < 1e-14 < 1e-3 < table["2"]["error"]
    model, prior = pair()
    spec, W = model[0].spec, model[0].weight.detach()
    kept = reference.matrix(spec, reference.project(W.numpy(), spec)).toarray()
    share = float((kept**2).sum() / W.square().sum())
    assert imlp.nn.bias_meter(model, prior)["0"]["shared"] == pytest.approx(share, abs=1e-12)
    assert imlp.nn.bias_meter(model, prior)["0"]["random_shared"] == 54 / math.prod(spec.matrix_shape)
    alone = imlp.nn.bias_meter(model)["0"]  # without a prior: all but the distance
    assert alone == {key: value for key, value in imlp.nn.bias_meter(model, prior)["0"].items() if key != "distance"}
    assert sum(alone[part] for part in PARTS) == pytest.approx(1, abs=1e-12)
    assert alone["random_outside"] == 1 - spec.nnz / math.prod(spec.matrix_shape)


@pytest.mark.filterwarnings("ignore:Using padding")
def test_taps_that_never_meet_the_image():
    """The model that is the prior is at distance 0, and the nearest prior keeps what the dense form cannot see."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 2, (4, 3), padding="same")
    prior = nn.Sequential(*layers).double()
    model, other = imlp.nn.densify(prior, (2, 2, 2), init="prior"), copy.deepcopy(prior)
    assert [row["distance"] for row in imlp.nn.bias_meter(model, prior).values()] == pytest.approx([0, 0], abs=1e-14)
    imlp.nn.project_(other, model)
    for name, tensor in prior.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=1e-14)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(torch.nan)  # whatever was there before, taps in use are the nearest ones
    imlp.nn.project_(other, model)
    torch.testing.assert_close(other[0].weight[..., 1:, 1:], prior[0].weight[..., 1:, 1:], rtol=0, atol=1e-14)
    assert other[0].weight[..., 0, :].isnan().all()


def test_pairs_that_do_not_fit_are_refused():
    model, prior = pair()
    with pytest.raises(ModuleError, match=r"the model has no dense layers; make it with imlp.nn.densify"):
        Interpolation(prior, prior, 0.5)
    with pytest.raises(ModuleError, match="the prior has a dense layer 0; give the module that was densified"):
        Interpolation(model, model, 0.5)
    with pytest.raises(ModuleError, match="the prior has no layer 0; give the module that was densified"):
        Interpolation(model, nn.Conv2d(2, 3, 3), 0.5)
    with pytest.raises(ModuleError, match="ReLU is not the layer of Conv"):
        Interpolation(model, nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), 0.5)
    with pytest.raises(ModuleError, match="coupling 'interpolate' needs a prior; give one, or use self"):
        Interpolation(model, None, 0.5)
    with pytest.raises(ValueError, match="coupling is 'mix'"):
        Interpolation(model, prior, 0.5, coupling="mix")
    with pytest.raises(ModuleError, match="every is 0; give a whole number of at least 1"):
        Interpolation(model, prior, 0.5, every=0)
    with pytest.raises(AlphaError, match="alpha is '2'"):
        Interpolation(model, prior, 2)


@pytest.mark.parametrize(
    ("layer", "fact"),
    [
        (nn.Conv2d(2, 3, (1, 9), padding=(0, 4)), r"kernel=\(1, 9\)"),
        (nn.Conv2d(2, 3, 3, padding=2, dilation=2), r"dilation=\(2, 2\)"),
        (nn.Conv2d(2, 3, 3, padding=1, stride=1, padding_mode="circular"), "mode='circular'"),
        (nn.Conv2d(3, 2, 3, padding=1), r"Conv2d\(3, 2, .*Invalid channel"),
        (nn.Conv1d(2, 3, 9, padding=4), r"Conv1d\(2, 3, .*got input of size: \[2, 2, 6, 6\]"),
        (nn.ConvTranspose2d(3, 2, 3, padding=1), "transposed=True"),
        (nn.Linear(2, 27, bias=False), r"Linear\(in_features=2"),
        (
            type("Doubled", (nn.Conv2d,), {"forward": lambda own, x: 2 * x})(2, 3, 3, padding=1),
            "its class Doubled computes something else than Conv2d",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_prior_of_another_geometry_is_refused_with_both(layer, fact):
    """Each has as many weights as the layer that was densified, or can be mistaken for it."""
    model, prior = pair()
    W, other = model[0].weight.detach().clone(), nn.Sequential(layer.double(), *prior[1:])
    for use in (lambda: Interpolation(model, other, 1), lambda: imlp.nn.project_(other, model),
                lambda: imlp.nn.bias_meter(model, other), lambda: imlp.nn.couple(model, other, "gate")):  # fmt: skip
        with pytest.raises(ModuleError, match=r"layer 0: .*Conv\(in_shape=\(2, 6, 6\)") as refused:
            use()
        assert re.search(fact, str(refused.value))
    assert torch.equal(model[0].weight, W)


def test_linear_layers_and_pools_fit_their_own_dense_forms():
    prior = nn.Sequential(nn.Linear(6, 4), nn.AvgPool2d(2, padding=1), nn.Flatten()).double()
    model = imlp.nn.densify(prior, (2, 3, 6), layers="*", init="random")
    Interpolation(model, prior, 1).step()
    x = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(model(x), prior(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["model", "prior"])
def test_a_layer_that_was_replaced_is_noticed(side):
    model, prior = pair()
    knob = Interpolation(model, prior, 0.5)
    knob.step()
    replaced = {"model": model, "prior": prior}[side]
    replaced[2] = copy.deepcopy(replaced[2])
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ModuleError, match="replaced since the knob was made: 2; make a new knob"):
        knob.step()
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    assert knob.calls == 1
    Interpolation(model, prior, 0.5).step()
    prior[0].dilation = (2, 2)
    with pytest.raises(ModuleError, match=r"dilation=\(2, 2\)"):
        Interpolation(model, prior, 0.5).step()


def test_a_bias_that_the_dense_layer_lacks():
    model, prior = pair()
    model[0].bias = None
    with pytest.raises(ModuleError, match="layer 0: the prior has a bias"):
        Interpolation(model, prior, 1)
    Interpolation(model, prior, 1, biases=False).step()
    imlp.nn.project_(prior, model)  # the nearest bias to none
    assert not prior[0].bias.any()


class Rescaled(nn.Module):
    """A parametrization without an inverse, and with a count of its calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, weight):
        self.calls += 1
        return 3 * weight


class LowRank(nn.Module):
    """A fixed weight with a correction that is trained."""

    def __init__(self, weight):
        super().__init__()
        rows = weight.detach().flatten(1)
        self.left, self.right = (
            nn.Parameter(torch.rand(size).to(rows)) for size in ((len(rows), 1), (1, rows.shape[1]))
        )

    def forward(self, weight):
        return weight + (self.left @ self.right).view_as(weight)


COMPUTED = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "own": lambda layer: parametrize.register_parametrization(layer, "weight", Rescaled()),
    "older weight_norm": nn.utils.weight_norm,
    "older spectral_norm": nn.utils.spectral_norm,
    "LoRA": lambda layer: parametrize.register_parametrization(layer, "weight", LowRank(layer.weight)),
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
    "prune the bias": lambda layer: prune.l1_unstructured(layer, "bias", amount=0.5),
    "prune twice": lambda layer: prune.random_unstructured(prune.l1_unstructured(layer, "weight", 2), "weight", 2),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("computed", COMPUTED)
def test_a_computed_weight_of_the_prior_is_never_stale(computed):
    """After a step of an optimizer the knob mixes towards what the next pass will compute with, and changes nothing."""
    model, prior = pair()
    COMPUTED[computed](prior[0])
    optimizer, x = torch.optim.SGD(prior.parameters(), lr=0.1), torch.randn(4, 2, 6, 6, dtype=torch.float64)
    prior(x).square().sum().backward()
    optimizer.step()
    state = {name: tensor.clone() for name, tensor in prior.state_dict().items()}
    knob = Interpolation(model, prior, 1)
    knob.step()
    meter = imlp.nn.bias_meter(model, prior)
    for name, tensor in prior.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert prior[0].training
    assert meter["0"]["distance"] == pytest.approx(0, abs=1e-14)
    prior.eval()
    y = prior[0](x)  # whatever is computed before a pass is computed now
    torch.testing.assert_close(model[0](x), y, rtol=0, atol=1e-12)
    branches = imlp.nn.couple(model, prior, "pathway").eval()[0]
    torch.testing.assert_close(branches(x), 2 * y, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("computed", COMPUTED)
def test_the_nearest_prior_of_computed_weights(computed):
    """Exact where there is an inverse; otherwise refused, with nothing changed."""
    model, prior = pair()
    COMPUTED[computed](prior[2])
    state = {name: tensor.clone() for name, tensor in prior.state_dict().items()}
    if computed == "weight_norm":
        imlp.nn.project_(prior, model)
        expected = reference.project(model[2].weight.detach().numpy(), model[2].spec)
        np.testing.assert_allclose(prior[2].weight.detach().numpy(), expected, rtol=0, atol=1e-14)
        return
    with pytest.raises(ModuleError, match=r"layer 2: the (weight|bias) of .* is computed"):
        imlp.nn.project_(prior, model)
    for name, tensor in prior.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("computed", [name for name in COMPUTED if name != "prune the bias"])
def test_a_computed_weight_of_the_dense_layer_is_refused_by_the_knob_and_measured(computed):
    model, prior = pair()
    earlier = Interpolation(model, prior, 1)
    COMPUTED[computed](model[2])
    with torch.no_grad():  # as an optimizer does; what was computed before is stale now
        for parameter in model[2].parameters():
            parameter += 0.05
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for use in (lambda: Interpolation(model, prior, 1), lambda: imlp.nn.relax_(model, prior),
                lambda: Interpolation(model, None, 1, coupling="self")):  # fmt: skip
        with pytest.raises(ModuleError, match="layer 2: the weight of the dense layer is made of other parameters"):
            use()
    with pytest.raises(ModuleError, match="replaced since the knob was made: 2; make a new knob"):
        earlier.step()
    meter = imlp.nn.bias_meter(model)["2"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    model.eval()(torch.randn(1, 2, 6, 6, dtype=torch.float64))
    expected = reference.measure(model[2].weight.detach().numpy(), model[2].spec)
    assert [meter[part] for part in PARTS] == pytest.approx([float(expected[part]) for part in PARTS], abs=1e-12)


def test_a_weight_that_nobody_knows_how_to_compute():
    model, prior = pair()
    weight = prior[0].weight.detach()
    del prior[0].weight
    prior[0].register_forward_pre_hook(lambda own, args: setattr(own, "weight", 2 * weight))
    prior[0].weight = weight
    with pytest.raises(ModuleError, match="layer 0: the weight of Conv2d is computed in a way"):
        Interpolation(model, prior, 1)


class Same(nn.Module):
    """The weight of another layer."""

    def __init__(self, other, hidden):
        super().__init__()
        self.other = [other] if hidden else other

    def forward(self, weight):
        return (self.other[0] if isinstance(self.other, list) else self.other).weight


def _by_data(one, two):
    two.weight.data = one.weight.data.view_as(two.weight)


def _by_part(one, two):
    numbers = torch.randn(one.weight.numel() + 1)
    one.weight.data, two.weight.data = numbers[:-1].view_as(one.weight), numbers[1:].view_as(two.weight)


def _by_original(one, two):
    parametrize.register_parametrization(two, "weight", nn.Identity())
    two.parametrizations.weight.original = one.weight


TIES = {
    "data": _by_data,
    "part": _by_part,
    "original": _by_original,
    "other": lambda one, two: parametrize.register_parametrization(two, "weight", Same(one, False), unsafe=True),
    "hidden": lambda one, two: parametrize.register_parametrization(two, "weight", Same(one, True), unsafe=True),
}


@pytest.mark.parametrize("tie", TIES)
def test_weights_that_are_tied_are_noticed(tie):
    """By densify in the prior, by `project_` where it would write twice, by the knob in the model."""
    prior = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1), nn.Flatten())
    model = imlp.nn.densify(prior, (2, 4, 4), init="random")
    TIES[tie](prior[0], prior[1])
    with pytest.raises(ModuleError, match=r"its weight is shared: it is .*0\.weight"):
        imlp.nn.densify(prior, (2, 4, 4))
    with pytest.raises(ModuleError, match="layer 0: its numbers are shared"):
        imlp.nn.project_(prior, model)
    Interpolation(model, prior, 1).step()  # each is mixed towards what it is tied to
    torch.testing.assert_close(imlp.nn.bias_meter(model, prior)["1"]["distance"], 0.0, rtol=0, atol=1e-6)
    if tie == "data":
        _by_data(model[0], model[1])
        with pytest.raises(ModuleError, match="layer 0: its numbers are shared"):
            Interpolation(model, prior, 1)


def test_what_is_no_module_and_what_chooses_no_layers_is_refused():
    model, prior = pair()
    calls = (
        imlp.nn.bias_meter,
        imlp.nn.project_,
        partial(imlp.nn.verify, x=None),
        partial(imlp.nn.interpolate_, alpha=1),
    )
    for call in calls:
        with pytest.raises(ModuleError, match="the model is None; give"):
            call(prior=prior, model=None)
    for layers in ([], ["!0", "!2"]):
        with pytest.raises(ModuleError, match=r"layers is \[.*\], which chooses no layer; there are 0, 2"):
            Interpolation(model, prior, 0.5, layers=layers)
    knob = Interpolation(model, prior, 0.5, layers=iter(["0"]))
    knob.step(), knob.step()
    for layers in (nn.Conv2d, "Conv2d", [nn.Module, "!2"], "!Linear"):  # the types are those of the prior
        flat = nn.Sequential(*prior, nn.Linear(3, 2, dtype=torch.float64))
        both = imlp.nn.densify(flat, (2, 6, 6), layers="*", init="random")
        expected = ["0", "4", "5"] if isinstance(layers, list) else ["0", "2"]
        assert list(Interpolation(both, flat, 0.5, layers=layers).pairs) == expected
    with pytest.raises(ModuleError, match="the model is a single layer; put it into"):
        imlp.nn.couple(model[0], prior[0], "pathway")
    for layers in (5, [5]):
        with pytest.raises(ModuleError, match="layers has 5; give names"):
            imlp.nn.bias_meter(model, prior, layers=layers)


def test_what_the_knob_is_given_is_checked():
    model, prior = pair()
    with pytest.raises(AlphaError, match="alpha names no layer"):
        Interpolation(model, prior, alpha={})
    with pytest.raises(AlphaError, match="alpha names no layer"):
        Interpolation(model, None, 0.5, coupling="self", alpha_sharing={})
    for wrong in ("adam", torch.optim.Adam, [], object()):
        with pytest.raises(ModuleError, match="optimizer is"):
            Interpolation(model, prior, 0.5, optimizer=wrong)
        with pytest.raises(ModuleError, match="optimizer is"):
            imlp.nn.relax_(model, prior, optimizer=wrong)
    knob = Interpolation(model, prior, 0.5)
    knob.step()
    good = knob.state_dict()
    wrong_entries = ({"calls": -5}, {"calls": 2.5}, {"calls": "3"}, {"calls": None}, {"every": 0}, {"steps": "3"},
                     {"alpha": {"7": 0.5}}, {"alpha": 2}, {"alpha": {"0": None}}, {"remainders": {"9.weight": 0}},
                     {"remainders": {"0.weight": torch.zeros(3)}}, {"last_alpha": 3},
                     {"alpha_sharing": 0.5}, {"coupling": "self"}, {"biases": False})  # fmt: skip
    for state in ({}, None, [], 3, {"step": 3}, *(good | wrong for wrong in wrong_entries)):
        with pytest.raises((ModuleError, AlphaError)):
            knob.load_state_dict(state)
        assert knob.state_dict() == good
    assert knob.calls == 1


@pytest.mark.parametrize("decay", [-1e-4, float("nan"), float("inf"), "0.1", None, True])
def test_a_weight_decay_is_a_number_from_zero(decay):
    model, _ = pair()
    for name in ("prior", "rest"):
        with pytest.raises(ModuleError, match=f"the weight decay {name} is"):
            imlp.nn.decay_groups(model, **{name: decay})


def test_a_step_allocates_nothing_of_the_size_of_a_matrix():
    prior = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Flatten())
    model = imlp.nn.densify(prior, (4, 16, 16), init="random")  # a matrix of 8 MB
    knob = Interpolation(model, prior, 0.5)
    knob.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        knob.step()
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profile.events())
    assert allocated < 200_000
