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

import re
from collections.abc import Sequence
from dataclasses import dataclass

from imlp.errors import SpecError
from imlp.spec import Chain, Conv, Patchify, Shape, Shared, Spec, Transpose

PAPER = {"W_F": "appendix A", "P": "appendix B.1.1", "T": "appendix B.1.2", "W~": "appendix B.2"}
SYMBOLS = {Conv: "W_F", Patchify: "P", Transpose: "T", Shared: "W~"}

NAME = re.compile(r"[A-Za-z]\w*'*")
AXES = {
    2: ("row", "column"),
    3: ("channel", "row", "column"),
    5: ("patch row", "patch column", "channel", "row", "column"),
}


@dataclass(frozen=True)
class DerivationStep:
    """`name = formula = numbers = value`, a line of the construction of `part` (a key of `PAPER`)."""

    part: str
    name: str
    meaning: str
    formula: str
    numbers: str
    value: int


Steps = list[DerivationStep]


@dataclass(frozen=True)
class Derivation:
    """Entry `(i, j)`. `tap` is where in the weight its number stands: `()` for the one of a permutation, None for zero.

    `output` and `input` are the places that `i` and `j` stand for, in `out_shape` and `in_shape`.
    """

    i: int
    j: int
    output: Shape
    input: Shape
    steps: tuple[DerivationStep, ...]
    tap: Shape | None
    conclusion: str


def explain(spec: Spec, i: int, j: int) -> Derivation:
    """How entry `(i, j)` of the matrix of `spec` comes about."""
    for what, index, size in zip(("row", "column"), (i, j), spec.matrix_shape, strict=True):
        if not 0 <= index < size:
            raise SpecError(f"the matrix has no {what} {index}", f"give a {what} from 0 to {size - 1}")
    steps: Steps = []
    before, core, after = _parts(spec)
    row, column, name_i, name_j = i, j, "i", "j"
    for part in reversed(after):
        row, name_i = _source(part, row, name_i, steps), name_i + "'"
    for part in before:
        column, name_j = _target(part, column, name_j, steps), name_j + "'"
    match core:
        case Conv():
            tap, conclusion = _conv(core, row, column, name_i, name_j, steps)
        case Shared():
            tap, conclusion = _shared(core, row, column, name_i, name_j, steps)
        case _:
            tap = () if row == j else None
            conclusion = f"1, for {name_i} = j = {j}" if row == j else f"0, for {name_i} = {row} is not j = {j}"
    output, input = unravel(i, out_shape(spec)), unravel(j, in_shape(spec))
    return Derivation(i, j, output, input, tuple(steps), tap, conclusion)


def columns(spec: Spec, i: int) -> list[int]:
    """The columns of row `i` that can differ from zero, in the order of the weight's numbers.

    >>> columns(Transpose(2, 3), 1), columns(Shared(2, 2, 1), 1)
    ([3], [2, 3])
    """
    before, core, after = _parts(spec)
    for part in reversed(after):
        i = _source(part, i, "i", [])
    match core:
        case Conv():
            found = _conv_columns(core, i)
        case Shared():
            r = i // core.out_features
            found = [r * core.in_features + k for k in range(core.in_features)]
        case _:
            found = [i]
    for part in reversed(before):
        found = [_source(part, j, "i", []) for j in found]
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
        return PAPER[SYMBOLS[type(spec)]]
    return "equation 5" if spec.parts[-1].n_parameters else "equation 5; the double dagger of table 3"


def in_shape(spec: Spec) -> Shape:
    """The shape that the flat input stands for."""
    match spec:
        case Conv():
            return spec.in_shape
        case Patchify():
            return spec.channels, spec.height, spec.width
        case Transpose():
            return spec.rows, spec.cols
        case Shared():
            return spec.rows, spec.in_features
        case Chain():
            return in_shape(spec.parts[0])
    return (spec.matrix_shape[1],)


def out_shape(spec: Spec) -> Shape:
    """The shape that the flat output stands for."""
    match spec:
        case Conv():
            return spec.out_shape
        case Patchify():
            return *spec.grid, spec.channels, spec.patch, spec.patch
        case Transpose():
            return spec.cols, spec.rows
        case Shared():
            return spec.rows, spec.out_features
        case Chain():
            return out_shape(spec.parts[-1])
    return (spec.matrix_shape[0],)


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


def _parts(spec: Spec) -> tuple[tuple[Spec, ...], Spec | None, tuple[Spec, ...]]:
    """The permutations before the part with a weight, that part, and those after it; all count as after if none has."""
    parts = spec.parts if isinstance(spec, Chain) else (spec,)
    at = next((n for n, part in enumerate(parts) if part.weight_shape is not None), None)
    return ((), None, parts) if at is None else (parts[:at], parts[at], parts[at + 1 :])


class _Walk:
    """Writes the steps of one part down; `symbols` are the numbers that its formulas name."""

    def __init__(self, part: str, steps: Steps, symbols: dict[str, int]):
        self.part, self.steps, self.symbols = part, steps, symbols

    def __call__(self, name: str, meaning: str, formula: str, value: int) -> int:
        numbers = NAME.sub(lambda found: str(self.symbols[found[0]]), formula)
        self.steps.append(DerivationStep(self.part, name, meaning, formula, numbers, value))
        self.symbols[name] = value
        return value


def _source(spec: Spec, i: int, name: str, steps: Steps) -> int:
    """Where row `i` of a permutation has its one; `name` is what the formulas call the row."""
    if isinstance(spec, Transpose):
        return _transposed("row", spec.rows, spec.cols, i, name, steps)
    assert isinstance(spec, Patchify)
    c, H, W, P, w = spec.channels, spec.height, spec.width, spec.patch, spec.grid[1]
    walk = _Walk("P", steps, {name: i, "c": c, "H": H, "W": W, "P": P, "w": w})
    if c == 1:
        patch, channel = walk("patch", "patch number", f"{name} // P^2", i // P**2), 0
    else:
        patch = walk("patch", "patch number", f"{name} // (c * P^2)", i // (c * P**2))
        channel = walk("channel", "channel", f"{name} // P^2 % c", i // P**2 % c)
    R = walk("R", "row of the patch", "patch // w", patch // w)
    C = walk("C", "column of the patch", "patch % w", patch % w)
    q = walk("q", "pixel number in the patch", f"{name} % P^2", i % P**2)
    r = walk("r", "row in the patch", "q // P", q // P)
    s = walk("s", "column in the patch", "q % P", q % P)
    formula = "(R * P + r) * W + (C * P + s)" if c == 1 else "channel * H * W + (R * P + r) * W + (C * P + s)"
    j = channel * H * W + (R * P + r) * W + (C * P + s)
    return walk(name + "'", f"row {name} has its one in this column", formula, j)


def _target(spec: Spec, j: int, name: str, steps: Steps) -> int:
    """Which row of a permutation has its one in column `j`: `_source` the other way round."""
    if isinstance(spec, Transpose):
        return _transposed("column", spec.cols, spec.rows, j, name, steps)
    assert isinstance(spec, Patchify)
    c, H, W, P, w = spec.channels, spec.height, spec.width, spec.patch, spec.grid[1]
    walk = _Walk("P", steps, {name: j, "c": c, "H": H, "W": W, "P": P, "w": w})
    channel = 0 if c == 1 else walk("channel", "channel", f"{name} // (H * W)", j // (H * W))
    k = walk("k", "row of the pixel", f"{name} // W % H", j // W % H)
    l = walk("l", "column of the pixel", f"{name} % W", j % W)  # noqa: E741 (the paper's letter)
    R = walk("R", "row of the patch", "k // P", k // P)
    C = walk("C", "column of the patch", "l // P", l // P)
    r = walk("r", "row in the patch", "k % P", k % P)
    s = walk("s", "column in the patch", "l % P", l % P)
    formula = "(R * w + C) * P^2 + r * P + s" if c == 1 else "((R * w + C) * c + channel) * P^2 + r * P + s"
    i = ((R * w + C) * c + channel) * P**2 + r * P + s
    return walk(name + "'", f"column {name} has its one in this row", formula, i)


def _transposed(what: str, H: int, W: int, k: int, name: str, steps: Steps) -> int:
    """`pi(k)` of an `H x W` matrix; the other way round, from columns to rows, it is that of the `W x H` one."""
    height, width = ("H", "W") if what == "row" else ("W", "H")
    walk = _Walk("T", steps, {name: k, height: H, width: W})
    meaning = f"{what} {name} has its one in this {'column' if what == 'row' else 'row'}"
    last = H * W - 1
    if k == last:
        return walk(name + "'", f"{meaning}: the last in the last", "H * W - 1", last)
    return walk(name + "'", meaning, f"{width} * {name} % (H * W - 1)", W * k % last)


def _shared(spec: Shared, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    C_in, C_out = spec.in_features, spec.out_features
    walk = _Walk("W~", steps, {name_i: i, name_j: j, "C_in": C_in, "C_out": C_out})
    r = walk("r", "block of the output", f"{name_i} // C_out", i // C_out)
    o = walk("o", "output of the small layer", f"{name_i} % C_out", i % C_out)
    r_in = walk("r'", "block of the input", f"{name_j} // C_in", j // C_in)
    k = walk("k", "input of the small layer", f"{name_j} % C_in", j % C_in)
    if r != r_in:
        return None, f"0, for block r = {r} reads its own inputs only, not those of r' = {r_in}"
    return (o, k), f"w[o, k] = w[{o}, {k}]"


def _conv(spec: Conv, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), groups = spec.in_shape, spec.out_shape, spec.groups
    symbols = {name_i: i, name_j: j, "c_in": c_in, "h_in": h_in, "w_in": w_in, "c_out": c_out, "h_out": h_out}
    walk = _Walk("W_F", steps, {**symbols, "w_out": w_out, "groups": groups})
    o = walk("o", "output channel", f"{name_i} // (h_out * w_out)", i // (h_out * w_out))
    y = walk("y", "output row", f"{name_i} // w_out % h_out", i // w_out % h_out)
    x = walk("x", "output column", f"{name_i} % w_out", i % w_out)
    c = walk("c", "input channel", f"{name_j} // (h_in * w_in)", j // (h_in * w_in))
    v = walk("v", "input row", f"{name_j} // w_in % h_in", j // w_in % h_in)
    u = walk("u", "input column", f"{name_j} % w_in", j % w_in)
    q, name_q = c, "c"
    if groups > 1:
        each, name_q = c_in // groups, "q"
        g = walk("g", "group of the output channel", "o // (c_out // groups)", o // (c_out // groups))
        q = walk("q", "input channel within the group", "c - g * (c_in // groups)", c - g * each)
        if not 0 <= q < each:
            return None, f"0, for input channel c = {c} is not in group g = {g}"
    tap = []
    for axis, (name, place, pixel, word) in enumerate((("a", "y", "v", "row"), ("b", "x", "u", "column"))):
        k, s, p, d = (pair[axis] for pair in (spec.kernels, spec.strides, spec.paddings, spec.dilations))
        t = f"t_{place}"
        walk.symbols |= {f"s_{place}": s, f"p_{place}": p, f"d_{place}": d}
        offset = (v, u)[axis] + p - (y, x)[axis] * s
        walk(t, f"{word}s from the window's edge", f"{pixel} + p_{place} - {place} * s_{place}", offset)
        if offset % d:
            return None, f"0, for {t} = {offset} is not a multiple of the dilation {d}: the pixel is between two taps"
        tap.append(walk(name, f"{word} of the tap", f"{t} // d_{place}", offset // d))
        if not 0 <= tap[-1] < k:
            return None, f"0, for {name} = {tap[-1]} is not a {word} of the kernel, 0 to {k - 1}"
    return (o, q, *tap), f"F[o, {name_q}, a, b] = F[{o}, {q}, {tap[0]}, {tap[1]}]"


def _conv_columns(spec: Conv, i: int) -> list[int]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), groups = spec.in_shape, spec.out_shape, spec.groups
    o, y, x = unravel(i, (c_out, h_out, w_out))
    first = o // (c_out // groups) * (c_in // groups)
    rows, across = (
        [pixel for tap in range(spec.kernels[axis]) if 0 <= (pixel := spec.pixel(axis, place, tap)) < size]
        for axis, (place, size) in enumerate(((y, h_in), (x, w_in)))
    )
    return [(c * h_in + v) * w_in + u for c in range(first, first + c_in // groups) for v in rows for u in across]
