"""The line from a dense model to its prior, and hidden units in the order that is nearest to the prior's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from imlp.accel import to_numpy
from imlp.errors import OUTSIDERS, ModuleError, in_a_line
from imlp.model.align import Compared, matched
from imlp.model.line import Line, measured
from imlp.nn.choice import Layers
from imlp.nn.dense import Dense
from imlp.nn.interpolation import Interpolation, interpolate_
from imlp.nn.pairs import Pair, is_computed, prior_numbers, tie_of, ties, unwrapped
from imlp.nn.watch import undisturbed

ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish,
    nn.Dropout, nn.Identity,
)  # fmt: skip
FUNCTIONS: set[Any] = {F.relu, F.gelu, F.silu, torch.relu, torch.tanh, torch.sigmoid, "relu", "tanh", "sigmoid"}


@torch.no_grad()
def line(
    model: nn.Module, prior: nn.Module, images: Tensor, labels: Tensor, *, points: int = 11, layers: Layers = None
) -> Line:
    """Accuracy and mean cross entropy of `(1 - t) W + t W_P` for `points` values of t, in evaluation mode.

    The dense layers, with their biases, move to those of the prior together, and then each alone; everything else is
    the model's own for every t. Afterwards the model is as it was. `barrier()` of what is returned says how far the
    line is above the one between its ends.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 5))
    >>> model = densify(prior, (1, 4, 4), init="prior")
    >>> found = line(model, prior, torch.ones(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64), points=3)
    >>> [point.t for point in found["all layers"]]
    [0.0, 0.5, 1.0]
    """
    chosen = Interpolation(model, prior, 0, layers=layers).pairs
    start = [(p, p.clone()) for pair in chosen.values() for p in pair.dense.parameters()]

    def restore() -> None:
        for parameter, before in start:
            parameter.copy_(before)

    def move(names: Sequence[str], t: float) -> None:
        restore()
        interpolate_(model, prior, t, layers=list(names))

    def score() -> tuple[float, float]:
        logits = model(images)
        return float((logits.argmax(1) == labels).double().mean()), float(nn.functional.cross_entropy(logits, labels))

    try:
        with undisturbed(model):
            return measured(list(chosen), points, move, score, lambda what, done, total: None)
    finally:
        restore()


@torch.no_grad()
def align_(model: nn.Module, prior: nn.Module) -> dict[str, Tensor]:
    """Put a dense model's hidden units into the order that is nearest to its prior's, in place; that order by layer.

    Weight matching, as in git-re-basin. The model computes the same function as before. Only units that the next
    `Dense` or `nn.Linear` alone reads, after activations and a `LayerNorm` over all of them, change places; those that
    a sum, a batch norm or pooling reads stay. Do this before the model's optimizer has a state.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    >>> model = densify(prior, (1, 4, 4), init="prior")
    >>> align_(model, prior)["0"].tolist() == list(range(32))
    True
    """
    inner, chosen = unwrapped(model), Interpolation(model, prior, 0).pairs
    chains = _chains(inner, chosen)
    if not chains:
        raise ModuleError("the model has no hidden units that may change places", "see imlp.nn.align_ for which may")
    readers = {reader: name for name, (_, reader) in chains.items()}
    along = {part: name for name, (norms, _) in chains.items() for part in (name, *norms)}
    compared = []
    for name in dict.fromkeys((*along, *readers)):
        layer, other = inner.get_submodule(name), unwrapped(prior).get_submodule(name)
        if isinstance(layer, Dense):
            other = Dense.of_prior(layer.spec, *prior_numbers(other, layer.spec, like=layer.weight))
        for part in ("weight", "bias"):
            one, theirs = getattr(layer, part), getattr(other, part)
            units: tuple[str | None, ...] = (along.get(name), readers.get(name))
            if one is None or theirs is None:
                continue
            if part == "bias" or isinstance(layer, nn.LayerNorm):
                one, theirs, units = one.flatten(), theirs.flatten(), units[:1]
            if any(units):
                compared.append(Compared(to_numpy(one), to_numpy(theirs), units))
    orders = {name: torch.from_numpy(order) for name, order in matched(compared).items()}
    for name, order in orders.items():
        norms, reader = chains[name]
        for parameter in (p for part in (name, *norms) for p in inner.get_submodule(part).parameters()):
            rows_of = parameter.view(len(order), -1)
            rows_of.copy_(rows_of[order])
        columns_of = inner.get_submodule(reader).weight
        columns_of.copy_(columns_of[:, order])  # type: ignore[operator, index]
    return orders


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Dense) or super().is_leaf_module(m, module_qualified_name)


def _chains(model: nn.Module, chosen: Mapping[str, Pair]) -> dict[str, tuple[list[str], str]]:
    """For each layer whose units may lie in any order, the norms after it and the only layer that reads them."""
    try:
        nodes = list(_Tracer().trace(model).nodes)
    except OUTSIDERS as error:  # whatever the model's own code raises
        problem = f"torch.fx cannot follow the model: {in_a_line(error)}"
        raise ModuleError(problem, "align a part of it, with that part of the prior") from error
    modules, shared = dict(model.named_modules()), ties(model)
    hooked = {name for name, m in modules.items() if m._forward_hooks or m._forward_pre_hooks}
    uses = Counter(str(node.target).removesuffix(".weight").removesuffix(".bias") for node in nodes)

    def is_alone(name: str) -> bool:
        made = any(is_computed(modules[name], part) for part in ("weight", "bias"))
        return uses[name] == 1 and name not in hooked and not made and not tie_of(name, shared)

    readers: dict[str, tuple[list[str], str]] = {}
    for node in nodes:
        if node.op != "call_module" or node.target not in chosen or not is_alone(node.target):
            continue
        norms: list[str] = []
        units, then = modules[node.target].weight.shape[0], node
        while len(then.users) == 1:
            (then,) = then.users
            name = str(then.target)
            m = modules[name] if then.op == "call_module" else None
            if name in hooked:
                break
            if isinstance(m, Dense) or type(m) is nn.Linear:
                if m.weight.shape[1] == units and is_alone(name):
                    readers[node.target] = norms, name
                break
            if type(m) is nn.LayerNorm and prod(m.normalized_shape) == units and is_alone(name):
                norms.append(name)
            elif not (type(m) in ACTIVATIONS or (m is None and then.target in FUNCTIONS) or _flattens(then, m)):
                break
    return readers


def _flattens(node: fx.Node, module: nn.Module | None) -> bool:
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    return node.target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs
