"""How an entry is derived: the indices of each part, step by step, as formulas with their numbers filled in."""

import re
from dataclasses import dataclass

from imlp.spec import Local, Patchify, Shape, Shared, Spec, Transpose, Window

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
    parameter: str
    place: Shape
    constant: float

    def __str__(self) -> str:
        number = f"{self.parameter}[{', '.join(map(str, self.place))}]"
        return number if self.constant == 1 else f"{self.constant:.6g} * {number}"


class Walk:
    """Writes the steps of one part down; `symbols` are the numbers that its formulas name, earlier steps too."""

    def __init__(self, part: str, steps: Steps, symbols: dict[str, int]):
        self.part, self.steps, self.symbols = part, steps, symbols

    def __call__(self, name: str, meaning: str, formula: str) -> int:
        numbers = NAME.sub(lambda found: str(self.symbols[found[0]]), formula)
        value = self.symbols[name] = int(eval(numbers.replace("^", "**")))
        self.steps.append(DerivationStep(self.part, name, meaning, formula, numbers, value))
        return value


def source(spec: Spec, i: int, name: str, steps: Steps) -> int:
    """Where row `i` of a permutation has its one; `name` is what the formulas call the row."""
    if isinstance(spec, Transpose):
        return _transposed("row", spec.rows, spec.cols, i, name, steps)
    walk, channels = _patches(spec, i, name, steps)
    walk("patch", "patch number", f"{name} // (c * P^2)" if channels else f"{name} // P^2")
    if channels:
        walk("channel", "channel", f"{name} // P^2 % c")
    walk("R", "row of the patch", "patch // w")
    walk("C", "column of the patch", "patch % w")
    walk("q", "pixel number in the patch", f"{name} % P^2")
    walk("r", "row in the patch", "q // P")
    walk("s", "column in the patch", "q % P")
    formula = "channel * H * W + " * channels + "(R * P + r) * W + (C * P + s)"
    return walk(name + "'", f"row {name} has its one in this column", formula)


def target(spec: Spec, j: int, name: str, steps: Steps) -> int:
    """Which row of a permutation has its one in column `j`: `source` the other way round."""
    if isinstance(spec, Transpose):
        return _transposed("column", spec.cols, spec.rows, j, name, steps)
    walk, channels = _patches(spec, j, name, steps)
    if channels:
        walk("channel", "channel", f"{name} // (H * W)")
    walk("k", "row of the pixel", f"{name} // W % H")
    walk("l", "column of the pixel", f"{name} % W")
    walk("R", "row of the patch", "k // P")
    walk("C", "column of the patch", "l // P")
    walk("r", "row in the patch", "k % P")
    walk("s", "column in the patch", "l % P")
    patch = "((R * w + C) * c + channel)" if channels else "(R * w + C)"
    return walk(name + "'", f"column {name} has its one in this row", f"{patch} * P^2 + r * P + s")


def _patches(spec: Spec, index: int, name: str, steps: Steps) -> tuple[Walk, bool]:
    assert isinstance(spec, Patchify)
    c, H, W, P, w = spec.channels, spec.height, spec.width, spec.patch, spec.grid[1]
    return Walk("P", steps, {name: index, "c": c, "H": H, "W": W, "P": P, "w": w}), c > 1


def _transposed(what: str, H: int, W: int, k: int, name: str, steps: Steps) -> int:
    """`pi(k)` of an `H x W` matrix; its inverse, from columns to rows, is that of the `W x H` matrix."""
    height, width, other = ("H", "W", "column") if what == "row" else ("W", "H", "row")
    walk = Walk("T", steps, {name: k, height: H, width: W})
    meaning = f"{what} {name} has its one in this {other}"
    if k == H * W - 1:
        return walk(name + "'", f"{meaning}: the last in the last", "H * W - 1")
    return walk(name + "'", meaning, f"{width} * {name} % (H * W - 1)")


def shared(spec: Shared, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    walk = Walk("W~", steps, {name_i: i, name_j: j, "C_in": spec.in_features, "C_out": spec.out_features})
    r = walk("r", "block of the output", f"{name_i} // C_out")
    o = walk("o", "output of the small layer", f"{name_i} % C_out")
    r_in = walk("r'", "block of the input", f"{name_j} // C_in")
    k = walk("k", "input of the small layer", f"{name_j} % C_in")
    if r != r_in:
        return None, f"0, for block r = {r} reads its own inputs only, not those of r' = {r_in}"
    return (o, k), f"w[o, k] = w[{o}, {k}]"


def window(spec: Window, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), groups = spec.in_shape, spec.out_shape, spec.groups
    symbols = {name_i: i, name_j: j, "c_in": c_in, "h_in": h_in, "w_in": w_in, "c_out": c_out, "h_out": h_out}
    own_kernels = isinstance(spec, Local)
    walk = Walk("W_L" if own_kernels else "W_F", steps, {**symbols, "w_out": w_out, "groups": groups})
    o = walk("o", "output channel", f"{name_i} // (h_out * w_out)")
    walk("y", "output row", f"{name_i} // w_out % h_out")
    walk("x", "output column", f"{name_i} % w_out")
    q = c = walk("c", "input channel", f"{name_j} // (h_in * w_in)")
    walk("v", "input row", f"{name_j} // w_in % h_in")
    walk("u", "input column", f"{name_j} % w_in")
    if groups > 1:
        g = walk("g", "group of the output channel", "o // (c_out // groups)")
        q = walk("q", "input channel within the group", "c - g * (c_in // groups)")
        if not 0 <= q < c_in // groups:
            return None, f"0, for input channel c = {c} is not in group g = {g}"
    tap = []
    for axis, (name, place, pixel, word) in enumerate((("a", "y", "v", "row"), ("b", "x", "u", "column"))):
        k, s, p, d = (pair[axis] for pair in (spec.kernel, spec.stride, spec.padding, spec.dilation))
        walk.symbols |= {f"s_{place}": s, f"p_{place}": p, f"d_{place}": d}
        t = f"t_{place}"
        offset = walk(t, f"{word}s from the window's edge", f"{pixel} + p_{place} - {place} * s_{place}")
        if offset % d:
            return None, f"0, for {t} = {offset} is not a multiple of the dilation {d}: the pixel is between two taps"
        tap.append(walk(name, f"{word} of the tap", f"{t} // d_{place}"))
        if not 0 <= tap[-1] < k:
            return None, f"0, for {name} = {tap[-1]} is not a {word} of the kernel, 0 to {k - 1}"
    name_q = "q" if groups > 1 else "c"
    if not own_kernels:
        return (o, q, *tap), f"F[o, {name_q}, a, b] = F[{o}, {q}, {tap[0]}, {tap[1]}]"
    position = walk("p", "position, with its own kernel", "y * w_out + x")
    return (position, o, q, *tap), f"w[p, o, {name_q}, a, b] = w[{position}, {o}, {q}, {tap[0]}, {tap[1]}]"
