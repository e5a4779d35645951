"""The README does what it says."""

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def test_the_python_in_it_runs():
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["W_P"].shape == (1024, 3072)
    np.testing.assert_allclose(names["reference"].project(names["W"], names["conv"]), 0.05)


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_its_commands_exist():
    from imlp.cli import app

    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    named = set(re.findall(r"python cli\.py ([a-z-]+)", TEXT))
    assert named
    assert named <= known
