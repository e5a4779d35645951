"""The knob: moves the dense layers of a model towards those of its prior, in place.

Nothing of the size of `W` is allocated. A coupling is a function of a pair of layers and alpha; `COUPLINGS` names them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from imlp import checks
from imlp.accel import expand_bias, interpolate, pull, pull_bias
from imlp.couplings.schedule import Schedule, parse
from imlp.errors import AlphaError, ModuleError, known
from imlp.nn.choice import Layers, matches
from imlp.nn.pairs import Pair, pairs, prior_numbers, unwrapped

AlphaOf = Callable[[int], float | None]


class Knobs(NamedTuple):
    """What a mixing does to a layer: its alpha, and for `self` that of sharing."""

    alpha: float
    sharing: float


def _towards_prior(pair: Pair, alpha: float, biases: bool, *, keep: float) -> None:
    """`W <- keep W + alpha matrix(w)`, and the bias likewise."""
    dense, own = pair
    assert own is not None
    weight, bias = prior_numbers(own, dense.spec, like=dense.weight)
    mode = "add" if keep == 1 else "interpolate"
    interpolate(dense.weight.detach(), dense.spec, weight, alpha, mode=mode)
    if biases and dense.bias is not None:
        b = dense.bias.detach().mul_(keep)
        if bias is not None:
            b.add_(expand_bias(dense.spec, bias), alpha=alpha)


def _interpolate(pair: Pair, knobs: Knobs, biases: bool) -> None:
    _towards_prior(pair, knobs.alpha, biases, keep=1 - knobs.alpha)


def _add(pair: Pair, knobs: Knobs, biases: bool) -> None:
    _towards_prior(pair, knobs.alpha, biases, keep=1.0)


def _self(pair: Pair, knobs: Knobs, biases: bool) -> None:
    """`W <- W - locality (W - M * W) - sharing (M * W - Pi(W))`; the bias is shared or not."""
    spec, b = pair.dense.spec, pair.dense.bias
    pull(pair.dense.weight.detach(), spec, knobs.alpha, knobs.sharing)
    if biases and b is not None:
        pull_bias(b.detach(), spec, knobs.sharing)


COUPLINGS: dict[str, Callable[[Pair, Knobs, bool], None]] = {"interpolate": _interpolate, "add": _add, "self": _self}
WITHOUT_PRIOR = ("self",)


class Interpolation:
    """Steps after the optimizers, as a learning-rate scheduler does: `knob.step()` mixes every `every`-th time.

    - `alpha`: a number; a schedule as `train` takes it (`"decay:0.5:2"`), whose epochs are here the times that it
      mixes; a function of the step, counted from 0; or a mapping from names, globs or types of the prior's layers to
      any of these, in which the first that matches counts, names before globs, and other layers are left alone
    - `coupling`: `"interpolate"`: `W <- (1 - alpha) W + alpha W_P`; `"add"`: `W <- W + alpha W_P`; `"self"`:
      `W <- (1 - alpha) W + alpha Pi(W)` with the nearest prior `Pi(W)`, for which `prior` is None
    - `alpha_sharing`: of `self`, for what is local and not shared; `alpha` is then for what is not local
    - `optimizer`: its state of each parameter that was mixed is deleted, so that Adam starts again for it
    - `layers`: which of the dense layers, by name or glob
    - `biases`: mix them as well
    - `steps`: how often `step()` will be called in all, for schedules that have to know (`decay`, `end`)

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Flatten())
    >>> model = densify(prior, (1, 4, 4))
    >>> knob = Interpolation(model, prior, alpha=1)
    >>> knob.step()
    >>> x = torch.ones(2, 1, 4, 4)
    >>> torch.allclose(model(x), prior(x), atol=1e-6)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        prior: nn.Module | None,
        alpha: Any,
        *,
        coupling: str = "interpolate",
        every: int = 1,
        layers: Layers = None,
        biases: bool = True,
        steps: int | None = None,
        alpha_sharing: Any = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.coupling = known(coupling, COUPLINGS, "coupling")
        if prior is None and coupling not in WITHOUT_PRIOR:
            raise ModuleError(f"coupling {coupling!r} needs a prior", f"give one, or use {', '.join(WITHOUT_PRIOR)}")
        for name, value in (("every", every), ("steps", 1 if steps is None else steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModuleError(f"{name} is {value!r}", "give a whole number of at least 1")
        self.every, self.biases, self.steps = every, biases, steps
        self.pairs = pairs(model, prior, layers)
        self.calls = 0
        own = {name: pair.dense if pair.own is None else pair.own for name, pair in self.pairs.items()}
        self._alphas = {name: given for name, given in self._by_layer(alpha, own).items() if given is not None}
        if alpha_sharing is not None and coupling != "self":
            raise ModuleError(f"alpha_sharing is for the coupling self, not {coupling}", "leave it out")
        shared = {} if alpha_sharing is None else self._by_layer(alpha_sharing, own)
        self._sharing = {name: given for name, given in shared.items() if given is not None}
        self._has_two, self.optimizer = alpha_sharing is not None, optimizer

    def step(self) -> None:
        """Count a step of training, and mix if it is due."""
        if (self.calls + 1) % self.every == 0:
            self._mix()
        self.calls += 1

    @torch.no_grad()
    def _mix(self) -> None:
        alphas, sharing = self.alphas, self._now(self._sharing) if self._has_two else self.alphas
        for name in dict.fromkeys((*alphas, *sharing)):
            knobs, dense = Knobs(alphas.get(name, 0.0), sharing.get(name, 0.0)), self.pairs[name].dense
            if any(knobs):
                COUPLINGS[self.coupling](self.pairs[name], knobs, self.biases)
                mixed = [dense.weight, dense.bias if self.biases else None]
                for parameter in mixed:
                    if self.optimizer is not None and parameter is not None:
                        self.optimizer.state.pop(parameter, None)

    @property
    def alphas(self) -> dict[str, float]:
        """Alpha of each layer that the next mixing moves."""
        return self._now(self._alphas)

    def _now(self, functions: Mapping[str, AlphaOf]) -> dict[str, float]:
        found = {name: alpha(self.calls) for name, alpha in functions.items()}
        return {name: checks.alphas(alpha, None)[0] for name, alpha in found.items() if alpha is not None}

    def state_dict(self) -> dict[str, Any]:
        """What it takes to resume; the alphas themselves are given again."""
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = int(state["calls"])

    def _by_layer(self, alpha: Any, own: Mapping[str, nn.Module]) -> dict[str, AlphaOf | None]:
        if not isinstance(alpha, Mapping):
            return dict.fromkeys(own, self._function(alpha))
        functions = {what: self._function(value) for what, value in alpha.items()}
        for what in alpha:
            if not any(matches(name, module, what) for name, module in own.items()):
                raise ModuleError(f"alpha has {what!r}, which is none of the layers", f"there are {', '.join(own)}")
        found: dict[str, AlphaOf | None] = {}
        for name, module in own.items():
            fitting = [what for what in functions if matches(name, module, what)]
            fitting.sort(key=lambda what: (what != name, isinstance(what, type)))  # stable: the first of equals
            found[name] = functions[fitting[0]] if fitting else None
        return found

    def _function(self, alpha: Any) -> AlphaOf:
        """Alpha as a function of how often `step` was called before."""
        if callable(alpha):
            return alpha
        if isinstance(alpha, str) and "=" in alpha:
            pairs = (part.partition("=") for part in alpha.split(","))
            raise AlphaError(f"alpha is {alpha!r}", f"give a mapping: { ({name: value for name, _, value in pairs}) }")
        schedule = parse(alpha)
        if schedule.kind in ("decay", "end") and self.steps is None:
            problem = f"alpha {schedule} depends on how long the training is"
            raise AlphaError(problem, "give steps=: how often step() will be called")
        return partial(self._scheduled, schedule)

    def _scheduled(self, schedule: Schedule, calls: int) -> float | None:
        times, n = (self.steps or 1) // self.every, calls // self.every
        over = schedule.kind in ("decay", "end") and n >= times
        return None if over else schedule.at(n, times)


def interpolate_(
    model: nn.Module,
    prior: nn.Module | None,
    alpha: Any,
    *,
    coupling: str = "interpolate",
    layers: Layers = None,
    biases: bool = True,
) -> nn.Module:
    """Mix the prior into the model's dense layers once, in place; the arguments are those of `Interpolation`."""
    Interpolation(model, prior, alpha, coupling=coupling, layers=layers, biases=biases).step()
    return model


@torch.no_grad()
def relax_(model: nn.Module, prior: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
    """Let the model become the prior, in place, from where it may train freely (d'Ascoli et al. 2019).

    Every parameter and buffer that is not a dense layer's is copied by its name. Given an optimizer, its state is
    cleared.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 5))
    >>> model = relax_(densify(prior, (1, 4, 4)), prior)
    >>> x = torch.ones(2, 1, 4, 4)
    >>> torch.allclose(model(x), prior(x), atol=1e-6)
    True
    """
    knob = Interpolation(model, prior, 1)
    dense = {id(tensor) for pair in knob.pairs.values() for tensor in pair.dense.parameters()}
    knob.step()
    theirs = unwrapped(prior).state_dict(keep_vars=True)
    for name, own in unwrapped(model).state_dict(keep_vars=True).items():
        if id(own) not in dense:
            if name not in theirs or theirs[name].shape != own.shape:
                raise ModuleError(f"the prior has no {name} of shape {tuple(own.shape)}", "give the one it was made of")
            own.copy_(theirs[name])
    if optimizer is not None:
        optimizer.state.clear()
    return model
