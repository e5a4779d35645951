"""Checks of arrays against specs that both backends make, in one place so that their messages agree.

They import no array library but NumPy: a tensor is known by its methods.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from imlp.errors import AlphaError, ArrayError, ImlpError, SpecError, in_a_line
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose
from imlp.spec.base import check_noun

PACKAGE = frozenset((Conv, Local, Patchify, Shared, Transpose))  # nouns that need no check


def numbers(given: Any, what: str) -> np.ndarray:
    """`given` as a float64 array; anything that is not real numbers is refused."""
    remedy = "give real numbers: an array of floats or whole numbers, or nested lists of equal lengths"
    try:
        if hasattr(given, "detach"):  # a tensor, on any device, that autograd may follow
            given = given.detach().cpu()
            given = given.double() if given.is_floating_point() else given
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"{what} cannot be made an array: {in_a_line(error)}", remedy) from error
    if array.dtype.kind not in "fiub":
        kind = "None" if given is None else f"of {array.dtype}"
        raise ArrayError(f"{what} is {kind}", remedy)
    return array.astype(np.float64, copy=False)


def is_spec(spec: Any) -> None:
    """Refuse what is not a spec, and a noun of someone else's that does not say what it has to."""
    if not isinstance(spec, Spec):
        raise SpecError(f"{spec!r:.60} is not a spec", "give one of imlp.spec, or one of your own derived from Spec")
    for part in spec.parts if isinstance(spec, Chain) else (spec,):
        kind = type(part)
        if kind in PACKAGE:
            continue
        if "__dataclass_fields__" not in vars(kind):  # all of its instances would be equal, and share what is cached
            raise SpecError(f"{kind.__name__} is not a frozen dataclass", "write @dataclass(frozen=True) above it")
        try:
            hash(part)
        except TypeError as error:
            raise SpecError(f"{part!r:.60} cannot be hashed ({error})", "use tuples instead of lists") from error
        try:
            check_noun(part)
        except ImlpError:
            raise
        except Exception as error:
            raise SpecError(f"{kind.__name__}: {type(error).__name__}: {error}", "correct the class") from error


def arrays_fit(spec: Spec, weight: Any) -> dict[str, np.ndarray]:
    """What a verb was given as `weight`, by name and in float64, after a check of the shapes."""
    is_spec(spec)
    arrays = {name: None if array is None else numbers(array, name) for name, array in spec.named(weight).items()}
    for name, array in arrays.items():
        weight_fits(spec, None if array is None else array.shape, name)
    return {name: array for name, array in arrays.items() if array is not None}


def weight_fits(spec: Spec, shape: Sequence[int] | None, what: str = "weight") -> None:
    """Refuse a parameter or bias (`what`) whose shape (None: not given) is not the spec's."""
    is_spec(spec)
    expected = spec.shapes().get(what)
    if shape is None and expected is None:
        return
    if expected is None:
        raise ArrayError(f"{spec} has no {what}, but one of shape {tuple(shape or ())} was given", "pass None")
    if shape is None:
        raise ArrayError(f"{spec} needs a {what}", f"give an array of shape {expected}")
    if tuple(shape) != expected:
        raise ArrayError(f"{what} of shape {tuple(shape)} for {spec}", f"it must have shape {expected}")


def input_fits(spec: Spec, shape: Sequence[int]) -> None:
    """Refuse a batch that is not `(N, M_in)`."""
    is_spec(spec)
    m_in = spec.matrix_shape[1]
    if len(shape) != 2 or shape[1] != m_in:
        raise ArrayError(f"input of shape {tuple(shape)} for {spec}", f"flatten it to (N, {m_in})")


def dense_fits(spec: Spec, shape: Sequence[int]) -> None:
    """Refuse a `W` that is neither `(M_out, M_in)` nor a stack of them."""
    is_spec(spec)
    if len(shape) not in (2, 3) or tuple(shape[-2:]) != spec.matrix_shape:
        m_out, m_in = spec.matrix_shape
        remedy = f"it must be ({m_out}, {m_in}), or (lanes, {m_out}, {m_in})"
        raise ArrayError(f"W of shape {tuple(shape)} for {spec}", remedy)


def dense_bias_fits(spec: Spec, shape: Sequence[int]) -> None:
    """Refuse a bias of the dense layer that is neither `(M_out,)` nor a stack of them."""
    is_spec(spec)
    m_out = spec.matrix_shape[0]
    if len(shape) not in (1, 2) or shape[-1] != m_out:
        raise ArrayError(f"a bias of shape {tuple(shape)} for {spec}", f"it must be ({m_out},), or (lanes, {m_out})")


def can_be_measured(spec: Spec) -> None:
    """Refuse a layer that has no weight to project on."""
    is_spec(spec)
    if not spec.parameters:
        raise ArrayError(f"{spec} has no weight to compare with", "measure a layer that has one")


def alphas(alpha: Any, lanes: int | None) -> list[float]:
    """`alpha` as one float per lane (one for a single matrix, `lanes` None), each within [0, 1]."""
    try:
        given = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        raise AlphaError(f"alpha is {alpha!r}", "give a number within [0, 1], or a list of one for each lane") from None
    if given.shape not in ((), (lanes,)):
        remedy = "give a single number" if lanes is None else f"give one number, or a list of {lanes}"
        raise AlphaError(f"{given.size} alphas for {'one matrix' if lanes is None else f'{lanes} lanes'}", remedy)
    values = given.tolist() if given.ndim else [float(given)] * (1 if lanes is None else lanes)
    for value in values:
        if not 0 <= value <= 1:
            raise AlphaError(f"alpha is {value:g}", "give a number from 0 (plain MLP) to 1 (the prior)")
    return values


def layout_known(layout: str | None) -> None:
    if layout not in (None, "sparse", "dense"):
        raise ArrayError(f"unknown layout {layout!r}", "use sparse or dense")
