"""The whole trainer on PyTorch models: the same numbers as a built-in network, and nothing lost on the way."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
from conftest import needs
from torch import nn
from typer.testing import CliRunner

import imlp
from imlp import accel
from imlp.accel.precision import computing
from imlp.cli import app
from imlp.errors import ConfigError, ModuleError
from imlp.nn import Dense
from imlp.report.matrices import matrices
from imlp.study.scores import arms_of
from imlp.train import checkpoint, prepare
from imlp.train.callbacks import Callback
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import find_runs

needs("accel")

ROOT, MODELS = Path(__file__).parents[2], Path(__file__).parents[1] / "torch_models.py"
LANES = tiny_runs.lanes(0, ("0.3", {"every": "3"}), "decay:0.5:2", (1, {"coupling": "add"}))
NETWORKS = ["batchnorm", "vit"]


def settings(name, **more):
    base = {"network": f"{MODELS}:{name}", "options": {}, "backend": "accel", "dtype": "float32", "lanes": LANES}
    return {**base, **more}


class Same(Callback):
    """Starts a run from the numbers of a built-in one."""

    def __init__(self, other):
        self.other = other

    def started(self, trainer):
        for mine, own in ((trainer.state.prior, self.other.prior), (trainer.state.lanes, self.other.lanes)):
            assert set(mine.parameters) == set(own.parameters)
            for name, parameter in mine.parameters.items():
                parameter.copy_(own.parameters[name])


def assert_as_built_in(tmp_path, **common):
    """The same metrics by the built-in network and by modules that start from its numbers, in float64 to 1e-6."""
    built_in = Trainer(tiny_runs.config(backend="accel", **common), tiny_runs.data(), tmp_path / "built-in")
    start = built_in.states.new()
    built_in.run()
    own = tiny_runs.config(backend="accel", **common, network=f"{MODELS}:cnn", options={})
    modules = Trainer(own, tiny_runs.data(), tmp_path / "modules", [Same(start)])
    modules.run()
    assert modules.network.interpolated == built_in.network.interpolated
    for mine, theirs in zip(modules.state.rows, built_in.state.rows, strict=True):
        assert all(mine[key] == theirs[key] for key in ("lane", "name", "test_accuracy"))
        for key in ("train_loss", "test_loss"):
            assert mine[key] == pytest.approx(theirs[key], abs=1e-6)
        for layer, measured in theirs.get("bias", {}).items():
            assert mine["bias"][layer] == pytest.approx(measured, abs=1e-6)


def test_the_cnn_pair_as_modules_is_the_built_in_network(tmp_path):
    assert_as_built_in(tmp_path, epochs=2, lanes=tiny_runs.lanes(0, ("0.1", {"every": "step"}), 0.5))


COUPLED = [
    {"coupling": "self", "alpha": "0.2", "every": "step"},
    {"coupling": "self", "alpha_locality": "0.5", "alpha_sharing": "0.1", "moments": "zero"},
    {"coupling": "relax", "relax_after": 2},
    {"coupling": "pathway", "decay_prior": 1e-3},
    {"coupling": "gate", "gate": 0.3, "layers": ["conv1", "conv2"]},
]


def test_every_coupling_of_modules_is_that_of_the_built_in_network(tmp_path):
    assert_as_built_in(tmp_path, epochs=3, lanes=COUPLED)


@pytest.mark.bits
@pytest.mark.parametrize("steps", [3, 7, 9])
def test_every_coupling_of_a_module_is_resumed_exactly_and_exported(steps, tmp_path):
    """4 steps an epoch; the second lane that relaxes wakes with the last one."""
    chosen = settings("batchnorm", lanes=[*COUPLED, {"coupling": "relax", "relax_after": 3}])
    whole = tiny_runs.run(tmp_path / "whole", **chosen)
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(steps), **chosen)
    tiny_runs.run(tmp_path / "stopped", **chosen, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    rows = [row for row in whole.state.rows if row["epoch"] == 3]
    losses = {row["lane"]: row["test_loss"] for row in rows}
    assert losses[5] == pytest.approx(losses["prior"], abs=1e-5)  # it is the prior at the end of its epoch
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    mean, std = whole.data.statistics("standardised")
    logits = whole.backend.forward(whole.state.lanes, ((x - mean[0]) / std[0]).float().flatten(1))
    for index, lane in enumerate(whole.state.active):
        found = imlp.load(tmp_path / "whole", lane, network=chosen["network"]).eval()(x)
        torch.testing.assert_close(found, logits[index], rtol=0, atol=1e-5)


@pytest.mark.bits
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_a_run_that_was_stopped_ends_with_the_same_bits(name, steps, tmp_path):
    tiny_runs.run(tmp_path / "whole", **settings(name))
    with pytest.raises(Interrupted, match="nothing is lost: continue with --resume"):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(steps), **settings(name))
    tiny_runs.run(tmp_path / "stopped", **settings(name), resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    arrays = tiny_runs.outcome(tmp_path / "whole")[1]
    if name == "batchnorm":
        assert arrays["lanes/buffer:norm1.running_mean"].shape == (4, 4)
        assert arrays["prior/buffer:norm1.num_batches_tracked"] == 12
    assert not any("places" in key for key in arrays)


def test_products_in_bfloat16_are_those_of_autocast(tmp_path):
    """In the linear layers of the dense form, also when a run is resumed; the prior stays as it is."""
    more = {"products": "bfloat16", "lanes": tiny_runs.lanes(0.3, every="step")}
    network = Trainer(tiny_runs.config(**settings("cnn", **more)), tiny_runs.data(), tmp_path / "made").network
    x, y = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 3
    for dense in (True, False):
        model = accel.init(network, dense=dense, seed=0)
        leaves = {name: own.clone().requires_grad_() for name, own in model.parameters.items()}
        with torch.autocast("cpu", torch.bfloat16):
            logits = torch.func.functional_call(network.skeletons[dense], leaves, x.view(-1, 1, 8, 8))
        expected = nn.functional.cross_entropy(logits.float(), y)
        theirs = dict(zip(leaves, torch.autograd.grad(expected, list(leaves.values())), strict=True))
        exact, exact_grads = accel.loss_and_grads(model, x, y)
        with computing(products="bfloat16"):
            loss, grads = accel.loss_and_grads(model, x, y)
        assert (loss == exact) == (not dense)
        assert float(loss) == pytest.approx(float(expected.detach()), rel=5e-3)
        for name, own in grads.items():
            assert own.dtype == torch.float32
            assert torch.equal(own, exact_grads[name]) == (not dense), name
        if dense:  # bfloat16 has 8 bits; the whole gradient, since that of one bias may almost cancel out
            difference, size = (
                torch.cat([of[name].flatten() for name in grads]).norm()
                for of in ({name: grads[name] - theirs[name] for name in grads}, exact_grads)
            )
            assert difference < 0.03 * size

    tiny_runs.run(tmp_path / "whole", **settings("vit", **more))
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(5), **settings("vit", **more))
    tiny_runs.run(tmp_path / "stopped", resume=True, **settings("vit", **more))
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")


def test_kill_9_and_the_same_bits_in_the_end(tmp_path):
    data = tiny_runs.save_npz(tmp_path / "bars.npz")

    def command(folder, *more):
        options = "--batch 4 --epochs 8 --lr 0.003 --threads 1 --save-minutes 0.002 --no-verify --alpha 0,0.3@3"
        named = ["--network", f"{MODELS}:batchnorm", "--data", str(data), "--out", str(folder)]
        return ["train", *named, *options.split(), *more]

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = subprocess.Popen([sys.executable, "cli.py", *command(broken)], cwd=ROOT, stdout=subprocess.DEVNULL)
    while not checkpoint.saved_files(broken / "checkpoint"):
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not (broken / "result.json").exists()
    run(*command(broken, "--resume"))
    run(*command(whole))
    tiny_runs.assert_same_outcome(whole, broken)


@pytest.mark.bits
@pytest.mark.parametrize("name", NETWORKS)
def test_a_lane_does_not_depend_on_the_lanes_beside_it(name, tmp_path):
    together = tiny_runs.run(tmp_path / "together", **settings(name))
    alone = tiny_runs.run(tmp_path / "alone", **settings(name, lanes=[LANES[2]]))
    for key, array in tiny_runs.weights(alone, 0).items():
        assert array.tobytes() == tiny_runs.weights(together, 2)[key].tobytes(), key
    assert alone.state.rows[-1]["test_loss"] == together.state.rows[-2]["test_loss"]


RECIPE = {"optimizer": "sgd", "nesterov": True, "weight_decay": 0.1, "clip": 0.1, "mixup": 0.8, "label_smoothing": 0.3}


@pytest.mark.parametrize("recipe", [{}, RECIPE], ids=["adam", "sgd"])
def test_the_first_steps_are_those_of_plain_pytorch(recipe, tmp_path):
    """Prior and alpha 1 after every step, against the user's own loop with `torch.optim` and `imlp.nn`."""
    import imlp.nn

    lanes = tiny_runs.lanes((0.4, {"every": "step"}))
    options = {"dropout": 0.0}
    trainer = Trainer(
        tiny_runs.config(**settings("batchnorm", dtype="float64", lanes=lanes, options=options, **recipe)),
        tiny_runs.data(),
        tmp_path,
    )
    trainer.state = trainer.states.new()
    trainer.place_images()
    prior = trainer.network.made(seed=0, dense=False).double()
    model = imlp.nn.densify(trainer.network.made(seed=0, dense=True).double(), (1, 8, 8), init="random")
    stacks = {**trainer.state.lanes.parameters, **trainer.state.lanes.buffers}
    model.load_state_dict({name: stack[0] for name, stack in stacks.items() if name != "imlp.seed"})
    for name, parameter in prior.named_parameters():
        assert torch.equal(parameter, trainer.state.prior.parameters[name])
    given = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1} if recipe else {}
    kind = torch.optim.SGD if recipe else torch.optim.Adam
    optimizers = [kind(network.parameters(), lr=3e-3, **given) for network in (prior, model)]
    knob = imlp.nn.Interpolation(model, prior, 0.4)
    for step in range(6):
        rows = np.arange(20 * step, 20 * step + 20) % 72
        x, y = trainer.images.train_batch(rows, 0, step)
        trainer.state.step = step
        trainer.step(rows)
        for network, optimizer in zip((prior, model), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x.view(-1, 1, 8, 8)), y).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.1 if recipe else float("inf"))
            optimizer.step()
        knob.step()
    for module, ours in ((prior, trainer.state.prior), (model, trainer.state.lanes)):
        numbers = {**ours.parameters, **ours.buffers}
        for name, tensor in module.state_dict().items():
            found = numbers[name] if module is prior else numbers[name][0]
            torch.testing.assert_close(found, tensor, rtol=0, atol=1e-9)


def test_a_loss_that_is_not_finite_stops_a_lane_and_not_the_others(tmp_path):
    heard = tiny_runs.Warnings()
    lanes = tiny_runs.lanes(0, 0)
    whole = tiny_runs.run(tmp_path / "whole", **settings("batchnorm", lanes=lanes))

    class Break(Callback):
        def started(self, trainer):
            trainer.state.lanes.parameters["conv2.weight"][0] = float("nan")

    broken = tiny_runs.run(tmp_path / "broken", heard, Break(), **settings("batchnorm", lanes=lanes))
    assert broken.state.active == [1]
    assert (
        "lane 0 (S-MLP (alpha 0)) stopped: its loss is not finite in epoch 1, step 1, from conv2 on" in heard.texts[0]
    )
    for key, array in tiny_runs.weights(whole, 1).items():
        assert array.tobytes() == tiny_runs.weights(broken, 1)[key].tobytes(), key


def test_running_statistics_are_restored_when_a_step_is_refused(tmp_path):
    trainer = Trainer(tiny_runs.config(**settings("batchnorm")), tiny_runs.data(), tmp_path)
    trainer.state = trainer.states.new()
    lanes = trainer.state.lanes
    lanes.parameters["head.bias"][1] = float("inf")
    before = {name: own.clone() for name, own in lanes.buffers.items()}
    with pytest.raises(ArithmeticError, match=r"the loss of lanes \[1\] is not finite, from head on"):
        trainer.backend.train_step(lanes, torch.randn(5, 64), torch.tensor([0, 1, 2, 0, 1]), check=True)
    assert all(torch.equal(own, before[name]) for name, own in lanes.buffers.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_is_checked_against_the_reference_first(name, tmp_path, monkeypatch):
    trainer = Trainer(tiny_runs.config(**settings(name)), tiny_runs.data(), tmp_path)
    checked = prepare.check_network(trainer)
    assert float(checked.partition("at most ")[2].split()[0]) < 2e-5
    assert trainer.network.largest_error() < 1e-14
    matrix = Dense.of_prior

    def wrong(spec, weight, *others):
        return matrix(spec, 1.001 * weight, *others)

    monkeypatch.setattr(Dense, "of_prior", wrong)
    assert trainer.network.largest_error() > 1e-4


@pytest.fixture
def bars(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return ["--data", str(tiny_runs.save_npz(tmp_path / "bars.npz")), "--batch", "20", "--epochs", "2", "--lr", "0.003"]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", NETWORKS)
def test_train_plot_export_report_and_estimate(bars, name, tmp_path):
    own = ["--network", f"{MODELS}:{name}", *bars]
    expected = json.loads(run("train", *own, "--alpha", "0,0.1@step", "--estimate", "--json"))
    assert expected["parameters_a_lane"] > expected["prior_parameters"]
    found = json.loads(run("train", *own, "--alpha", "0,0.1@step", "--out", "runs/one", "--json"))
    assert [row["lane"] for row in found["models"]] == ["prior", 0, 1]
    assert found["parameters"]["dense"] == expected["parameters_a_lane"]
    layers = set(found["models"][1]["bias"])
    assert layers == (
        {"conv1", "conv2", "down"}
        if name == "batchnorm"
        else {"embed", "encoder.layers.0.linear1", "encoder.layers.0.linear2"}
    )
    assert Trainer(RunFolder(Path("runs/one")).read_config(), tiny_runs.data(), Path("runs/one")).files.result.exists()
    run("plot", "runs/one", "--out", "run.png")
    run("report", "runs/one", "--out", "report.html")
    assert name in Path("report.html").read_text()

    import imlp

    model = imlp.load("runs/one", 1)
    assert any(isinstance(layer, Dense) for layer in model.modules())
    trained = Trainer(
        RunFolder(Path("runs/one")).read_config(),
        prepare.load_data(RunFolder(Path("runs/one")).read_config()),
        Path("runs/one"),
    )
    images = torch.tensor(trained.data.x_test).float() / 255
    correct = int((model(images).argmax(1) == torch.tensor(trained.data.y_test)).sum())
    assert correct == round(found["models"][2]["test_accuracy"] * len(images))
    run("export", "runs/one", "--lane", "1", "--format", "torch", "--out", "lane.pt2")
    program = torch.export.load("lane.pt2").module()
    torch.testing.assert_close(program(images), model(images))
    run("export", "runs/one", "--lane", "prior", "--out", "prior.safetensors")


def test_sweep_on_one_prior_in_groups_and_search(bars, tmp_path):
    needs("optuna")
    own = ["--network", f"{MODELS}:batchnorm", *bars]
    run("sweep", *own, "--alpha", "0,0.1@step,0.5", "--seeds", "1", "--out", "whole", "--json")
    run("sweep", *own, "--alpha", "0,0.1@step,0.5", "--seeds", "1", "--out", "groups", "--lanes-at-once", "1", "--json")

    def rows(folder):
        lines = [
            json.loads(line)
            for path in sorted(Path(folder).rglob("metrics.jsonl"))
            for line in path.read_text().splitlines()
        ]
        return {(row["epoch"], row["name"]): (row["test_accuracy"], row["test_loss"]) for row in lines}

    assert rows("whole") == rows("groups")
    found = json.loads(run("search", *own, "--trials", "2", "--out", "search", "--json", "--validation", "0.3"))
    assert found["network"].endswith("torch_models.py:batchnorm")


def test_only_some_layers_become_dense(tmp_path):
    trainer = Trainer(
        tiny_runs.config(**settings("batchnorm", densify="conv*,!conv2,head")), tiny_runs.data(), tmp_path
    )
    assert trainer.network.interpolated == ("conv1", "head")
    assert trainer.network.shapes(dense=True)["conv2.weight"] == (4, 4, 3, 3)
    trainer.run()
    assert set(trainer.state.rows[-1]["bias"]) == {"conv1", "head"}


def test_a_pooling_becomes_dense_and_is_a_prior_that_is_not_trained(tmp_path):
    lanes = [*tiny_runs.lanes((1, {"every": "step"})), {"coupling": "relax", "relax_after": 1}, {"coupling": "pathway"}]
    chosen = settings("pooled", lanes=lanes, densify="0,1", epochs=2)
    whole = tiny_runs.run(tmp_path / "whole", **chosen)
    W = imlp.nn.matrix(nn.AvgPool2d(2), (3, 8, 8))
    torch.testing.assert_close(whole.state.lanes.parameters["1.weight"][0], W)
    rows = [row for row in whole.state.rows if row["lane"] == 0]
    assert rows[-1]["bias"]["1"]["distance"] < 1e-6
    assert whole.network.n_parameters(dense=False) == 30 + 147
    with pytest.raises(Interrupted):
        tiny_runs.run(tmp_path / "stopped", tiny_runs.StopAt(5), **chosen)
    tiny_runs.run(tmp_path / "stopped", **chosen, resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")
    imlp.load(tmp_path / "whole", "prior", network=chosen["network"])
    shown = matrices(arms_of(find_runs([tmp_path / "whole"]))[0]).corners["pooled (the prior)"]
    np.testing.assert_array_equal(shown, W[: len(shown), : shown.shape[1]])


def test_a_convolution_of_one_dimension_is_shown(tmp_path):
    file = tmp_path / "mine.py"
    layers = "nn.Flatten(2), nn.Conv1d(1, 2, 3), nn.Conv1d(2, 2, 3), nn.Flatten(), nn.Linear(120, 3)"
    file.write_text(f"from torch import nn\ndef mine():\n    return nn.Sequential({layers})\n")
    tiny_runs.run(tmp_path / "run", **settings("pooled", network=f"{file}:mine", epochs=1))
    assert "mine (the prior)" in matrices(arms_of(find_runs([tmp_path / "run"]))[0]).corners


def test_a_network_of_torchvision_resumes_to_the_same_bits(tmp_path):
    options = {"network": "torchvision.models:squeezenet1_1", "options": {}, "data": "shapes", "train_size": 24}
    options |= {"test_size": 12, "epochs": 2, "batch": 8, "backend": "accel", "densify": "features.1*"}
    own = tiny_runs.config(**options, lanes=tiny_runs.lanes(0, ("0.1", {"every": "step"})), dtype="float32")
    data = prepare.load_data(own)
    Trainer(own, data, tmp_path / "whole").run()
    with pytest.raises(Interrupted):
        Trainer(own, data, tmp_path / "stopped", [tiny_runs.StopAt(2)]).run()
    Trainer(own, data, tmp_path / "stopped").run(resume=True)
    tiny_runs.assert_same_outcome(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.parametrize(
    ("more", "error", "match"),
    [
        (
            {"backend": "reference"},
            ConfigError,
            "backend is 'reference', but .*batchnorm is a PyTorch model; use accel",
        ),
        (
            {"lanes": tiny_runs.lanes((1, {"head": True}))},
            ConfigError,
            "has no head that imlp knows of; let its last layer",
        ),
        ({"network": "cnn", "densify": "conv1"}, ConfigError, "densify is 'conv1'; it is for PyTorch models"),
        ({"options": {"classes": 2}}, ConfigError, "has 2 outputs, but the data have 3 classes; give it as many"),
        ({"options": {"depth": 2}}, ModuleError, "cannot be made with .*unexpected keyword argument 'depth'"),
        ({"densify": "nothing"}, ModuleError, "layers has nothing, which is none of the layers"),
        ({"lanes": tiny_runs.lanes("conv9=0.5")}, ValueError, "unknown layer or kind in alpha: 'conv9'"),
    ],
)
def test_mistakes_are_named(more, error, match, tmp_path):
    with pytest.raises(error, match=match):
        trainer = Trainer(tiny_runs.config(**settings("batchnorm", **more)), tiny_runs.data(), tmp_path)
        trainer.run()


def test_a_layer_whose_weight_is_computed_is_refused(tmp_path):
    with pytest.raises(ModuleError, match=r"the weight of 0 is made of other parameters.*--densify '!0'"):
        Trainer(tiny_runs.config(**settings("normed")), tiny_runs.data(), tmp_path).run()
