"""The example of a training loop runs as a reader would run it."""

import runpy
import sys
from pathlib import Path

import numpy as np
from conftest import needs

needs("accel")

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


def test_own_model(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (80, 3, 32, 32), np.uint8), rng.integers(0, 4, 80)
    np.savez(tmp_path / "own.npz", x=images[:64], y=labels[:64], x_test=images[64:], y_test=labels[64:])
    options = ["--data", str(tmp_path / "own.npz"), "--images", "64", "--epochs", "1", "--alpha", "decay:0.5:1"]
    monkeypatch.setattr(sys, "argv", ["own_model.py", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("epoch 1: prior ")
    assert [line.split()[0] for line in said[1:]] == ["layer", "stem.0", "block.0", "down.0"]
