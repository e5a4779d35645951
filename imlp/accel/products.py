"""A convolution as matrix products, for the geometries where `conv2d` wastes work.

`conv2d` multiplies the padding too (a 3 x 3 kernel on 2 x 2 pixels meets it five times out of nine), on the CPU oneDNN
fills up blocks of 16 channels, and a few pixels are too little for it to be quick. There are three ways to do better:
`Strips` of output rows, `Patches` for output pixels, and `Quads` for 2 x 2 pixels. Each does `forward` and then
`backward` (to `dw`, `db`, `dx`), any number of times, with a weight that is `stored` in the layout it needs.
"""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from imlp.spec import Conv, Spec


class Strips:
    """Some rows of the output at a time are one product: the strip of the image below them, times a matrix `B`.

    `B` is the same for all strips; one strip with all rows has `W_F` itself for `B`. It is kept, since its zeros stay
    where they are. The longer of channels and columns comes last inside, so that copies move long runs. The weight is
    stored with its taps first, the order in which `B` is filled.
    """

    @staticmethod
    def stored(weight: Tensor) -> Tensor:
        return weight.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)

    @staticmethod
    def work(spec: Conv) -> tuple[int, float]:
        """How many rows to do at once, one or all; and the multiplications, with 0.9 for filling an entry of `B`."""
        (c, _, w), (o, h_out, w_out) = spec.in_shape, spec.out_shape
        B = {1: (o * w_out, spec.reach[0] * w * c), h_out: spec.matrix_shape}  # the shape of `B` by rows
        work = {rows: (h_out // rows + 0.9) * prod(shape) for rows, shape in B.items()}
        return min(work.items(), key=lambda item: item[1])

    def __init__(self, spec: Conv, like: Tensor, rows: int | None = None):
        rows = rows or self.work(spec)[0]
        (self.c, self.h, self.w), (self.o, self.h_out, self.w_out) = spec.in_shape, spec.out_shape
        whole = rows == self.h_out
        self.spec, self.rows, self.n = spec, rows, self.h_out // rows
        self.above = 0 if whole else spec.padding[0]  # a single strip needs no padding: it has just the image
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
        pixels = dy.view(-1, self.o, self.h_out * self.w_out)
        B = self.B.view(-1, self.X.shape[1])
        dY = pixels.transpose(1, 2).reshape(-1, len(B))  # (N n, rows w_out o)
        dB = torch.mm(dY.T, self.X).view(self.B.shape)
        dw = dy.new_zeros((*self.spec.kernel, self.o, self.c))  # taps first, as the weight
        for i, j, places in self._places(dB):
            torch.sum(places, (0, 1), out=dw[i, j])
        dx = None if first else self._paste(torch.mm(dY, B), len(dy))
        return dw.permute(2, 3, 0, 1), dY.sum(0).view(-1, self.o).sum(0), dx

    def _places(self, B: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """For each tap the entries of `B` that it fills, `(y, x, o, c)`, as a view."""
        spec, (y_, x_, o_, v_, *row) = self.spec, B.stride()
        u_, c_ = row if self.channels_last else reversed(row)
        (k_y, k_x), (s_y, s_x) = spec.kernel, spec.stride
        for i, j in product(range(k_y), range(k_x)):
            ys = spec.outputs_reached(0, i) if self.rows == self.h_out else range(self.rows)
            xs = spec.outputs_reached(1, j)
            if ys and xs:
                v, u = spec.pixel(0, ys[0], i) + self.above, spec.pixel(1, xs[0], j)
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
        return self.rows * self.spec.stride[0]


class Patches:
    """Every pixel of the output is a row of one product: the patch of the image below it, times the kernel.

    Channels come last everywhere, in the weight too.
    """

    @staticmethod
    def stored(weight: Tensor) -> Tensor:
        return weight.contiguous(memory_format=torch.channels_last)

    def __init__(self, spec: Conv, like: Tensor):
        self.spec = spec

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        (p_y, p_x), (s_y, s_x), (d_y, d_x) = self.spec.padding, self.spec.stride, self.spec.dilation
        images = x.view(-1, *self.spec.in_shape).permute(0, 2, 3, 1)
        images = functional.pad(images, (0, 0, p_x, p_x, p_y, p_y)).contiguous()  # (N, h, w, c)
        N_, v_, u_, c_ = images.stride()
        (o, h_out, w_out), steps = self.spec.out_shape, (N_, s_y * v_, s_x * u_, d_y * v_, d_x * u_, c_)
        patches = images.as_strided((len(x), h_out, w_out, *self.spec.kernel, images.shape[3]), steps)
        self.padded = images.shape
        self.X, self.kernel = patches.reshape(len(x) * h_out * w_out, -1), w.permute(0, 2, 3, 1).reshape(o, -1)
        Y = torch.addmm(b, self.X, self.kernel.T)
        return Y.view(len(x), -1, o).transpose(1, 2).reshape(len(x), -1)

    def backward(self, dy: Tensor, first: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        (c, h, w), (o, h_out, w_out), kernels = self.spec.in_shape, self.spec.out_shape, self.spec.kernel
        (p_y, p_x), (s_y, s_x), (d_y, d_x) = self.spec.padding, self.spec.stride, self.spec.dilation
        n_y, n_x = max(1, s_y // d_y), max(1, s_x // d_x)  # this many taps in a row meet different pixels
        dY = dy.view(len(dy), o, -1).transpose(1, 2).reshape(-1, o)  # (N h_out w_out, o)
        dw, db = torch.mm(dY.T, self.X).view(o, *kernels, c).permute(0, 3, 1, 2), dY.sum(0)
        if first:
            return dw, db, None
        patches = torch.mm(dY, self.kernel).view(len(dy), h_out, w_out, *kernels, c)
        images = dy.new_zeros(self.padded)
        N_, v_, u_, c_ = images.stride()
        for i, j in product(range(0, kernels[0], n_y), range(0, kernels[1], n_x)):
            taps = patches[:, :, :, i : i + n_y, j : j + n_x]
            steps = (N_, s_y * v_, s_x * u_, d_y * v_, d_x * u_, c_)
            images.as_strided(taps.shape, steps, i * d_y * v_ + j * d_x * u_).add_(taps)
        return dw, db, images[:, p_y : p_y + h, p_x : p_x + w].permute(0, 3, 1, 2).reshape(len(dy), -1)


class Quads:
    """A 3 x 3 kernel on 2 x 2 pixels, with nine products of channels instead of sixteen.

    Along one axis, `y_0 = k_1 x_0 + k_2 x_1` and `y_1 = k_0 x_0 + k_1 x_1` have four products. Three are enough:

        y_0 = k_1 (x_0 + x_1) + (k_2 - k_1) x_1,    y_1 = k_1 (x_0 + x_1) + (k_0 - k_1) x_0.

    Both axes together are the Kronecker squares of that: sums of pixels, differences of taps, sums of products. The
    weight is stored with its taps first.
    """

    GEOMETRY = ((2, 2), (3, 3), (1, 1), (1, 1), (1, 1))  # pixels, kernel, stride, padding, dilation
    PIXELS = ((1, 0), (1, 1), (0, 1))
    TAPS = ((1, -1, 0), (0, 1, 0), (0, -1, 1))
    PRODUCTS = ((0, 1, 1), (1, 1, 0))

    stored = staticmethod(Strips.stored)

    def __init__(self, spec: Conv, like: Tensor):
        self.o, self.c = spec.weight_shape[:2]
        one_axis = [like.new_tensor(rows) for rows in (self.PIXELS, self.TAPS, self.PRODUCTS)]
        self.pixels, self.taps, self.products = (torch.kron(rows, rows) for rows in one_axis)

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        self.w = torch.mm(self.taps, w.permute(2, 3, 0, 1).reshape(9, -1)).view(9, self.o, self.c)
        self.x = torch.mm(self.pixels, x.view(-1, 4).T).view(9, -1, self.c)
        products = torch.bmm(self.x, self.w.mT)  # (9, N, o)
        y = torch.mm(products.view(9, -1).T, self.products.T).view(-1, self.o, 4)
        return y.add_(b[:, None]).view(len(x), -1)

    def backward(self, dy: Tensor, first: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        dproducts = torch.mm(self.products.T, dy.view(-1, 4).T).view(9, -1, self.o)
        dw = torch.mm(self.taps.T, torch.bmm(dproducts.mT, self.x).view(9, -1)).view(3, 3, self.o, self.c)
        dx = None
        if not first:
            dx = torch.mm(torch.bmm(dproducts, self.w).view(9, -1).T, self.pixels).view(len(dy), -1)
        return dw.permute(2, 3, 0, 1), dy.view(-1, self.o, 4).sum((0, 2)), dx


Products: TypeAlias = type[Strips] | type[Patches] | type[Quads]


def products_for(spec: Spec, device: torch.device) -> Products | None:
    """The class that takes the least time for a layer; None where that is `conv2d`.

    Times are in multiplications of a product for each of 128 images, some 3 ns on two cores of a CPU, and set by hand
    after `benchmarks/convolutions.py`: each begins with a constant, `conv2d` fills up blocks of 16 channels.

    >>> products_for(Conv((256, 2, 2), 256, kernel=3, padding=1), torch.device("cpu")).__name__
    'Quads'
    """
    if type(spec) is not Conv or spec.groups > 1:
        return None
    if (spec.in_shape[1:], spec.kernel, spec.stride, spec.padding, spec.dilation) == Quads.GEOMETRY:
        return Quads
    if device.type != "cpu":
        return None
    (c, _, _), (o, h_out, w_out) = spec.in_shape, spec.out_shape
    outputs, blocks = prod(spec.kernel) * h_out * w_out, -(-c // 16) * -(-o // 16) * 256
    times: dict[Products | None, float] = {
        Strips: 2e5 + 1.2 * Strips.work(spec)[1],
        None: 4e5 + (1.0 if prod(spec.stride) == 1 else 1.5) * outputs * blocks,
    }
    if h_out * w_out <= 16:  # patches of more pixels would take much memory
        times[Patches] = 2e5 + outputs * c * (o + 100)
    return min(times, key=lambda one: times[one])
