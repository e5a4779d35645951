"""The couplings `pathway` and `gate` for PyTorch models: a dense layer beside its structured one, both trained."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from imlp.accel import layer_verbs
from imlp.couplings import AnyCoupling, Blend, Branching
from imlp.couplings import coupling as coupling_of
from imlp.errors import ModuleError
from imlp.nn.choice import Layers
from imlp.nn.dense import Dense
from imlp.nn.pairs import is_computed, pairs, prior_numbers, unwrapped
from imlp.nn.watch import copied
from imlp.spec import Spec


def of_parts(
    coupling: Branching, spec: Spec, parts: Mapping[str, Tensor], x: Tensor, y_u: Tensor, prior: Callable[[], Tensor]
) -> Tensor:
    """What a layer made of parts computes for `x (N, M_in)`: `y_u` is what `U` computes, `prior()` what `w` does."""
    if not isinstance(coupling, Blend):
        names, arrays = list(parts), list(parts.values())
        W, b = _Made.apply(coupling, spec, names, *arrays)
        return nn.functional.linear(x, W, b).view(y_u.shape)
    g, y_w = coupling.call("share", parts), prior()
    return torch.add(y_w, y_u) if g is None else torch.lerp(y_u, y_w, g)


class _Made(torch.autograd.Function):
    """`W` and `b` of their parts, with the way back that the coupling knows."""

    @staticmethod
    def forward(ctx: Any, coupling: Branching, spec: Spec, names: list[str], *arrays: Tensor) -> Any:
        ctx.about = coupling, spec, names
        ctx.save_for_backward(*arrays)
        return coupling.call("made", layer_verbs, spec, dict(zip(names, arrays, strict=True)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        coupling, spec, names = ctx.about
        parts = dict(zip(names, ctx.saved_tensors, strict=True))
        back = coupling.call("pulled_back", layer_verbs, spec, parts, *gradients)
        return None, None, None, *(back[name].reshape(parts[name].shape) if name in back else None for name in names)


class Branches(nn.Module):
    """A dense layer made of parts: `dense` is `U`, `prior` holds `w`, and the coupling may add numbers.

    With `pathway`, `y = prior(x) + dense(x)`; with `gate`, `g prior(x) + (1 - g) dense(x)`, where `g = sigmoid(gate)`.
    """

    def __init__(self, dense: Dense, prior: nn.Module, coupling: Branching) -> None:
        super().__init__()
        self.dense, self.prior, self.coupling = dense, prior, coupling
        for name, start in coupling.numbers(dense.spec).items():
            value = torch.as_tensor(start, dtype=torch.float64).to(dense.weight)
            self.register_parameter(name, nn.Parameter(value.clone()))

    def forward(self, x: Tensor) -> Tensor:
        y_u, spec = self.dense(x), self.dense.spec
        numbers = {name: getattr(self, name) for name in self.coupling.numbers(spec)}
        if isinstance(self.coupling, Blend):
            return of_parts(self.coupling, spec, numbers, x, y_u, lambda: self.prior(x))
        w, b_w = (getattr(self.prior, part, None) for part in ("weight", "bias"))  # not detached: they are trained
        w = prior_numbers(self.prior, spec, like=self.dense.weight)[0] if w is None else w.reshape(spec.weight_shape)
        small = spec.named(w) | {"bias": b_w}
        parts = {"weight": self.dense.weight, "bias": self.dense.bias} | numbers
        parts |= {f"prior.{part}": array for part, array in small.items()}
        there = {name: array for name, array in parts.items() if array is not None}
        return of_parts(self.coupling, spec, there, x.reshape(-1, spec.matrix_shape[1]), y_u, lambda: y_u)


def couple(
    model: nn.Module,
    prior: nn.Module,
    coupling: AnyCoupling,
    *,
    layers: Layers = None,
    gate: float = 0.5,
) -> nn.Module:
    """Give dense layers of `model` a branch with a copy of the prior's layer, in place, and return the model.

    `pathway` adds the two, `W = matrix(w) + U`; `gate` learns a number `g` per layer, `W = g matrix(w) + (1 - g) U`,
    which starts as given. A class or an object derived from `imlp.couplings.Branching` does as it says. `decay_groups`
    has the weight decays for an optimizer.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> model = couple(densify(prior, (1, 4, 4), init="random"), prior, "gate")
    >>> [name for name, _ in model.named_parameters()]
    ['0.gate', '0.dense.weight', '0.dense.bias', '0.prior.weight', '0.prior.bias']
    """
    way = coupling_of(coupling, **({"gate": gate} if coupling == "gate" else {}))
    if not isinstance(way, Branching):
        raise ModuleError(f"coupling {way.name!r} makes no layer of parts", "use pathway or gate, or a Branching")
    inner = unwrapped(model)
    for name, pair in pairs(model, prior, layers).items():
        if pair.prior is None:
            raise ModuleError(f"coupling {way.name!r} needs a prior", "give the module that was densified")
        parent, _, last = name.rpartition(".")
        if not last:
            raise ModuleError("the model is a single layer", "put it into a torch.nn.Sequential")
        if not isinstance(way, Blend) and any(is_computed(pair.prior, part) for part in ("weight", "bias")):
            problem = f"the prior's layer {name} makes its weight or bias of other parameters"
            raise ModuleError(problem, f"remove the parametrization: coupling {way.name!r} trains the weight itself")
        setattr(inner.get_submodule(parent), last, Branches(pair.dense, copied(pair.prior), way))
    return model


def decay_groups(model: nn.Module, *, prior: float = 1e-4, rest: float = 1e-2) -> list[dict[str, Any]]:
    """Parameters for an optimizer, in groups with a weight decay each: `w` of the branches, their `U`, all others.

    >>> from imlp.nn import densify
    >>> conv = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> groups = decay_groups(couple(densify(conv, (1, 4, 4)), conv, "pathway"))
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(2, 0.0001), (2, 0.01), (0, 0.0)]
    """
    for name, decay in (("prior", prior), ("rest", rest)):
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 <= decay < inf:
            raise ModuleError(f"the weight decay {name} is {decay!r}", "give a number from 0")
    branches = [branch for branch in model.modules() if isinstance(branch, Branches)]
    small = [p for branch in branches for p in branch.prior.parameters()]
    dense = [p for branch in branches for p in branch.dense.parameters()]
    taken = {id(p) for p in (*small, *dense)}
    others = [p for p in model.parameters() if id(p) not in taken]
    return [{"params": group, "weight_decay": d} for group, d in ((small, prior), (dense, rest), (others, 0.0))]
