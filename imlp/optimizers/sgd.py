"""Stochastic gradient descent with momentum, or Nesterov's."""

from dataclasses import dataclass

from imlp.couplings.setting import TRAINING, setting
from imlp.errors import ConfigError
from imlp.optimizers.base import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """Its state: the velocity of each parameter, which starts at 0."""

    lr: float = setting(1e-2, "The learning rate.", TRAINING)
    momentum: float = setting(0.9, "The momentum of sgd.", TRAINING, is_later=True)
    nesterov: bool = setting(False, "Nesterov's momentum, of sgd.", TRAINING, is_later=True)

    state = ("velocity",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("a number from 0 to below 1", lambda x: 0 <= x < 1, "momentum")
        if self.nesterov and self.momentum == 0:
            raise ConfigError("nesterov is set, but momentum is 0", "give a momentum above 0")
