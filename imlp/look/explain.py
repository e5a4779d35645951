"""One entry of a prior's matrix, derived step by step: which output, input and kernel tap it joins, or why it is zero.

The steps are data: the terminal prints them, and a test compares them with those of the teaching page
(`imlp/look/explore/priors.js`), which derives them by itself. The entries of a noun from outside come from its matrix.

In a product of matrices an entry is found from both sides: a permutation left of the weight moves the row `i` to the
`i'` where it has its one; a permutation right of it moves the column `j` to the `j'` that has its one there.

>>> found = explain(Conv((1, 4, 4), 1, kernel=3, padding=1), 5, 2)
>>> found.tap, found.conclusion
((0, 0, 0, 2), 'F[o, c, a, b] = F[0, 0, 0, 2]')
>>> found.steps[1]
DerivationStep(part='W_F', name='y', meaning='output row', formula='i // w_out % h_out', numbers='5 // 4 % 4', value=1)
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from imlp.errors import SpecError
from imlp.look.derivation import DerivationStep, Steps, Term, shared, source, target, window
from imlp.spec import Chain, Conv, Local, Patchify, Shape, Shared, Spec, Transpose

OUTSIDE = "not in the paper"
APPENDICES = {"W_F": "appendix A", "W_L": OUTSIDE, "P": "appendix B.1.1", "T": "appendix B.1.2", "W~": "appendix B.2"}
SYMBOLS: dict[type[Spec], str] = {Conv: "W_F", Local: "W_L", Patchify: "P", Transpose: "T", Shared: "W~"}
DERIVATIONS: dict[type[Spec], Any] = {Conv: window, Local: window, Shared: shared}  # of nouns with parameters
AXES = {
    1: ("number",),
    2: ("row", "column"),
    3: ("channel", "row", "column"),
    5: ("patch row", "patch column", "channel", "row", "column"),
}


@dataclass(frozen=True)
class Derivation:
    """Entry `(i, j)`. `tap` is where in the weight its number stands: `()` for the one of a permutation, None for zero.

    `output` and `input` are the places that `i` and `j` stand for, in `out_shape` and `in_shape`. `terms` are what the
    entry adds up: a single number of the weight, in all nouns of this package. `tap` is `()` if there are several.
    """

    i: int
    j: int
    output: Shape
    input: Shape
    steps: tuple[DerivationStep, ...]
    tap: Shape | None
    conclusion: str
    terms: tuple[Term, ...] = ()


def explain(spec: Spec, i: int, j: int) -> Derivation:
    """Where entry `(i, j)` of the matrix of `spec` comes from."""
    _check_index("row", i, spec.matrix_shape[0])
    _check_index("column", j, spec.matrix_shape[1])
    steps: Steps = []
    before, core, after = _parts(spec)
    row, column, name_i, name_j = i, j, "i", "j"
    for part in reversed(after):
        row, name_i = source(part, row, name_i, steps), name_i + "'"
    for part in before:
        column, name_j = target(part, column, name_j, steps), name_j + "'"
    tap: Shape | None
    terms: tuple[Term, ...] = ()
    if core is None:
        tap = () if row == j else None
        conclusion = f"1, for {name_i} = j = {j}" if row == j else f"0, for {name_i} = {row} is not j = {j}"
    elif type(core) in DERIVATIONS:
        tap, conclusion = DERIVATIONS[type(core)](core, row, column, name_i, name_j, steps)
        terms = () if tap is None else (Term("weight", tap, 1.0),)
    elif core.parameters and core.linear:
        terms = _terms(core, row, column)
        tap = terms[0].place if len(terms) == 1 else () if terms else None
        conclusion = " + ".join(map(str, terms)) or _unreached(core)
    else:
        tap, conclusion = _constant(core, row, column)
    output, input = _place(i, out_shape(spec)), _place(j, in_shape(spec))
    return Derivation(i, j, output, input, tuple(steps), tap, conclusion, terms)


def _terms(spec: Spec, i: int, j: int) -> tuple[Term, ...]:
    from imlp.reference.verbs import linear_map  # SciPy takes a while to import

    entries = linear_map(spec)
    numbers = [(name, place) for name, parameter in spec.parameters.items() for place in np.ndindex(parameter.shape)]
    row = entries.A[np.flatnonzero((entries.rows == i) & (entries.columns == j))]
    return tuple(Term(*numbers[k], float(c)) for k, c in zip(row.indices, row.data, strict=True))


def _constant(spec: Spec, i: int, j: int) -> tuple[Shape | None, str]:
    """Whether an entry differs from zero that is no sum of parameters, and the entry in words."""
    from imlp.reference.meter import support
    from imlp.reference.verbs import matrix

    if not spec.parameters:
        value = float(matrix(spec)[i, j])
        return () if value else None, f"{value:.6g}, which {type(spec).__name__} always has there"
    if support(spec)[i, j]:
        return (), f"a number that depends on {', '.join(spec.parameters)}, but not linearly"
    return None, _unreached(spec)


def _unreached(spec: Spec) -> str:
    return f"0, for no number of {', '.join(spec.parameters)} gets there"


def columns(spec: Spec, i: int) -> list[int]:
    """The columns of row `i` that can differ from zero, in the order of the weight's numbers where each fills its own.

    >>> columns(Transpose(2, 3), 1), columns(Shared(2, 2, 1), 1)
    ([3], [2, 3])
    """
    from imlp.reference.meter import support
    from imlp.reference.verbs import linear_map

    if not spec.parameters or not spec.linear:
        return [int(j) for j in support(spec)[[i]].indices]
    entries = linear_map(spec)
    row = np.flatnonzero(entries.rows == i)
    if entries.one_each:
        row = row[np.argsort(entries.A[row].indices)]
    return [int(j) for j in entries.columns[row]]


def entry(spec: Spec, row: int | None = None) -> tuple[int, int]:
    """An entry to look at: the middle one of those in `row` (by default the middle row) that can differ from zero."""
    i = spec.matrix_shape[0] // 2 if row is None else row
    _check_index("row", i, spec.matrix_shape[0])
    filled = columns(spec, i)
    return i, filled[len(filled) // 2] if filled else 0


def _check_index(axis: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise SpecError(f"the matrix has no {axis} {index}", f"give a {axis} from 0 to {size - 1}")


def place(spec: Spec) -> str:
    """Where the paper has this matrix.

    >>> place(Transpose(2, 3)), place(Chain(Transpose(2, 3), Shared(3, 2, 2)))
    ('appendix B.1.2', 'equation 5')
    """
    if not isinstance(spec, Chain):
        return APPENDICES[SYMBOLS[type(spec)]] if type(spec) in SYMBOLS else OUTSIDE
    if any(type(part) not in SYMBOLS or type(part) is Local for part in spec.parts):
        return OUTSIDE
    return "equation 5" if spec.parts[-1].parameters else "equation 5; the double dagger of table 3"


def in_shape(spec: Spec) -> Shape:
    """The shape that the flat input stands for; of a noun that does not say, `(M_in,)`."""
    return in_shape(spec.parts[0]) if isinstance(spec, Chain) else _shape(spec, "in_shape", spec.matrix_shape[1])


def out_shape(spec: Spec) -> Shape:
    return out_shape(spec.parts[-1]) if isinstance(spec, Chain) else _shape(spec, "out_shape", spec.matrix_shape[0])


def _shape(spec: Spec, side: str, size: int) -> Shape:
    match spec:
        case Patchify():
            image, patch = (spec.channels, spec.height, spec.width), (spec.channels, spec.patch, spec.patch)
            return image if side == "in_shape" else (*spec.grid, *patch)
        case Transpose():
            return (spec.rows, spec.cols) if side == "in_shape" else (spec.cols, spec.rows)
        case Shared():
            return spec.rows, spec.in_features if side == "in_shape" else spec.out_features
    shape: Any = getattr(spec, side, None) or (size,)
    if not isinstance(shape, tuple) or prod(shape) != size:
        raise SpecError(f"{type(spec).__name__}.{side} is {shape!r}", f"give a tuple of sizes whose product is {size}")
    return shape


def _place(index: int, shape: Shape) -> Shape:
    return tuple(int(digit) for digit in np.unravel_index(index, shape))


def axis_names(shape: Shape) -> tuple[str, ...]:
    """What the axes of a shape are called."""
    return AXES.get(len(shape)) or tuple(f"axis {n}" for n in range(1, len(shape) + 1))


def _parts(spec: Spec) -> tuple[tuple[Spec, ...], Spec | None, tuple[Spec, ...]]:
    """The permutations before the part to be derived, that part, and those after it; all count as after if none is.

    The part is the one with a weight, or the whole chain if another of its parts is not a known permutation.
    """
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    others = [n for n, part in enumerate(parts) if type(part) not in (Patchify, Transpose)]
    if not others:
        return (), None, parts
    at = others[0]
    return (parts[:at], parts[at], parts[at + 1 :]) if len(others) == 1 else ((), spec, ())
