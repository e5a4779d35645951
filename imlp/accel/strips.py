"""A convolution as products with a small matrix, for the geometries where `conv2d` works in vain.

`conv2d` multiplies the padding too (a 3 x 3 kernel on 2 x 2 pixels meets it five times out of nine), and on the CPU
oneDNN fills up blocks of 16 channels. Instead, `rows` rows of the output at a time are one product: the strip of the
image below them, times a matrix `B` that is the same for all strips. One strip with all rows has `W_F` itself for `B`.
The longer of channels and columns comes last inside, so that copies move long runs. The weight is kept with its taps
first in memory (`taps_first`), the order in which `B` is filled.
"""

from collections.abc import Iterator
from itertools import product
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from imlp.spec import Conv, Spec

NATIVE = 1.75  # conv2d's time for a multiplication, in that of a product, on images of a few thousand pixels
FILL = 0.9  # the time to fill an entry of `B` and to add up its gradient, in multiplications for each of 128 images


def rows_at_once(spec: Spec, device: torch.device) -> int | None:
    """How many output rows to do in one product; None where `conv2d` has less work.

    >>> from imlp import networks
    >>> [rows_at_once(layer.spec, torch.device("cpu")) for layer in networks.cnn().layers]
    [1, 1, 1, None, None, 2]
    """
    if not isinstance(spec, Conv) or spec.groups > 1:
        return None
    (c, _, w), (o, h_out, w_out) = spec.in_shape, spec.out_shape
    B = {1: (o * w_out, spec.reach[0] * w * c), h_out: spec.matrix_shape}  # the shape of `B` by rows
    work: dict[int | None, float] = {rows: (h_out // rows + FILL) * prod(shape) for rows, shape in B.items()}
    if device.type == "cpu":
        c, o = (-(-channels // 16) * 16 for channels in (c, o))
    work[None] = (NATIVE if device.type == "cpu" else 1) * prod(spec.kernels) * h_out * w_out * c * o
    return min(work, key=lambda rows: work[rows])


def taps_first(weight: Tensor) -> Tensor:
    """The same weight `(o, c, k_y, k_x)`, stored as `(k_y, k_x, o, c)`."""
    return weight.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)


class Strips:
    """The convolution `spec` in strips of `rows` output rows: `forward`, then `backward`, and again in the next step.

    It keeps `B`, whose zeros stay where they are.
    """

    def __init__(self, spec: Conv, rows: int, like: Tensor):
        (self.c, self.h, self.w), (self.o, self.h_out, self.w_out) = spec.in_shape, spec.out_shape
        whole = rows == self.h_out
        self.spec, self.rows, self.n = spec, rows, self.h_out // rows
        self.above = 0 if whole else spec.paddings[0]  # a single strip needs no padding: it has just the image
        self.height = self.h if whole else spec.reach[0]
        self.channels_last = self.c > self.w
        row = (self.w, self.c) if self.channels_last else (self.c, self.w)
        self.B = like.new_zeros((rows, self.w_out, self.o, self.height, *row))

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        for i, j, places in self._places(self.B):
            places.copy_(w[:, :, i, j].expand_as(places))
        self.X = self._cut(x)
        Y = torch.addmm(b.repeat(self.rows * self.w_out), self.X, self.B.view(-1, self.X.shape[1]).T)
        return Y.view(-1, self.h_out * self.w_out, self.o).transpose(1, 2).reshape(len(x), -1)

    def backward(self, dy: Tensor, first: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """`dw`, `db`, `dx`."""
        pixels = dy.view(-1, self.o, self.h_out * self.w_out)
        B = self.B.view(-1, self.X.shape[1])
        dY = pixels.transpose(1, 2).reshape(-1, len(B))  # (N n, rows w_out o)
        dB = torch.mm(dY.T, self.X).view(self.B.shape)
        dw = dy.new_zeros((*self.spec.kernels, self.o, self.c))  # taps first, as the weight
        for i, j, places in self._places(dB):
            torch.sum(places, (0, 1), out=dw[i, j])
        dx = None if first else self._paste(torch.mm(dY, B), len(dy))
        return dw.permute(2, 3, 0, 1), dY.sum(0).view(-1, self.o).sum(0), dx

    def _places(self, B: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """For each tap the entries of `B` that it fills, `(y, x, o, c)`, as a view."""
        spec, (y_, x_, o_, v_, *row) = self.spec, B.stride()
        u_, c_ = row if self.channels_last else reversed(row)
        (k_y, k_x), (s_y, s_x), (d_y, d_x), (p_y, p_x) = spec.kernels, spec.strides, spec.dilations, spec.paddings
        p_y -= self.above
        for i, j in product(range(k_y), range(k_x)):
            ys = spec.outputs_reached(0, i) if self.rows == self.h_out else range(self.rows)
            xs = spec.outputs_reached(1, j)
            if ys and xs:
                v, u = ys[0] * s_y + i * d_y - p_y, xs[0] * s_x + j * d_x - p_x
                steps = (y_ + s_y * v_, x_ + s_x * u_, o_, c_)
                start = ys[0] * y_ + xs[0] * x_ + v * v_ + u * u_
                yield i, j, B.as_strided((len(ys), len(xs), self.o, self.c), steps, start)

    def _cut(self, x: Tensor) -> Tensor:
        """The strips of a batch, `(N n, height w c)`."""
        images = x.view(-1, self.c, self.h, self.w)
        images = functional.pad(images, (0, 0, self.above, self.above)) if self.above else images
        N_, c_, v_, u_ = images.stride()
        row = (u_, c_) if self.channels_last else (c_, u_)
        sizes, steps = (len(x), self.n, *self.B.shape[3:]), (N_, self._step * v_, v_, *row)
        return images.as_strided(sizes, steps).reshape(len(x) * self.n, -1)

    def _paste(self, strips: Tensor, N: int) -> Tensor:
        """The adjoint of `_cut`: strips that overlap add up."""
        strips = strips.view(N, self.n, *self.B.shape[3:])
        strips = strips.permute(0, 4, 1, 2, 3) if self.channels_last else strips.permute(0, 3, 1, 2, 4)
        if self.n == 1 and not self.above:
            return strips.reshape(N, -1)
        images = strips.new_zeros((N, self.c, self.h + 2 * self.above, self.w))
        for row in range(self.height):  # strips: (N, c, n, height, w)
            images[:, :, row : row + self._step * (self.n - 1) + 1 : self._step] += strips[:, :, :, row]
        return images[:, :, self.above : self.above + self.h].reshape(N, -1)

    @property
    def _step(self) -> int:
        """From one strip to the next."""
        return self.rows * self.spec.strides[0]
