"""A chain: its parts one after the other, and the core's diagonals moved by the permutations around it."""

from functools import lru_cache

from imlp.accel import convolution, patchify, shared, transpose
from imlp.accel.diagonals import Axis, Diagonal, Digit, permute_columns, permute_rows
from imlp.spec import Chain, Conv, Patchify, Shared, Spec, Transpose


@lru_cache(maxsize=1024)
def diagonals(spec: Spec) -> tuple[Diagonal, ...]:
    """The diagonals of any spec. A permutation's weight is a single 1, repeated."""
    match spec:
        case Conv():
            return tuple(convolution.diagonals(spec))
        case Shared():
            return tuple(shared.diagonals(spec))
        case Chain():
            position = 0 if spec.core is None else spec.parts.index(spec.core)
            found = diagonals(spec.parts[position])
            for part in reversed(spec.parts[:position]):
                found = tuple(permute_columns(found, digits(part)))
            for part in spec.parts[position + 1 :]:
                found = tuple(permute_rows(found, digits(part)))
            return found
    return (Diagonal(tuple(Axis(digit.size, 0, digit.output, digit.input) for digit in digits(spec))),)


def digits(spec: Spec) -> list[Digit]:
    """The digits of a permutation."""
    match spec:
        case Patchify():
            return patchify.digits(spec)
        case Transpose():
            return transpose.digits(spec)
    raise TypeError(f"{type(spec).__name__} is not a permutation of imlp.spec")
