"""docs/models.md is what its script makes; here of a few models."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from conftest import needs
from torch import nn

import imlp.nn

needs("accel")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("package", "model", "layers"),
    [("tv", "squeezenet1_1", 26), ("tv", "shufflenet_v2_x0_5", 56), ("timm", "resnet10t", 14)],
)
def test_the_page_of_models(package, model, layers, tmp_path):
    if package == "timm":
        needs("timm")
    listed, out = tmp_path / "models.txt", tmp_path / "models.md"
    lines = (ROOT / "benchmarks/models.txt").read_text().splitlines()
    own = "".join(f"{line}\n" for line in lines if line.split()[:2] == [package, model])
    listed.write_text(own.replace('"', "'"))  # options as Python writes them
    command = [sys.executable, "benchmarks/models.py", "--models", str(listed), "--limit-mb", "300", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = re.findall(r"^\| `.*$", out.read_text(), re.MULTILINE)
    name, _, dense, left, *_, error, gradients, why = (cell.strip() for cell in row.strip("|").split("|"))
    assert name == f"`{model}`"
    assert int(dense) + int(left) == layers
    assert float(error) < 1e-5
    assert 0 < float(gradients) < 1.5e-5
    assert f"- `{model}`" in out.read_text() or not int(left)
    assert bool(int(left)) == ("too large" in why)


def test_only_a_dense_form_that_is_right_counts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    row = import_module("models").Row
    assert row("tv", "one", 32, refusals=1, error=2e-6, of_gradients=1.5e-5).is_right
    for wrong in ({"refusals": 2}, {"error": 0.1}, {"error": float("nan")}, {"of_gradients": 0.1}, {"problem": "any"}):
        assert not row("tv", "one", 32, **wrong).is_right


def test_gradients_of_models_that_return_lists(monkeypatch):
    class Detector(nn.Sequential):
        def forward(self, x):
            y = super().forward(x)
            return [{"labels": y.argmax(1), "boxes": own} for own in y]

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    prior, images = Detector(nn.Conv2d(2, 3, 3)), torch.randn(2, 2, 5, 5)
    between = import_module("models").between_gradients
    dense = imlp.nn.densify(prior, (2, 5, 5))
    assert between(dense, prior, images) < 1e-5
    dense[0].weight.data[0, 0] += 1
    assert between(dense, prior, images) > 1e-3


def test_the_page_names_every_model_of_the_list():
    page = (ROOT / "docs/models.md").read_text()
    lines = (ROOT / "benchmarks/models.txt").read_text().splitlines()[1:]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) ", page, re.MULTILINE)
    others = re.findall(r"`(\w+)` \((\d+)\)", page.partition("<details>")[0])  # not tried
    assert sorted(rows + others) == sorted(tuple(line.split()[1:3]) for line in lines)
    right, of = map(int, re.search(r"\*\*(\d+) of (\d+) models", page).groups())
    assert of == len(rows)
    assert right >= 0.9 * of
