"""The shift meter: does what a layer or a network makes of a picture move with the picture?

For a layer `f` on a grid, `|f(T x) - T f(x)| / |T f(x)|`, where `T` moves pictures by one pixel (by the layer's stride
at its input) and zeros come in. It is 0 for a convolution, and about `sqrt(2)` for a layer whose outputs have nothing
to do with each other. Arrays may be those of either backend.
"""

from collections.abc import Callable
from typing import Any

from imlp.spec.window import Window

DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # down, up, right, left


def shifted(x: Any, down: int, right: int) -> Any:
    """Pictures `(..., h, w)` moved by this many pixels, with zeros coming in."""
    moved, sizes = 0 * x, x.shape[-2:]
    to, of = (
        [slice(max(0, n), max(0, size + n)) for n, size in zip(by, sizes, strict=True)]
        for by in ((down, right), (-down, -right))
    )
    moved[(..., *to)] = x[(..., *of)]
    return moved


def comparable(spec: Window, axis: int, step: int) -> range:
    """The output positions along an axis whose window still holds all that it held one position (`step`) earlier.

    What a shift moves over the edge is lost, and a window that would reach it there sees padding instead.

    >>> from imlp.spec import Conv
    >>> comparable(Conv((1, 8, 8), 1, kernel=3, padding=1), 0, 1)
    range(1, 7)
    """
    n, size, last = spec.out_shape[1 + axis], spec.in_shape[1 + axis], spec.kernel[axis] - 1
    inside = [i for i in range(n) if 0 <= i - step < n]
    if step > 0:
        inside = [i for i in inside if spec.pixel(axis, i, last) < size]
    if step < 0:
        inside = [i for i in inside if spec.pixel(axis, i, 0) >= 0]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def squares(spec: Window, x: Any, y: Any, layer: Callable[[Any], Any]) -> tuple[float, float]:
    """The sums of `(f(T x) - T f(x))^2` and `(T f(x))^2` over all directions and comparable outputs.

    `y (N, M_out)` is what the layer makes of `x (N, M_in)`. Both are 0 if the grid is too small to compare anything.
    """
    error = scale = 0.0
    pictures, outputs = x.reshape(len(x), *spec.in_shape), y.reshape(len(x), *spec.out_shape)
    for direction in DIRECTIONS:
        spans = [comparable(spec, axis, step) for axis, step in enumerate(direction)]
        if not all(spans):
            continue
        steps = [step * stride for step, stride in zip(direction, spec.stride, strict=True)]
        moved = layer(shifted(pictures, *steps).reshape(len(x), -1)).reshape(outputs.shape)
        here = moved[(..., *(slice(span.start, span.stop) for span in spans))]
        before = [slice(span.start - step, span.stop - step) for span, step in zip(spans, direction, strict=True)]
        error += float(((here - outputs[(..., *before)]) ** 2).sum())
        scale += float((outputs[(..., *before)] ** 2).sum())
    return error, scale
