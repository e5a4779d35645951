"""The nouns: what a structured linear layer is. Geometry only: no arrays, no backend.

A spec is frozen and checks itself when it is made, so everything below it may assume valid input. Vectors are
row-major over (channel, height, width) or (row, column), and `vec(y) = vec(x) W^T` with `W` of `matrix_shape`
`(M_out, M_in)`.

>>> conv = Conv((3, 32, 32), out_channels=4, kernel=3, stride=2, padding=1)
>>> conv.matrix_shape, conv.weight_shape, conv.nnz
((1024, 3072), (4, 3, 3, 3), 26508)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import gcd, isqrt, prod

from imlp.errors import SpecError

Pair = tuple[int, int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """What all specs know. One without parameters (a permutation) has `weight_shape` and `bias_shape` None."""

    @property
    def matrix_shape(self) -> Pair:
        """`(M_out, M_in)`, the shape of the dense layer that this one can be mixed into."""
        raise NotImplementedError

    @property
    def weight_shape(self) -> Shape | None:
        """The shape of the small weight, as PyTorch lays it out."""
        return None

    @property
    def bias_shape(self) -> Shape | None:
        """The shape of the small bias, before it is repeated over positions or rows."""
        return None

    @property
    def nnz(self) -> int:
        """How many entries of the matrix can differ from zero."""
        return self.matrix_shape[0]

    @property
    def rank(self) -> int:
        """The dimension of the prior's subspace: how many numbers of the weight fill at least one entry."""
        return 0 if self.weight_shape is None else prod(self.weight_shape)

    @property
    def n_parameters(self) -> int:
        """Weights and biases of the small layer."""
        return sum(prod(shape) for shape in (self.weight_shape, self.bias_shape) if shape is not None)


@dataclass(frozen=True)
class Conv(Spec):
    """A 2-D convolution (cross-correlation) with zero padding; its matrix is `W_F` (appendix A).

    `kernel`, `stride`, `padding` and `dilation` are ints or `(vertical, horizontal)` pairs.
    """

    in_shape: tuple[int, int, int]
    out_channels: int
    kernel: int | Pair = 3
    stride: int | Pair = 1
    padding: int | Pair = 0
    dilation: int | Pair = 1
    groups: int = 1

    def __post_init__(self) -> None:
        _set(self, "in_shape", _ints("Conv.in_shape", self.in_shape, 3, least=1))
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            value = getattr(self, name)
            pair = value if isinstance(value, Iterable) else (value, value)
            _set(self, name, _ints(f"Conv.{name}", pair, 2, least=least))
        _set(self, "out_channels", _int("Conv.out_channels", self.out_channels))
        _set(self, "groups", _int("Conv.groups", self.groups))
        for name, channels in (("input", self.in_shape[0]), ("output", self.out_channels)):
            if channels % self.groups:
                raise SpecError(
                    f"Conv.groups {self.groups} does not divide the {channels} {name} channels",
                    f"use {_one_of(_divisors(gcd(self.in_shape[0], self.out_channels)))}",
                )
        for axis, size in enumerate(self.in_shape[1:]):
            padded, reach = size + 2 * self.paddings[axis], self.reach[axis]
            if reach > padded:
                raise SpecError(
                    f"Conv.kernel {self.kernels[axis]} with dilation {self.dilations[axis]} spans {reach} pixels, but "
                    f"the padded {('height', 'width')[axis]} is {size} + 2 * {self.paddings[axis]} = {padded}",
                    f"use a kernel that spans at most {padded}, or a padding of at least {-((size - reach) // 2)}",
                )

    @property
    def kernels(self) -> Pair:
        return self.kernel  # type: ignore[return-value]  # a pair since __post_init__

    @property
    def strides(self) -> Pair:
        return self.stride  # type: ignore[return-value]

    @property
    def paddings(self) -> Pair:
        return self.padding  # type: ignore[return-value]

    @property
    def dilations(self) -> Pair:
        return self.dilation  # type: ignore[return-value]

    @property
    def reach(self) -> Pair:
        """How many pixels the kernel spans on each axis, the gaps of its dilation included."""
        (k_y, k_x), (d_y, d_x) = self.kernels, self.dilations
        return d_y * (k_y - 1) + 1, d_x * (k_x - 1) + 1

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """`(o, h_out, w_out)`, with the floor that the paper leaves out: `floor((h + 2p - k) / s) + 1`."""
        (h, w), (p_y, p_x), (s_y, s_x), (r_y, r_x) = self.in_shape[1:], self.paddings, self.strides, self.reach
        return self.out_channels, (h + 2 * p_y - r_y) // s_y + 1, (w + 2 * p_x - r_x) // s_x + 1

    @property
    def matrix_shape(self) -> Pair:
        return prod(self.out_shape), prod(self.in_shape)

    @property
    def weight_shape(self) -> Shape:
        return self.out_channels, self.in_shape[0] // self.groups, *self.kernels

    @property
    def bias_shape(self) -> Shape:
        return (self.out_channels,)

    def pixel(self, axis: int, output: int, tap: int) -> int:
        """The row (axis 0) or column (axis 1) of the image that a tap of the kernel reads for a position of the output.

        >>> Conv((1, 8, 8), 1, kernel=3, stride=2, padding=1).pixel(0, output=3, tap=2)
        7
        """
        return output * self.strides[axis] + tap * self.dilations[axis] - self.paddings[axis]

    def outputs_reached(self, axis: int, tap: int) -> range:
        """The output positions at which kernel tap `tap` falls on a pixel and not on the padding: a run of them."""
        shift = self.pixel(axis, 0, tap)
        size, stride, n_out = self.in_shape[1 + axis], self.strides[axis], self.out_shape[1 + axis]
        first = max(0, -(shift // stride))
        last = min(n_out, (size - 1 - shift) // stride + 1)
        return range(first, max(first, last))

    @property
    def nnz(self) -> int:
        y, x = (sum(len(self.outputs_reached(axis, tap)) for tap in range(self.kernels[axis])) for axis in (0, 1))
        return self.out_channels * (self.in_shape[0] // self.groups) * y * x

    @property
    def rank(self) -> int:
        y, x = (sum(bool(self.outputs_reached(axis, tap)) for tap in range(self.kernels[axis])) for axis in (0, 1))
        return self.out_channels * (self.in_shape[0] // self.groups) * y * x


@dataclass(frozen=True)
class Patchify(Spec):
    """Cuts an image into square patches, in the order (patch, channel, row, column); its matrix is `P`."""

    channels: int
    height: int
    width: int
    patch: int

    def __post_init__(self) -> None:
        for name in ("channels", "height", "width", "patch"):
            _set(self, name, _int(f"Patchify.{name}", getattr(self, name)))
        for name, size in (("height", self.height), ("width", self.width)):
            if size % self.patch:
                raise SpecError(
                    f"Patchify.patch {self.patch} does not divide the {name} {size}", f"use {_one_of(_divisors(size))}"
                )

    @property
    def grid(self) -> Pair:
        """`(h, w)`: patches from top to bottom and from left to right."""
        return self.height // self.patch, self.width // self.patch

    @property
    def matrix_shape(self) -> Pair:
        return (self.channels * self.height * self.width,) * 2


@dataclass(frozen=True)
class Transpose(Spec):
    """Transposes a matrix of `rows` by `cols`; its matrix is `T`."""

    rows: int
    cols: int

    def __post_init__(self) -> None:
        for name in ("rows", "cols"):
            _set(self, name, _int(f"Transpose.{name}", getattr(self, name)))

    @property
    def matrix_shape(self) -> Pair:
        return (self.rows * self.cols,) * 2


@dataclass(frozen=True)
class Shared(Spec):
    """One small layer applied to each of `rows` rows; its matrix is `W~`, block diagonal with equal blocks."""

    rows: int
    in_features: int
    out_features: int

    def __post_init__(self) -> None:
        for name in ("rows", "in_features", "out_features"):
            _set(self, name, _int(f"Shared.{name}", getattr(self, name)))

    @property
    def matrix_shape(self) -> Pair:
        return self.rows * self.out_features, self.rows * self.in_features

    @property
    def weight_shape(self) -> Shape:
        return self.out_features, self.in_features

    @property
    def bias_shape(self) -> Shape:
        return (self.out_features,)

    @property
    def nnz(self) -> int:
        return self.rows * self.out_features * self.in_features


@dataclass(frozen=True, init=False)
class Chain(Spec):
    """Parts in the order that data flows through them; the matrix is their product, the last part leftmost.

    >>> Chain(Patchify(3, 32, 32, patch=8), Shared(16, 192, 128)).matrix_shape  # W~ P, a patch embedding
    (2048, 3072)
    """

    parts: tuple[Spec, ...] = field()

    def __init__(self, *parts: Spec) -> None:
        for part in parts:
            if not isinstance(part, Spec):
                raise SpecError(f"Chain got {part!r}", "its parts are specs: Conv, Patchify, Transpose, Shared, Chain")
        flat = tuple(inner for part in parts for inner in (part.parts if isinstance(part, Chain) else (part,)))
        if not flat:
            raise SpecError("Chain got no parts", "give at least one spec")
        for before, after in pairwise(flat):
            given, taken = before.matrix_shape[0], after.matrix_shape[1]
            if given != taken:
                raise SpecError(f"Chain: {before} gives {given} numbers, but {after} takes {taken}", "make them equal")
        with_parameters = [part for part in flat if part.n_parameters]
        if len(with_parameters) > 1:
            raise SpecError(
                f"Chain has {len(with_parameters)} parts with parameters: {', '.join(map(str, with_parameters))}",
                "keep one; the product of two layers is no longer linear in either's weight",
            )
        _set(self, "parts", flat)

    @cached_property
    def core(self) -> Spec | None:
        """The part with parameters, or None when all parts are permutations."""
        return next((part for part in self.parts if part.n_parameters), None)

    @property
    def matrix_shape(self) -> Pair:
        return self.parts[-1].matrix_shape[0], self.parts[0].matrix_shape[1]

    @property
    def weight_shape(self) -> Shape | None:
        return None if self.core is None else self.core.weight_shape

    @property
    def bias_shape(self) -> Shape | None:
        return None if self.core is None else self.core.bias_shape

    @property
    def nnz(self) -> int:
        return self.matrix_shape[0] if self.core is None else self.core.nnz

    @property
    def rank(self) -> int:
        return 0 if self.core is None else self.core.rank


def _set(spec: Spec, name: str, value: object) -> None:
    """Assign inside `__post_init__` of a frozen dataclass."""
    object.__setattr__(spec, name, value)


def _int(name: str, value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SpecError(f"{name} is {value!r}", f"give a whole number of at least {least}")
    number = value.__index__()
    if number < least:
        raise SpecError(f"{name} is {number}", f"give at least {least}")
    return number


def _ints(name: str, values: object, length: int, least: int) -> tuple[int, ...]:
    if not isinstance(values, Iterable) or len(numbers := tuple(values)) != length:
        raise SpecError(f"{name} is {values!r}", f"give {length} whole numbers of at least {least}")
    return tuple(_int(name, number, least) for number in numbers)


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def _one_of(numbers: list[int]) -> str:
    return f"one of {', '.join(map(str, numbers))}" if len(numbers) > 1 else str(numbers[0])
