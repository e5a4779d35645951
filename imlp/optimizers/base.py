"""What an optimizer is: its settings, and the names of what it keeps for each parameter; the backends compute it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from imlp.couplings.setting import TRAINING, setting
from imlp.errors import ConfigError


@dataclass(frozen=True)
class Optimizer:
    """Its fields are its settings. One more is a class here, and a function in each backend's `STEPS`."""

    lr: float = setting(1e-4, "The learning rate.", TRAINING)
    weight_decay: float = setting(
        0.0, "D: adds D p to the gradient of each parameter p; adamw subtracts lr D p instead.", TRAINING, is_later=True
    )
    clip: float = setting(
        0.0, "The largest norm of a network's gradient: longer ones are scaled; 0: none are.", TRAINING, is_later=True
    )

    state: ClassVar[tuple[str, ...]] = ()  # arrays in the shape of each parameter that start at 0
    decoupled: ClassVar[bool] = False  # whether weight decay acts beside the gradient, not in it

    def __post_init__(self) -> None:
        self.check("a number above 0, and a finite one", lambda x: 0 < x < inf, "lr")
        self.check("a number from 0, and a finite one", lambda x: 0 <= x < inf, "weight_decay", "clip")

    def check(self, wanted: str, fits: Callable[[float], bool], *names: str) -> None:
        """Refuse settings that do not fit, by name."""
        for name in names:
            if not fits(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}", f"give {wanted}")
