"""A chain: its parts one after the other, and the core's diagonals moved by the permutations around it."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from imlp.accel import convolution, local, patchify, shared, transpose
from imlp.accel.diagonals import Axis, Diagonal, Digit, permuted
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose

DIAGONALS: dict[type[Spec], Callable[..., list[Diagonal]]] = {
    Conv: convolution.diagonals,
    Local: local.diagonals,
    Shared: shared.diagonals,
}
DIGITS: dict[type[Spec], Callable[..., list[Digit]]] = {Patchify: patchify.digits, Transpose: transpose.digits}
KNOWN = frozenset((*DIAGONALS, *DIGITS))


def has_diagonals(spec: Spec) -> bool:
    """Whether the diagonals are known: a question of every call, and so without the hash that a cache needs."""
    return all(type(part) in KNOWN for part in (spec.parts if isinstance(spec, Chain) else (spec,)))


@lru_cache(maxsize=1024)
def diagonals(spec: Spec) -> tuple[Diagonal, ...]:
    """The diagonals of a spec that has some. A permutation's weight is a single 1, repeated."""
    before, core, after = split_at_core(spec)
    if type(core) in DIAGONALS:
        found = DIAGONALS[type(core)](core)
    else:
        found = [Diagonal(tuple(Axis(digit.size, 0, digit.output, digit.input) for digit in DIGITS[type(core)](core)))]
    for part in reversed(before):
        found = permuted(found, "column", DIGITS[type(part)](part))
    for part in after:
        found = permuted(found, "row", DIGITS[type(part)](part))
    return tuple(replace(each, axes=tuple(axis for axis in each.axes if axis.size > 1)) for each in found)


def split_at_core(spec: Spec) -> tuple[tuple[Spec, ...], Spec, tuple[Spec, ...]]:
    """The parts before the one with parameters, that one (the first, if none has any), and the parts after it."""
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    at = next((k for k, part in enumerate(parts) if part.parameters), 0)
    return parts[:at], parts[at], parts[at + 1 :]
