"""The knob: moves the dense layers of a model towards those of its prior, in place.

Nothing of the size of `W` is allocated. A coupling is a function of a pair of layers and alpha; `COUPLINGS` names them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from imlp import checks
from imlp.accel import expand_bias, interpolate, project
from imlp.couplings.schedule import Schedule, parse
from imlp.errors import AlphaError, ModuleError, known
from imlp.nn.choice import Layers, matches
from imlp.nn.pairs import Pair, pairs, prior_numbers, project_bias

AlphaOf = Callable[[int], float | None]


def _towards_prior(pair: Pair, alpha: float, biases: bool, *, keep: float) -> None:
    """`W <- keep W + alpha matrix(w)`, and the bias likewise."""
    dense, own = pair
    assert own is not None
    weight, bias = prior_numbers(own, dense.spec, like=dense.weight)
    mode = "add" if keep == 1 else "interpolate"
    interpolate(dense.weight.detach(), dense.spec, weight, alpha, mode=mode)
    if biases and dense.bias is not None:
        small = None if bias is None else expand_bias(dense.spec, bias)
        _mix(dense.bias.detach(), small, keep, alpha)


def _interpolate(pair: Pair, alpha: float, biases: bool) -> None:
    _towards_prior(pair, alpha, biases, keep=1 - alpha)


def _add(pair: Pair, alpha: float, biases: bool) -> None:
    _towards_prior(pair, alpha, biases, keep=1.0)


def _self(pair: Pair, alpha: float, biases: bool) -> None:
    """`W <- (1 - alpha) W + alpha Pi(W)` with `Pi(W) = matrix(project(W))`; the bias likewise."""
    W, b, spec = pair.dense.weight.detach(), pair.dense.bias, pair.dense.spec
    interpolate(W, spec, project(W, spec), alpha)
    if biases and b is not None:
        _mix(b.detach(), expand_bias(spec, project_bias(b.detach(), spec)), 1 - alpha, alpha)


def _mix(b: Tensor, small: Tensor | None, keep: float, alpha: float) -> None:
    b.mul_(keep)
    if small is not None:
        b.add_(small, alpha=alpha)


COUPLINGS: dict[str, Callable[[Pair, float, bool], None]] = {"interpolate": _interpolate, "add": _add, "self": _self}
WITHOUT_PRIOR = ("self",)


class Interpolation:
    """Steps after the optimizers, as a learning-rate scheduler does: `knob.step()` mixes every `every`-th time.

    - `alpha`: a number; a schedule as `train` takes it (`"decay:0.5:2"`), whose epochs are here the times that it
      mixes; a function of the step, counted from 0; or a mapping from names, globs or types of the prior's layers to
      any of these, in which the first that matches counts, names before globs, and other layers are left alone
    - `coupling`: `"interpolate"`: `W <- (1 - alpha) W + alpha W_P`; `"add"`: `W <- W + alpha W_P`; `"self"`:
      `W <- (1 - alpha) W + alpha Pi(W)` with the nearest prior `Pi(W)`, for which `prior` is None
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

    def step(self) -> None:
        """Count a step of training, and mix if it is due."""
        if (self.calls + 1) % self.every == 0:
            _mix_pairs(self.pairs, self.alphas, self.coupling, self.biases)
        self.calls += 1

    @property
    def alphas(self) -> dict[str, float]:
        """Alpha of each layer that the next mixing moves."""
        found = {name: alpha(self.calls) for name, alpha in self._alphas.items()}
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
def _mix_pairs(chosen: Mapping[str, Pair], alphas: Mapping[str, float], coupling: str, biases: bool) -> None:
    for name, alpha in alphas.items():
        if alpha != 0:
            COUPLINGS[coupling](chosen[name], alpha, biases)
