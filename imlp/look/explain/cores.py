"""Which number of the weight stands in an entry, for the nouns with parameters that the package has."""

from imlp.look.explain.steps import Steps, Walk, unravel
from imlp.spec import Local, Shape, Shared, Window


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
    p = walk("p", "position, with a kernel of its own", "y * w_out + x", y * w_out + x)
    return (p, o, q, *tap), f"w[p, o, {name_q}, a, b] = w[{p}, {o}, {q}, {tap[0]}, {tap[1]}]"


def shared_columns(spec: Shared, i: int) -> list[int]:
    r = i // spec.out_features
    return [r * spec.in_features + k for k in range(spec.in_features)]


def window_columns(spec: Window, i: int) -> list[int]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), groups = spec.in_shape, spec.out_shape, spec.groups
    o, y, x = unravel(i, (c_out, h_out, w_out))
    first = o // (c_out // groups) * (c_in // groups)
    rows, across = (
        [pixel for tap in range(spec.kernels[axis]) if 0 <= (pixel := spec.pixel(axis, place, tap)) < size]
        for axis, (place, size) in enumerate(((y, h_in), (x, w_in)))
    )
    return [(c * h_in + v) * w_in + u for c in range(first, first + c_in // groups) for v in rows for u in across]
