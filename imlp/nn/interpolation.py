"""The knob: moves the dense layers of a model towards those of its prior, in place.

The couplings are those of `imlp.couplings`. For the package's own, nothing of the size of `W` is allocated.
"""

from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, finfo, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from imlp import checks
from imlp.accel import layer_verbs
from imlp.couplings import COUPLINGS, AnyCoupling, Mixing, Move
from imlp.couplings import coupling as coupling_of
from imlp.couplings.schedule import parse
from imlp.errors import AlphaError, ImlpError, ModuleError
from imlp.model.mixing import move_part
from imlp.nn.choice import Layers, listed, matches
from imlp.nn.pairs import Pair, current, is_computed, of_layer, pairs, prior_numbers, tie_of, ties, unwrapped

Alphas = dict[str, float | str | Callable[[int], float | None]]  # of each layer that has one


class Interpolation:
    """Steps after the optimizers, as a learning-rate scheduler does: `knob.step()` mixes every `every`-th time.

    Weights in bfloat16 or float16 are mixed in float32, and what rounding drops is kept for the next time.

    - `alpha`: a number; a schedule as `train` takes it (`"decay:0.5:2"`), whose epochs are here the times that it
      mixes; a function of the step, counted from 0; or a mapping from names, globs or types of the prior's layers to
      any of these: the first match counts, names before globs, and other layers are left alone
    - `coupling`: `"interpolate"`: `W <- (1 - alpha) W + alpha W_P`; `"add"`: `W <- W + alpha W_P`; `"self"`:
      `W <- (1 - alpha) W + alpha Pi(W)` with the nearest prior `Pi(W)`, for which `prior` is None; or a class or an
      object derived from `imlp.couplings.Mixing`
    - `alpha_sharing`: of `self`, for what is local and not shared; `alpha` is then for what is not local
    - `optimizer`: its state of each parameter that was mixed is deleted, so that Adam starts again for it
    - `layers`: which of the dense layers, by name, glob or type of the prior's layer; `!NAME` leaves out
    - `biases`: mix them as well
    - `steps`: how often `step()` will be called in total, for schedules that need it (`decay`, `end`)

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Flatten())
    >>> model = densify(prior, (1, 4, 4), init="random")
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
        optimizer: Optimizer | None = None,
    ) -> None:
        self.coupling = _mixing(coupling)
        if prior is None and self.coupling.needs_prior:
            raise ModuleError(f"coupling {self.coupling.name!r} needs a prior", "give one, or use self")
        self.every, self.biases = _count("every", every), biases
        self.steps = None if steps is None else _count("steps", steps)
        layers = None if layers is None else listed(layers)
        self._given = unwrapped(model), None if prior is None else unwrapped(prior), layers
        self.pairs = pairs(*self._given)
        self._refuse_what_cannot_be_mixed()
        self.calls = 0
        self.alpha, self.alpha_sharing = alpha, alpha_sharing
        self._last: dict[str, float] = {}
        self._remainders: dict[str, Tensor] = {}
        self._handle: RemovableHandle | None = None
        _check_optimizer(optimizer)
        self.optimizer = optimizer

    def __repr__(self) -> str:
        settings = {"coupling": self.coupling.name, "alpha": self.alpha, "alpha_sharing": self.alpha_sharing}
        settings |= {"every": self.every, "layers": list(self.pairs)}
        by_layer = {name: dict(value) for name, value in settings.items() if isinstance(value, Mapping)}
        shown = (f"{name}={value!r}" for name, value in (settings | by_layer).items() if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def alpha(self) -> Any:
        """One value if all layers have the same, otherwise one by layer, to be read; set it as in the constructor."""
        return _common(self._alphas, len(self.pairs))

    @alpha.setter
    def alpha(self, alpha: Any) -> None:
        self._alphas = self._by_layer(alpha)

    @property
    def alpha_sharing(self) -> Any:
        """The second alpha of `self`, in the same form; None if there is only one."""
        return None if self._sharing is None else _common(self._sharing, len(self.pairs))

    @alpha_sharing.setter
    def alpha_sharing(self, alpha: Any) -> None:
        if alpha is not None and "alpha_sharing" not in self.coupling.knobs:
            raise ModuleError(f"alpha_sharing is for the coupling self, not {self.coupling.name}", "leave it out")
        self._sharing = None if alpha is None else self._by_layer(alpha)

    def get_last_alpha(self) -> dict[str, float]:
        return dict(self._last)

    def _refuse_what_cannot_be_mixed(self) -> None:
        groups = ties(self._given[0])
        for name, (dense, small) in self.pairs.items():
            with of_layer(name):
                if part := _made(self.pairs[name]):
                    problem = f"the {part} of the dense layer is made of other parameters, which cannot be mixed"
                    raise ModuleError(problem, "parametrise the prior instead, or remove the parametrization")
                if tied := tie_of(name, groups):
                    problem = f"its numbers are shared: they are {' and '.join(tied)}"
                    raise ModuleError(problem, "give each its own, or they would be mixed twice")
                if self.biases and small is not None and dense.bias is None and current(small, "bias") is not None:
                    raise ModuleError("the prior has a bias, but the dense layer none", "give biases=False")

    def step(self) -> None:
        """Count a step of training, and mix if it is due."""
        if (self.calls + 1) % self.every == 0:
            self._mix()
        self.calls += 1

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Call `step()` after each step of this optimizer; `remove()` of what is returned ends it.

        Neither a pass that only accumulates gradients nor a step that a `GradScaler` skips is one. With several
        optimizers, attach the one that steps last: the knob leaves the one that it was attached to before.

        >>> from imlp.nn import densify
        >>> prior = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Flatten())
        >>> model = densify(prior, (1, 4, 4), init="random")
        >>> knob, optimizer = Interpolation(model, prior, 0.1), torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = knob.attach(optimizer)
        >>> optimizer.step()
        >>> knob.calls
        1
        """
        while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):  # as accelerate wraps it
            optimizer = inner
        if not isinstance(optimizer, Optimizer):
            raise ModuleError(f"attach was given {optimizer!r:.60}", "give a torch.optim.Optimizer")
        if not getattr(type(optimizer).step, "hooked", False):  # its class never called that of torch.optim.Optimizer
            remedy = "call knob.step() after each of its steps"
            raise ModuleError(f"{type(optimizer).__name__} does not call the hooks of its steps", remedy)
        if self._handle is not None:
            self._handle.remove()
        self._handle = optimizer.register_step_post_hook(torch.compiler.disable(self._after))
        return self._handle

    def __getstate__(self) -> dict[str, Any]:
        """A copy is not attached."""
        return vars(self) | {"_handle": None}

    def _after(self, optimizer: Any, *_: Any) -> None:
        skipped = getattr(optimizer, "found_inf", None)  # by a GradScaler for a fused optimizer, which steps by itself
        if skipped is None or not skipped.any():
            self.step()

    @torch.no_grad()
    def _mix(self) -> None:
        now = pairs(*self._given)
        names = [name for name in {**self.pairs, **now} if self.pairs.get(name) != now.get(name) or _made(now[name])]
        if names:
            raise ModuleError(f"replaced since the knob was made: {', '.join(names)}", "make a new knob")
        alphas, sharing = self.alphas, self._now(self._sharing or {})
        for name in dict.fromkeys((*alphas, *sharing)):
            second = () if self._sharing is None else (sharing.get(name, 0.0),)
            move = Move(self.coupling, (alphas.get(name, 0.0), *second), biases=self.biases)
            if any(move.alphas):
                self._move(name, move)
        self._last = alphas

    def _move(self, name: str, move: Move) -> None:
        dense, prior = self.pairs[name]
        small: tuple[Any, Any] = (None, None)
        if prior is not None and move.coupling.needs_prior:
            wide = torch.promote_types(dense.weight.dtype, torch.float32)
            small = prior_numbers(prior, dense.spec, like=dense.weight.new_empty((), dtype=wide))
        mixed = {"weight": dense.weight, "bias": dense.bias if move.biases else None}
        for (part, parameter), theirs in zip(mixed.items(), small, strict=True):
            if parameter is None:
                continue
            there, key = parameter.detach(), f"{name}.{part}".lstrip(".")
            exact = self._exact(key, there)
            move_part(move, part, layer_verbs, dense.spec, exact, theirs)
            if exact is not there:
                there.copy_(exact)
                self._remainders[key] = exact.sub_(there)
            if self.optimizer is not None:
                self.optimizer.state.pop(parameter, None)

    def _exact(self, name: str, there: Tensor) -> Tensor:
        """The numbers in float32 or wider: a narrower type would round each small move away, and the mixing stall."""
        exact = there.to(torch.promote_types(there.dtype, torch.float32))
        if (left := self._remainders.pop(name, None)) is not None:
            info = finfo(there.dtype)  # whatever was written there since, no more is left than its type can round away
            most = exact.abs().clamp_(min=info.tiny).mul_(info.eps)
            exact += left.clamp(-most, most)
        return exact

    @property
    def alphas(self) -> dict[str, float]:
        """Alpha of each layer that the next mixing moves."""
        return self._now(self._alphas)

    def _now(self, given: Alphas) -> dict[str, float]:
        alphas = {name: self._at(alpha) for name, alpha in given.items()}
        return {name: checks.alphas(alpha, None)[0] for name, alpha in alphas.items() if alpha is not None}

    def _at(self, alpha: Any) -> float | None:
        """Alpha now, when `step` was called `calls` times."""
        if callable(alpha):
            return alpha(self.calls)
        schedule, times, n = parse(alpha), (self.steps or 1) // self.every, self.calls // self.every
        over = schedule.kind in ("decay", "end") and n >= times
        return None if over else schedule.at(n, times)

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume. An alpha that is a function is None here: give it again."""
        return {
            "coupling": self.coupling.name,
            "biases": self.biases,
            "calls": self.calls,
            "every": self.every,
            "steps": self.steps,
            "alpha": _saved(self._alphas),
            "alpha_sharing": None if self._sharing is None else _saved(self._sharing),
            "last_alpha": self.get_last_alpha(),
            "remainders": dict(self._remainders),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from this state, with its alphas; a state that is refused changes nothing."""
        before = vars(self).copy()
        try:
            for name, here in (("coupling", self.coupling.name), ("biases", self.biases)):
                if state[name] != here:
                    problem = f"the state is that of a knob with {name}={state[name]!r}, and this one has {here!r}"
                    raise ModuleError(problem, "make it as that one was made")
            self.calls, self.every = _count("calls", state["calls"], least=0), _count("every", state["every"])
            self.steps = None if state["steps"] is None else _count("steps", state["steps"])
            self.alpha = _restored(state["alpha"], self._alphas)
            self.alpha_sharing = state["alpha_sharing"] and _restored(state["alpha_sharing"], self._sharing or {})
            self._last = dict(state["last_alpha"])
            like = {name: self._given[0].get_parameter(name) for name in state["remainders"]}
            left = {name: remainder.reshape(like[name].shape) for name, remainder in state["remainders"].items()}
            self._remainders = {name: remainder.to(like[name].device, copy=True) for name, remainder in left.items()}
        except Exception as error:
            vars(self).update(before)
            if isinstance(error, ImlpError):
                raise
            remedy = "give what state_dict() returned, of a knob for the same layers"
            raise ModuleError(f"{state!r:.60} is not the state of a knob", remedy) from error

    def _by_layer(self, alpha: Any) -> Alphas:
        if not isinstance(alpha, Mapping):
            return dict.fromkeys(self.pairs, self._checked(alpha))
        layers = {name: pair.dense if pair.prior is None else pair.prior for name, pair in self.pairs.items()}
        if not alpha:
            raise AlphaError("alpha names no layer", f"give a number, or one for some of {', '.join(layers)}")
        given = {what: self._checked(value) for what, value in alpha.items()}
        for what in alpha:
            if not any(matches(name, module, what) for name, module in layers.items()):
                raise ModuleError(f"alpha has {what!r}, which is none of the layers", f"there are {', '.join(layers)}")
        alphas: Alphas = {}
        for name, module in layers.items():
            if fitting := [what for what in given if matches(name, module, what)]:
                alphas[name] = given[min(fitting, key=lambda what: (what != name, isinstance(what, type)))]
        return alphas

    def _checked(self, alpha: Any) -> Any:
        """A function as it is, a constant as a number, any other schedule as its text."""
        if callable(alpha):
            return alpha
        if isinstance(alpha, str) and "=" in alpha:
            pairs = (part.partition("=") for part in alpha.split(","))
            raise AlphaError(f"alpha is {alpha!r}", f"give a mapping: { ({name: value for name, _, value in pairs}) }")
        schedule = parse(alpha)
        if schedule.kind == "rate":
            remedy = "give a function of the step that does: lambda step: min(1, R * rates.get_last_lr()[0] * every)"
            raise AlphaError(f"alpha {schedule} follows the trainer's learning rate", remedy)
        if schedule.kind in ("decay", "end") and self.steps is None:
            problem = f"alpha {schedule} depends on how long the training is"
            raise AlphaError(problem, "give steps=: how often step() will be called")
        return schedule.numbers[0] if schedule.kind == "constant" else str(schedule)


def _made(pair: Pair) -> str:
    """What of a dense layer is made of other parameters, if anything."""
    return next((part for part in ("weight", "bias") if is_computed(pair.dense, part)), "")


def _mixing(coupling: AnyCoupling) -> Mixing:
    rule = coupling_of(coupling)
    if not isinstance(rule, Mixing):
        remedy = "use imlp.nn.couple, or relax_" if rule.name in COUPLINGS else "derive it from imlp.couplings.Mixing"
        raise ModuleError(f"coupling {rule.name!r} has no alpha", remedy)
    return rule


def _count(name: str, value: Any, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModuleError(f"{name} is {value!r}", f"give a whole number of at least {least}")
    return value


def _common(given: Alphas, layers: int) -> Any:
    first = next(iter(given.values()))
    return first if len(given) == layers and all(a == first for a in given.values()) else MappingProxyType(given)


def _saved(given: Alphas) -> dict[str, Any]:
    return {name: None if callable(alpha) else alpha for name, alpha in given.items()}


def _restored(saved: Mapping[str, Any], present: Alphas) -> Alphas:
    """The alphas of a state; a function, which is None there, is the one that the knob was given."""
    alphas: Alphas = {name: present.get(name, 0.0) if alpha is None else alpha for name, alpha in saved.items()}
    if lost := [name for name, alpha in saved.items() if alpha is None and not callable(alphas[name])]:
        problem = f"alpha of {', '.join(lost)} was a function when the state was saved"
        raise ModuleError(problem, "give the function again")
    return alphas


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
def relax_(model: nn.Module, prior: nn.Module, *, optimizer: Optimizer | None = None) -> nn.Module:
    """Make the model the prior, in place, to train freely from there (d'Ascoli et al. 2019).

    Every parameter and buffer that is not a dense layer's is copied by its name. Given an optimizer, its state is
    cleared.

    >>> from imlp.nn import densify
    >>> prior = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 5))
    >>> model = relax_(densify(prior, (1, 4, 4), init="random"), prior)
    >>> x = torch.ones(2, 1, 4, 4)
    >>> torch.allclose(model(x), prior(x), atol=1e-6)
    True
    """
    _check_optimizer(optimizer)
    knob = Interpolation(model, prior, 1)
    dense = {id(tensor) for pair in knob.pairs.values() for tensor in pair.dense.parameters()}
    theirs, everything = (unwrapped(each).state_dict(keep_vars=True) for each in (prior, model))
    rest = {name: ours for name, ours in everything.items() if id(ours) not in dense}
    for name, ours in rest.items():
        if name not in theirs or theirs[name].shape != ours.shape:
            raise ModuleError(f"the prior has no {name} of shape {tuple(ours.shape)}", "give the one it was made of")
    knob.step()
    for name, ours in rest.items():
        ours.copy_(theirs[name])
    if optimizer is not None:
        optimizer.state.clear()
    return model


class KnobCallback:
    """What callbacks share: a `knob`, attached when training begins; `options` are those of `Interpolation`."""

    def __init__(
        self, alpha: Any, *, model: str | nn.Module = "model", prior: str | nn.Module | None = "prior", **options: Any
    ) -> None:
        super().__init__()
        self._given: tuple[Any, Any] = model, prior
        self._options = {"alpha": alpha, **options}
        self.knob: Interpolation | None = None
        self._state: Mapping[str, Any] = {}
        self._attached: RemovableHandle | None = None

    def _begin(self, trained: nn.Module, optimizer: Optimizer) -> None:
        if self._attached is not None:
            self._attached.remove()
        named = unwrapped(trained).get_submodule
        model, prior = (named(each) if isinstance(each, str) else each for each in self._given)
        state = self.state_dict()
        self.knob = Interpolation(model, prior, **self._options)
        if state:
            self.knob.load_state_dict(state)
        self._attached = self.knob.attach(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """That of the knob, or what was loaded for it."""
        return dict(self._state) if self.knob is None else self.knob.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.knob, self._state = None, dict(state)
