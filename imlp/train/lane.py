"""A lane is one I-MLP of a run; a text lists many of them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from imlp.couplings.moves import BRANCHING, COUPLINGS, MIXING, MOMENTS, WITHOUT_PRIOR, Branch
from imlp.couplings.schedule import Alpha, Schedule, alphas_of, shortened
from imlp.errors import ConfigError
from imlp.networks import Network, check_layers
from imlp.train.setting import LANE, setting


@dataclass(frozen=True)
class Lane:
    """One I-MLP of a run: how, when and where it is tied to the prior."""

    alpha: str = setting(
        None,
        "How far W moves towards the prior: 0.5, decay:0.5:2, end:0.5, once:10:1, list:0.5:0.4:0.3, or NAME=... by "
        "layer. Default 0.5.",
        LANE,
    )
    every: str = setting(
        None,
        "How often: step, epoch (the paper's algorithm 1), or a number of steps. Default: step, but epoch with add.",
        LANE,
    )
    coupling: str = setting(
        "interpolate",
        "interpolate: (1 - alpha) W + alpha W_P; add: W + alpha W_P (RepMLPNet); self: towards the nearest W_P, with "
        "no prior; relax: become the prior, then train freely; pathway: W = matrix(w) + U; gate: "
        "W = g matrix(w) + (1 - g) U.",
        LANE,
        formerly="mode",
    )
    layers: tuple[str, ...] = setting((), "Which layers, instead of all those that the network interpolates.", LANE)
    biases: bool = setting(True, "Mix the biases as well.", LANE)
    head: bool = setting(False, "Mix the head as well, which the paper does not.", LANE)
    alpha_locality: str = setting(
        "",
        "With self: the alpha for entries outside the prior's support (locality). Default: that of alpha.",
        LANE,
        added_later=True,
    )
    alpha_sharing: str = setting(
        "",
        "With self: the alpha for entries in the support that are not shared (sharing). Default: that of alpha.",
        LANE,
        added_later=True,
    )
    moments: str = setting(
        "keep", "Adam's moments of a layer that was mixed: keep, or zero (Adam starts again).", LANE, added_later=True
    )
    relax_after: int | None = setting(
        None, "With relax: the epoch after which W becomes the prior. Default: half of them.", LANE, added_later=True
    )
    gate: float = setting(0.5, "With gate: the initial value of g.", LANE, added_later=True)
    decay_prior: float = setting(1e-4, "With pathway: the weight decay of w.", LANE, added_later=True)
    decay_rest: float = setting(1e-2, "With pathway: the weight decay of U.", LANE, added_later=True)

    def __post_init__(self) -> None:
        if self.coupling not in COUPLINGS:
            raise ConfigError(f"coupling is {self.coupling!r:.60}", f"use {', '.join(COUPLINGS)}")
        mixes = self.coupling in MIXING
        alpha = Alpha(self.alpha if self.alpha is not None else "0.5" if mixes else "0")
        if not mixes and not alpha.is_zero:
            raise ConfigError(f"alpha is {alpha}, but {self.coupling} has none", "leave --alpha out")
        for name in ("alpha_locality", "alpha_sharing"):
            if getattr(self, name) != "" and self.coupling != "self":
                raise ConfigError(f"{name} is for the coupling self, not {self.coupling}", "add --coupling self")
        locality, sharing = Alpha(self.alpha_locality or alpha), Alpha(self.alpha_sharing or alpha)
        for name, value in (("alpha", locality), ("alpha_locality", ""), ("alpha_sharing", sharing)):
            object.__setattr__(self, name, "" if name == "alpha_sharing" and sharing == locality else value)
        if isinstance(self.layers, str) or not isinstance(self.layers, Iterable):
            raise ConfigError(f"layers is {self.layers!r}", "give a list of layers' names")
        object.__setattr__(self, "layers", tuple(self.layers))
        for layer in self.layers:
            if not isinstance(layer, str) or self.layers.count(layer) > 1:
                raise ConfigError(f"layers has {layer!r:.60}", "give names of layers, each once")
        object.__setattr__(self, "every", self._usual_cadence if self.every is None else str(self.every))
        if self.every not in ("epoch", "step") and not re.fullmatch("0*[1-9][0-9]{0,8}", self.every):
            raise ConfigError(f"every is {shortened(self.every)}", "use epoch, step, or a whole number of steps from 1")
        for alpha in self.knobs:
            if alpha.mixes_once and self.every != "epoch":
                problem = f"alpha {alpha.mixes_once}:... mixes once, but every is {self.every!r}"
                raise ConfigError(problem, "use every = epoch with it")
        self._check_numbers()

    def _check_numbers(self) -> None:
        if self.moments not in MOMENTS:
            raise ConfigError(f"moments is {self.moments!r:.60}", f"use {' or '.join(MOMENTS)}")
        if self.relax_after is not None and self.relax_after < 1:
            raise ConfigError(f"relax_after is {self.relax_after!r}", "give the number of an epoch, from 1")
        if not 0 < self.gate < 1:
            raise ConfigError(f"gate is {self.gate!r}", "give a number between 0 and 1")
        for name in ("decay_prior", "decay_rest"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "give a number from 0")
        owners = {
            "relax_after": ("relax",), "gate": ("gate",), "decay_prior": ("pathway",), "decay_rest": ("pathway",),
            "moments": MIXING, "head": MIXING, "biases": MIXING, "layers": (*MIXING, *BRANCHING),
        }  # fmt: skip
        fields = {f.name: f for f in dataclasses.fields(self)}
        for name, own in owners.items():
            if self.coupling not in own and getattr(self, name) != fields[name].default:
                problem = f"{name} is for the coupling {' or '.join(own)}, not {self.coupling}"
                raise ConfigError(problem, f"leave it out, or add --coupling {own[0]}")

    @property
    def _usual_cadence(self) -> str:
        """After every step, as the paper's numbers require; lanes that are mixed once or never use an epoch's end.

        To add the prior after every step would make W grow without bounds.
        """
        return "step" if self.coupling in ("interpolate", "self") and self.is_mixed_repeatedly else "epoch"

    @property
    def is_mixed_repeatedly(self) -> bool:
        """Whether it has a cadence, unlike the S-MLP, schedules that mix once, and couplings that mix nothing."""
        mixes_once = any(knob.mixes_once for knob in self.knobs)
        return self.coupling in MIXING and not self.is_plain and not mixes_once

    @property
    def identity(self) -> dict[str, Any]:
        """What determines its results, for a hash; as earlier versions had it, where it could be said by them."""
        own = {}
        for f in dataclasses.fields(self):
            if not (f.metadata["added_later"] and getattr(self, f.name) == f.default):
                own[f.metadata["formerly"] or f.name] = getattr(self, f.name)
        return own

    @property
    def needs_prior(self) -> bool:
        """Whether a prior has to be trained beside it."""
        return self.coupling not in WITHOUT_PRIOR

    @property
    def knobs(self) -> tuple[Alpha, ...]:
        """Its alpha; with `self` those of locality and of sharing."""
        if self.coupling != "self":
            return (self.parsed,)
        return self.parsed, Alpha(self.alpha_sharing or self.alpha)

    def wakes_after(self, epochs: int) -> int:
        """After which epoch of a run it becomes the prior, and begins; 0: it trains from the start."""
        if self.coupling != "relax":
            return 0
        return max(1, epochs // 2) if self.relax_after is None else self.relax_after

    def branch(self, network: Network) -> Branch | None:
        """How it computes its layers, if of two parts."""
        if self.coupling not in BRANCHING:
            return None
        names = check_layers(network, self.layers) if self.layers else network.interpolated
        decays = (self.decay_prior, self.decay_rest) if self.coupling == "pathway" else (0.0, 0.0)
        return Branch(self.coupling, tuple(names), self.gate, *decays)

    @property
    def parsed(self) -> Alpha:
        """`alpha` as what it was parsed to when the lane was made."""
        return Alpha(self.alpha)

    @property
    def steps(self) -> int | None:
        """Mix after every so many steps; None: after every epoch."""
        return None if self.every == "epoch" else 1 if self.every == "step" else int(self.every)

    def schedules(self, network: Network) -> tuple[dict[str, Schedule], ...]:
        """For each of its knobs the schedule of each layer that this lane mixes."""
        names = check_layers(network, self.layers) if self.layers else network.interpolated
        names = (*names, network.layer("head").name) if self.head else names
        return tuple(alpha.by_layer(network, names) for alpha in self.knobs)

    @property
    def is_plain(self) -> bool:
        """Whether it is the S-MLP: never mixed, and computed as it is."""
        return self.coupling in MIXING and all(alpha.is_zero for alpha in self.knobs)

    @property
    def compared(self) -> "Lane":
        """Itself, as results are compared: a lane that is never mixed is the S-MLP, whatever its other settings."""
        return Lane(alpha="0") if self.is_plain else self

    @property
    def title(self) -> str:
        """What a table calls it: `S-MLP` for alpha 0, otherwise its alpha, how often, and what is not the default."""
        if self.is_plain:
            return "S-MLP (alpha 0)"
        often = [f"every {self.every}" if self.every in ("epoch", "step") else f"every {self.every} steps"]
        return ", ".join([self.what, *(often if self.is_mixed_repeatedly else []), *self.extras])

    @property
    def extras(self) -> list[str]:
        """What is not the default, beside alpha and cadence."""
        extras = {"add": ["added"], "self": ["self"]}.get(self.coupling, [])
        extras += ["moments zeroed"] if self.moments == "zero" else []
        extras += [f"only {' '.join(self.layers)}"] if self.layers else []
        extras += [] if self.biases else ["no biases"]
        return extras + (["with head"] if self.head else [])

    @property
    def what(self) -> str:
        """Its coupling with the numbers that set it."""
        match self.coupling:
            case "relax":
                return (
                    "relaxed after half of the epochs"
                    if self.relax_after is None
                    else f"relaxed after epoch {self.relax_after}"
                )
            case "pathway":
                return f"pathway, decays {self.decay_prior:g} and {self.decay_rest:g}"
            case "gate":
                return f"gate from {self.gate:g}"
        if len(set(self.knobs)) == 2:
            return "I-MLP locality {}, sharing {}".format(*self.knobs)
        return f"I-MLP alpha {self.knobs[0]}"


def split_cadence(text: str) -> tuple[str, str | None]:
    """`0.01@step` is alpha 0.01 after every step; without `@` the text says nothing of a cadence.

    >>> split_cadence("0.01@step"), split_cadence("0.5")
    (('0.01', 'step'), ('0.5', None))
    """
    alpha, at, every = text.partition("@")
    return alpha, every if at else None


def lanes_of(alphas: str | Iterable[str], every: str | None = None, **common: Any) -> tuple[Lane, ...]:
    """A lane for each alpha and each cadence, each once; alpha 0 and schedules that mix once have one cadence only.

    >>> [lane.title for lane in lanes_of("0,0.5", "epoch,step")]
    ['S-MLP (alpha 0)', 'I-MLP alpha 0.5, every epoch', 'I-MLP alpha 0.5, every step']
    """
    listed = [alpha for text in ([alphas] if isinstance(alphas, str) else alphas) for alpha in alphas_of(text)]
    found: dict[Lane, None] = {}
    for cadence in (None,) if every is None else every.split(","):
        for text in listed:
            alpha, own = split_cadence(text)
            made = Lane(alpha=alpha, **common)
            usual = made.every if cadence is None or not made.is_mixed_repeatedly else cadence.strip()
            found[dataclasses.replace(made, every=usual if own is None else own)] = None
    return tuple(found)


def with_epochs(lane: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """`once:10%:1` is once after a tenth of the epochs, whatever the budget; `relax_after = "10%"` likewise."""
    found = dict(lane)
    after = str(found.get("relax_after", ""))
    if after.endswith("%"):
        found["relax_after"] = max(1, round(epochs * float(after[:-1]) / 100))
    kind, _, rest = str(found.get("alpha", "")).partition(":")
    when, _, alpha = rest.partition(":")
    if kind == "once" and when.endswith("%"):
        found["alpha"] = f"once:{max(1, round(epochs * float(when[:-1]) / 100))}:{alpha}"
    return found
