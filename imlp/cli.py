"""The command line: parse, call, print. `python cli.py ...` in the repository, `imlp ...` once installed."""

import ast
import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import imlp
from imlp.errors import ConfigError, FileError, ImlpError, RunError
from imlp.files import is_text, reason, shown

COMMANDS = {  # by panel of `--help`; each is in the module of its name, as a function of that name or as an `app`
    "See the matrix": ("explore", "build-prior"),
    "Train": ("train", "sweep", "search", "plot", "line", "report"),
    "Repeat the paper": ("reproduce",),
    "Your own data and models": ("densify", "data", "export"),
    "This machine": ("verify", "info"),
}


def load(name: str) -> Any:
    """A command, imported when it is called: `--help` lists all of them and needs none."""
    name = name.replace("-", "_")
    module = import_module(f"imlp.commands.{name}")
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
        made.command()(getattr(module, name))
    return typer.main.get_command(made)


def summary(name: str) -> str:
    """What the list says of a command: the first paragraph of its docstring, read from its file."""
    name = name.replace("-", "_")
    tree = ast.parse((Path(__file__).parent / "commands" / f"{name}.py").read_bytes())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return " ".join((ast.get_docstring(function) or "").partition("\n\n")[0].split())


class Commands(TyperGroup):
    """Shows an error of ours as one line and exits with 2; a traceback would help no user."""

    def main(self, *args: Any, **options: Any) -> Any:
        with _errors_in_one_line():
            return super().main(*args, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for before, argument in pairwise(["", *args]):
            _check_argument(argument, before)
        _check_environment()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        for name, command in self.commands.items():
            command.help = summary(name)
        return [*self.commands]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name:
            command = load(name)
        if not gc.isenabled():  # `run` has turned it off
            gc.freeze()
            gc.enable()
        return name, command, rest


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except ImlpError as error:
        _fail(error)
    except OSError as error:  # of a path that nothing has looked at before, or of standard output
        problem = f"{shown(error.filename or 'standard output or the system')}: {reason(error)}"
        _fail(FileError(problem, "check that it exists and that you have permission"))
    except MemoryError:
        _fail(RunError("there is not enough memory for this", "ask for something smaller"))


def _fail(error: ImlpError) -> NoReturn:
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    sys.exit(2)


def _check_argument(argument: str, before: str) -> None:
    """Refuse values that are empty, as those of a variable that is not set are, and names that could not be printed."""
    name, equals, value = argument.partition("=")
    option = before if not argument and before.startswith("--") else name if name.startswith("--") else "an argument"
    if not argument or (name.startswith("--") and equals and not value):
        raise ConfigError(f"{option} is empty", "give it a value, or leave it out")
    if not is_text(argument):
        raise ConfigError(f"{argument!a:.60} is not UTF-8", "rename what it names")
    given = value if equals and name.startswith("--") else argument if before.startswith("--") else ""
    number = re.fullmatch(r"[+-]?[\d._]+([eE][+-]?[\d_]+)?", given)  # as Python reads numbers
    if number and re.search("_|[^!-~]", given):
        raise ConfigError(f"{given!a:.60} is no plain number", "use the digits 0 to 9; a file of that name is ./NAME")


def _check_environment() -> None:
    """Refuse what packages that we import read from the environment, and would stop at with a traceback."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not re.fullmatch("[0-9]{1,11}", epoch):
        raise ConfigError(f"SOURCE_DATE_EPOCH is {epoch!r:.40}", "give seconds since 1970, or unset it")
    settings = Path(os.environ.get("MATPLOTLIBRC", ""))
    if settings.exists() and not (settings.is_file() or settings.is_dir()):  # it would wait for a pipe
        raise ConfigError(f"MATPLOTLIBRC is {shown(settings)}", "name a regular file or a folder, or unset it")


app = typer.Typer(
    cls=Commands,
    help="Interpolated MLPs: how much built-in structure should a network have?\n\n"
    "A dense layer W is moved towards the dense form W_P of a structured one: W <- (1 - alpha) W + alpha W_P.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"imlp {imlp.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for _panel, _names in COMMANDS.items():
    for _name in _names:
        app.command(_name, rich_help_panel=_panel)(lambda: None)  # stands for the command until it is called


def run() -> None:
    """`app` as a program, in a process that starts and ends faster.

    What a command imports lives as long as the process. So the garbage collector is off during the imports, and does
    not search these objects afterwards, not even at exit.

    Pictures are drawn to files, whatever MPLBACKEND says. What standard output cannot encode is escaped.
    """
    gc.disable()
    os.environ["MPLBACKEND"] = "agg"
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as end:
        _flush(error_shown=bool(end.code))
        raise


def _flush(*, error_shown: bool) -> None:
    """Write what standard output still holds; Python itself would report a full disk with a traceback, even after us.

    `error_shown`: one has been printed already.
    """
    if sys.stdout is None:  # the shell has closed it
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where Python may write the rest at exit
        if not error_shown:
            print(f"error: cannot write to standard output: {reason(error)}", file=sys.stderr)
            sys.exit(2)
