"""Weight matching (git-re-basin, Ainsworth et al. 2023): hidden units of one network in the order of another's.

A network computes the same function with its hidden units in any order. Which order is nearest to another network is a
linear assignment for one layer, and for several is found one layer at a time, until none improves.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from imlp.errors import ArrayError
from imlp.model import Model
from imlp.networks import Activation, Layer, Norm, Operation, Residual

MOST_SWEEPS = 100  # over all layers; a handful is usual


class Compared(NamedTuple):
    """An array of either network, and whose units lie along each of its axes (None: they stay where they are)."""

    own: np.ndarray
    other: np.ndarray
    units: tuple[str | None, ...]


def matched(arrays: Sequence[Compared]) -> dict[str, np.ndarray]:
    """The order of each layer's units in which `sum <other, own>` over all arrays is largest, found layer by layer.

    >>> W = np.arange(6.0).reshape(3, 2)
    >>> matched([Compared(W[[2, 0, 1]], W, ("hidden", None))])
    {'hidden': array([1, 2, 0])}
    """
    from scipy.optimize import linear_sum_assignment

    sizes = {name: n for a in arrays for name, n in zip(a.units, a.own.shape, strict=True) if name is not None}
    orders = {name: np.arange(n) for name, n in sizes.items()}
    for _ in range(MOST_SWEEPS):
        improved = False
        for name, before in orders.items():
            likeness = sum(_likeness(a, axis, orders) for a in arrays for axis, of in enumerate(a.units) if of == name)
            _, order = linear_sum_assignment(likeness, maximize=True)
            gain = likeness[np.arange(len(order)), order].sum() - likeness[np.arange(len(order)), before].sum()
            if gain > 1e-12 * abs(likeness).sum():
                orders[name], improved = order, True
        if not improved:
            break
    return orders


def _likeness(a: Compared, axis: int, orders: dict[str, np.ndarray]) -> Any:
    """Row `i`, column `j`: how much unit `j` of the network looks like unit `i` of the other, as the rest now lies."""
    units = a.own
    for along, name in enumerate(a.units):
        if along != axis and name is not None:
            units = units.take(orders[name], along)
    rows = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (a.other, units)]
    return rows[0].astype(np.float64) @ rows[1].astype(np.float64).T


def hidden(operations: Sequence[Operation]) -> Iterator[tuple[Layer, list[Norm], Layer]]:
    """Each layer whose units may lie in any order, with the norms after it and the only layer that reads them.

    Units that a sum, a mean or a norm over some of them reads stay where they are.
    """
    for n, first in enumerate(operations):
        if isinstance(first, Residual):
            yield from hidden(first.body)
        norms: list[Norm] = []
        for then in operations[n + 1 :] if isinstance(first, Layer) else ():
            match then:
                case Layer():
                    yield first, norms, then  # type: ignore[misc]
                    break
                case Norm(features=features) if features == first.spec.matrix_shape[0]:  # type: ignore[union-attr]
                    norms.append(then)
                case Activation():
                    pass
                case _:
                    break


def align_(backend: Any, model: Model, prior: Model) -> dict[str, np.ndarray]:
    """Put the hidden units of an I-MLP into the order that is nearest to its prior's, in place; that order by layer.

    What the optimizer keeps for them moves with them.
    """
    network = model.network
    if network.is_module:
        problem = f"{network.name} is a PyTorch model: which of its units may change places is not known"
        raise ArrayError(problem, "use imlp.nn.align_ on the modules")
    own, small = model.parameters, prior.parameters
    chains: dict[str, tuple[list[str], str]] = {}  # parameters of the norms after a layer, and the layer that reads it
    for first, norms, then in hidden(network.operations(dense=True)):
        if first.name in network.interpolated:
            parts = [f"{norm.name}.{part}" for norm in norms for part in ("weight", "bias")]
            chains[first.name] = [part for part in parts if part in own], then.name
    readers = {then: name for name, (_, then) in chains.items()}
    arrays: list[tuple[Any, Any, tuple[str | None, ...]]] = []
    for layer in (layer for layer in (*network.layers, network.head) if f"{layer.name}.weight" in small):
        rows, name = layer.name if layer.name in chains else None, layer.name
        W_P = backend.matrix(layer.spec, prior.weight_of(name, layer.spec), layout="dense")
        arrays.append((own[f"{name}.weight"], W_P, (rows, readers.get(name))))
        arrays.append((own[f"{name}.bias"], backend.expand_bias(layer.spec, small[f"{name}.bias"]), (rows,)))
    arrays += [(own[part], small[part], (name,)) for name, (parts, _) in chains.items() for part in parts]
    to_numpy = backend.to_numpy
    orders = matched([Compared(to_numpy(one), to_numpy(other), units) for one, other, units in arrays if any(units)])
    for name, order in orders.items():
        along, then_read = chains[name]
        for numbers in (own, *model.state.values()):
            for part in (f"{name}.weight", f"{name}.bias", *along):
                numbers[part][...] = numbers[part][order]
            reader = numbers[f"{then_read}.weight"]
            reader[...] = reader[:, order]
    return orders
