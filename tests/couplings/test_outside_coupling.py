"""Couplings that users write in a file of their own: the example of the documentation, and what is refused."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from small_networks import SMALL, batch
from typer.testing import CliRunner

import imlp
from imlp import plugins, reference
from imlp.cli import app
from imlp.couplings import Branch, coupling
from imlp.errors import ArrayError, ConfigError, OutsideError
from imlp.train.config import Config, Lane, combined, read, recorded, to_toml
from imlp.train.loop import Interrupted
from imlp.train.run_reader import find_runs

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "examples" / "own_coupling.py").read_text()
NETWORK = SMALL["cnn"]
STEER, SCALED = "own.py:Steer", "own.py:Scaled"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_named", {})
    (tmp_path / "own.py").write_text(EXAMPLE)
    return tmp_path


def both_backends():
    needs("accel")
    return [(reference, {}), (imlp.backend("accel"), {"dtype": "float64"})]


def test_the_page_shows_the_example():
    assert f"```python\n{EXAMPLE}```" in (ROOT / "docs" / "your-own-coupling.md").read_text()


def test_a_mixing_does_what_its_formula_says_in_both_backends(here):
    for verbs, options in both_backends():
        prior, model = (verbs.init(NETWORK, dense=dense, seed=0, **options) for dense in (False, True))
        spec, W = NETWORK.layer("conv2").spec, verbs.to_numpy(model.parameters["conv2.weight"]).copy()
        verbs.mix(model, prior, 0.5, coupling=coupling(STEER, strength=0.4))
        W_P = reference.matrix(spec, verbs.to_numpy(prior.parameters["conv2.weight"]), layout="dense")
        Pi = reference.matrix(spec, reference.project(W, spec), layout="dense")
        moved = verbs.to_numpy(model.parameters["conv2.weight"])
        np.testing.assert_allclose(moved, W + 0.2 * (W_P - Pi), atol=1e-12)


def test_the_gradients_of_what_is_made_of_parts_against_finite_differences(here):
    model = reference.init(NETWORK, dense=True, seed=0, branches=[Branch(coupling(SCALED), NETWORK.interpolated)])
    x, y = batch(NETWORK)
    grads, h = reference.loss_and_grads(model, x, y)[1], 1e-6
    for name in ("conv2.weight", "conv2.bias", "conv2.prior.weight", "conv2.scale"):
        parameter = model.parameters[name]
        direction = np.random.default_rng(0).standard_normal(parameter.shape)
        losses = []
        for sign in (1, -2, 1):
            parameter += sign * h * direction
            losses.append(reference.loss_and_grads(model, x, y)[0])
        np.testing.assert_allclose((losses[0] - losses[1]) / (2 * h), (grads[name] * direction).sum(), atol=1e-8)


@pytest.mark.parametrize("name", ["pathway", "gate"])
def test_a_blend_computes_what_its_matrix_says(name):
    """The backends add results; `made` says the same of the matrices."""
    rule = coupling(name)
    model = reference.init(NETWORK, dense=True, seed=0, branches=[Branch(rule, ("conv2",))])
    plain = reference.init(NETWORK, dense=True, seed=0)
    spec, parts = NETWORK.layer("conv2").spec, model.parts_of("conv2", rule)
    W, b = rule.made(reference, spec, parts)
    plain.parameters |= {"conv2.weight": W, "conv2.bias": b}
    x, _ = batch(NETWORK)
    ours, theirs = (reference.forward(own, x) for own in (model, plain))
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_the_backends_train_what_is_made_of_parts_alike(here):
    branches, results = [None, Branch(coupling(SCALED), NETWORK.interpolated)], []
    for verbs, options in both_backends():
        model = verbs.init(NETWORK, dense=True, seed=0, lanes=2, branches=branches, **options)
        for step in range(5):
            verbs.train_step(model, *(verbs.place(array) for array in batch(NETWORK, seed=step)))
        results.append(verbs.export(model))
    assert results[0].keys() == results[1].keys()
    for name, array in results[0].items():
        np.testing.assert_allclose(results[1][name], array, atol=1e-9, err_msg=name)
    assert (results[0]["conv2.scale"][1] != 0).all()


def test_torch_modules_use_the_same_classes(here):
    needs("accel")
    import torch

    from imlp.nn import Interpolation, couple, densify

    prior = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(32, 3)
    ).double()
    x = torch.randn(4, 1, 4, 4, dtype=torch.float64)
    model = densify(prior, (1, 4, 4), init="random")
    spec, W = model[0].spec, torch.randn_like(model[0].weight)
    model[0].weight.data.copy_(W)
    rule = coupling(STEER)
    Interpolation(model, prior, 0.3, coupling=type(rule)).step()
    expected = rule.weight(reference, spec, W.numpy(), prior[0].weight.detach().numpy(), 0.3)
    np.testing.assert_allclose(model[0].weight.detach(), expected, atol=1e-12)

    model = couple(densify(prior, (1, 4, 4), init="random"), prior, SCALED)
    np.testing.assert_allclose(model(x)[0].detach().shape, (3,))
    names = ["0.scale", "0.dense.weight", "0.dense.bias", "0.prior.weight"]

    def total(*parts):
        return torch.func.functional_call(model, dict(zip(names, parts, strict=True)), x).square().sum()

    parts = [model.get_parameter(name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(total, parts)
    torch.nn.utils.parametrizations.weight_norm(prior[0])
    with pytest.raises(imlp.ImlpError, match="layer 0 makes its weight or bias of other parameters; remove the para"):
        couple(densify(prior, (1, 4, 4)), prior, SCALED)


def test_a_run_keeps_the_text_and_is_resumed_with_it(here):
    lanes = [{"coupling": STEER, "coupling_options": {"strength": 0.5}, "alpha": "0.3"}, {"coupling": SCALED}]
    coupling(STEER)
    tiny_runs.run(here / "whole", lanes=lanes)
    with pytest.raises(Interrupted):
        tiny_runs.run(here / "run", tiny_runs.StopAt(7), lanes=lanes)
    tiny_runs.run(here / "run", lanes=lanes, resume=True)
    tiny_runs.assert_same_outcome(here / "whole", here / "run")
    assert (here / "run" / "coupling.py").read_text() == EXAMPLE
    (run,) = find_runs([here / "run"])
    assert run.rows[-2]["name"] == "I-MLP alpha 0.3, every step, steer, strength 0.5"
    assert run.rows[-1]["name"] == "scaled"
    assert recorded(read(here / "run" / "config.toml")).lanes == run.config.lanes
    (here / "own.py").write_text(EXAMPLE + "# edited\n")
    with pytest.raises(imlp.RunError, match="holds another run"):
        tiny_runs.run(here / "run", lanes=lanes, resume=True)


def test_what_only_a_folder_or_a_file_names_is_not_run(here, monkeypatch):
    tiny_runs.run(here / "run", lanes=[{"coupling": STEER}])
    monkeypatch.setattr(plugins, "_named", {})
    (here / "own.py").write_text("open('ran', 'w')\n" + EXAMPLE)
    result = CliRunner().invoke(app, ["report", "run", "--quiet"])
    assert "add --coupling own.py:Steer, or the copy in the run's folder: coupling.py:Steer" in re.sub(
        r"\s+", " ", result.output
    )
    for forget in (False, True):
        text = (here / "run" / "config.toml").read_text()
        (here / "c.toml").write_text(re.sub("coupling_source = .*", "", text) if forget else text)
        with pytest.raises(OutsideError, match="only run if you name it"):
            combined(read(here / "c.toml"), {"epochs": 2})
        with pytest.raises(OutsideError, match="only run if you name it"):
            recorded(read(here / "c.toml"))
    assert not (here / "ran").exists()
    result = CliRunner().invoke(app, ["report", "run", "--quiet", "--coupling", "run/coupling.py:Steer"])
    assert result.exit_code == 0, result.output
    assert "steer" in (here / "report.html").read_text()


def test_the_command_line_names_it(here):
    data = tiny_runs.save_npz(here / "bars.npz")
    command = ["--backend=reference", "--epochs=1", "--batch=20", "--options=width=64", "--options=strides=[1,2,2]"]
    command += [f"--data={data}", f"--coupling={STEER}", "--coupling-options=strength=0.5", "--alpha=0.1", "--json"]
    result = CliRunner().invoke(app, ["train", *command, "--out=run"])
    assert result.exit_code == 0, result.output
    assert (
        Config(lanes=(Lane("0.1", coupling=STEER, coupling_options={"strength": 0.5}),)).lanes
        == find_runs(["run"])[0].config.lanes
    )
    result = CliRunner().invoke(app, ["sweep", *command, "--seeds=1", "--out=runs"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("class Own: pass\n", "Own", "own.py:Own is no coupling"),
        (EXAMPLE.replace("return W +", "return 1 / 0 *"), "Steer", r"own.py, line 15: Steer.weight raises ZeroDivis"),
        (EXAMPLE.replace("return W +", "return 1.0 #"), "Steer", "steer makes a weight of shape None"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(text, name, message, here):
    (here / "own.py").write_text(text)
    with pytest.raises((OutsideError, ArrayError), match=message):
        tiny_runs.run(here / "run", lanes=[{"coupling": f"own.py:{name}"}])


def test_options_of_a_coupling_are_checked(here):
    with pytest.raises(ConfigError, match="did you mean 'strength'"):
        Lane(coupling=STEER, coupling_options={"strenght": 1.0})
    with pytest.raises(ConfigError, match="coupling_options is for a coupling from outside"):
        Lane(coupling_options={"strength": 1.0})
    lane = Lane(coupling=STEER, coupling_options={"strength": 0.5})
    assert "coupling_options = { strength = 0.5 }" in to_toml(Config(lanes=(lane,)))


def test_a_lane_takes_the_text_to_other_processes(here):
    lane = Lane(coupling=STEER, coupling_options={"strength": 0.5})
    (here / "lane.pickle").write_bytes(pickle.dumps(lane))
    (here / "own.py").unlink()
    code = "import pickle; lane = pickle.load(open('lane.pickle', 'rb')); print(lane.title, lane.rule.strength)"
    options = {"capture_output": True, "text": True, "check": False, "env": {"PYTHONPATH": str(ROOT)}}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.stdout == "I-MLP alpha 0.5, every step, steer, strength 0.5 0.5\n", done.stderr
