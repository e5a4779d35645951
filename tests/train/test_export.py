"""Trained networks, exported for others."""

import re
import subprocess
import sys

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from safetensors.numpy import load_file
from typer.testing import CliRunner

import imlp
from imlp import networks, reference
from imlp.cli import app
from imlp.errors import RunError
from imlp.train import checkpoint

MIXER = {"network": "mixer", "options": {"patch": 4, "channels": 6, "depth": 1}}


@pytest.fixture(scope="module", params=["cnn", "mixer", "mlp1", "mlp2", "resnet"])
def trained(request, tmp_path_factory):
    """One run per network with the reference backend, and the logits of lane 1 and of the prior."""
    options = {
        "cnn": tiny_runs.OPTIONS,
        "mixer": MIXER["options"],
        "mlp1": {"width": 64, "strides": [1, 2], "depth": 4},
        "mlp2": {"first_channels": 4, "first_stride": 2, "width": 32, "depth": 3},
        "resnet": {"width": 64, "strides": [1, 2]},
    }[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    trainer = tiny_runs.run(folder, network=request.param, options=options, lanes=tiny_runs.lanes(0, 0.5))
    x = trainer.images.batch(trainer.images.test, np.arange(30))
    logits = reference.forward(trainer.state.lanes, x)[1], reference.forward(trainer.state.prior, x)
    return folder, trainer.data.x_test / 255, logits


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_plain_module(trained):
    needs("accel")
    import torch

    folder, images, logits = trained
    for lane, expected in zip((1, "prior"), logits, strict=True):
        module = imlp.load(folder, lane)
        assert isinstance(module, torch.nn.Module)
        parts = {type(part).__module__.partition(".")[0] for part in module.modules()}
        assert parts <= {"torch", "builtins"}
        with torch.inference_mode():
            np.testing.assert_allclose(module(torch.tensor(images)).numpy(), expected, atol=1e-10)
    with pytest.raises(RunError, match="has no trained lane 'first'; it has 0, 1, "):
        imlp.load(folder, "first")


def test_a_program_that_needs_nothing_of_ours(trained, tmp_path):
    """Loaded and run by a process in which imlp cannot be imported."""
    needs("accel")
    folder, images, (logits, _) = trained
    assert run(folder, "--lane", 1, "--format", "torch", "--out", tmp_path / "m.pt2").exit_code == 0
    np.save(tmp_path / "x.npy", images)
    code = (
        "import sys; sys.modules['imlp'] = None\n"
        "import numpy as np, torch\n"
        "model = torch.export.load('m.pt2').module()\n"
        "np.save('y.npy', model(torch.tensor(np.load('x.npy'))).detach().numpy())"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), logits, atol=1e-10)


@pytest.mark.parametrize("format", ["safetensors", "npz"])
def test_arrays(trained, format, tmp_path):
    folder, images, (logits, _) = trained
    path = tmp_path / f"m.{format}"
    assert run(folder, "--lane", 1, "--format", format, "--out", path).exit_code == 0
    arrays = load_file(path) if format == "safetensors" else dict(np.load(path))
    from imlp.train.config import Config, from_mapping, read

    network = from_mapping(Config, read(folder / "config.toml")).make_network((1, 8, 8), 3)
    model = reference.init(network, dense=True, seed=0)
    model.parameters = arrays
    np.testing.assert_allclose(reference.forward(model, images.reshape(30, -1)), logits, atol=1e-10)


def test_onnx(trained, tmp_path):
    needs("accel")
    needs("onnx")
    import onnxruntime

    folder, images, (logits, _) = trained
    result = run(folder, "--lane", 1, "--format", "onnx", "--out", tmp_path / "m.onnx")
    assert result.exit_code == 0, result.output
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": images.astype(np.float32)})
    np.testing.assert_allclose(found, logits, atol=1e-4)


def test_the_prior_as_arrays(trained):
    folder, _, _ = trained
    assert run(folder, "--lane", "prior", "--format", "npz").exit_code == 0
    arrays = dict(np.load(folder / "prior.npz"))
    assert "head.weight" in arrays
    assert arrays["mean"].shape == arrays["std"].shape == (1,)
    assert not any(name.startswith("optimizer.") for name in arrays)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lane", "7"), "it has 0, 1, prior"),
        (("--lane", "first"), "give a number from 0, or prior"),
        (("--lane", "prior", "--format", "torch"), "use --format safetensors or npz"),
    ],
)
def test_what_cannot_be_exported(trained, arguments, message):
    result = run(trained[0], *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_that_is_no_run(tmp_path):
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_networks_are_all_covered():
    assert set(networks.NETWORKS) == {"cnn", "mixer", "mlp1", "mlp2", "resnet"}


@pytest.mark.parametrize("run", [None, 3, b"runs/one"])
def test_what_names_no_folder_is_refused(run):
    with pytest.raises(RunError, match=r"run is .*; name the folder of a run of train"):
        imlp.load(run)


@pytest.mark.parametrize("lane", ["0", "prior"])
@pytest.mark.parametrize(
    "forge",
    [
        lambda arrays, state: arrays.pop("lanes/head.bias") is arrays.pop("prior/head.bias"),
        lambda arrays, state: arrays.update({name: a[..., :1] for name, a in arrays.items() if "conv2.weight" in name}),
        lambda arrays, state: arrays.update({name: a.astype(int) for name, a in arrays.items() if ".weight" in name}),
        lambda arrays, state: arrays.update({name: a * np.nan for name, a in arrays.items() if "conv2.weight" in name}),
        lambda arrays, state: arrays.update({name: a * np.nan for name, a in arrays.items() if "step" in name}),
        lambda arrays, state: arrays.update({name: a.reshape(1) for name, a in arrays.items() if "step" in name}),
        lambda arrays, state: state.pop("mean"),
        lambda arrays, state: state.update(active=[0, 7]),
    ],
)
def test_a_checkpoint_forged_under_a_valid_checksum(forge, lane, tmp_path):
    tiny_runs.run(tmp_path, lanes=tiny_runs.lanes(0, 0.5))
    arrays, state = checkpoint.newest(tmp_path / "checkpoint", pytest.fail)
    forge(arrays, state)
    checkpoint.save(tmp_path / "checkpoint", arrays, state)
    result = run(tmp_path, "--lane", lane, "--out", tmp_path / "out.safetensors")
    assert result.exit_code == 2, (result.output, result.exception)
    assert re.search("it was not written by this run|no checkpoint in .* is whole", result.stderr)
    assert not (tmp_path / "out.safetensors").exists()
    shown = CliRunner().invoke(app, ["report", str(tmp_path), "--quiet", "--out", str(tmp_path / "page.html")])
    assert shown.exit_code == 0, shown.exception
