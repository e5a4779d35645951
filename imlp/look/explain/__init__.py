"""One entry of a prior's matrix, derived step by step: which output, input and kernel tap it joins, or why it is zero.

Integers only: no arrays, no backend. The steps are data: the terminal prints them, and a test compares them
with those of the teaching page (`imlp/explore/priors.js`), which derives them by itself.

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

from imlp.errors import SpecError
from imlp.look.explain import cores, permutations
from imlp.look.explain.steps import DerivationStep, Steps, Term, unravel
from imlp.spec import Chain, Conv, Local, Patchify, Shape, Shared, Spec, Transpose

OUTSIDE = "not in the paper"
PAPER = {"W_F": "appendix A", "W_L": OUTSIDE, "P": "appendix B.1.1", "T": "appendix B.1.2", "W~": "appendix B.2"}
SYMBOLS: dict[type[Spec], str] = {Conv: "W_F", Local: "W_L", Patchify: "P", Transpose: "T", Shared: "W~"}
CORES: dict[type[Spec], tuple[Any, Any]] = {  # how to derive an entry, and which columns a row fills
    Conv: (cores.window, cores.window_columns),
    Local: (cores.window, cores.window_columns),
    Shared: (cores.shared, cores.shared_columns),
}
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
    """How entry `(i, j)` of the matrix of `spec` comes about."""
    for what, index, size in zip(("row", "column"), (i, j), spec.matrix_shape, strict=True):
        if not 0 <= index < size:
            raise SpecError(f"the matrix has no {what} {index}", f"give a {what} from 0 to {size - 1}")
    steps: Steps = []
    before, core, after = _parts(spec)
    row, column, name_i, name_j = i, j, "i", "j"
    for part in reversed(after):
        row, name_i = permutations.source(part, row, name_i, steps), name_i + "'"
    for part in before:
        column, name_j = permutations.target(part, column, name_j, steps), name_j + "'"
    tap: Shape | None
    terms: tuple[Term, ...] = ()
    if core is None:
        tap = () if row == j else None
        conclusion = f"1, for {name_i} = j = {j}" if row == j else f"0, for {name_i} = {row} is not j = {j}"
    elif type(core) in CORES:
        tap, conclusion = CORES[type(core)][0](core, row, column, name_i, name_j, steps)
        terms = () if tap is None else (Term("weight", tap, 1.0),)
    else:
        from imlp.look.explain import default  # it needs the reference, which takes a while to import

        terms, tap, conclusion = default.entry(core, row, column)
    output, input = unravel(i, out_shape(spec)), unravel(j, in_shape(spec))
    return Derivation(i, j, output, input, tuple(steps), tap, conclusion, terms)


def columns(spec: Spec, i: int) -> list[int]:
    """The columns of row `i` that can differ from zero, in the order of the weight's numbers.

    >>> columns(Transpose(2, 3), 1), columns(Shared(2, 2, 1), 1)
    ([3], [2, 3])
    """
    before, core, after = _parts(spec)
    for part in reversed(after):
        i = permutations.source(part, i, "i", [])
    if core is None:
        found = [i]
    elif type(core) in CORES:
        found = CORES[type(core)][1](core, i)
    else:
        from imlp.look.explain import default

        found = default.columns(core, i)
    for part in reversed(before):
        found = [permutations.source(part, j, "i", []) for j in found]
    return found


def entry(spec: Spec, row: int | None = None) -> tuple[int, int]:
    """An entry worth a look: the middle one of those in `row` (the matrix's middle row) that can differ from zero."""
    i = spec.matrix_shape[0] // 2 if row is None else row
    if not 0 <= i < spec.matrix_shape[0]:
        raise SpecError(f"the matrix has no row {i}", f"give a row from 0 to {spec.matrix_shape[0] - 1}")
    found = columns(spec, i)
    return i, found[len(found) // 2] if found else 0


def place(spec: Spec) -> str:
    """Where the paper has this matrix.

    >>> place(Transpose(2, 3)), place(Chain(Transpose(2, 3), Shared(3, 2, 2)))
    ('appendix B.1.2', 'equation 5')
    """
    if not isinstance(spec, Chain):
        return PAPER[SYMBOLS[type(spec)]] if type(spec) in SYMBOLS else OUTSIDE
    if any(type(part) not in SYMBOLS or type(part) is Local for part in spec.parts):
        return OUTSIDE
    return "equation 5" if spec.parts[-1].parameters else "equation 5; the double dagger of table 3"


def in_shape(spec: Spec) -> Shape:
    """The shape that the flat input stands for; of a noun that does not say, `(M_in,)`."""
    match spec:
        case Patchify():
            return spec.channels, spec.height, spec.width
        case Transpose():
            return spec.rows, spec.cols
        case Shared():
            return spec.rows, spec.in_features
        case Chain():
            return in_shape(spec.parts[0])
    return _said(spec, "in_shape", spec.matrix_shape[1])


def out_shape(spec: Spec) -> Shape:
    """The shape that the flat output stands for; of a noun that does not say, `(M_out,)`."""
    match spec:
        case Patchify():
            return *spec.grid, spec.channels, spec.patch, spec.patch
        case Transpose():
            return spec.cols, spec.rows
        case Shared():
            return spec.rows, spec.out_features
        case Chain():
            return out_shape(spec.parts[-1])
    return _said(spec, "out_shape", spec.matrix_shape[0])


def _said(spec: Spec, name: str, size: int) -> Shape:
    """The shape that a noun says itself, if it does."""
    shape = getattr(spec, name, None)
    if shape is None:
        return (size,)
    if not isinstance(shape, tuple) or prod(shape) != size:
        raise SpecError(f"{type(spec).__name__}.{name} is {shape!r}", f"give a tuple of sizes whose product is {size}")
    return shape


def axis_names(shape: Shape) -> tuple[str, ...]:
    """What the axes of a shape are called.

    >>> axis_names((3, 32, 32)), axis_names((7,))
    (('channel', 'row', 'column'), ('number',))
    """
    return AXES.get(len(shape)) or tuple(f"axis {n}" for n in range(1, len(shape) + 1))


def _parts(spec: Spec) -> tuple[tuple[Spec, ...], Spec | None, tuple[Spec, ...]]:
    """The permutations before the part to be derived, that part, and those after it; all count as after if none is.

    The part is the one with a weight, or the whole chain if another of its parts is not a known permutation.
    """
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    others = [n for n, part in enumerate(parts) if type(part) not in permutations.KNOWN]
    if not others:
        return (), None, parts
    at = others[0]
    return (parts[:at], parts[at], parts[at + 1 :]) if len(others) == 1 else ((), spec, ())
