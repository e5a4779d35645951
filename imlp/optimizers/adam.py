"""Adam (Kingma and Ba 2015), with the paper's settings as defaults."""

from dataclasses import dataclass
from math import inf

from imlp.couplings.setting import TRAINING, setting
from imlp.errors import ConfigError
from imlp.optimizers.base import Optimizer


@dataclass(frozen=True)
class Adam(Optimizer):
    """Its state: the moments of each parameter, which start at 0."""

    lr: float = setting(1e-4, "Adam's learning rate.", TRAINING)
    beta1: float = setting(0.9, "Adam's first decay.", TRAINING)
    beta2: float = setting(0.999, "Adam's second decay.", TRAINING)
    eps: float = setting(1e-8, "Adam's epsilon.", TRAINING)

    state = ("first", "second")

    def __post_init__(self) -> None:
        for name in ("lr", "eps"):
            if not 0 < getattr(self, name) < inf:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "give a number above 0, and a finite one")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "give a number from 0 to below 1")
