"""Adam (Kingma and Ba 2015), with the paper's settings as defaults."""

from dataclasses import dataclass
from math import inf

from imlp.couplings.setting import TRAINING, setting
from imlp.optimizers.base import Optimizer


@dataclass(frozen=True)
class Adam(Optimizer):
    """Its state: the moments of each parameter, which start at 0."""

    beta1: float = setting(0.9, "Adam's first decay.", TRAINING)
    beta2: float = setting(0.999, "Adam's second decay.", TRAINING)
    eps: float = setting(1e-8, "Adam's epsilon.", TRAINING)

    state = ("first", "second")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("a number above 0, and a finite one", lambda x: 0 < x < inf, "eps")
        self.check("a number from 0 to below 1", lambda x: 0 <= x < 1, "beta1", "beta2")


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay is decoupled: it does not pass through the moments (Loshchilov and Hutter 2019)."""

    decoupled = True
