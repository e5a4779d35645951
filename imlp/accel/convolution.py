"""A convolution: `conv2d`, and one diagonal of `W` for each kernel tap.

Tap `(i, j)` fills `W[(o, y, x), (c, y s + i d - p, x s + j d - p)]`: a step in `y` or `x` moves row and column at once,
so that each tap is a strided diagonal of `(o, y, x, c, v, u)`, cut off where it would leave the image.
"""

from itertools import product

from torch import Tensor
from torch.nn import functional

from imlp.accel.diagonals import Axis, Diagonal
from imlp.spec import Conv


def apply(spec: Conv, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    images = x.view(-1, *spec.in_shape)  # (N, c, h_in, w_in)
    y = functional.conv2d(images, weight, bias, spec.strides, spec.paddings, spec.dilations, spec.groups)
    return y.flatten(1)


def diagonals(spec: Conv) -> list[Diagonal]:
    (c_in, h_in, w_in), (c_out, h_out, w_out), g = spec.in_shape, spec.out_shape, spec.groups
    (k_y, k_x), (s_y, s_x), (p_y, p_x), (d_y, d_x) = spec.kernels, spec.strides, spec.paddings, spec.dilations
    taps, c_group, o_group = k_y * k_x, c_in // g, c_out // g
    channels = (
        Axis(g, o_group * c_group * taps, o_group * h_out * w_out, c_group * h_in * w_in),
        Axis(o_group, c_group * taps, h_out * w_out, 0),
        Axis(c_group, taps, 0, h_in * w_in),
    )
    found = []
    for i, j in product(range(k_y), range(k_x)):
        ys, xs = spec.outputs_reached(0, i), spec.outputs_reached(1, j)
        if ys and xs:
            v, u = ys[0] * s_y + i * d_y - p_y, xs[0] * s_x + j * d_x - p_x  # the first pixel that the tap meets
            places = (Axis(len(ys), 0, w_out, s_y * w_in), Axis(len(xs), 0, 1, s_x))
            found.append(Diagonal(channels + places, i * k_x + j, ys[0] * w_out + xs[0], v * w_in + u))
    return found
