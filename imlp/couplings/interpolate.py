"""`interpolate`: the paper's algorithm 1."""

from dataclasses import dataclass
from typing import Any

from imlp.couplings.base import Mixing
from imlp.spec import Spec
from imlp.verbs import LayerVerbs


@dataclass(frozen=True)
class Interpolate(Mixing):
    """`W <- (1 - alpha) W + alpha W_P`."""

    formula = "(1 - alpha) W + alpha W_P"
    word = ""

    def weight(self, verbs: LayerVerbs[Any], spec: Spec, W: Any, w: Any, alpha: float) -> Any:
        return verbs.interpolate(W, spec, w, alpha)

    def bias(self, verbs: LayerVerbs[Any], spec: Spec, b: Any, b_w: Any, alpha: float) -> Any:
        return verbs.interpolate_bias(b, spec, b_w, alpha)
