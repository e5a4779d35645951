"""docs/models.md is what its script makes; here of a few models."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs

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


def test_the_page_names_every_model_of_the_list():
    page = (ROOT / "docs/models.md").read_text()
    lines = (ROOT / "benchmarks/models.txt").read_text().splitlines()[1:]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) ", page, re.MULTILINE)
    others = re.findall(r"`(\w+)` \((\d+)\)", page)  # not tried
    assert sorted(rows + others) == sorted(tuple(line.split()[1:3]) for line in lines)
    right, of = map(int, re.search(r"\*\*(\d+) of (\d+) models", page).groups())
    assert of == len(rows)
    assert right >= 0.9 * of
