"""Networks from outside the package in runs: their text belongs to the run, and is only run if the user names it."""

import json
import shutil

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

import imlp
from imlp import networks, plugins
from imlp.cli import app
from imlp.errors import ConfigError, ImlpError, OutsideError, RunError, SpecError
from imlp.networks import cnn
from imlp.train.config import Config, differences, from_mapping
from imlp.train.export import parameters
from imlp.train.loop import Interrupted
from imlp.train.run_folder import RunFolder

RING = '''from dataclasses import dataclass
import numpy as np
from imlp.networks import Activation, Layer, Network, Norm, Residual
from imlp.spec import Parameter, Spec


@dataclass(frozen=True)
class Ring(Spec):
    """A circulant matrix: every output reads all inputs, moved by one, with wrap-around."""

    size: int
    matrix_shape = property(lambda self: (self.size, self.size))
    parameters = property(lambda self: {"weight": Parameter((self.size,), fan_in=self.size)})

    def matrix(self, weight):
        i, j = np.indices(self.matrix_shape)
        return weight[(j - i) % self.size]


def ring(image=(1, 8, 8), classes=3, *, depth=1):
    c, h, w = image
    body = [Norm("first_norm", c * h * w), Layer("a_b", Ring(c * h * w), "ring"), Activation("relu")]
    for n in range(depth):
        body.append(Residual(f"block{n}", (Layer(f"block{n}", Ring(c * h * w), "ring"), Activation("gelu"))))
    return Network("ring", image, classes, tuple(body))


def wrong(image, classes):
    return Ring(3)


def broken(image, classes):
    return image / 0
'''


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    monkeypatch.setattr(plugins, "_named", {})
    monkeypatch.setattr(plugins, "_texts", {})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RING)
    return tmp_path


SETTINGS = {"network": "mine.py:ring", "options": {}, "lanes": tiny_runs.lanes("0.5", ("1", {"every": "step"}))}


def test_a_run_of_a_network_from_outside(here):
    trainer = tiny_runs.run(here / "run", **SETTINGS)
    assert trainer.network.name == "ring"
    result = json.loads((here / "run" / "result.json").read_text())
    assert result["network"] == "ring"
    assert 0.99 < result["models"][2]["bias"]["a_b"]["shared"] <= 1.0 + 1e-12
    assert (here / "run" / "network.py").read_text() == RING
    assert trainer.config.source in (here / "run" / "config.toml").read_text()


def test_the_text_belongs_to_the_identity_and_its_place_does_not(here):
    one = tiny_runs.config(**SETTINGS)
    (here / "below").mkdir()
    shutil.copy("mine.py", "below/other.py")
    other = tiny_runs.config(**SETTINGS | {"network": "below/other.py:ring"})
    assert one.identity == other.identity
    assert differences(one, other) == []
    (here / "mine.py").write_text(RING + "# another\n")
    assert tiny_runs.config(**SETTINGS).identity != one.identity
    assert tiny_runs.config(**SETTINGS | {"options": {"depth": 2}}).identity != other.identity
    assert Config().identity == Config(source="ignored for a network of the package").identity


def test_a_run_resumes_with_the_same_text_and_with_no_other(here):
    tiny_runs.run(here / "whole", **SETTINGS)
    with pytest.raises(Interrupted):
        tiny_runs.run(here / "run", tiny_runs.StopAt(6), **SETTINGS)
    (here / "mine.py").write_text(RING.replace('"relu"', '"gelu"'))
    with pytest.raises(RunError, match=r"run holds another run \(source: '\w+' there, '\w+' here\); choose another"):
        tiny_runs.run(here / "run", **SETTINGS, resume=True)
    (here / "mine.py").write_text(RING)
    tiny_runs.run(here / "run", **SETTINGS, resume=True)
    tiny_runs.assert_same_outcome(here / "whole", here / "run")


def test_reading_a_run_does_not_run_its_code(here, monkeypatch):
    tiny_runs.run(here / "run", **SETTINGS)
    (here / "run" / "network.py").write_text("open('ran', 'w')")
    (here / "mine.py").write_text("open('ran', 'w')")
    for source in ('source = ""\n', ""):  # and a folder from somebody else may say anything
        text = (here / "run" / "config.toml").read_text()
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith("source")]
        (here / "run" / "config.toml").write_text(source + "".join(lines))
        monkeypatch.setattr(plugins, "_named", {})
        config = RunFolder(here / "run").read_config()
        with pytest.raises(OutsideError, match=r"mine\.py:ring is code from outside the package, which is only run if"):
            config.make_network()
        result = CliRunner().invoke(app, ["report", "run", "--quiet"])
        assert result.exit_code == 0, result.output
        assert "add --network mine.py:ring" in (here / "report.html").read_text()
    assert not (here / "ran").exists()


def test_what_a_run_is_exported_with_has_to_be_named(here, monkeypatch):
    needs("accel")
    import torch

    trainer = tiny_runs.run(here / "run", **SETTINGS)
    x = trainer.images.batch(trainer.images.test, np.arange(30))
    logits = trainer.backend.forward(trainer.state.lanes, x)[1]
    monkeypatch.setattr(plugins, "_named", {})
    with pytest.raises(OutsideError, match=r"only run if you name it; add --network mine\.py:ring, or the copy"):
        parameters(here / "run")
    network, own = parameters(here / "run", 1, "run/network.py:ring")
    assert network.name == "ring"
    assert {"a_b.weight", "mean", "std"} <= set(own)  # its first operation is a norm, which cannot take these over
    module = imlp.load(here / "run", 1, network="mine.py:ring")
    with torch.inference_mode():
        images = torch.tensor(trainer.data.x_test / 255)
        np.testing.assert_allclose(module(images).numpy(), logits, atol=1e-10)
    (here / "mine.py").write_text(RING + "# edited\n")
    monkeypatch.setattr(plugins, "_named", {})
    with pytest.raises(OutsideError, match=r"mine\.py is not the text that mine\.py:ring was when the run began"):
        parameters(here / "run", 1, "mine.py:ring")
    result = CliRunner().invoke(app, ["export", "run", "--lane", "1", "--network", "run/network.py:ring"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("mine.py:rin", {}, r"mine\.py has no 'rin'; did you mean 'ring'"),
        ("mine.py:wrong", {}, r"mine\.py:wrong makes a Ring; let it make a torch\.nn\.Module; or take image and cl"),
        ("mine.py:broken", {}, r"mine\.py, line 33: broken\(image=.* raises TypeError: unsupported operand"),
        ("mine.py:Ring", {}, r"mine\.py:Ring cannot be made with .*size"),
        ("mine.py:np", {}, r"np of mine\.py is a module; name a function that makes a network"),
        ("mine.py:ring", {"dept": 2}, r"unknown option of ring: 'dept'; did you mean 'depth'"),
    ],
)
def test_what_is_no_network_is_refused(network, options, message, here):
    with pytest.raises(ImlpError, match=message):
        tiny_runs.config(**SETTINGS | {"network": network, "options": options}).make_network((1, 8, 8), 3)


def test_a_layer_that_cannot_be_trained_is_refused_with_the_reason(here):
    (here / "mine.py").write_text(RING.replace("    size: int\n", "    size: int\n    linear = False\n"))
    with pytest.raises(
        SpecError, match=r"a_b: the matrix of Ring\(size=64\) is not linear .* no projection and no grad"
    ):
        tiny_runs.config(**SETTINGS).make_network((1, 8, 8), 3)


def test_a_network_that_a_program_adds_can_be_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "x", lambda image, classes: cnn(image, classes, width=64, strides=(1,)))
    tiny_runs.run(tmp_path / "run", network="x", options={})
    needs("ray")
    from imlp.study.cluster import Cluster
    from imlp.study.cluster.driver import run_on_ray
    from imlp.study.tasks import Task
    from imlp.study.watcher import Watcher

    task = Task(tiny_runs.config(network="x", options={}), tmp_path / "on-ray")
    with pytest.raises(ConfigError, match=r"has put 'x' into NETWORKS, .*; write its function to a file and name that"):
        run_on_ray([task], tiny_runs.data(), Watcher(), cluster=Cluster())
    assert not networks.is_ours("x")
    assert networks.is_ours("resnet")


def test_the_configuration_of_a_run_can_be_used_again_by_naming_its_network(here):
    config = tiny_runs.run(here / "run", **SETTINGS).config
    (here / "mine.py").write_text(RING + "# edited\n")
    from imlp.train.config import combined, read

    again = combined(read(here / "run" / "config.toml"), {"network": "mine.py:ring"})
    assert again.source != config.source
    assert from_mapping(Config, read(here / "run" / "config.toml")).source == config.source
