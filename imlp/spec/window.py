"""The nouns that slide a window over an image.

`Conv` has the same weights at every position, `Local` different ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any

import numpy as np

from imlp.errors import SpecError
from imlp.spec.base import Pair, Parameter, Shape, Spec, _divisors, _int, _ints, _one_of, _set


@dataclass(frozen=True)
class Window(Spec):
    """A window that moves over a zero-padded image: what `Conv` and `Local` share."""

    in_shape: tuple[int, int, int]
    out_channels: int
    kernel: Any = 3  # an int or a pair, and a pair once it is made, as the next three
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    kernel_size: InitVar[int | Pair | None] = None

    def __post_init__(self, kernel_size: int | Pair | None) -> None:
        noun = type(self).__name__
        if kernel_size is not None and self.kernel not in (3, kernel_size):
            raise SpecError(f"{noun} has kernel {self.kernel} and kernel_size {kernel_size}", "give one of them")
        _set(self, "kernel", self.kernel if kernel_size is None else kernel_size)
        _set(self, "in_shape", _ints(f"{noun}.in_shape", self.in_shape, 3, least=1))
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            value = getattr(self, name)
            pair = value if isinstance(value, Iterable) else (value, value)
            _set(self, name, _ints(f"{noun}.{name}", pair, 2, least=least))
        _set(self, "out_channels", _int(f"{noun}.out_channels", self.out_channels))
        _set(self, "groups", _int(f"{noun}.groups", self.groups))
        for name, channels in (("input", self.in_shape[0]), ("output", self.out_channels)):
            if channels % self.groups:
                problem = f"{noun}.groups {self.groups} does not divide the {channels} {name} channels"
                raise SpecError(problem, f"use {_one_of(_divisors(gcd(self.in_shape[0], self.out_channels)))}")
        for axis, size in enumerate(self.in_shape[1:]):
            padded, reach = size + 2 * self.padding[axis], self.reach[axis]
            if reach > padded:
                raise SpecError(
                    f"{noun}.kernel {self.kernel[axis]} with dilation {self.dilation[axis]} spans {reach} pixels, but "
                    f"the padded {('height', 'width')[axis]} is {size} + 2 * {self.padding[axis]} = {padded}",
                    f"use a kernel that spans at most {padded}, or a padding of at least {-((size - reach) // 2)}",
                )

    @property
    def reach(self) -> Pair:
        """How many pixels the kernel spans on each axis, the gaps of its dilation included."""
        (k_y, k_x), (d_y, d_x) = self.kernel, self.dilation
        return d_y * (k_y - 1) + 1, d_x * (k_x - 1) + 1

    @cached_property
    def out_shape(self) -> tuple[int, int, int]:
        """`(o, h_out, w_out)`, with the floor that the paper leaves out: `floor((h + 2p - k) / s) + 1`."""
        (h, w), (p_y, p_x), (s_y, s_x), (r_y, r_x) = self.in_shape[1:], self.padding, self.stride, self.reach
        return self.out_channels, (h + 2 * p_y - r_y) // s_y + 1, (w + 2 * p_x - r_x) // s_x + 1

    @cached_property
    def matrix_shape(self) -> Pair:
        return prod(self.out_shape), prod(self.in_shape)

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        shape = self.weight_shape or ()
        return {"weight": Parameter(shape, prod(shape[-3:]))}

    def pixel(self, axis: int, output: int, tap: int) -> int:
        """The row (axis 0) or column (axis 1) of the image that a tap of the kernel reads for a position of the output.

        >>> Conv((1, 8, 8), 1, kernel=3, stride=2, padding=1).pixel(0, output=3, tap=2)
        7
        """
        return output * self.stride[axis] + tap * self.dilation[axis] - self.padding[axis]

    def outputs_reached(self, axis: int, tap: int) -> range:
        """The output positions at which kernel tap `tap` falls on a pixel and not on the padding: a run of them."""
        shift = self.pixel(axis, 0, tap)
        size, stride, n_out = self.in_shape[1 + axis], self.stride[axis], self.out_shape[1 + axis]
        first = max(0, -(shift // stride))
        last = min(n_out, (size - 1 - shift) // stride + 1)
        return range(first, max(first, last))

    @property
    def nnz(self) -> int:
        y, x = (sum(len(self.outputs_reached(axis, tap)) for tap in range(self.kernel[axis])) for axis in (0, 1))
        return self.out_channels * (self.in_shape[0] // self.groups) * y * x


Window.kernel_size = property(lambda self: self.kernel)  # type: ignore  # not the default of the argument of that name


@dataclass(frozen=True)
class Conv(Window):
    """A 2-D convolution (cross-correlation) with zero padding; its matrix is `W_F` (appendix A).

    `kernel` (or `kernel_size`, as in PyTorch), `stride`, `padding` and `dilation` are ints or `(vertical, horizontal)`
    pairs.
    """

    @cached_property
    def weight_shape(self) -> Shape:
        return self.out_channels, self.in_shape[0] // self.groups, *self.kernel

    @property
    def bias_shape(self) -> Shape:
        return (self.out_channels,)

    @property
    def bias_index(self) -> np.ndarray:
        _, h_out, w_out = self.out_shape
        return np.repeat(np.arange(self.out_channels), h_out * w_out)

    @property
    def rank(self) -> int:
        y, x = (sum(bool(self.outputs_reached(axis, tap)) for tap in range(self.kernel[axis])) for axis in (0, 1))
        return self.out_channels * (self.in_shape[0] // self.groups) * y * x


@dataclass(frozen=True)
class Local(Window):
    """As `Conv`, but with separate weights at each output position: local and not shared; its matrix is `W_L`.

    The weight has the shape `(positions, out, in / groups, k_y, k_x)`, the bias a number for each output.

    >>> Local((3, 8, 8), out_channels=4, kernel=3, stride=2, padding=1).weight_shape
    (16, 4, 3, 3, 3)
    """

    @cached_property
    def weight_shape(self) -> Shape:
        o, h_out, w_out = self.out_shape
        return h_out * w_out, o, self.in_shape[0] // self.groups, *self.kernel

    @property
    def rank(self) -> int:
        return self.nnz  # each number that meets the image fills one entry
