"""What a call imports: the list of commands needs none of them, and a command only itself."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imlp.cli import COMMANDS, app, load, summary

ROOT = Path(__file__).parents[2]
AFTER = """
import sys
sys.argv = ["imlp", *{arguments!r}]
from imlp.cli import app
try:
    app()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *sorted(sys.modules))
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a process holds at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", AFTER.format(arguments=arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_command():
    found = imported("--help")
    assert not found & {
        "scipy.optimize",
        "scipy.special",
        "scipy.stats",
        "matplotlib",
        "jinja2",
        "torch",
        "imlp.reference",
    }
    assert not [
        name for name in found if name.startswith(("imlp.commands.", "imlp.train", "imlp.study", "imlp.report"))
    ]


def test_a_matrix_needs_neither_the_trainer_nor_special_functions():
    found = imported("build-prior", "--kind", "patchify")
    assert "imlp.commands.build_prior" in found
    assert not found & {
        "scipy.optimize",
        "scipy.special",
        "matplotlib",
        "torch",
        "PIL",
        "rich.progress",
        "tomllib",
        "imlp.train",
        "imlp.look.explain",
    }


def test_the_garbage_collector_leaves_out_what_was_imported_and_works_while_a_command_runs(tmp_path):
    file = tmp_path / "kind.py"
    file.write_text(
        "import gc\nimport imlp\n"
        "def kind():\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "    return imlp.Transpose(2, 3)\n"
    )
    done = subprocess.run(
        [sys.executable, "cli.py", "build-prior", "--kind", f"{file}:kind"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True\n")


def test_the_garbage_collector_of_a_program_that_calls_a_command_is_left_alone():
    frozen = gc.get_freeze_count()
    assert CliRunner().invoke(app, ["build-prior", "--kind", "transpose"]).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


@pytest.mark.parametrize("name", [name for names in COMMANDS.values() for name in names])
def test_the_list_shows_the_first_paragraph_of_each_command(name):
    assert summary(name) == " ".join((load(name).help or "").split("\n\n")[0].split()) != ""
