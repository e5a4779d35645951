"""Any noun's entries, from its matrix: which numbers of which parameters add up to one, and with what constants."""

from math import prod
from typing import Any

import numpy as np

from imlp import reference
from imlp.look.explain.steps import Term, unravel
from imlp.reference.verbs import linear_map
from imlp.spec import Shape, Spec


def terms(spec: Spec, i: int, j: int) -> tuple[Term, ...]:
    """What entry `(i, j)` of a matrix that is linear in its parameters adds up."""
    found = linear_map(spec)
    first, last = found.indptr[i], found.indptr[i + 1]
    at = first + int(np.searchsorted(found.columns[first:last], j))
    if at == last or found.columns[at] != j:
        return ()
    row = slice(found.A.indptr[at], found.A.indptr[at + 1])
    return tuple(_term(spec, int(k), float(c)) for k, c in zip(found.A.indices[row], found.A.data[row], strict=True))


def _term(spec: Spec, number: int, constant: float) -> Term:
    for name, parameter in spec.parameters.items():
        if number < prod(parameter.shape):
            return Term(name, unravel(number, parameter.shape), constant)
        number -= prod(parameter.shape)
    raise AssertionError("the map has more numbers than the noun")


def entry(spec: Spec, i: int, j: int) -> tuple[tuple[Term, ...], Shape | None, str]:
    """The terms, where in its weight the only one stands (None: the entry is zero), and all of it in words."""
    names, noun = ", ".join(spec.parameters), type(spec).__name__
    if not spec.parameters:
        value = float(reference.matrix(spec)[i, j])
        return (), () if value else None, f"{value:.6g}, which {noun} always has there"
    if not spec.linear:
        value = _sample(spec)[i, j]
        return (
            (),
            () if value else None,
            f"a number that depends on {names}, but not linearly" if value else _zero(names),
        )
    found = terms(spec, i, j)
    return (
        found,
        found[0].place if len(found) == 1 else () if found else None,
        " + ".join(map(str, found)) or _zero(names),
    )


def columns(spec: Spec, i: int) -> list[int]:
    """The columns of row `i` that can differ from zero."""
    if spec.parameters and spec.linear:
        found = linear_map(spec)
        return [int(j) for j in found.columns[found.indptr[i] : found.indptr[i + 1]]]
    return [int(j) for j in np.flatnonzero(_sample(spec)[[i]].toarray())]


def _zero(names: str) -> str:
    return f"0, for no number of {names} gets there"


def _sample(spec: Spec) -> Any:
    """The matrix of random numbers."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.uniform(0.5, 1.5, own.shape) for name, own in spec.parameters.items()}
    return reference.matrix(spec, spec.unnamed(arrays))
