"""The optimizers' settings, and the learning rate over time. How a step is computed is in a file of each backend.

One more is a class here, and a function in each backend's `STEPS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from imlp.couplings.setting import of_training
from imlp.errors import ConfigError
from imlp.optimizers.rate import LearningRate


@dataclass(frozen=True)
class Optimizer:
    """Its fields are its settings."""

    lr: float = of_training(1e-4, "The learning rate.")
    weight_decay: float = of_training(
        0.0, "D: adds D p to the gradient of each parameter p; adamw subtracts lr D p instead."
    )
    clip: float = of_training(0.0, "The largest norm of a network's gradient: longer ones are scaled; 0: none are.")

    state: ClassVar[tuple[str, ...]] = ()  # arrays in the shape of each parameter that start at 0
    decoupled: ClassVar[bool] = False  # whether weight decay acts beside the gradient, not in it

    def __post_init__(self) -> None:
        self.check("a number above 0, and a finite one", lambda x: 0 < x < inf, "lr", "eps")
        self.check("a number from 0, and a finite one", lambda x: 0 <= x < inf, "weight_decay", "clip")
        self.check("a number from 0 to below 1", lambda x: 0 <= x < 1, "beta1", "beta2", "momentum")

    def check(self, wanted: str, fits: Callable[[float], bool], *names: str) -> None:
        """Refuse those of its settings that do not fit, by name."""
        for name in names:
            if hasattr(self, name) and not fits(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}", f"give {wanted}")


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with the paper's settings as defaults; its state are the moments."""

    beta1: float = of_training(0.9, "Adam's first decay.")
    beta2: float = of_training(0.999, "Adam's second decay.")
    eps: float = of_training(1e-8, "Adam's epsilon.")

    state = ("first", "second")


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay is decoupled: it does not pass through the moments (Loshchilov and Hutter 2019)."""

    decoupled = True


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum, or Nesterov's; its state is the velocity."""

    lr: float = of_training(1e-2, "The learning rate.")
    momentum: float = of_training(0.9, "The momentum of sgd.")
    nesterov: bool = of_training(False, "Nesterov's momentum, of sgd.")

    state = ("velocity",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise ConfigError("nesterov is set, but momentum is 0", "give a momentum above 0")


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD}
ADAM = Adam()
