"""Where a permutation has its ones."""

from imlp.look.explain.steps import Steps, Walk
from imlp.spec import Patchify, Spec, Transpose

KNOWN = (Patchify, Transpose)


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
