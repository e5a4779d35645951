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


def source(spec: Spec, i: int, name: str, steps: Steps) -> int:
    """Where row `i` of a permutation has its one; `name` is what the formulas call the row."""
    if isinstance(spec, Transpose):
        return _transposed("row", spec.rows, spec.cols, i, name, steps)
    assert isinstance(spec, Patchify)
    c, H, W, P, w = spec.channels, spec.height, spec.width, spec.patch, spec.grid[1]
    walk = Walk("P", steps, {name: i, "c": c, "H": H, "W": W, "P": P, "w": w})
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


def target(spec: Spec, j: int, name: str, steps: Steps) -> int:
    """Which row of a permutation has its one in column `j`: `source` the other way round."""
    if isinstance(spec, Transpose):
        return _transposed("column", spec.cols, spec.rows, j, name, steps)
    assert isinstance(spec, Patchify)
    c, H, W, P, w = spec.channels, spec.height, spec.width, spec.patch, spec.grid[1]
    walk = Walk("P", steps, {name: j, "c": c, "H": H, "W": W, "P": P, "w": w})
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
    walk = Walk("T", steps, {name: k, height: H, width: W})
    meaning = f"{what} {name} has its one in this {'column' if what == 'row' else 'row'}"
    last = H * W - 1
    if k == last:
        return walk(name + "'", f"{meaning}: the last in the last", "H * W - 1", last)
    return walk(name + "'", meaning, f"{width} * {name} % (H * W - 1)", W * k % last)


def shared(spec: Shared, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    C_in, C_out = spec.in_features, spec.out_features
    walk = Walk("W~", steps, {name_i: i, name_j: j, "C_in": C_in, "C_out": C_out})
    r = walk("r", "block of the output", f"{name_i} // C_out", i // C_out)
    o = walk("o", "output of the small layer", f"{name_i} % C_out", i % C_out)
    r_in = walk("r'", "block of the input", f"{name_j} // C_in", j // C_in)
    k = walk("k", "input of the small layer", f"{name_j} % C_in", j % C_in)
    if r != r_in:
        return None, f"0, for block r = {r} reads its own inputs only, not those of r' = {r_in}"
    return (o, k), f"w[o, k] = w[{o}, {k}]"


def window(spec: Window, i: int, j: int, name_i: str, name_j: str, steps: Steps) -> tuple[Shape | None, str]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), groups = spec.in_shape, spec.out_shape, spec.groups
    symbols = {name_i: i, name_j: j, "c_in": c_in, "h_in": h_in, "w_in": w_in, "c_out": c_out, "h_out": h_out}
    own_kernels = isinstance(spec, Local)
    walk = Walk("W_L" if own_kernels else "W_F", steps, {**symbols, "w_out": w_out, "groups": groups})
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
    if not own_kernels:
        return (o, q, *tap), f"F[o, {name_q}, a, b] = F[{o}, {q}, {tap[0]}, {tap[1]}]"
    p = walk("p", "position, with its own kernel", "y * w_out + x", y * w_out + x)
    return (p, o, q, *tap), f"w[p, o, {name_q}, a, b] = w[{p}, {o}, {q}, {tap[0]}, {tap[1]}]"
