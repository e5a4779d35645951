"""`pathway`: a residual pathway prior (Finzi et al. 2021)."""

from dataclasses import dataclass
from math import inf

from imlp.couplings.base import Blend
from imlp.couplings.setting import setting
from imlp.errors import ConfigError


@dataclass(frozen=True)
class Pathway(Blend):
    """`W = matrix(w) + U`, both trained, each with a weight decay."""

    decay_prior: float = setting(1e-4, "With pathway: the weight decay of w.")
    decay_rest: float = setting(1e-2, "With pathway: the weight decay of U.")

    formula = "W = matrix(w) + U"

    def __post_init__(self) -> None:
        for name in ("decay_prior", "decay_rest"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "give a number from 0")

    @property
    def title(self) -> str:
        return f"pathway, decays {self.decay_prior:g} and {self.decay_rest:g}"

    def decay(self, part: str) -> float:
        return self.decay_prior if part == "prior" else self.decay_rest
