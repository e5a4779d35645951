"""Initial weights, drawn by NumPy so that both backends start from the same numbers.

As PyTorch's `Linear` and `Conv2d` draw them: uniform within `1 / sqrt(fan_in)`, weights and biases alike.
"""

from math import prod

import numpy as np

from imlp.spec import Shape, Spec


def uniform(shape: Shape, fan_in: int, *, rng: np.random.Generator) -> np.ndarray:
    """Uniform within `1 / sqrt(fan_in)`."""
    bound = fan_in**-0.5
    return rng.uniform(-bound, bound, size=shape)


def prior_weight(spec: Spec, *, rng: np.random.Generator) -> np.ndarray | None:
    """The small weight of a structured layer; None for a permutation."""
    shape = spec.weight_shape
    return None if shape is None else uniform(shape, prod(shape[1:]), rng=rng)


def dense_weight(spec: Spec, *, rng: np.random.Generator) -> np.ndarray:
    """The full matrix `(M_out, M_in)` of the dense layer beside it."""
    return uniform(spec.matrix_shape, spec.matrix_shape[1], rng=rng)
