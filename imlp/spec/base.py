"""What a noun has to say, and what follows from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from imlp.errors import ArrayError, ImlpError, SpecError

if TYPE_CHECKING:
    from scipy import sparse

    from imlp.spec.linear_map import LinearMap, Matrix

Pair = tuple[int, int]
Shape = tuple[int, ...]


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
    - `matrix(self, ...)`: its matrix from those arrays (float64, given by name), a SciPy sparse array or an ndarray;
    - `linear = False`, if the matrix is not linear in the parameters. It has then no `adjoint` and no `project`, and so
      cannot be trained; everything else works.

    All else follows from the matrix, in both backends and on every device: `expand_bias`, `apply`, `adjoint`,
    `interpolate`, `project`, its explanation and its picture. What it may say besides:

    - `bias_shape`: None for a layer without a bias. Unless said, there is one number for each output;
    - `bias_index`: which number of the bias each output gets, if `bias_shape` is another one;
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
        raise SpecError(
            f"{type(self).__name__} has no matrix_shape", "define it: a property that returns (M_out, M_in)"
        )

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The arrays that the matrix is made of, by name, as PyTorch lays them out; without the bias."""
        return {}

    def matrix(self, *arguments: Any, **parameters: Any) -> Any:
        """The matrix of these parameters. The nouns of this package have theirs in `imlp.reference`."""
        raise SpecError(
            f"{type(self).__name__} has no matrix",
            "define matrix(self, ...), with its parameters as arguments; a layer that depends on its data has none",
        )

    @property
    def bias_shape(self) -> Shape | None:
        """The shape of the small bias, before it is repeated over positions or rows; None if there is no bias."""
        return self.matrix_shape[:1] if self.parameters else None

    @property
    def bias_index(self) -> Sequence[int] | np.ndarray:
        """For each output, which number of the bias is added to it."""
        m_out = self.matrix_shape[0]
        if self.bias_shape != (m_out,):
            raise SpecError(
                f"{type(self).__name__} has a bias of shape {self.bias_shape} for {m_out} outputs",
                "define bias_index: for each output, which number of the bias it gets",
            )
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
            return len(self.own_map.rows)
        numbers = np.random.default_rng(0).uniform(0.5, 1.5, self.n_weights)
        return int(entries(own_matrix(self, split(self, numbers))).nnz)

    @property
    def rank(self) -> int:
        """The dimension of the prior's subspace: for most nouns, how many numbers fill at least one entry."""
        return self.own_map.rank if self.parameters and self.linear else self.n_weights

    @property
    def own_map(self) -> "LinearMap":
        """The map from the parameters to the matrix, found by asking `matrix`."""
        return own_map(self)

    @property
    def n_weights(self) -> int:
        """How many numbers the matrix is made of."""
        return sum(prod(parameter.shape) for parameter in self.parameters.values())

    @property
    def n_parameters(self) -> int:
        """Weights and biases of the small layer."""
        return self.n_weights + (0 if self.bias_shape is None else prod(self.bias_shape))

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        bias = {} if self.bias_shape is None else {"bias": self.bias_shape}
        return {name: parameter.shape for name, parameter in self.parameters.items()} | bias

    def shapes(self) -> dict[str, Shape]:
        """The shape of everything that the small layer learns, by name: the parameters, and then "bias"."""
        return dict(self._shapes)

    def fan_in(self, name: str) -> int:
        """That of a parameter; the bias has the largest one.

        >>> from imlp.spec import Conv
        >>> Conv((3, 8, 8), 4).fan_in("bias")
        27
        """
        own = {each: parameter.fan_in for each, parameter in self.parameters.items()}
        return max(own.values(), default=1) if name == "bias" else own[name]

    def named(self, weight: Any) -> dict[str, Any]:
        """What the verbs take as `weight`, by name.

        >>> from imlp.spec import Shared, Transpose
        >>> Shared(2, 1, 1).named([[7.0]]), Transpose(2, 3).named(None)
        ({'weight': [[7.0]]}, {})
        """
        names = list(self.parameters)
        if len(names) == 1 and not isinstance(weight, Mapping):
            return {names[0]: weight}
        if isinstance(weight, Mapping):
            if sorted(weight) != sorted(names):
                raise ArrayError(f"{', '.join(map(str, weight))} given for {self}", f"give {', '.join(names)}")
            return {name: weight[name] for name in names}
        if len(names) > 1:
            raise ArrayError(f"{self} has several parameters", f"give a mapping of {', '.join(names)} to arrays")
        return {} if weight is None else {"weight": weight}

    def unnamed(self, arrays: Mapping[str, Any]) -> Any:
        """The other way round: the array of a single parameter, a mapping of several, None of none."""
        own = {name: arrays[name] for name in self.parameters}
        return own if len(own) > 1 else next(iter(own.values()), None)


def own_matrix(spec: Spec, arrays: Mapping[str, np.ndarray]) -> "sparse.csr_array":
    """What the noun's own `matrix` returns, in float64, after a check."""
    from scipy import sparse

    name = type(spec).__name__
    try:
        given = spec.matrix(**arrays)
    except ImlpError:
        raise
    except Exception as error:
        called = f"{name}.matrix({', '.join(f'{own}=...' for own in arrays)})"
        raise SpecError(f"{called} failed: {type(error).__name__}: {error}", "correct it") from error
    try:
        found = sparse.csr_array(given).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"{name}.matrix returned a {type(given).__name__}", "return an array of real numbers"
        ) from error
    if found.shape != spec.matrix_shape:
        raise SpecError(f"{name}.matrix returned the shape {found.shape}", f"its matrix_shape is {spec.matrix_shape}")
    found.sum_duplicates()
    return found


def split(spec: Spec, flat: Any) -> dict[str, Any]:
    """The parameters by name, out of all their numbers in a row: `(..., n)` of NumPy or torch."""
    found, start = {}, 0
    for name, parameter in spec.parameters.items():
        size = prod(parameter.shape)
        found[name] = flat[..., start : start + size].reshape(*flat.shape[:-1], *parameter.shape)
        start += size
    return found


def flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """All numbers of the parameters in a row."""
    return np.concatenate([np.empty(0), *(array.ravel() for array in arrays.values())])


@lru_cache(maxsize=64)
def own_map(spec: Spec) -> "LinearMap":
    """The map of a noun that has its matrix itself."""
    return linear_map_of(spec, lambda w: own_matrix(spec, split(spec, w)))


def linear_map_of(spec: Spec, matrix: "Matrix") -> "LinearMap":
    """The map of `matrix`, which makes `(M_out, M_in)` of as many numbers as `spec` has."""
    from imlp.spec.linear_map import find_map  # scipy.sparse takes a while to import

    if not spec.linear:
        raise SpecError(
            f"the matrix of {type(spec).__name__} is not linear in its parameters",
            "it has no adjoint and no projection, and cannot be trained; use a noun that is linear",
        )
    found = find_map(spec.matrix_shape, matrix, spec.n_weights)
    if found is None:
        raise SpecError(
            f"{type(spec).__name__} says that its matrix is linear in its parameters, but it is not",
            "write linear = False in the class",
        )
    return found


@lru_cache(maxsize=4096)
def check_noun(spec: Spec) -> None:
    """Refuse a noun that does not say what it has to."""
    name = type(spec).__name__
    given = spec.matrix_shape
    if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(n, int) and n > 0 for n in given):
        raise SpecError(f"{name}.matrix_shape is {given!r}", "return (M_out, M_in), two whole numbers of at least 1")
    if not isinstance(spec.parameters, Mapping):
        raise SpecError(f"{name}.parameters is {spec.parameters!r}", "return a mapping from names to Parameter")
    for own, parameter in spec.parameters.items():
        if not isinstance(own, str) or not own.isidentifier() or own == "bias":
            raise SpecError(f"{name} has a parameter called {own!r}", "use a plain name, and not bias")
        if not isinstance(parameter, Parameter):
            raise SpecError(f"{name}.parameters[{own!r}] is {parameter!r}", "give Parameter(shape, fan_in)")
        set_shape = _ints(f"the shape of {name}'s parameter {own}", parameter.shape, None, least=1)
        if set_shape != parameter.shape:
            raise SpecError(f"the shape of {name}'s parameter {own} is {parameter.shape!r}", f"give {set_shape}")
        _int(f"the fan-in of {name}'s parameter {own}", parameter.fan_in)
    if spec.bias_shape is not None:
        _check_bias(name, spec.bias_shape, spec.matrix_shape[0], np.asarray(spec.bias_index))


def _check_bias(name: str, shape: Shape, m_out: int, index: np.ndarray) -> None:
    if not isinstance(shape, tuple) or len(shape) != 1:
        raise SpecError(f"{name}.bias_shape is {shape!r}", "use one axis, or None for no bias")
    if index.shape != (m_out,) or index.dtype.kind not in "iu" or ((index < 0) | (index >= shape[0])).any():
        raise SpecError(
            f"{name}.bias_index does not have {m_out} whole numbers from 0 to {shape[0] - 1}",
            "give for each output the number of the bias that it gets",
        )


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
    if not isinstance(values, Iterable) or len(numbers := tuple(values)) != (
        len(numbers) if length is None else length
    ):
        raise SpecError(f"{name} is {values!r}", f"give {length or 'some'} whole numbers of at least {least}")
    return tuple(_int(name, number, least) for number in numbers)


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def _one_of(numbers: list[int]) -> str:
    return f"one of {', '.join(map(str, numbers))}" if len(numbers) > 1 else str(numbers[0])
