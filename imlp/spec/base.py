"""What a noun has to say, and what follows from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from imlp.errors import OUTSIDERS, ArrayError, ImlpError, SpecError

if TYPE_CHECKING:
    from scipy import sparse

    from imlp.spec.linear_map import LinearMap, Matrix

Pair = tuple[int, int]
Shape = tuple[int, ...]

PARTS = ("shared", "local", "outside")  # into which the bias meter divides a matrix


class Parameter(NamedTuple):
    """One array that a layer's matrix is made of. It is drawn uniformly within `1 / sqrt(fan_in)`.

    `fan_in` is how many inputs an output reads with it, as in PyTorch's `Linear` and `Conv2d`.
    """

    shape: Shape
    fan_in: int


@dataclass(frozen=True)
class Spec:
    """A noun: a linear layer whose matrix `W_P (M_out, M_in)` is made of a few numbers.

    A noun of your own is a frozen dataclass derived from this one, in any file. It has to say

    - `matrix_shape`: `(M_out, M_in)`;
    - `parameters`: a `Parameter` (shape and fan-in) for each array that the matrix is made of, by name: one or more,
      under any names but "bias"; none for a layer that learns nothing, such as a permutation;
    - `matrix(self, ...)`: its matrix from those arrays (float64, given by name), a SciPy sparse array or an ndarray; or
      instead, and faster for many numbers, `fills(self)`: three index arrays of equal length, `(rows, columns,
      numbers)`, which add a number (counted through all parameters) to the entry in a row and column;
    - `linear = False`, if the matrix is not linear in the parameters. Such a noun has no `adjoint` and no `project`, so
      it cannot be trained; everything else works.

    Everything else follows from the matrix, in both backends and on every device: `expand_bias`, `apply`, `adjoint`,
    `interpolate`, `project`, its explanation and its picture. It may also say:

    - `bias_shape`: None for a layer without a bias. By default there is one number for each output;
    - `bias_index`: which number of the bias each output gets, if `bias_shape` is not the default;
    - `in_shape` and `out_shape`: what the flat input and output stand for, such as `(channels, height, width)`.

    The verbs take and return a single parameter as an array, and several as a mapping from names to arrays.

    >>> import numpy as np
    >>> from imlp import reference
    >>> @dataclass(frozen=True)
    ... class Circulant(Spec):
    ...     '''Each row is the one above it, moved to the right by one, with wrap-around.'''
    ...     size: int
    ...     matrix_shape = property(lambda self: (self.size, self.size))
    ...     parameters = property(lambda self: {"weight": Parameter((self.size,), fan_in=self.size)})
    ...     def matrix(self, weight):
    ...         i, j = np.indices(self.matrix_shape)
    ...         return weight[(j - i) % self.size]
    >>> reference.matrix(Circulant(3), [1.0, 2.0, 3.0]).toarray()
    array([[1., 2., 3.],
           [3., 1., 2.],
           [2., 3., 1.]])
    >>> reference.project(np.eye(3), Circulant(3))
    array([1., 0., 0.])
    """

    linear: ClassVar[bool] = True

    @property
    def matrix_shape(self) -> Pair:
        """`(M_out, M_in)`, the shape of the dense layer that this one can be mixed into."""
        raise SpecError(f"{type(self).__name__} has no matrix_shape", "define a property that returns (M_out, M_in)")

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The arrays that the matrix is made of, by name, as PyTorch lays them out; without the bias."""
        return {}

    def matrix(self, *arguments: Any, **parameters: Any) -> Any:
        """The matrix of these parameters. The nouns of this package have theirs in `imlp.reference`."""
        if self.fills() is not None:
            return own_map(self).matrix(flat({name: parameters[name] for name in self.parameters}))
        remedy = "define matrix(self, ...), with its parameters as arguments; a layer that depends on its data has none"
        raise SpecError(f"{type(self).__name__} has no matrix", remedy)

    def fills(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Which number of the parameters is added to which entry; None for a noun that defines `matrix`."""
        return None

    @property
    def bias_shape(self) -> Shape | None:
        """The shape of the small bias, before it is repeated over positions or rows; None if there is no bias."""
        return self.matrix_shape[:1] if self.parameters else None

    @property
    def bias_index(self) -> Sequence[int] | np.ndarray:
        """For each output, which number of the bias is added to it."""
        m_out = self.matrix_shape[0]
        if self.bias_shape != (m_out,):
            problem = f"{type(self).__name__} has a bias of shape {self.bias_shape} for {m_out} outputs"
            raise SpecError(problem, "define bias_index: for each output, which number of the bias it gets")
        return range(m_out)

    @property
    def weight_shape(self) -> Shape | None:
        """The shape of the parameter, if there is only one; None if there is none."""
        shapes = [parameter.shape for parameter in self.parameters.values()]
        if len(shapes) > 1:
            raise SpecError(f"{self} has several parameters: {', '.join(self.parameters)}", "ask for spec.parameters")
        return shapes[0] if shapes else None

    @property
    def nnz(self) -> int:
        """How many entries of the matrix can differ from zero."""
        from imlp.spec.linear_map import entries

        if self.parameters and self.linear:
            return len(own_map(self).rows)
        numbers = np.random.default_rng(0).uniform(0.5, 1.5, self.n_weights)
        return int(entries(own_matrix(self, split(self, numbers))).nnz)

    @property
    def rank(self) -> int:
        """The dimension of the prior's subspace: for most nouns, how many numbers fill at least one entry."""
        return own_map(self).rank if self.parameters and self.linear else self.n_weights

    @property
    def n_weights(self) -> int:
        """How many numbers the matrix is made of."""
        return sum(prod(parameter.shape) for parameter in self.parameters.values())

    @property
    def n_parameters(self) -> int:
        """Weights and biases of the small layer."""
        return self.n_weights + (0 if self.bias_shape is None else prod(self.bias_shape))

    def shapes(self) -> dict[str, Shape]:
        """The shape of everything that the small layer learns, by name: the parameters, and then "bias"."""
        bias = {} if self.bias_shape is None else {"bias": self.bias_shape}
        return {name: parameter.shape for name, parameter in self.parameters.items()} | bias

    def fan_in(self, name: str) -> int:
        """How many inputs an output reads with a parameter; the bias has the largest number.

        >>> from imlp.spec import Conv
        >>> Conv((3, 8, 8), 4).fan_in("bias")
        27
        """
        if name != "bias":
            return self.parameters[name].fan_in
        return max((parameter.fan_in for parameter in self.parameters.values()), default=1)

    def named(self, weight: Any) -> dict[str, Any]:
        """What the verbs take as `weight`, by name.

        >>> from imlp.spec import Shared, Transpose
        >>> Shared(2, 1, 1).named([[7.0]]), Transpose(2, 3).named(None)
        ({'weight': [[7.0]]}, {})
        """
        names = list(self.parameters)
        if isinstance(weight, Mapping):
            if set(weight) != set(names):
                raise ArrayError(f"{', '.join(map(str, weight))} given for {self}", f"give {', '.join(names)}")
            return {name: weight[name] for name in names}
        if len(names) > 1:
            raise ArrayError(f"{self} has several parameters", f"give a mapping of {', '.join(names)} to arrays")
        return {} if weight is None and not names else {(names or ["weight"])[0]: weight}

    def unnamed(self, arrays: Mapping[str, Any]) -> Any:
        """The other way round: the array of a single parameter, a mapping of several, None of none."""
        weights = {name: arrays[name] for name in self.parameters}
        return weights if len(weights) > 1 else next(iter(weights.values()), None)


def own_matrix(spec: Spec, arrays: Mapping[str, np.ndarray]) -> "sparse.csr_array":
    """What the noun's own `matrix` returns, in float64, after a check."""
    from scipy import sparse

    name = type(spec).__name__
    try:
        given = spec.matrix(**arrays)
    except ImlpError:
        raise
    except OUTSIDERS as error:
        call = f"{name}.matrix({', '.join(f'{parameter}=...' for parameter in arrays)})"
        raise SpecError(f"{call} failed: {type(error).__name__}: {error}", "correct it") from error
    try:
        matrix = sparse.csr_array(given).astype(np.float64)
    except (TypeError, ValueError) as error:
        problem = f"{name}.matrix returned a {type(given).__name__}"
        raise SpecError(problem, "return an array of real numbers") from error
    if matrix.shape != spec.matrix_shape:
        raise SpecError(f"{name}.matrix returned the shape {matrix.shape}", f"its matrix_shape is {spec.matrix_shape}")
    matrix.sum_duplicates()
    return matrix


def split(spec: Spec, flat: Any) -> dict[str, Any]:
    """The parameters by name, out of all their numbers in a row: `(..., n)` of NumPy or torch."""
    arrays, start = {}, 0
    for name, parameter in spec.parameters.items():
        size = prod(parameter.shape)
        arrays[name] = flat[..., start : start + size].reshape(*flat.shape[:-1], *parameter.shape)
        start += size
    return arrays


def flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *(array.ravel() for array in arrays.values())])


def random_parts(rank: int, nnz: int, shape: Pair) -> dict[str, float]:
    """The parts expected of a matrix of random numbers: `shared` is rank / N, with `local` it is nnz / N."""
    n = prod(shape)
    return dict(zip(PARTS, (rank / n, (nnz - rank) / n, (n - nnz) / n), strict=True))


@lru_cache(maxsize=64)
def own_map(spec: Spec) -> "LinearMap":
    """The map of a noun that has its matrix itself."""
    return linear_map_of(spec, lambda w: own_matrix(spec, split(spec, w)))


def linear_map_of(spec: Spec, matrix: "Matrix") -> "LinearMap":
    """The map of `matrix`, which makes `(M_out, M_in)` of as many numbers as `spec` has."""
    from imlp.spec.linear_map import filled_map, find_map  # scipy.sparse takes a while to import

    if (fills := spec.fills()) is not None:
        return filled_map(spec.matrix_shape, *fills, spec.n_weights)
    if not spec.linear:
        remedy = "it has no adjoint and no projection, and cannot be trained; use a noun that is linear"
        raise SpecError(f"the matrix of {type(spec).__name__} is not linear in its parameters", remedy)
    linear_map = find_map(spec.matrix_shape, matrix, spec.n_weights)
    if linear_map is None:
        problem = f"{type(spec).__name__} says that its matrix is linear in its parameters, but it is not"
        raise SpecError(problem, "write linear = False in the class")
    return linear_map


@lru_cache(maxsize=4096)
def check_noun(spec: Spec) -> None:
    """Refuse a noun that does not say what it has to."""
    name, shape = type(spec).__name__, spec.matrix_shape
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise SpecError(f"{name}.matrix_shape is {shape!r}", "return (M_out, M_in), two whole numbers of at least 1")
    if not isinstance(spec.parameters, Mapping):
        raise SpecError(f"{name}.parameters is {spec.parameters!r}", "return a mapping from names to Parameter")
    for parameter, numbers in spec.parameters.items():
        if not isinstance(parameter, str) or not parameter.isidentifier() or parameter == "bias":
            raise SpecError(f"{name} has a parameter called {parameter!r}", "use a plain name, and not bias")
        if not isinstance(numbers, Parameter):
            raise SpecError(f"{name}.parameters[{parameter!r}] is {numbers!r}", "give Parameter(shape, fan_in)")
        expected = _ints(f"the shape of {name}'s parameter {parameter}", numbers.shape, None, least=1)
        if expected != numbers.shape:
            raise SpecError(f"the shape of {name}'s parameter {parameter} is {numbers.shape!r}", f"give {expected}")
        _int(f"the fan-in of {name}'s parameter {parameter}", numbers.fan_in)
    bias = spec.bias_shape
    if bias is None:
        return
    if not isinstance(bias, tuple) or len(bias) != 1:
        raise SpecError(f"{name}.bias_shape is {bias!r}", "use one axis, or None for no bias")
    index = np.asarray(spec.bias_index)
    if index.shape != shape[:1] or index.dtype.kind not in "iu" or ((index < 0) | (index >= bias[0])).any():
        problem = f"{name}.bias_index does not have {shape[0]} whole numbers from 0 to {bias[0] - 1}"
        raise SpecError(problem, "give for each output the number of the bias that it gets")


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


def _ints(name: str, values: object, length: int | None, least: int) -> tuple[int, ...]:
    numbers = tuple(values) if isinstance(values, Iterable) else None
    if numbers is None or length not in (None, len(numbers)):
        raise SpecError(f"{name} is {values!r}", f"give {length or 'some'} whole numbers of at least {least}")
    return tuple(_int(name, number, least) for number in numbers)


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def _one_of(numbers: list[int]) -> str:
    return f"one of {', '.join(map(str, numbers))}" if len(numbers) > 1 else str(numbers[0])
