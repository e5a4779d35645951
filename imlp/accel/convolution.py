"""A convolution: `conv2d`, and a few diagonals of `W`.

Kernel tap `(i, j)` fills `W[(o, y, x), (c, y s + i d - p, x s + j d - p)]`: a step in `y` or `x` moves row and column
at once, so that each tap is a strided diagonal of `(o, y, x, c, v, u)`, cut off where it would leave the image.
Outputs that meet the same kernel rows can share one diagonal with an axis over those rows. That pays for a middling
number of channels; with fewer, or with so many that a loop over them is long, a diagonal for each tap is faster.
"""

from itertools import groupby, product

from torch import Tensor
from torch.nn import functional

from imlp.accel.diagonals import Axis, Diagonal
from imlp.spec import Conv, Window

JOINED = range(8, 128)  # numbers of input channels for which kernel rows are joined


def apply(spec: Conv, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    images = x.view(-1, *spec.in_shape)  # (N, c, h_in, w_in)
    y = functional.conv2d(images, weight, bias, spec.stride, spec.padding, spec.dilation, spec.groups)
    return y.flatten(1)


def diagonals(spec: Window, size: int = 0) -> list[Diagonal]:
    """Those of a convolution, or with kernels of `size` numbers each that follow one another from place to place."""
    (c_in, h_in, w_in), (c_out, h_out, w_out), g = spec.in_shape, spec.out_shape, spec.groups
    (k_y, k_x), (s_y, s_x), d_y = spec.kernel, spec.stride, spec.dilation[0]
    taps, c_group, o_group = k_y * k_x, c_in // g, c_out // g
    channels = (
        Axis(g, o_group * c_group * taps, o_group * h_out * w_out, c_group * h_in * w_in),
        Axis(o_group, c_group * taps, h_out * w_out, 0),
        Axis(c_group, taps, 0, h_in * w_in),
    )
    rows = _runs(spec) if c_group in JOINED else _taps(spec, 0)
    every = []
    for (i_s, ys), (j_s, xs) in product(rows, _taps(spec, 1)):
        i, j, y, x = i_s[0], j_s[0], ys[0], xs[0]
        v, u = spec.pixel(0, y, i), spec.pixel(1, x, j)  # the pixel that the first tap meets first
        kernel = Axis(len(i_s), k_x, 0, d_y * w_in)
        places = (Axis(len(ys), size * w_out, w_out, s_y * w_in), Axis(len(xs), size, 1, s_x))
        number = size * (y * w_out + x) + i * k_x + j
        every.append(Diagonal((*channels, kernel, *places), number, y * w_out + x, v * w_in + u))
    return every


def _taps(spec: Window, axis: int) -> list[tuple[range, range]]:
    return [(range(t, t + 1), met) for t in range(spec.kernel[axis]) if (met := spec.outputs_reached(axis, t))]


def _runs(spec: Window) -> list[tuple[range, range]]:
    """Runs of output rows that meet the same kernel rows, with those; or `_taps`, if they are fewer."""
    by_tap = _taps(spec, 0)

    def taps(y: int) -> tuple[int, ...]:
        return tuple(i_s[0] for i_s, ys in by_tap if y in ys)

    by_run = []
    for met, run in groupby(range(spec.out_shape[1]), key=taps):
        first, *rest = run
        if met:
            by_run.append((range(met[0], met[-1] + 1), range(first, first + len(rest) + 1)))
    return min(by_tap, by_run, key=len)
