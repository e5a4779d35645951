"""How alpha changes over the epochs, and how it differs between layers.

| text | alpha in epoch t of t_max |
|---|---|
| `0.5` | 0.5 |
| `decay:0.5:2` | `0.5 (1 - t / t_max)^2` (appendix G); `t` counts from 0 |
| `end:0.5` | 0.5 after the last epoch and none before: test-time interpolation (appendix F) |
| `once:10:0.5` | 0.5 after epoch 10 (counted from 1) and at no other time: a one-shot embedding |
| `list:0.5:0.4:0.3` | the t-th number, the last one from there on |
| `rate:100` | `min(1, 100 lr n)`: with the learning rate at that step, where it is mixed every n steps |
| `conv1=0.5,conv2=decay:0.5:1` | one of the above for each layer named, or for each kind of layer; none for others |

A list of them is separated by commas, and `1e-4..1:9log` is nine alphas from 1e-4 to 1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from imlp.errors import AlphaError, known
from imlp.networks import Network


@dataclass(frozen=True)
class Schedule:
    """Alpha as a function of the epoch; `at` returns None where nothing is to be mixed."""

    kind: str  # constant, decay, end, once, list, rate
    numbers: tuple[float, ...]

    def at(self, epoch: int, epochs: int, step: float | None = None) -> float | None:
        """Alpha after epoch `epoch` of `epochs`, counted from 0; `step` is the learning rate times the cadence.

        >>> Schedule("decay", (0.5, 2)).at(5, 10)
        0.125
        """
        match self.kind, self.numbers:
            case "constant", (a,):
                return a
            case "decay", (a, k):
                return a * (1 - epoch / epochs) ** k
            case "end", (a,):
                return a if epoch == epochs - 1 else None
            case "once", (when, a):
                return a if epoch + 1 == when else None
            case "rate", (r,):
                assert step is not None, "it follows a learning rate"
                return min(1.0, r * step)
            case _:
                return self.numbers[min(epoch, len(self.numbers) - 1)]

    def __str__(self) -> str:
        numbers = [f"{number:g}" if float(f"{number:g}") == number else repr(number) for number in self.numbers]
        return numbers[0] if self.kind == "constant" else ":".join([self.kind, *numbers])


NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)
RANGE = re.compile(r"(?P<first>[^:]+?)\.\.(?P<last>[^:]+):(?P<n>[0-9]{1,9})(?P<kind>log|lin)")
MOST_ALPHAS = 10_000  # of a range
RANGE_REMEDY = "write FIRST..LAST:Nlog or :Nlin, like 1e-4..1:13log, from 0 to 1; a log range starts above 0"
REMEDY = (
    "write A, decay:A:K, end:A, once:EPOCH:A, list:A:B:..., rate:R, or NAME=... for each layer or kind; A and B are "
    "numbers from 0 (plain MLP) to 1 (the prior), K and R numbers from 0, EPOCH a whole number from 1"
)


def parse(text: Any) -> Schedule:
    """One schedule from its text, or from a plain number.

    >>> parse("decay:0.5:2")
    Schedule(kind='decay', numbers=(0.5, 2.0))
    """
    kind, *rest = str(text).strip().split(":")
    if not rest:
        kind, rest = "constant", [kind]
    numbers = tuple(float(number) for number in map(str.strip, rest) if NUMBER.fullmatch(number))
    match kind, numbers:
        case ("constant" | "end", (_,)) | ("list", (_, *_)):
            alphas, is_possible = numbers, True
        case "decay", (_, k):
            alphas, is_possible = numbers[:1], 0 <= k < inf
        case "rate", (r,):
            alphas, is_possible = (), 0 <= r < inf
        case "once", (when, _):
            alphas, is_possible = numbers[1:], when >= 1 and when % 1 == 0
        case _:
            alphas, is_possible = (), False
    if not is_possible or len(numbers) < len(rest) or not all(0 <= alpha <= 1 for alpha in alphas):
        raise AlphaError(f"alpha is {str(text)!r:.80}", REMEDY)
    return Schedule(kind, numbers)


class Alpha(str):
    """An alpha as its text, parsed: one schedule for all layers (under the name ""), or one for each that is named.

    It is a string, in the one spelling that files and identities have, so that it is written, hashed and compared as
    such; what it means is parsed once, when it is made.

    >>> Alpha({"conv1": 0.5, "conv2": "decay:0.50:1"})
    'conv1=0.5,conv2=decay:0.5:1'
    """

    schedules: tuple[tuple[str, Schedule], ...]

    def __new__(cls, text: Any) -> "Alpha":
        """From its text, a number, or a mapping of layers or kinds to either."""
        if isinstance(text, Alpha):
            return text
        pairs = [("", text)]
        if isinstance(text, Mapping) or "=" in str(text):
            parts = (part.partition("=")[::2] for part in str(text).split(","))
            pairs = [(str(name).strip(), of) for name, of in (text.items() if isinstance(text, Mapping) else parts)]
            names = [name for name, _ in pairs]
            if not all(names) or not names or len(set(names)) < len(names):
                problem = f"alpha is {str(text)!r:.80}: a layer's name is missing, or named twice"
                raise AlphaError(problem, "write NAME=... for each layer or kind, each once")
        schedules = tuple((name, parse(value)) for name, value in pairs)
        made = super().__new__(cls, ",".join(f"{name}={one}" if name else str(one) for name, one in schedules))
        made.schedules = schedules
        return made

    @property
    def is_zero(self) -> bool:
        """Whether this is the plain S-MLP."""
        return all(schedule.kind == "constant" and schedule.numbers == (0.0,) for _, schedule in self.schedules)

    @property
    def mixes_once(self) -> str | None:
        """The kind of schedule that mixes only once in a run, if there is one."""
        return next((schedule.kind for _, schedule in self.schedules if schedule.kind in ("end", "once")), None)

    def by_layer(self, network: Network, layers: tuple[str, ...]) -> dict[str, Schedule]:
        """The schedule of each of `layers` that has one: by its own name before its kind before the common one."""
        given = dict(self.schedules)
        kinds = {layer.name: layer.kind for layer in network.layers} | {"head": "head"}
        for name in filter(None, given):
            known(name, sorted({*layers, *(kinds[layer] for layer in layers)}), "layer or kind in alpha")
        schedules = {layer: given.get(layer) or given.get(kinds[layer]) or given.get("") for layer in layers}
        return {layer: schedule for layer, schedule in schedules.items() if schedule is not None}


def alphas_of(text: str) -> list[str]:
    """The alphas that a text lists, each with its cadence, if it has one.

    Separated by commas: numbers, schedules, and ranges `FIRST..LAST:Nlog` or `FIRST..LAST:Nlin`. Alphas by layer have
    commas too, so such a text is one alpha.

    >>> alphas_of("0,1e-4..1:5log,decay:0.5:2,1@step")
    ['0', '0.0001', '0.001', '0.01', '0.1', '1', 'decay:0.5:2', '1@step']
    >>> alphas_of("conv1=0.5,conv2=0.1@step")
    ['conv1=0.5,conv2=0.1@step']
    """
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        return [text]
    by_layer = [part for part in parts if "=" in part]
    if by_layer:
        problem = f"alpha is {str(text)!r:.80}: {by_layer[0]} is for one layer, in a list of alphas for all"
        raise AlphaError(problem, "give what is by layer a separate --alpha")
    return [alpha for part in parts for alpha in (_range(part) if ".." in part else [part])]


def _range(text: str) -> list[str]:
    """The alphas of `1e-4..1:9log`, and of `1e-4..1:9log@step` each with that cadence."""
    span, at, every = text.partition("@")
    match, wrong = RANGE.fullmatch(span), AlphaError(f"alpha is {str(text)!r:.80}", RANGE_REMEDY)
    if match is None or not 2 <= int(match["n"]) <= MOST_ALPHAS:
        raise wrong
    try:
        (first,), (last,) = (parse(match[end]).numbers for end in ("first", "last"))
    except AlphaError:
        raise wrong from None
    if not first < last or (match["kind"] == "log" and first == 0):
        raise wrong
    spaced = (np.geomspace if match["kind"] == "log" else np.linspace)(first, last, int(match["n"]))
    return [f"{value:.4g}{at}{every}" for value in spaced]
