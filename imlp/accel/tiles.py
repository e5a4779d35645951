"""A convolution as one matrix product, for the geometries where `conv2d` is far from the speed of a product.

`conv2d` multiplies the padding too (a 3 x 3 kernel on 2 x 2 pixels meets it five times out of nine), and on the CPU it
is slow on small images and few channels. Instead, the output is cut into tiles of `(rows, columns)`: the part of the
image below each, times a matrix `B` that is the same for all tiles. A tile of one pixel has the kernel itself for `B`
("im2col"); a tile of one row has fewer copies to make; a single tile has `W_F`, without any padding.
"""

from collections.abc import Iterator
from itertools import product
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from imlp.spec import Conv, Pair, Spec

COPY = 60  # multiplications that one core does while it copies one number of an image; measured with MKL, AVX-512
NATIVE = 2.5  # how much slower conv2d multiplies than a product there
LARGEST = 64 * 64  # pixels; beyond this conv2d is at its best, and the copies would fill the memory


def best_tile(spec: Spec, device: torch.device) -> Pair | None:
    """The tile with the least work for an output pixel; None where `conv2d` has less.

    >>> from imlp import networks
    >>> [best_tile(layer.spec, torch.device("cpu")) for layer in networks.cnn().layers]
    [(1, 32), (1, 1), (1, 1), (1, 1), (1, 1), (2, 2)]
    """
    if not isinstance(spec, Conv) or spec.groups > 1:
        return None
    (c, h, w), (o, h_out, w_out), taps = spec.in_shape, spec.out_shape, prod(spec.kernels)
    if device.type != "cpu" or h * w > LARGEST:
        return (h_out, w_out) if h * w < taps else None
    below = {(1, 1): prod(spec.reach), (1, w_out): spec.reach[0] * w, (h_out, w_out): h * w}  # pixels under a tile
    work: dict[Pair | None, float] = {tile: c * pixels * (o + COPY / prod(tile)) for tile, pixels in below.items()}
    c_filled, o_filled = (-(-channels // 16) * 16 for channels in (c, o))  # oneDNN works on blocks of 16
    work[None] = NATIVE * taps * c_filled * o_filled
    return min(work, key=lambda tile: work[tile])


class Tiles:
    """The convolution `spec` in tiles of `(rows, columns)`: `forward`, then `backward`, and again in the next step.

    It keeps `B`, whose zeros stay where they are. On an axis with a single tile that is the whole image, not padded;
    otherwise a tile is one pixel wide and lies over the reach of the kernel.
    """

    def __init__(self, spec: Conv, tile: Pair, like: Tensor):
        self.spec, self.tile = spec, tile
        (self.c, *sizes), (self.o, *outputs) = spec.in_shape, spec.out_shape
        whole = [t == n for t, n in zip(tile, outputs, strict=True)]
        self.padding = [0 if one else p for one, p in zip(whole, spec.paddings, strict=True)]
        self.under = [size if one else reach for one, size, reach in zip(whole, sizes, spec.reach, strict=True)]
        self.counts = [1 if one else n for one, n in zip(whole, outputs, strict=True)]
        self.channels_last = self.c > self.under[1]  # the longer runs, for the copies
        self.B = like.new_zeros((*tile, self.o, *self._ordered(self.c, *self.under)))

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        taps = w.permute(2, 3, 0, 1).contiguous()  # (k_y, k_x, o, c)
        for i, j, places in self._places(self.B):
            places.copy_(taps[i, j].expand_as(places))
        self.X = self._cut(x)  # (N n_y n_x, c v u)
        Y = torch.addmm(b.repeat(prod(self.tile)), self.X, self.B.view(-1, self.X.shape[1]).T)
        Y = Y.view(-1, *self.counts, *self.tile, self.o)
        return Y.permute(0, 5, 1, 3, 2, 4).reshape(len(x), -1)  # (N, o, n_y rows, n_x columns)

    def backward(self, dy: Tensor, first: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """`dw`, `db`, `dx`."""
        (n_y, n_x), (rows, columns), B = self.counts, self.tile, self.B.view(-1, self.X.shape[1])
        dY = dy.view(-1, self.o, n_y, rows, n_x, columns).permute(0, 2, 4, 3, 5, 1).reshape(-1, len(B))
        dB = torch.mm(dY.T, self.X).view(self.B.shape)
        dw = dy.new_zeros((*self.spec.kernels, self.o, self.c))
        for i, j, places in self._places(dB):
            torch.sum(places, (0, 1), out=dw[i, j])
        db = dY.sum(0).view(-1, self.o).sum(0)
        return dw.permute(2, 3, 0, 1).contiguous(), db, None if first else self._paste(torch.mm(dY, B))

    def _ordered(self, c: int, v: int, u: int) -> tuple[int, int, int]:
        return (v, u, c) if self.channels_last else (c, v, u)

    def _places(self, B: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """For each tap the entries of `B` that it fills, `(y, x, o, c)`, as a view."""
        y_, x_, o_, *inner = B.stride()
        v_, u_, c_ = inner if self.channels_last else (*inner[1:], inner[0])
        for i, j in product(*map(range, self.spec.kernels)):
            (ys, v), (xs, u) = self._met(0, i), self._met(1, j)
            if ys and xs:
                steps = (y_ + self.spec.strides[0] * v_, x_ + self.spec.strides[1] * u_, o_, c_)
                start = ys[0] * y_ + xs[0] * x_ + v * v_ + u * u_
                yield i, j, B.as_strided((len(ys), len(xs), self.o, self.c), steps, start)

    def _met(self, axis: int, tap: int) -> tuple[range, int]:
        """The positions within a tile at which the tap meets the image, and the pixel that it meets at the first."""
        if self.counts[axis] > 1:
            return range(1), tap * self.spec.dilations[axis]
        met = self.spec.outputs_reached(axis, tap)
        pixel = tap * self.spec.dilations[axis] - self.spec.paddings[axis]
        return met, met[0] * self.spec.strides[axis] + pixel if met else 0

    def _cut(self, x: Tensor) -> Tensor:
        """What lies under each tile, one in a row."""
        p_y, p_x = self.padding
        images = x.view(-1, *self.spec.in_shape)
        images = functional.pad(images, (p_x, p_x, p_y, p_y)) if p_y or p_x else images
        N_, c_, v_, u_ = images.stride()
        s_y, s_x = self.spec.strides
        sizes = (len(x), *self.counts, *self._ordered(self.c, *self.under))
        return images.as_strided(sizes, (N_, s_y * v_, s_x * u_, *self._ordered(c_, v_, u_))).reshape(
            len(x) * prod(self.counts), -1
        )

    def _paste(self, cut: Tensor) -> Tensor:
        """The adjoint of `_cut`: what overlaps adds up."""
        (n_y, n_x), (p_y, p_x), (s_y, s_x), (_, h, w) = self.counts, self.padding, self.spec.strides, self.spec.in_shape
        cut = cut.view(-1, n_y, n_x, *self._ordered(self.c, *self.under))
        cut = cut.permute(0, 5, 1, 3, 2, 4) if self.channels_last else cut.permute(0, 3, 1, 4, 2, 5)
        lines = _overlap(cut, s_x, w + 2 * p_x)[..., p_x : p_x + w]  # (N, c, n_y, v, n_x, u) to (N, c, n_y, v, w)
        images = _overlap(lines.permute(0, 1, 4, 2, 3), s_y, h + 2 * p_y)[..., p_y : p_y + h]  # (N, c, w, h)
        return images.transpose(2, 3).reshape(len(images), -1)


def _overlap(cut: Tensor, stride: int, size: int) -> Tensor:
    """`(..., n, under)` to `(..., size)`: `n` pieces side by side, `stride` apart."""
    n, under = cut.shape[-2:]
    if n == 1:
        return cut[..., 0, :]
    line = cut.new_zeros((*cut.shape[:-2], size))
    for k in range(under):
        line[..., k : k + stride * (n - 1) + 1 : stride] += cut[..., k]
    return line
