"""The couplings `pathway` and `gate` for PyTorch models: a dense layer beside its structured one, both trained."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from imlp.couplings.moves import BRANCHING
from imlp.errors import ModuleError, known
from imlp.nn.choice import Layers
from imlp.nn.dense import Dense
from imlp.nn.pairs import pairs, unwrapped


class Branches(nn.Module):
    """`y = prior(x) + dense(x)`, or with a gate `g prior(x) + (1 - g) dense(x)`, where `g = sigmoid(gate)`."""

    gate: nn.Parameter | None

    def __init__(self, dense: Dense, prior: nn.Module, gate: float | None = None) -> None:
        super().__init__()
        self.dense, self.prior = dense, prior
        start = None if gate is None else torch.logit(torch.tensor(gate, dtype=torch.float64)).to(dense.weight)
        self.register_parameter("gate", None if start is None else nn.Parameter(start))

    def forward(self, x: Tensor) -> Tensor:
        y_w, y_u = self.prior(x), self.dense(x)
        if self.gate is None:
            return torch.add(y_w, y_u)
        return torch.lerp(y_u, y_w, torch.sigmoid(self.gate))


def couple(model: nn.Module, prior: nn.Module, coupling: str, *, layers: Layers = None, gate: float = 0.5) -> nn.Module:
    """Give dense layers of `model` a branch with a copy of the prior's layer, in place, and return the model.

    `pathway` adds the two, `W = matrix(w) + U`; `gate` learns a number `g` per layer, `W = g matrix(w) + (1 - g) U`,
    which starts as given. `decay_groups` has the weight decays for an optimizer.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> model = couple(densify(prior, (1, 4, 4)), prior, "gate")
    >>> [name for name, _ in model.named_parameters()]
    ['0.gate', '0.dense.weight', '0.dense.bias', '0.prior.weight', '0.prior.bias']
    """
    known(coupling, BRANCHING, "coupling with branches")
    if not 0 < gate < 1:
        raise ModuleError(f"gate is {gate!r}", "give a number between 0 and 1")
    inner = unwrapped(model)
    for name, pair in pairs(model, prior, layers).items():
        if pair.own is None:
            raise ModuleError(f"coupling {coupling!r} needs a prior", "give the module that was densified")
        parent, _, own = name.rpartition(".")
        made = Branches(pair.dense, copy.deepcopy(pair.own), gate if coupling == "gate" else None)
        setattr(inner.get_submodule(parent), own, made)
    return model


def decay_groups(model: nn.Module, *, prior: float = 1e-4, rest: float = 1e-2) -> list[dict[str, Any]]:
    """Parameters for an optimizer, in groups with a weight decay each: `w` of the branches, their `U`, all others.

    >>> from imlp.nn import densify
    >>> conv = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    >>> groups = decay_groups(couple(densify(conv, (1, 4, 4)), conv, "pathway"))
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(2, 0.0001), (2, 0.01), (0, 0.0)]
    """
    branches = [own for own in model.modules() if isinstance(own, Branches)]
    small = [p for own in branches for p in own.prior.parameters()]
    dense = [p for own in branches for p in own.dense.parameters()]
    taken = {id(p) for p in (*small, *dense)}
    others = [p for p in model.parameters() if id(p) not in taken]
    groups = ((small, prior), (dense, rest), (others, 0.0))
    return [{"params": own, "weight_decay": decay} for own, decay in groups]
