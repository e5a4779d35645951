"""How long commands take to start, compared with importing the libraries that they are made of.

Run: python benchmarks/startup.py [--repeats 15]

The fastest run of each counts: whatever else the machine does can only add to it. Two lines are Typer commands with
nothing of imlp, one with a single option and one with as many options as build-prior has: from version 0.29 on, Typer
loads pydantic when it reads the first option and makes an adapter for each. They and the import leave the garbage
collector as Python has it; imlp's commands keep it from what they import (`imlp.cli.run`), so build-prior can take less
time than they do. Python's compiled files are kept in a temporary folder, whatever PYTHONDONTWRITEBYTECODE says.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import console, interleaved, print_machine, run, table

from imlp.commands.build_prior import build_prior

ROOT = Path(__file__).parents[1]
LIBRARIES = "import typer, rich, numpy, scipy.sparse"
OPTION = f"{LIBRARIES}\napp = typer.Typer()\n@app.command()\ndef main(kind: str = 'a'{{}}): pass\napp()"
OPTIONS = len(signature(build_prior).parameters)
MORE = "".join(f", a{n}: int | None = None" for n in range(OPTIONS - 1))
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "the same, and one option": ["-c", OPTION.format("")],
    f"the same, and {OPTIONS} options": ["-c", OPTION.format(MORE)],
    "python cli.py --help": ["cli.py", "--help"],
    "python cli.py build-prior --kind patchify": ["cli.py", "build-prior", "--kind", "patchify"],
}


def _process(arguments: list[str], cache: str) -> Callable[[], object]:
    environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)


def main(repeats: int = 15) -> None:
    with TemporaryDirectory() as cache:
        seconds = interleaved({name: _process(own, cache) for name, own in COMMANDS.items()}, repeats=repeats)
    fastest = {name: min(values) for name, values in seconds.items()}
    made = table(f"the fastest of {repeats} processes", "process", "ms", "ratio")
    for name, value in fastest.items():
        made.add_row(name, f"{1e3 * value:.0f}", f"{value / fastest[LIBRARIES]:.2f}")
    print_machine()
    console.print(f"typer {version('typer')}")
    console.print(made)


if __name__ == "__main__":
    run(main)
