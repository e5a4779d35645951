"""`padding="same"` with an even kernel: PyTorch pads one zero more at the end of an axis than at its beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from imlp import reference
from imlp.spec import Conv, Parameter, Shape, Spec


@dataclass(frozen=True)
class UnevenConv(Spec):
    """A convolution with `before` zeros before each row and column of the image and `after` behind them.

    Its matrix is that of the convolution on the padded image, without the columns of the zeros.

    >>> spec = UnevenConv((1, 2, 2), 1, kernel=(2, 2), before=(0, 0), after=(1, 1))
    >>> reference.matrix(spec, [[[[1.0, 2.0], [3.0, 4.0]]]]).toarray()
    array([[1., 2., 3., 4.],
           [0., 1., 0., 3.],
           [0., 0., 1., 2.],
           [0., 0., 0., 1.]])
    """

    image: Shape  # (channels, height, width)
    out_channels: int
    kernel: Shape
    before: Shape
    after: Shape
    dilation: Shape = (1, 1)
    groups: int = 1

    @property
    def conv(self) -> Conv:
        """The convolution on the padded image."""
        channels, *sizes = self.image
        padded = [sum(each) for each in zip(sizes, self.before, self.after, strict=True)]
        return Conv((channels, *padded), self.out_channels, self.kernel, dilation=self.dilation, groups=self.groups)  # type: ignore[arg-type]

    @property
    def in_shape(self) -> Shape:
        return self.image

    @property
    def out_shape(self) -> Shape:
        return self.conv.out_shape

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return self.conv.matrix_shape[0], prod(self.image)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        return self.conv.parameters

    @property
    def bias_shape(self) -> Shape | None:
        return self.conv.bias_shape

    @property
    def nnz(self) -> int:
        """Counted by axis: a window meets a pixel from where a tap first lies on the image to where it last does."""
        taps = 1
        for size, kernel, before, gap, n_out in zip(
            self.image[1:], self.kernel, self.before, self.dilation, self.out_shape[1:], strict=True
        ):
            shifts = [gap * tap - before for tap in range(kernel)]
            taps *= sum(max(0, min(n_out, size - shift) - max(0, -shift)) for shift in shifts)
        return self.out_channels * (self.image[0] // self.groups) * taps

    @property
    def bias_index(self) -> Sequence[int] | np.ndarray:
        return self.conv.bias_index

    def matrix(self, weight: Any) -> Any:
        columns = np.arange(self.conv.matrix_shape[1]).reshape(self.conv.in_shape)
        (top, left), (_, height, width) = self.before, self.image
        inside = columns[:, top : top + height, left : left + width].ravel()
        return reference.matrix(self.conv, weight).tocsc()[:, inside]
