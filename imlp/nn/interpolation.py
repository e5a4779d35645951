"""The knob: moves the dense layers of a model towards those of its prior, in place.

The couplings are those of `imlp.couplings`. For the package's own, nothing of the size of `W` is allocated.
"""

from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import nn

from imlp import checks
from imlp.accel import layer_verbs
from imlp.couplings import COUPLINGS, AnyCoupling, Mixing, Move
from imlp.couplings import coupling as coupling_of
from imlp.couplings.schedule import Schedule, parse
from imlp.errors import AlphaError, ConfigError, ModuleError
from imlp.model.mixing import move_part
from imlp.nn.choice import Layers, matches
from imlp.nn.pairs import Pair, of_layer, pairs, prior_numbers, unwrapped
from imlp.nn.weights import current, is_computed, tie_of, ties

AlphaOf = Callable[[int], float | None]


class Interpolation:
    """Steps after the optimizers, as a learning-rate scheduler does: `knob.step()` mixes every `every`-th time.

    - `alpha`: a number; a schedule as `train` takes it (`"decay:0.5:2"`), whose epochs are here the times that it
      mixes; a function of the step, counted from 0; or a mapping from names, globs or types of the prior's layers to
      any of these, in which the first that matches counts, names before globs, and other layers are left alone
    - `coupling`: `"interpolate"`: `W <- (1 - alpha) W + alpha W_P`; `"add"`: `W <- W + alpha W_P`; `"self"`:
      `W <- (1 - alpha) W + alpha Pi(W)` with the nearest prior `Pi(W)`, for which `prior` is None; or a class or an
      object derived from `imlp.couplings.Mixing`
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
        coupling: AnyCoupling = "interpolate",
        every: int = 1,
        layers: Layers = None,
        biases: bool = True,
        steps: int | None = None,
        alpha_sharing: Any = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.coupling = _mixing(coupling)
        if prior is None and self.coupling.needs_prior:
            raise ModuleError(f"coupling {self.coupling.name!r} needs a prior", "give one, or use self")
        for name, value in (("every", every), ("steps", 1 if steps is None else steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModuleError(f"{name} is {value!r}", "give a whole number of at least 1")
        self.every, self.biases, self.steps = every, biases, steps
        self._given = unwrapped(model), None if prior is None else unwrapped(prior), layers
        self.pairs = pairs(*self._given)
        self._refuse_what_cannot_be_mixed()
        self.calls = 0
        own = {name: pair.dense if pair.prior is None else pair.prior for name, pair in self.pairs.items()}
        self._alphas = {name: given for name, given in self._by_layer(alpha, own).items() if given is not None}
        if alpha_sharing is not None and "alpha_sharing" not in self.coupling.knobs:
            raise ModuleError(f"alpha_sharing is for the coupling self, not {self.coupling.name}", "leave it out")
        shared = {} if alpha_sharing is None else self._by_layer(alpha_sharing, own)
        self._sharing = {name: given for name, given in shared.items() if given is not None}
        _check_optimizer(optimizer)
        self._has_two, self.optimizer = alpha_sharing is not None, optimizer

    def _refuse_what_cannot_be_mixed(self) -> None:
        groups = ties(self._given[0])
        for name, (dense, own) in self.pairs.items():
            with of_layer(name):
                for part in ("weight", "bias"):
                    if is_computed(dense, part):
                        problem = f"the {part} of the dense layer is made of other parameters, which cannot be mixed"
                        raise ModuleError(problem, "parametrise the prior instead, or remove the parametrization")
                if tied := tie_of(name, groups):
                    problem = f"its numbers are shared: they are {' and '.join(tied)}"
                    raise ModuleError(problem, "give each its own, or they would be mixed twice")
                if self.biases and own is not None and dense.bias is None and current(own, "bias") is not None:
                    raise ModuleError("the prior has a bias, but the dense layer none", "give biases=False")

    def step(self) -> None:
        """Count a step of training, and mix if it is due."""
        if (self.calls + 1) % self.every == 0:
            self._mix()
        self.calls += 1

    @torch.no_grad()
    def _mix(self) -> None:
        now = pairs(*self._given)
        if now != self.pairs:
            names = [name for name in {**self.pairs, **now} if self.pairs.get(name) != now.get(name)]
            raise ModuleError(f"replaced since the knob was made: {', '.join(names)}", "make a new knob")
        alphas, sharing = self.alphas, self._now(self._sharing) if self._has_two else {}
        for name in dict.fromkeys((*alphas, *sharing)):
            second = (sharing.get(name, 0.0),) if self._has_two else ()
            move = Move(self.coupling, (alphas.get(name, 0.0), *second), biases=self.biases)
            if not move.is_idle:
                self._move(self.pairs[name], move)

    def _move(self, pair: Pair, move: Move) -> None:
        dense = pair.dense
        small: tuple[Any, Any] = (None, None)
        if pair.prior is not None and move.coupling.needs_prior:
            small = prior_numbers(pair.prior, dense.spec, like=dense.weight)
        mixed = [dense.weight, dense.bias if move.biases else None]
        for part, parameter, own in zip(("weight", "bias"), mixed, small, strict=True):
            if parameter is not None:
                move_part(move, part, layer_verbs, dense.spec, parameter.detach(), own)
                if self.optimizer is not None:
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
        calls = state.get("calls") if isinstance(state, Mapping) and set(state) == {"calls"} else None
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise ModuleError(f"{state!r:.60} is not the state of a knob", "give what state_dict() returned")
        self.calls = calls

    def _by_layer(self, alpha: Any, own: Mapping[str, nn.Module]) -> dict[str, AlphaOf | None]:
        if not isinstance(alpha, Mapping):
            return dict.fromkeys(own, self._function(alpha))
        if not alpha:
            raise AlphaError("alpha names no layer", f"give a number, or one for some of {', '.join(own)}")
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


def _mixing(coupling: AnyCoupling) -> Mixing:
    try:
        found = coupling_of(coupling)
    except ConfigError as error:
        raise ModuleError(error.problem, error.remedy) from error
    if not isinstance(found, Mixing):
        remedy = "use imlp.nn.couple, or relax_" if found.name in COUPLINGS else "derive it from imlp.couplings.Mixing"
        raise ModuleError(f"coupling {found.name!r} has no alpha", remedy)
    return found


def _check_optimizer(optimizer: Any) -> None:
    """Refuse what has no state by parameter; wrappers around an optimizer have one, too."""
    if optimizer is not None and not isinstance(getattr(optimizer, "state", None), MutableMapping):
        raise ModuleError(f"optimizer is {optimizer!r:.60}", "give the torch.optim.Optimizer itself, or leave it out")


def interpolate_(
    model: nn.Module,
    prior: nn.Module | None,
    alpha: Any,
    *,
    coupling: AnyCoupling = "interpolate",
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
    _check_optimizer(optimizer)
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
