"""`interpolate`: the paper's algorithm 1."""

from dataclasses import dataclass
from typing import Any, ClassVar

from imlp.couplings.base import Mixing
from imlp.spec import Spec
from imlp.verbs import LayerVerbs


@dataclass(frozen=True)
class Interpolate(Mixing):
    """`W <- (1 - alpha) W + alpha W_P`."""

    formula = "(1 - alpha) W + alpha W_P"
    word = ""
    adds: ClassVar[bool] = False  # W_P to the whole of W, as `add` does

    def weight(self, verbs: LayerVerbs[Any], spec: Spec, W: Any, w: Any, alpha: float) -> Any:
        return verbs.interpolate(W, spec, w, alpha, add=self.adds)

    def bias(self, verbs: LayerVerbs[Any], spec: Spec, b: Any, b_w: Any, alpha: float) -> Any:
        return verbs.interpolate_bias(b, spec, b_w, alpha, add=self.adds)
