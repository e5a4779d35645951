"""Where a prior's numbers stand in `W`: strided diagonals, with no index arrays and no matrix.

The entries of `W_P` that one number of the small weight fills, and those of its neighbours, form a regular grid in
memory. A `Diagonal` describes such a grid by its axes. Along an axis of `size` positions the flat index of the weight
grows by `weight` per step (0: the same number again), the row of `W` by `row` and its column by `column`, so that
`W.as_strided(sizes, row * M_in + column)` is the grid and `w.as_strided(sizes, weight)` the numbers that belong there.

A permutation (`P`, `T`) is linear in the *digits* of an index: position `sum d_k output_k` holds what stood at
`sum d_k input_k`. Multiplying a prior by a permutation splits its axes at those digits and gives them new steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


class Axis(NamedTuple):
    size: int
    weight: int
    row: int
    column: int


class Digit(NamedTuple):
    """One digit of a permutation: its number of values, and what a step of it is worth before and after."""

    size: int
    input: int
    output: int


@dataclass(frozen=True)
class Diagonal:
    """A grid of entries; the offsets say where its first one stands."""

    axes: tuple[Axis, ...]
    weight: int = 0
    row: int = 0
    column: int = 0

    def unrolled(self, index: int) -> list["Diagonal"]:
        axis, axes = self.axes[index], self.axes[:index] + self.axes[index + 1 :]
        return [
            Diagonal(axes, self.weight + k * axis.weight, self.row + k * axis.row, self.column + k * axis.column)
            for k in range(axis.size)
        ]


def permuted(diagonals: Sequence[Diagonal], field: Literal["row", "column"], digits: Sequence[Digit]) -> list[Diagonal]:
    """The diagonals of `L W_P` (rows) or `W_P L` (columns), for the permutation `L` with these digits.

    A column of `W_P` reads an output of `L`, and so a column of the product its input.
    """
    inverse = [Digit(digit.size, digit.output, digit.input) for digit in digits]
    digits = inverse if field == "column" else digits
    return [moved for diagonal in diagonals for moved in _relabel(diagonal, field, digits)]


def _relabel(diagonal: Diagonal, field: Literal["row", "column"], digits: Sequence[Digit]) -> list[Diagonal]:
    """Give rows or columns their new place. An axis that does not split at the digits is unrolled: slow, but right."""
    digits = sorted((digit for digit in digits if digit.size > 1), key=lambda digit: digit.input)
    offset = getattr(diagonal, field)
    start = [offset // digit.input % digit.size for digit in digits]
    reach = list(start)  # the largest value of each digit so far; beyond its size it would carry into the next one
    axes: list[Axis] = []
    for index, axis in enumerate(diagonal.axes):
        parts = _split(axis, field, digits, reach)
        if parts is None:
            return [moved for single in diagonal.unrolled(index) for moved in _relabel(single, field, digits)]
        axes += parts
    moved = sum(value * digit.output for value, digit in zip(start, digits, strict=True))
    return [replace(diagonal, axes=tuple(axes), **{field: moved})]


def _split(axis: Axis, field: str, digits: Sequence[Digit], reach: list[int]) -> list[Axis] | None:
    """The axis as axes that each walk along one digit, or None if a step of it would carry between digits."""
    step, left, done = getattr(axis, field), axis.size, 1
    if step == 0 or axis.size == 1:
        return [axis]
    parts = []
    for k, digit in enumerate(digits):
        if left == 1 or step >= digit.input * digit.size:
            continue
        stride, rest = divmod(step, digit.input)
        size = min(left, -(-digit.size // stride))
        reach[k] += stride * (size - 1)
        if rest or left % size or reach[k] >= digit.size or (size < left and digit.size % stride):
            return None
        part = Axis(size, axis.weight * done, axis.row * done, axis.column * done)
        parts.append(part._replace(**{field: stride * digit.output}))
        left, done, step = left // size, done * size, digit.input * digit.size
    return parts
