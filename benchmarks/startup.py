"""How long commands take to start, compared with importing the libraries that they are made of.

Run: python benchmarks/startup.py [--repeats 15]

The fastest run of each counts: whatever else the machine does can only add to it. The second line is a Typer command
with a single option and nothing of imlp: Typer loads what converts options when the first one is read.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure import console, interleaved, print_machine, run, table

ROOT = Path(__file__).parents[1]
LIBRARIES = "import typer, rich, numpy, scipy.sparse"
OPTION = f"{LIBRARIES}\napp = typer.Typer()\n@app.command()\ndef main(kind: str = 'a'): pass\napp()"
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "the same, and one option": ["-c", OPTION],
    "python cli.py --help": ["cli.py", "--help"],
    "python cli.py build-prior --kind patchify": ["cli.py", "build-prior", "--kind", "patchify"],
}


def _process(arguments: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)


def main(repeats: int = 15) -> None:
    seconds = interleaved({name: _process(own) for name, own in COMMANDS.items()}, repeats=repeats)
    fastest = {name: min(values) for name, values in seconds.items()}
    made = table(f"the fastest of {repeats} processes", "process", "ms", "ratio")
    for name, value in fastest.items():
        made.add_row(name, f"{1e3 * value:.0f}", f"{value / fastest[LIBRARIES]:.2f}")
    print_machine()
    console.print(made)


if __name__ == "__main__":
    run(main)
