"""How the benchmarks measure: candidates take turns in one run; medians are printed with machine and versions."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from imlp.errors import ConfigError, ImlpError
from imlp.machine import facts_of_this_machine

console = Console(highlight=False, width=110)


def interleaved(
    functions: dict[str, Callable[[], object]],
    *,
    repeats: int,
    warm_up: int = 2,
    calls: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Seconds of one call of each function in every turn. They take turns, so that a busy moment affects all of them.

    If `calls` asks for several calls of a function per turn, their median counts, without the first.
    """
    for _ in range(warm_up):
        for function in functions.values():
            function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            turn = []
            for _ in range(calls.get(name, 1)):
                begin = time.perf_counter()
                function()
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()  # the launch returns before the work is done
                turn.append(time.perf_counter() - begin)
            seconds[name].append(statistics.median(turn[1:] or turn))
    return seconds


LEAST = {"repeats": 2}  # the smallest value of an option, 1 unless named here; quartiles need two turns
MOST = 1_000_000


def run(main: Callable[..., None]) -> None:
    """Run `main` as a command; a mistake in its options is reported in one line, with exit code 2."""

    @wraps(main)
    def command(**given: Any) -> None:
        try:
            for name, value in given.items():
                _check_option(name, value)
            main(**given)
        except ImlpError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None

    typer.run(command)


def _check_option(name: str, value: Any) -> None:
    option = f"--{name.replace('_', '-')}"
    for number in value if isinstance(value, list) else [value]:
        if type(number) is int and not LEAST.get(name, 1) <= number <= MOST:
            raise ConfigError(f"{option} is {number}", f"give {LEAST.get(name, 1)} to {MOST:,}")
    if name == "device":
        try:
            torch.zeros(1, device=value).cpu()
        except Exception as error:  # each kind of missing device fails in its own way
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"--device {value} does not work: {reason}", "use cpu") from error


def ratio(seconds: dict[str, list[float]], name: str, to: str) -> float:
    """The median over the turns of one time divided by the other in the same turn."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def milliseconds(values: list[float]) -> str:
    """The median, and the range of the middle half of the values."""
    low, middle, high = (1e3 * value for value in statistics.quantiles(values, n=4))
    return f"{middle:.2f} ({low:.2f} .. {high:.2f})"


def print_machine() -> None:
    console.print(", ".join(f"{name} {value}" for name, value in facts_of_this_machine().items() if name != "because"))


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made
