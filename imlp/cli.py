"""The command line: parse, call, print. `python cli.py ...` in the repository, `imlp ...` once installed."""

import errno
import sys
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import imlp
from imlp.commands import (
    bench,
    build_prior,
    data,
    explore,
    export,
    info,
    plot,
    report,
    reproduce,
    results,
    search,
    sweep,
    train,
    verify,
)
from imlp.errors import ConfigError, FileError, ImlpError, RunError
from imlp.files import is_text, reason, shown


class Commands(TyperGroup):
    """Shows an error of ours as one line and exits with 2; a traceback would help no user."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            for before, argument in pairwise(["", *args]):
                _check_argument(argument, before)
        except ImlpError as error:
            _fail(error)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ImlpError as error:
            _fail(error)
        except OSError as error:  # of a path that nothing has looked at before
            if error.errno == errno.EPIPE:
                raise
            _fail(
                FileError(
                    f"{shown(error.filename or 'the system')}: {reason(error)}",
                    "see that it is there and that you may use it",
                )
            )
        except MemoryError:
            _fail(RunError("there is not enough memory for this", "ask for something smaller"))


def _fail(error: ImlpError) -> NoReturn:
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    raise typer.Exit(2) from None


def _check_argument(argument: str, before: str) -> None:
    """Refuse values that are empty, as those of a variable that is not set are, and names that could not be printed."""
    name, equals, value = argument.partition("=")
    option = before if not argument and before.startswith("--") else name if name.startswith("--") else "an argument"
    if not argument or (name.startswith("--") and equals and not value):
        raise ConfigError(f"{option} is empty", "give it a value, or leave it out")
    if not is_text(argument):
        raise ConfigError(f"{argument!a:.60} is not UTF-8", "rename what it names")


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
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


app.command("build-prior")(build_prior.build_prior)
app.command("explore")(explore.explore)
app.command("train")(train.train)
app.command("sweep")(sweep.sweep)
app.command("search")(search.search)
app.command("reproduce")(reproduce.reproduce)
app.command("results")(results.results)
passing = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command("bench", context_settings=passing)(bench.bench)
app.command("export")(export.export)
app.command("plot")(plot.plot)
app.command("report")(report.report)
app.command("verify")(verify.verify_command)
app.command("info")(info.info)
app.add_typer(data.app, name="data")
