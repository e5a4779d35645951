"""A lane is one I-MLP of a run; a text lists many of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imlp.checks import MODES
from imlp.couplings.schedule import Alpha, Schedule, alphas_of, shortened
from imlp.errors import ConfigError
from imlp.networks import Network, check_layers
from imlp.train.setting import LANE, setting


@dataclass(frozen=True)
class Lane:
    """One I-MLP of a run: how, when and where it is moved towards the prior."""

    alpha: str = setting(
        "0.5", "How far: 0.5, decay:0.5:2, end:0.5, once:10:1, list:0.5:0.4:0.3, or NAME=... by layer.", LANE
    )
    every: str = setting("epoch", "How often: epoch (algorithm 1), step, or a number of steps.", LANE)
    mode: str = setting("interpolate", "interpolate: (1 - alpha) W + alpha W_P; add: W + alpha W_P (RepMLPNet).", LANE)
    layers: tuple[str, ...] = setting((), "Which layers, instead of all those that the network interpolates.", LANE)
    biases: bool = setting(True, "Mix the biases as well.", LANE)
    head: bool = setting(False, "Mix the head as well, which the paper does not.", LANE)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", Alpha(self.alpha))
        if isinstance(self.layers, str) or not isinstance(self.layers, Iterable):
            raise ConfigError(f"layers is {self.layers!r}", "give a list of layers' names")
        object.__setattr__(self, "layers", tuple(self.layers))
        for layer in self.layers:
            if not isinstance(layer, str) or self.layers.count(layer) > 1:
                raise ConfigError(f"layers has {layer!r:.60}", "give names of layers, each once")
        object.__setattr__(self, "every", str(self.every))
        if self.every not in ("epoch", "step") and not re.fullmatch("0*[1-9][0-9]{0,8}", self.every):
            raise ConfigError(f"every is {shortened(self.every)}", "use epoch, step, or a whole number of steps from 1")
        if self.parsed.mixes_once and self.every != "epoch":
            kind = self.parsed.mixes_once
            raise ConfigError(f"alpha {kind}:... mixes once, but every is {self.every!r}", "use every = epoch with it")
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}", f"use {' or '.join(MODES)}")

    @property
    def parsed(self) -> Alpha:
        """`alpha` as what it was parsed to when the lane was made."""
        return Alpha(self.alpha)

    @property
    def steps(self) -> int | None:
        """Mix after every so many steps; None: after every epoch."""
        return None if self.every == "epoch" else 1 if self.every == "step" else int(self.every)

    def schedules(self, network: Network) -> dict[str, Schedule]:
        """The schedule of each layer that this lane mixes."""
        names = check_layers(network, self.layers) if self.layers else network.interpolated
        return self.parsed.by_layer(network, (*names, network.layer("head").name) if self.head else names)

    @property
    def title(self) -> str:
        """What a table calls it: `S-MLP` for alpha 0, otherwise its alpha and whatever is not the default."""
        if self.parsed.is_zero:
            return "S-MLP (alpha 0)"
        extras = (
            [] if self.every == "epoch" else ["every step" if self.every == "step" else f"every {self.every} steps"]
        )
        extras += ["added"] if self.mode == "add" else []
        extras += [f"only {' '.join(self.layers)}"] if self.layers else []
        extras += [] if self.biases else ["no biases"]
        extras += ["with head"] if self.head else []
        return ", ".join([f"I-MLP alpha {self.alpha}", *extras])


def split_cadence(text: str) -> tuple[str, str | None]:
    """`0.01@step` is alpha 0.01 after every step; without `@` the text says nothing of a cadence.

    >>> split_cadence("0.01@step"), split_cadence("0.5")
    (('0.01', 'step'), ('0.5', None))
    """
    alpha, at, every = text.partition("@")
    return alpha, every if at else None


def lanes_of(alphas: str | Iterable[str], every: str = "epoch", **common: Any) -> tuple[Lane, ...]:
    """A lane for each alpha and each cadence, each once; alpha 0 and schedules that mix once have one cadence only.

    >>> [lane.title for lane in lanes_of("0,0.5", "epoch,step")]
    ['S-MLP (alpha 0)', 'I-MLP alpha 0.5', 'I-MLP alpha 0.5, every step']
    """
    listed = [alpha for text in ([alphas] if isinstance(alphas, str) else alphas) for alpha in alphas_of(text)]
    found: dict[Lane, None] = {}
    for cadence in every.split(","):
        for text in listed:
            alpha, own = split_cadence(text)
            parsed = Alpha(alpha)
            usual = "epoch" if parsed.is_zero or parsed.mixes_once else cadence.strip()
            found[Lane(alpha=parsed, every=usual if own is None else own, **common)] = None
    return tuple(found)
