"""The convolutions of `torch.nn` that `imlp.spec.Conv` does not describe: a noun that says which tap reads which pixel.

On every axis of the image an output position and a tap of the kernel meet one pixel, or none. That is all in which
padding modes, uneven padding, transposed convolutions and the number of axes differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from imlp.spec import Pair, Parameter, Shape, Spec

MODES = ("zeros", "circular", "reflect", "replicate")


@dataclass(frozen=True)
class ConvNd(Spec):
    """A convolution on any number of axes, with `before` pixels of padding before each; `mode` says what is in them.

    With `transposed` it is the transpose of one, and `before` is what it cuts off.

    >>> from imlp import reference
    >>> spec = ConvNd((1, 4), (1, 4), kernel=(3,), stride=(1,), before=(1,), dilation=(1,), mode="circular")
    >>> reference.matrix(spec, [[[1.0, 2.0, 3.0]]]).toarray()
    array([[2., 3., 0., 1.],
           [1., 2., 3., 0.],
           [0., 1., 2., 3.],
           [3., 0., 1., 2.]])
    """

    in_shape: Shape  # (channels, *sizes)
    out_shape: Shape
    kernel: Shape
    stride: Shape
    before: Shape
    dilation: Shape
    groups: int = 1
    mode: str = "zeros"
    transposed: bool = False

    @property
    def matrix_shape(self) -> Pair:
        return prod(self.out_shape), prod(self.in_shape)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        own, other = (self.in_shape[0], self.out_shape[0]) if self.transposed else (self.out_shape[0], self.in_shape[0])
        shape = (own, other // self.groups, *self.kernel)
        return {"weight": Parameter(shape, prod(shape[1:]))}

    @property
    def bias_shape(self) -> Shape:
        return self.out_shape[:1]

    @property
    def bias_index(self) -> np.ndarray:
        return np.repeat(np.arange(self.out_shape[0]), prod(self.out_shape[1:]))

    @property
    def nnz(self) -> int:
        axes = zip(self.in_shape[1:], map(self._axis, range(len(self.kernel))), strict=True)
        pairs = [len(np.unique(output * size + pixel)) for size, (output, _, pixel) in axes]
        return prod(self.parameters["weight"].shape[:2]) * prod(pairs)

    def _axis(self, axis: int) -> tuple[np.ndarray, ...]:
        """Every `(output, tap, pixel)` of an axis of the image."""
        size, n_out = self.in_shape[1 + axis], self.out_shape[1 + axis]
        output, tap = np.indices((n_out, self.kernel[axis])).reshape(2, -1)
        reach, stride = tap * self.dilation[axis] - self.before[axis], self.stride[axis]
        if self.transposed:
            pixel, off = np.divmod(output - reach, stride)
            met = off == 0
        else:
            pixel, met = output * stride + reach, np.ones(len(tap), bool)
        if self.mode == "circular":
            pixel = pixel % size
        elif self.mode == "replicate":
            pixel = pixel.clip(0, size - 1)
        elif self.mode == "reflect":
            pixel = size - 1 - abs(size - 1 - abs(pixel))
        met &= (pixel >= 0) & (pixel < size)
        return output[met], tap[met], pixel[met]

    def fills(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and number of the weight, for all channels and places."""
        own, other = self.parameters["weight"].shape[:2]
        a, b = np.indices((own, other)).reshape(2, -1, 1)
        partner = a // (own // self.groups) * other + b
        output, input = (partner, a) if self.transposed else (a, partner)
        sizes = self.out_shape[1:], self.kernel, self.in_shape[1:]
        places = zip(*map(self._axis, range(len(self.kernel))), strict=True)  # along each axis; together, all pairs
        flat = (np.ravel_multi_index(np.ix_(*own), size).ravel() for own, size in zip(places, sizes, strict=True))
        parts = zip((output, a * other + b, input), sizes, flat, strict=True)
        row, number, column = (channel * prod(size) + place for channel, size, place in parts)
        return row.ravel(), column.ravel(), number.ravel()
