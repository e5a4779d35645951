"""What a run records of its machine and its command."""

import sys

import pytest

from imlp.machine import environment


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ["/a/clone/cli.py", "train", "--densify", "layer4*,!layer4.0"],
            "python cli.py train --densify 'layer4*,!layer4.0'",
        ),
        (["/usr/bin/imlp", "train", "--alpha", "0.1"], "imlp train --alpha 0.1"),
    ],
)
def test_the_command_can_be_typed_again(arguments, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", arguments)
    assert environment()["command"] == command
