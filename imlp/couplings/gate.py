"""`gate`: the gate of ConViT (d'Ascoli et al. 2021), one per layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from imlp.couplings.base import Blend, Parts
from imlp.couplings.setting import setting
from imlp.errors import ConfigError
from imlp.spec import Spec


@dataclass(frozen=True)
class Gate(Blend):
    """`W = g matrix(w) + (1 - g) U`, where `g = sigmoid(a)` is learned."""

    gate: float = setting(0.5, "With gate: the initial value of g.")

    formula = "W = g matrix(w) + (1 - g) U"

    def __post_init__(self) -> None:
        if not 0 < self.gate < 1:
            raise ConfigError(f"gate is {self.gate!r}", "give a number between 0 and 1")

    @property
    def title(self) -> str:
        return f"gate from {self.gate:g}"

    def numbers(self, spec: Spec) -> dict[str, Any]:
        return {"gate": np.log(self.gate / (1 - self.gate))}  # a

    def share(self, parts: Parts) -> Any:
        a = parts["gate"]
        return a.sigmoid() if hasattr(a, "sigmoid") else 1 / (1 + np.exp(-a))  # tensors have it

    def pulled_back_share(self, parts: Parts, dg: Any) -> dict[str, Any]:
        g = self.share(parts)
        return {"gate": g * (1 - g) * dg}
