"""How a derivation is written down: steps whose formulas have their numbers filled in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from imlp.spec import Shape

NAME = re.compile(r"[A-Za-z]\w*'*")


@dataclass(frozen=True)
class DerivationStep:
    """`name = formula = numbers = value`, a line of the construction of `part`, a matrix's symbol or a noun's name."""

    part: str
    name: str
    meaning: str
    formula: str
    numbers: str
    value: int


Steps = list[DerivationStep]


@dataclass(frozen=True)
class Term:
    """`constant * parameter[place]`."""

    parameter: str
    place: Shape
    constant: float

    def __str__(self) -> str:
        number = f"{self.parameter}[{', '.join(map(str, self.place))}]"
        return number if self.constant == 1 else f"{self.constant:.6g} * {number}"


class Walk:
    """Writes the steps of one part down; `symbols` are the numbers that its formulas name."""

    def __init__(self, part: str, steps: Steps, symbols: dict[str, int]):
        self.part, self.steps, self.symbols = part, steps, symbols

    def __call__(self, name: str, meaning: str, formula: str, value: int) -> int:
        numbers = NAME.sub(lambda found: str(self.symbols[found[0]]), formula)
        self.steps.append(DerivationStep(self.part, name, meaning, formula, numbers, value))
        self.symbols[name] = value
        return value


def unravel(index: int, shape: Sequence[int]) -> Shape:
    """The place of a flat index, row-major.

    >>> unravel(7, (2, 2, 3))
    (1, 0, 1)
    """
    place = []
    for size in reversed(shape):
        index, last = divmod(index, size)
        place.append(last)
    return tuple(reversed(place))
