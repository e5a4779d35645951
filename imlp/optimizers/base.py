"""What an optimizer is: its settings, and the names of what it keeps for each parameter; the backends compute it."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Optimizer:
    """Its fields are its settings. One more is a class here, and a function in each backend's `STEPS`."""

    state: ClassVar[tuple[str, ...]] = ()  # arrays in the shape of each parameter that start at 0
