"""Optimizers, learning rates, smoothed labels and mixup: the backends against each other and against torch's own."""

import dataclasses

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from small_networks import SMALL, batch

import imlp
from imlp import augment, reference
from imlp.commands.options import config_of
from imlp.couplings import Branch, Move, coupling
from imlp.errors import ConfigError
from imlp.optimizers import SGD, Adam, AdamW, LearningRate
from imlp.train.config import Config, with_recipe
from imlp.train.loop import Interrupted

NETWORK = SMALL["cnn, learned norm"]
ALL = [
    Adam(lr=0.01, weight_decay=0.1, clip=0.3),
    AdamW(lr=0.01, weight_decay=0.1),
    AdamW(lr=0.01, weight_decay=0.1, clip=0.3),
    SGD(lr=0.1, momentum=0.0, weight_decay=0.1),
    SGD(lr=0.1, momentum=0.8, clip=0.3),
    SGD(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1),
]
OPTIMIZER = pytest.mark.parametrize("optimizer", ALL, ids=str)
EVERYTHING = {"schedule": "cosine:0.1", "warmup": 0.5, "mixup": 0.8, "label_smoothing": 0.3, "clip": 0.5}


def algorithm_1(verbs, optimizer, **options):
    """20 steps of a prior and four lanes, one with a branch, mixed in between; images are mixed and labels smoothed."""
    branches = [
        None,
        None,
        None,
        Branch(coupling("pathway", decay_prior=0.01, decay_rest=0.1), NETWORK.interpolated[:1]),
    ]
    rate, losses = LearningRate("linear:0.1", warmup=0.1, lr=optimizer.lr, steps=20), []
    prior = verbs.init(NETWORK, dense=False, seed=0, **options)
    lanes = verbs.init(NETWORK, dense=True, seed=0, lanes=4, branches=branches, **options)
    rng = np.random.default_rng(0)
    images = verbs.place(rng.integers(0, 256, (8, *NETWORK.image), np.uint8))
    for step in range(20):
        own = dataclasses.replace(optimizer, lr=rate.at(step))
        draw = augment.draw("pad", 8, NETWORK.image, rng=rng, mixup=0.8)
        x = verbs.batch(images, rng.permutation(8), draw, [0.5] * 2, [0.2] * 2, dtype="float64")
        y = verbs.place(augment.targets(rng.integers(0, 3, 8), NETWORK.classes, draw, smoothing=0.2))
        move = [
            None,
            Move(coupling("interpolate"), (own.lr,)),
            Move(coupling("interpolate"), (0.5,), moments="zero"),
            None,
        ]
        moves = dict.fromkeys(NETWORK.interpolated, move)
        losses.append(float(verbs.train_step(prior, x, y, optimizer=own)))
        losses += map(float, verbs.train_step(lanes, x, y, optimizer=own, prior=prior, moves=moves))
    return {"losses": np.array(losses), **verbs.export(prior)}, verbs.export(lanes)


@OPTIMIZER
def test_the_backends_agree_after_20_steps_of_the_whole_algorithm(optimizer):
    needs("accel")
    slow, fast = algorithm_1(reference, optimizer), algorithm_1(imlp.backend("accel"), optimizer, dtype="float64")
    for ours, theirs in zip(slow, fast, strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(theirs[name], array, rtol=0, atol=1e-9, err_msg=name)


@OPTIMIZER
def test_steps_are_those_of_torch_optim(optimizer):
    needs("accel")
    import torch

    model = reference.init(NETWORK, dense=True, seed=0)
    theirs = {name: torch.tensor(p, requires_grad=True) for name, p in model.parameters.items()}
    options = {"lr": optimizer.lr, "weight_decay": optimizer.weight_decay}
    if isinstance(optimizer, SGD):
        options |= {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov}
    own = getattr(torch.optim, type(optimizer).__name__)(theirs.values(), **options)
    clipped = False
    for step in range(8):
        x, y = batch(NETWORK, seed=step)
        for name, gradient in reference.loss_and_grads(model, x, y)[1].items():
            theirs[name].grad = torch.tensor(gradient)
        if optimizer.clip:
            clipped |= bool(torch.nn.utils.clip_grad_norm_(theirs.values(), optimizer.clip) > optimizer.clip)
        own.step()
        reference.train_step(model, x, y, optimizer=optimizer)
    assert clipped == bool(optimizer.clip)
    for name, p in theirs.items():
        np.testing.assert_allclose(model.parameters[name], p.detach(), rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "cosine:0.1", "linear", "linear:0.05", "step:0.1:2:4"])
@pytest.mark.parametrize("warmup", [0, 1])
def test_learning_rates_are_those_of_torch(schedule, warmup):
    needs("accel")
    from torch import nn, optim
    from torch.optim import lr_scheduler as torch_rates

    rate = LearningRate(schedule, warmup, lr=0.1, epochs=5, steps=4)
    own = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    left, (kind, *numbers) = 20 - 4 * warmup, schedule.split(":")
    end = float(numbers[0]) if numbers else 0.0
    theirs = {
        "constant": lambda: torch_rates.ConstantLR(own, 1.0),
        "cosine": lambda: torch_rates.CosineAnnealingLR(own, left, eta_min=0.1 * end),
        "linear": lambda: torch_rates.LinearLR(own, 1.0, end, left),
        "step": lambda: torch_rates.MultiStepLR(own, [8 - 4 * warmup, 16 - 4 * warmup], 0.1),
    }
    if warmup:
        warm = torch_rates.LinearLR(own, 1 / 4, 1.0, 3)
        scheduler = torch_rates.SequentialLR(own, [warm, theirs[kind]()], [4])
    else:
        scheduler = theirs[kind]()
    for step in range(20):
        assert rate.at(step) == pytest.approx(own.param_groups[0]["lr"], rel=1e-9)
        own.step()
        scheduler.step()


@pytest.mark.parametrize(("smoothing", "mixup"), [(0.3, 0.0), (0.0, 0.8), (0.3, 0.8)])
def test_mixed_and_smoothed_losses_are_those_of_torch(smoothing, mixup):
    """Mixup as it is published: a mixture of two losses, each with its own labels."""
    needs("accel")
    import torch

    from imlp import accel

    rng, y = np.random.default_rng(0), np.array([0, 2, 1, 2])
    draw = augment.draw("none", 4, (1, 2, 2), rng=rng, mixup=mixup)
    logits = torch.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    partner = y if draw.partner is None else y[draw.partner]
    pairs = [(draw.share, y), (1 - draw.share, partner)]
    cross_entropy = torch.nn.functional.cross_entropy
    losses = [share * cross_entropy(logits, torch.tensor(own), label_smoothing=smoothing) for share, own in pairs]
    loss = sum(losses)
    (gradient,) = torch.autograd.grad(loss, logits)
    q = augment.targets(y, 3, draw, smoothing=smoothing)
    for layers, make in ((reference.layers, np.asarray), (accel.layers, torch.tensor)):
        ours, slope = layers.cross_entropy(make(logits.detach().numpy()), make(q))
        np.testing.assert_allclose(ours.mean(), loss.detach(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(slope / 4, gradient, rtol=0, atol=1e-12)
    images = rng.integers(0, 256, (4, 1, 2, 2), np.uint8)
    plain, mixed = (reference.batch(images, range(4), one, [0.5], [0.2]) for one in (None, draw))
    np.testing.assert_allclose(mixed, draw.share * plain + (1 - draw.share) * plain[draw.partner] if mixup else plain)


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
@pytest.mark.parametrize(
    "settings", [{"optimizer": "sgd", "nesterov": True}, {"optimizer": "adamw", "weight_decay": 0.1}]
)
def test_a_run_with_everything_is_resumed_exactly(backend, settings, tmp_path):
    """Alpha follows the learning rate: within an epoch for one lane, at its end for the other."""
    if backend == "accel":
        needs("accel")
    lanes = tiny_runs.lanes(("rate:20", {"every": "3"}), "rate:500")
    settings = {"backend": backend, "lanes": lanes, **EVERYTHING, **settings}
    whole = tiny_runs.run(tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(6), **settings)
    tiny_runs.run(tmp_path / "stopped", resume=True, **settings)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    rates = [whole.rate.at(4 * epoch + 3) for epoch in range(3)]
    for lane, factor in ((0, 20 * 3), (1, 500 * 4)):
        shown = [row["alpha"]["conv1"] for row in whole.state.rows if row["lane"] == lane]
        assert shown == pytest.approx([min(1, factor * rate) for rate in rates])
    assert len(set(shown)) > 1


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_lane_does_not_depend_on_the_others(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    lanes = tiny_runs.lanes(0, ("rate:20", {"every": "3"}), ("0.5", {"moments": "zero"}))
    settings = {"backend": backend, "dtype": "float32" if backend == "accel" else "float64", "optimizer": "sgd"}
    together = tiny_runs.run(tmp_path / "all", lanes=lanes, **settings, **EVERYTHING)
    for k, lane in enumerate(lanes):
        alone = tiny_runs.run(tmp_path / str(k), lanes=[lane], **settings, **EVERYTHING)
        for name, array in tiny_runs.weights(alone, 0).items():
            assert array.tobytes() == tiny_runs.weights(together, k)[name].tobytes(), name


def test_a_run_grows_longer_only_if_its_learning_rates_stay(tmp_path):
    settings = {"lanes": tiny_runs.lanes("rate:20"), "keep_moments": True, "shift": "epoch"}
    tiny_runs.run(tmp_path / "a", schedule="step:0.1:1", **settings)
    tiny_runs.run(tmp_path / "a", schedule="step:0.1:1", epochs=4, resume=True, **settings)
    tiny_runs.run(tmp_path / "whole", schedule="step:0.1:1", epochs=4, **settings)
    tiny_runs.assert_same_outcome(tmp_path / "a", tmp_path / "whole")
    tiny_runs.run(tmp_path / "b", schedule="linear", **settings)
    with pytest.raises(imlp.errors.RunError, match="epochs: 3 there, 4 here"):
        tiny_runs.run(tmp_path / "b", schedule="linear", epochs=4, resume=True, **settings)


NAN = float("nan")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"weight_decay": NAN}, "weight_decay is nan"),
        ({"clip": NAN}, "clip is nan"),
        ({"clip": float("inf")}, "clip is inf"),
        ({"mixup": -1.0}, "mixup is -1.0"),
        ({"mixup": NAN}, "mixup is nan"),
        ({"label_smoothing": 1.0}, "label_smoothing is too large"),
        ({"label_smoothing": NAN}, "label_smoothing is nan"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum is 1.0"),
        ({"optimizer": "sgd", "momentum": 0.0, "nesterov": True}, "nesterov is set, but momentum is 0"),
        ({"momentum": 0.5}, "momentum is for the optimizer sgd, not adam.*leave it out"),
        ({"optimizer": "sgd", "beta1": 0.5}, "beta1 is for the optimizer adam, not sgd"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"warmup": 11.0, "epochs": 10}, "warmup is 11.0 epochs.*give 0 to 10, the epochs of the run"),
        ({"warmup": NAN}, "warmup is nan"),
        ({"schedule": "cosine:1.5"}, "schedule is 'cosine:1.5'.*write constant"),
        ({"schedule": "cosine:\u0660"}, "schedule is"),
        ({"schedule": "linear:nan"}, "schedule is"),
        ({"schedule": "step:0.1"}, "schedule is"),
        ({"schedule": "step:0.1:6:3"}, "schedule is"),
        ({"schedule": "step:0.1:10", "epochs": 10}, "schedule is.*below those of the run"),
        ({"schedule": "step:-1:3"}, "schedule is"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(settings, match):
    with pytest.raises(ConfigError, match=match):
        Config(**settings)


def test_options_win_over_a_recipe_and_a_recipe_over_a_file(tmp_path):
    (tmp_path / "c.toml").write_text('lr = 0.5\nseed = 4\ndata = "cifar10"\n')
    config = config_of(tmp_path / "c.toml", {"recipe": "bachmann", "mixup": 0.2})
    assert (config.optimizer, config.lr, config.seed, config.mixup, config.label_smoothing) == (
        "sgd",
        0.01,
        4,
        0.2,
        0.3,
    )
    (tmp_path / "d.toml").write_text('recipe = "bachmann"\nlr = 0.5\n')
    assert config_of(tmp_path / "d.toml", {}).lr == 0.5
    with pytest.raises(imlp.errors.ImlpError, match="recipe"):
        config_of(None, {"recipe": "bachman"})
    assert config_of(None, {"recipe": "paper", "data": "cifar10"}) == Config(data="cifar10")
    assert with_recipe({"lr": 0.1}) == {"lr": 0.1}
