"""A chain: its parts one after the other, and the core's diagonals moved by the permutations around it."""

from functools import lru_cache

from imlp.accel import convolution, patchify, shared, transpose
from imlp.accel.diagonals import Axis, Diagonal, Digit, permute_columns, permute_rows
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose


@lru_cache(maxsize=1024)
def diagonals(spec: Spec) -> tuple[Diagonal, ...]:
    """The diagonals of any spec. A permutation's weight is a single 1, repeated."""
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    core = next((k for k, part in enumerate(parts) if part.n_parameters), 0)
    found = _diagonals(parts[core])
    for part in reversed(parts[:core]):
        found = permute_columns(found, digits(part))
    for part in parts[core + 1 :]:
        found = permute_rows(found, digits(part))
    return tuple(diagonal.without_single_axes() for diagonal in found)


def _diagonals(part: Spec) -> list[Diagonal]:
    match part:
        case Conv():
            return convolution.diagonals(part)
        case Shared():
            return shared.diagonals(part)
    return [Diagonal(tuple(Axis(digit.size, 0, digit.output, digit.input) for digit in digits(part)))]


def digits(spec: Spec) -> list[Digit]:
    """The digits of a permutation."""
    match spec:
        case Patchify():
            return patchify.digits(spec)
        case Transpose():
            return transpose.digits(spec)
    raise TypeError(f"{type(spec).__name__} is not a permutation of imlp.spec")
