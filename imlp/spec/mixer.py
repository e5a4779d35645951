"""The parts of an MLP-Mixer: the permutations `Patchify` and `Transpose`, and the layer shared by rows, `Shared`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from imlp.errors import SpecError
from imlp.spec.base import Pair, Parameter, Shape, Spec, _divisors, _int, _one_of, _set


@dataclass(frozen=True)
class Permutation(Spec):
    """A layer that only moves numbers: one 1 in each row and in each column."""

    @property
    def nnz(self) -> int:
        return self.matrix_shape[0]


@dataclass(frozen=True)
class Patchify(Permutation):
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
                problem = f"Patchify.patch {self.patch} does not divide the {name} {size}"
                raise SpecError(problem, f"use {_one_of(_divisors(size))}")

    @property
    def grid(self) -> Pair:
        """`(h, w)`: patches from top to bottom and from left to right."""
        return self.height // self.patch, self.width // self.patch

    @cached_property
    def matrix_shape(self) -> Pair:
        return (self.channels * self.height * self.width,) * 2


@dataclass(frozen=True)
class Transpose(Permutation):
    """Transposes a matrix of `rows` by `cols`; its matrix is `T`."""

    rows: int
    cols: int

    def __post_init__(self) -> None:
        for name in ("rows", "cols"):
            _set(self, name, _int(f"Transpose.{name}", getattr(self, name)))

    @cached_property
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

    @cached_property
    def matrix_shape(self) -> Pair:
        return self.rows * self.out_features, self.rows * self.in_features

    @property
    def weight_shape(self) -> Shape:
        return self.out_features, self.in_features

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        return {"weight": Parameter(self.weight_shape, self.in_features)}

    @property
    def bias_shape(self) -> Shape:
        return (self.out_features,)

    @property
    def bias_index(self) -> np.ndarray:
        return np.tile(np.arange(self.out_features), self.rows)

    @property
    def rank(self) -> int:
        return self.n_weights

    @property
    def nnz(self) -> int:
        return self.rows * self.out_features * self.in_features
