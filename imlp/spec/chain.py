"""`Chain`: several nouns one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod

from imlp.errors import SpecError
from imlp.spec.base import Pair, Parameter, Shape, Spec, _set
from imlp.spec.mixer import Permutation


@dataclass(frozen=True, init=False)
class Chain(Spec):
    """Parts in the order that data flows through them; the matrix is their product, the last part leftmost.

    At most one of them has parameters.

    >>> from imlp.spec import Patchify, Shared
    >>> Chain(Patchify(3, 32, 32, patch=8), Shared(16, 192, 128)).matrix_shape  # W~ P, a patch embedding
    (2048, 3072)
    """

    parts: tuple[Spec, ...] = field()

    def __init__(self, *parts: Spec) -> None:
        for part in parts:
            if not isinstance(part, Spec):
                raise SpecError(f"Chain got {part!r}", "its parts are specs, of imlp.spec or your own")
        flat = tuple(inner for part in parts for inner in (part.parts if isinstance(part, Chain) else (part,)))
        if not flat:
            raise SpecError("Chain got no parts", "give at least one spec")
        for before, after in pairwise(flat):
            given, taken = before.matrix_shape[0], after.matrix_shape[1]
            if given != taken:
                raise SpecError(f"Chain: {before} gives {given} numbers, but {after} takes {taken}", "make them equal")
        with_parameters = [part for part in flat if part.parameters]
        if len(with_parameters) > 1:
            problem = f"Chain has {len(with_parameters)} parts with parameters: {', '.join(map(str, with_parameters))}"
            raise SpecError(problem, "keep one; the product of two layers is no longer linear in either's weight")
        _set(self, "parts", flat)
        _set(self, "linear", all(part.linear for part in flat))

    @cached_property
    def core(self) -> Spec | None:
        """The part with parameters, or None when no part has any."""
        return next((part for part in self.parts if part.parameters), None)

    @cached_property
    def fixed(self) -> tuple[Spec, ...]:
        """The parts without parameters that are not permutations."""
        return tuple(part for part in self.parts if not part.parameters and not isinstance(part, Permutation))

    @cached_property
    def matrix_shape(self) -> Pair:
        return self.parts[-1].matrix_shape[0], self.parts[0].matrix_shape[1]

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        return {} if self.core is None else self.core.parameters

    @property
    def bias_shape(self) -> Shape | None:
        return None if self.core is None else self.core.bias_shape

    @property
    def bias_index(self) -> Sequence[int]:
        raise SpecError("the bias of a Chain goes through the parts after its core", "ask the core")

    @property
    def nnz(self) -> int:
        """How many entries of the matrix can differ from zero; an upper bound if a part mixes numbers."""
        bound = self.matrix_shape[0] if self.core is None else self.core.nnz
        return bound if not self.fixed else min(prod(self.matrix_shape), bound * prod(part.nnz for part in self.fixed))

    @property
    def rank(self) -> int:
        return 0 if self.core is None else self.core.rank
