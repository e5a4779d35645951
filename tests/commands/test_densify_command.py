"""`densify`: what it prints and writes, and what it refuses."""

import json
import re

import pytest
from conftest import needs
from typer.testing import CliRunner

from imlp.cli import app

needs("accel")

MINE = """
from torch import nn

def network(width=4):
    return nn.Sequential(
        nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, stride=2, groups=2), nn.Flatten(),
        nn.Linear(8, 3))

def free():
    return nn.Conv2d(2, 2, 3)

def wrong():
    return "no module"

def breaks():
    raise RuntimeError("this one does not work")

def exits():
    raise GeneratorExit("no more")

class Exits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3)

    def forward(self, x):
        raise SystemExit(3)

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3)

    def forward(self, x):
        return self.conv(x) * self.conv.weight.mean()

def small():
    return nn.Sequential(nn.Conv2d(2, 8, 3), nn.AdaptiveAvgPool2d(4), nn.Conv2d(8, 3, 3))

class twice(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 2, 3))

    def forward(self, x):
        return super().forward(self[1](self[0](x)))

one = nn.Linear(2, 3)
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["densify", *map(str, arguments)])


def test_the_table_and_the_file(mine, tmp_path):
    import safetensors.torch
    import torch

    import imlp.nn
    from imlp.nn.factory import make

    out = tmp_path / "dense.safetensors"
    options = [f"{mine}:network", "--image", "2x6x6", "--options", "width=6"]
    result = run(*options, "--json", "--out", out)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    first, second = found["layers"]["0"], found["layers"]["2"]
    assert first["spec"].startswith("Conv(in_shape=(2, 6, 6), out_channels=6, kernel=(3, 3), stride=(1, 1)")
    assert (first["matrix"], second["matrix"]) == ("216 x 72", "8 x 216")
    assert first["numbers"] == 216 * 73
    assert first["nonzero"] == pytest.approx(6 * 2 * 16**2 / (216 * 72))
    assert found["numbers"] == 216 * 73 + 8 * 217
    assert found["parameters"] == found["numbers"] + 27
    assert found["error"] < 1e-5
    weights = safetensors.torch.load_file(out)
    prior = make(f"{mine}:network", seed=0, options={"width": 6})
    dense = imlp.nn.densify(prior, (2, 6, 6))
    dense.load_state_dict(weights)
    x = torch.randn(3, 2, 6, 6)
    torch.testing.assert_close(dense(x), prior(x))

    result = run(*options, "--layers", "2")
    assert result.exit_code == 0, result.output
    assert re.search(r"2 +Conv 3x3 /2 g2 +8 x 216 +0\.125 ", result.stdout)
    assert "largest error of the dense form" in result.stdout
    assert "Conv 3x3 " not in result.stdout.replace("Conv 3x3 /2", "")


def test_a_network_of_torchvision():
    options = ["torchvision.models:resnet18", "--image", "3x32x32", "--layers", "layer4*"]
    result = run(*options, "--json")
    assert result.exit_code == 0, result.output
    assert next(iter(json.loads(result.stdout)["layers"])) == "layer4.0.conv1"
    table = run(*options).stdout.partition("\n\n")[0].splitlines()
    assert len(table) == 7
    assert max(map(len, table)) <= 80  # columns of a terminal


def test_refused_layers_stay_as_they_are(mine):
    result = run(f"{mine}:twice", "--image", "3x8x8", "--skip-refused")
    assert result.exit_code == 0, result.output
    assert "0 stays as it is: it is used 2 times, with one weight" in result.stdout


def test_a_network_of_timm():
    needs("timm")
    result = run("timm:resnet18", "--image", "3x16x16", "--options", "num_classes=10", "--layers", "layer4", "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["layers"]) == 5


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            ["{mine}:nothing"],
            "mine.py has no 'nothing'.*it defines Exits, Reads, breaks, exits, free, network, small, twice, wrong",
        ),
        (["{mine}:wrong"], "makes a str; let it make a torch.nn.Module"),
        (["{mine}:one"], "is a Linear; name a function that makes a torch.nn.Module, or its class"),
        (["{mine}:breaks"], r"cannot be made with \(\): this one does not work; give what it needs: --options"),
        (["{mine}:network", "--options", "depth=2"], r"cannot be made with \(depth=2\).*unexpected keyword"),
        (["{mine}:network", "--image", "3x6x6"], "the module cannot take a batch of shape .*; give the shape of one"),
        (["{mine}:network", "--image", "2x6x6", "--layers", "7"], "layers has 7, which is none of the layers"),
        (["{mine}:free", "--image", "2x900x900"], r"the dense form takes [\d,]+ MB, but .* give a smaller image"),
        (["{mine}:free", "--image", "2x100000x100000"], r"the dense form takes [\d,]+ MB, but .* give a smaller image"),
        (
            ["{mine}:network", "--image", "2x100000x100000"],
            "the module cannot take a batch of shape .*; give the shape",
        ),
        (["{mine}:network", "--image", "2x999999999x999999999"], "the module cannot take a batch|give a smaller one"),
        (
            ["{mine}:small", "--image", "2x100000x100000", "--layers", "2"],
            r"a forward pass to check .* takes [\d,]+ MB, .*; give a smaller image(?!, or)",
        ),
        (["{mine}:network", "--image", "2x0x6"], r"input_shape is \(2, 0, 6\); give"),
        (["{mine}:Reads", "--image", "2x6x6"], "conv has no dense form: its weight is read outside of it"),
        (["{mine}:exits"], r"cannot be made with \(\): no more"),
        (["{mine}:Exits"], "the module cannot take a batch"),
        (["{mine}:network", "--out", "dense.pt"], "does not end in a known type; use .safetensors"),
        (["resnet50"], r"'resnet50' names no object; did you mean torchvision.models:resnet50\? write FILE.py:NAME"),
        (["nosuch"], "names no object; write FILE.py:NAME or package.module:NAME"),
        (["{mine}:twice"], "2 layers have no dense form: it is used 2 times, .*: 0, 1; leave out 2: .*--skip-refused"),
        (["no.such:thing"], "there is no package or module no"),
    ],
)
def test_mistakes_are_one_line(mine, arguments, match):
    result = run(*(text.format(mine=mine) for text in arguments))
    assert result.exit_code == 2, (result.output, result.exception)
    assert re.fullmatch(f"error: .*({match}).*\n", result.stderr), result.stderr


@pytest.mark.parametrize("seed", [10**23, 2**63, -1])
def test_a_seed_that_torch_cannot_take(mine, seed):
    result = run(f"{mine}:network", "--image", "2x6x6", "--seed", seed)
    assert result.exit_code == 2, result.exception
    assert "--seed" in result.stderr
