"""A lane is one I-MLP of a run; a text lists many of them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from imlp.couplings import COUPLINGS, Branch, Branching, Coupling, Mixing, class_of
from imlp.couplings.schedule import Alpha, Schedule, alphas_of
from imlp.couplings.setting import deciding, from_mapping, options_of, setting, with_settings_of
from imlp.errors import ConfigError
from imlp.networks import Network, check_layers
from imlp.plugins import imported, is_outside, without_place

MOMENTS = ("keep", "zero")
ALIGN = ("none", "once")
FORMULAS = "; ".join(f"{name}: {kind.formula}" for name, kind in COUPLINGS.items())


@dataclass(frozen=True)
@with_settings_of(*COUPLINGS.values())
class Lane:
    """One I-MLP of a run: how, when and where it is tied to the prior. It has the settings of all couplings."""

    alpha: str = setting(
        None,
        "How far W moves towards the prior; may be repeated: 0.5, a list 0,0.01,1, a range 1e-4..1:9log (or :9lin), "
        "decay:0.5:2, end:0.5, once:10:1, list:0.5:0.4:0.3, rate:R for min(1, R x learning rate x steps in between), "
        "NAME=... by layer; each may end with its cadence: 0.01@epoch. Default 0.5; of sweep 0,1e-4..1:9log. "
        "train --alpha none trains the prior alone.",
    )
    every: str = setting(
        None,
        "How often W is moved: step, epoch (the paper's algorithm 1), a number of steps; or a list: epoch,step. "
        "Default: step, but epoch with --coupling add.",
    )
    coupling: str = setting("interpolate", f"{FORMULAS}. Or a class of your own: FILE.py:Class.")
    coupling_source: str | None = setting(None, "SHA-256 of the source file of a coupling from outside the package.")
    coupling_options: tuple[tuple[str, Any], ...] = setting(
        (), "Settings of a coupling from outside the package, NAME=VALUE."
    )
    layers: tuple[str, ...] = setting((), "The layers to mix, instead of all that the network interpolates.")
    biases: bool = setting(True, "Mix the biases as well.")
    head: bool = setting(False, "Mix the head as well, which the paper does not.")
    moments: str = setting("keep", "Adam's moments (sgd's velocity) of a layer that was mixed: keep, or zero.")
    align: str = setting(
        "none",
        "once: before W is first mixed, put its hidden units into the order nearest to the prior's, which changes "
        "nothing that it computes. Or none.",
    )

    def __post_init__(self) -> None:
        if not is_outside(self.coupling):
            self._set(coupling_source=None)
        elif self.coupling_source is None:  # named by a program or an option, and not read from the folder of a run
            self._set(coupling_source=imported(self.coupling).digest)
        self._set(coupling_options=options_of("coupling_options", self.coupling_options))
        if isinstance(self.layers, str) or not isinstance(self.layers, Iterable):
            raise ConfigError(f"layers is {self.layers!r}", "give a list of layers' names")
        self._set(layers=tuple(self.layers))
        for layer in self.layers:
            if not isinstance(layer, str) or self.layers.count(layer) > 1:
                raise ConfigError(f"layers has {layer!r:.60}", "give names of layers, each once")
        self._refuse_foreign_settings()
        alpha = Alpha(self.alpha if self.alpha is not None else "0.5" if self.mixes else "0")
        if not self.mixes and not alpha.is_zero:
            raise ConfigError(f"alpha is {alpha}, but {self.rule.name} has none", "leave --alpha out")
        self._set(**self.rule.spelled(alpha))
        usual = self.rule.every if self.is_mixed_repeatedly else "epoch"
        self._set(every=usual if self.every is None else str(self.every))
        if self.every not in ("epoch", "step") and not re.fullmatch("0*[1-9][0-9]{0,8}", self.every):
            raise ConfigError(f"every is {self.every!r:.80}", "use epoch, step, or a whole number of steps from 1")
        for alpha in self.knobs:
            if alpha.mixes_once and self.every != "epoch":
                problem = f"alpha {alpha.mixes_once}:... mixes once, but every is {self.every!r}"
                raise ConfigError(problem, "use every = epoch with it")
        if self.moments not in MOMENTS:
            raise ConfigError(f"moments is {self.moments!r:.60}", f"use {' or '.join(MOMENTS)}")
        if self.align not in ALIGN:
            raise ConfigError(f"align is {self.align!r:.60}", f"use {' or '.join(ALIGN)}")
        if self.align == "once" and not self.needs_prior:
            raise ConfigError(f"align is once, but {self.rule.name} has no prior", "leave --align out")

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__dict__.pop("rule", None)  # which depends on them

    def _refuse_foreign_settings(self) -> None:
        if self.coupling_options and not is_outside(self.coupling):
            raise ConfigError("coupling_options is for a coupling from outside", "add --coupling FILE.py:Class")
        kind = class_of(self.coupling, self.coupling_source)
        used = {*kind.takes, "alpha", "every", *(kind.settings() if kind.outside is None else ())}
        for f in dataclasses.fields(self):
            owners = [name for name, coupling in COUPLINGS.items() if f.name in (*coupling.takes, *coupling.settings())]
            if owners and f.name not in used and getattr(self, f.name) != f.default:
                problem = f"{f.name} is for the coupling {' or '.join(owners)}, not {kind.name}"
                raise ConfigError(problem, f"leave it out, or add --coupling {owners[0]}")

    @cached_property
    def rule(self) -> Coupling:
        """Its coupling as an object, with the settings that it has here."""
        kind, options = class_of(self.coupling, self.coupling_source), dict(self.coupling_options)
        if kind.outside is None:
            options = {name: getattr(self, name) for name in kind.settings()}
        return from_mapping(kind, options)

    @property
    def mixes(self) -> bool:
        return isinstance(self.rule, Mixing)

    @property
    def is_mixed_repeatedly(self) -> bool:
        """Whether it has a cadence, unlike the S-MLP, schedules that mix once, and couplings that mix nothing."""
        return self.mixes and not self.is_plain and not any(knob.mixes_once for knob in self.knobs)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines its results, but not where a coupling's file lies."""
        return deciding(self) | {"coupling": without_place(self.coupling)}

    @property
    def needs_prior(self) -> bool:
        return self.rule.needs_prior

    @property
    def knobs(self) -> tuple[Alpha, ...]:
        """Its alpha; with `self` those of locality and of sharing."""
        return self.rule.alphas(Alpha(self.alpha))

    def branch(self, network: Network) -> Branch | None:
        """Which of its layers are made of parts, and how."""
        if not isinstance(self.rule, Branching):
            return None
        return Branch(self.rule, tuple(check_layers(network, self.layers) if self.layers else network.interpolated))

    @property
    def steps(self) -> int | None:
        """The number of steps between mixings; None: mix after every epoch."""
        return None if self.every == "epoch" else 1 if self.every == "step" else int(self.every)

    def schedules(self, network: Network) -> tuple[dict[str, Schedule], ...]:
        """For each of its knobs the schedule of each layer that this lane mixes."""
        names = check_layers(network, self.layers) if self.layers else network.interpolated
        names = (*names, network.layer("head").name) if self.head else names
        return tuple(alpha.by_layer(network, names) for alpha in self.knobs)

    @property
    def is_plain(self) -> bool:
        """Whether it is the S-MLP: never mixed, and computed as it is."""
        return self.mixes and all(alpha.is_zero for alpha in self.knobs)

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
        return ", ".join([self.short_title, *(often if self.is_mixed_repeatedly else []), *self.extras])

    @property
    def extras(self) -> list[str]:
        """What is not the default, beside alpha and cadence."""
        extras = [self.rule.name if self.rule.word is None else self.rule.word]
        extras += [f"{name} {value}" for name, value in self.coupling_options]
        extras += ["moments zeroed"] if self.moments == "zero" else []
        extras += ["aligned once"] if self.align == "once" else []
        extras += [f"only {' '.join(self.layers)}"] if self.layers else []
        extras += [] if self.biases else ["no biases"]
        return [extra for extra in extras if extra] + (["with head"] if self.head else [])

    @property
    def short_title(self) -> str:
        """Its coupling with the numbers that set it."""
        if not self.mixes:
            return self.rule.title
        if len(set(self.knobs)) == 2:
            return "I-MLP locality {}, sharing {}".format(*self.knobs)
        return f"I-MLP alpha {self.knobs[0]}"


def split_cadence(text: str) -> tuple[str, str | None]:
    """`0.01@step` is alpha 0.01 after every step; without `@` the text says nothing of a cadence."""
    alpha, at, every = text.partition("@")
    return alpha, every if at else None


def cadences_of(text: str) -> list[str]:
    """`epoch,step` as a list, each once."""
    listed = [value.strip().lstrip("0") or value for value in text.split(",")]
    if len(set(listed)) < len(listed):
        raise ConfigError(f"every is {text!r:.80}", "name each cadence once")
    return listed


def lanes_of(alphas: str | Iterable[str], every: str | None = None, **common: Any) -> tuple[Lane, ...]:
    """A lane for each alpha and each cadence, each once; alpha 0 and schedules that mix once have one cadence only.

    >>> [lane.title for lane in lanes_of("0,0.5", "epoch,step")]
    ['S-MLP (alpha 0)', 'I-MLP alpha 0.5, every epoch', 'I-MLP alpha 0.5, every step']
    """
    listed = [alpha for text in ([alphas] if isinstance(alphas, str) else alphas) for alpha in alphas_of(text)]
    lanes: dict[Lane, None] = {}
    for cadence in (None,) if every is None else cadences_of(every):
        for text in listed:
            alpha, its_cadence = split_cadence(text)
            made = from_mapping(Lane, {**common, "alpha": alpha})
            usual = made.every if cadence is None or not made.is_mixed_repeatedly else cadence
            lanes[dataclasses.replace(made, every=usual if its_cadence is None else its_cadence)] = None
    return tuple(lanes)


def with_epochs(lane: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """`once:10%:1` is once after a tenth of the epochs, whatever the budget; and so is `relax_after = "10%"`."""
    values = dict(lane)
    after = str(values.get("relax_after", ""))
    if after.endswith("%"):
        values["relax_after"] = max(1, round(epochs * float(after[:-1]) / 100))
    kind, _, rest = str(values.get("alpha", "")).partition(":")
    when, _, alpha = rest.partition(":")
    if kind == "once" and when.endswith("%"):
        values["alpha"] = f"once:{max(1, round(epochs * float(when[:-1]) / 100))}:{alpha}"
    return values
