"""How the benchmarks measure: side by side in one run, interleaved, medians, with machine and versions beside."""

import statistics
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from rich.console import Console
from rich.table import Table

from imlp.about import facts_of_this_machine

console = Console(highlight=False, width=110)


def interleaved(
    functions: dict[str, Callable[[], object]],
    *,
    repeats: int,
    warm_up: int = 2,
    calls: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Seconds of a call of each in every turn. They take turns, so that a busy moment of the machine meets all of them.

    A function that is to be called several times a turn (`calls`) gives the median of them, the first one left out.
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
                    torch.cuda.synchronize()  # a launch is not the work
                turn.append(time.perf_counter() - begin)
            seconds[name].append(statistics.median(turn[1:] or turn))
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, to: str) -> float:
    """The median over rounds of one time divided by the other's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def milliseconds(values: list[float]) -> str:
    """Median, and the middle half of the values beside it."""
    low, middle, high = (1e3 * value for value in statistics.quantiles(values, n=4))
    return f"{middle:.2f} ({low:.2f} .. {high:.2f})"


def print_machine() -> None:
    console.print(", ".join(f"{name} {value}" for name, value in facts_of_this_machine().items() if name != "because"))


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made
