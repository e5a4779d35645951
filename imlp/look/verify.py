"""Pins accel to the reference on given layers: the largest difference of each verb, gradients included.

This is what `python cli.py verify` prints, and what a training run checks of its network before it starts.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from imlp import init, reference
from imlp.backend import backend
from imlp.model import Model
from imlp.networks import Network
from imlp.spec import Spec

# Largest difference that rounding explains, relative to the largest number of the result. Sums of up to a few thousand
# terms in a type with unit round-off u differ by some tens of u; the rest is margin.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 0.05, "float16": 0.01}

VERBS = ("matrix", "bias", "apply", "gradients", "interpolate", "add", "adjoint", "project")


def layer_errors(
    spec: Spec, *, dtype: str = "float32", device: str = "cpu", seed: int = 0, verbs: Sequence[str] = VERBS
) -> dict[str, float]:
    """For each of `verbs` the largest difference between accel and reference, relative to the largest number.

    >>> from imlp.spec import Shared
    >>> max(layer_errors(Shared(2, 3, 4)).values()) < TOLERANCE["float32"]
    True
    """
    accel = backend("accel")
    import torch

    rng = np.random.default_rng(seed)
    weight = init.prior_weight(spec, rng=rng)
    bias = None if spec.bias_shape is None else rng.standard_normal(spec.bias_shape)
    dense = init.uniform(spec.matrix_shape, spec.matrix_shape[1], rng=rng)
    x, dy = (rng.standard_normal((2, size)) for size in reversed(spec.matrix_shape))

    def on_device(array: Any) -> Any:
        return _each(array, lambda one: torch.tensor(one, dtype=getattr(torch, dtype), device=device))

    def rounded(array: Any) -> Any:
        """What the device really holds, so that only the computing is compared."""
        return _each(on_device(array), lambda one: accel.to_numpy(one).astype(np.float64))

    def gradients() -> tuple[list[Any], list[Any]]:
        """Of the parameters, the bias (where there are any) and the input: by autograd, and from the matrix."""
        arrays, small, inputs = (spec.named(on_device(weight)), on_device(bias), on_device(x))
        leaves = [leaf.requires_grad_() for leaf in (*arrays.values(), small, inputs) if leaf is not None]
        y = accel.apply(spec, spec.unnamed(arrays), small, inputs)
        product = (y * on_device(dy)).sum()  # a number: torch loads sympy for anything else
        dw = spec.named(reference.adjoint(spec, dys.T @ xs)).values()
        db = [] if bias is None else [reference.adjoint_bias(spec, dys.sum(0))]
        return list(torch.autograd.grad(product, leaves)), [*dw, *db, dys @ reference.matrix(spec, w)]

    def interpolated(alpha: float, add: bool) -> tuple[Any, Any]:
        fast = accel.interpolate(on_device(dense), spec, on_device(weight), alpha, add=add)
        return fast, reference.interpolate(W, spec, w, alpha, add=add)

    w, b, W, xs, dys = map(rounded, (weight, bias, dense, x, dy))
    checks: dict[str, Callable[[], tuple[Any, Any]]] = {
        "matrix": lambda: (accel.matrix(spec, on_device(weight)), reference.matrix(spec, w)),
        "bias": lambda: (accel.expand_bias(spec, on_device(bias)), reference.expand_bias(spec, b)),
        "apply": lambda: (accel.apply(spec, *map(on_device, (weight, bias, x))), reference.apply(spec, w, b, xs)),
        "gradients": gradients,
        "interpolate": lambda: interpolated(0.3, add=False),
        "add": lambda: interpolated(1, add=True),
        "adjoint": lambda: (accel.adjoint(spec, on_device(dense)), reference.adjoint(spec, W)),
        "project": lambda: (accel.project(on_device(dense), spec), reference.project(W, spec)),
    }
    unknown = () if spec.linear else ("gradients", "adjoint", "project")
    return {verb: 0.0 if verb in unknown else _largest(*check()) for verb, check in checks.items() if verb in verbs}


def network_errors(network: Network, *, dtype: str = "float32", device: str = "cpu", seed: int = 0) -> dict[str, float]:
    """The same for a whole network: logits and gradients of the prior and of an I-MLP, and the interpolation step.

    >>> from imlp.networks import mixer
    >>> max(network_errors(mixer(image=(3, 8, 8), patch=4, channels=6)).values()) < TOLERANCE["float32"]
    True
    """
    accel = backend("accel")
    import torch

    rng = np.random.default_rng(seed)
    images = torch.tensor(rng.standard_normal((2, prod(network.image))), dtype=getattr(torch, dtype), device=device)
    labels = torch.tensor(rng.integers(0, network.classes, 2), device=device)
    x, y = accel.to_numpy(images), accel.to_numpy(labels)
    errors: dict[str, float] = {}
    models = []
    for form, lanes in (("prior", None), ("I-MLP", 1)):
        fast = accel.init(network, dense=form != "prior", seed=seed, lanes=lanes, dtype=dtype, device=device)
        held = {name: accel.to_numpy(p).astype(np.float64) for name, p in fast.parameters.items()}
        slow = Model(network, fast.dense, lanes, held)
        models += [fast, slow]
        errors[f"{form} logits"] = _difference(accel.to_numpy(accel.forward(fast, images)), reference.forward(slow, x))
        fast_grads, slow_grads = accel.loss_and_grads(fast, images, labels)[1], reference.loss_and_grads(slow, x, y)[1]
        errors[f"{form} gradients"] = max(
            _difference(accel.to_numpy(fast_grads[name]), gradient, scale=_weight_beside(slow_grads, name))
            for name, gradient in slow_grads.items()
        )
    fast_prior, slow_prior, fast, slow = models
    accel.mix(fast, fast_prior, 0.3)
    reference.mix(slow, slow_prior, 0.3)
    mixed = (_difference(accel.to_numpy(fast.parameters[name]), p) for name, p in slow.parameters.items())
    return errors | {"interpolation": max(mixed)}


def _weight_beside(gradients: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The gradient to compare with: that of a bias is zero but for rounding where a norm takes the bias away again."""
    layer = name.rpartition(".")[0]
    beside = [each for each in gradients if each.rpartition(".")[0] == layer and each != f"{layer}.bias"]
    return np.concatenate([gradients[each].ravel() for each in beside])


def _each(array: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(array, dict):
        return {name: convert(one) for name, one in array.items()}
    return None if array is None else convert(array)


def _largest(fast: Any, slow: Any) -> float:
    if isinstance(slow, dict):
        return max(_largest(fast[name], slow[name]) for name in slow)
    if isinstance(slow, list):
        return max(map(_largest, fast, slow))
    return 0.0 if slow is None else _difference(backend("accel").to_numpy(fast), reference.to_numpy(slow))


def _difference(fast: np.ndarray, slow: np.ndarray, scale: np.ndarray | None = None) -> float:
    """Relative to the largest number (of `scale`); infinite where the shapes or the finite numbers are not the same."""
    if fast.shape != slow.shape or not np.isfinite(fast).all():
        return float("inf")
    largest = np.abs(slow if scale is None else scale).max(initial=0)
    return float(np.abs(fast - slow).max(initial=0) / max(largest, 1e-30))
