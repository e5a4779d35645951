"""`add`: RepMLPNet's injection (Ding et al. 2022), by alpha."""

from dataclasses import dataclass
from typing import Any

from imlp.couplings.base import Mixing
from imlp.spec import Spec
from imlp.verbs import LayerVerbs


@dataclass(frozen=True)
class Add(Mixing):
    """`W <- W + alpha W_P`; after every step `W` would grow without bounds."""

    formula = "W + alpha W_P (RepMLPNet)"
    every = "epoch"
    word = "added"

    def weight(self, verbs: LayerVerbs[Any], spec: Spec, W: Any, w: Any, alpha: float) -> Any:
        return verbs.interpolate(W, spec, w, alpha, add=True)

    def bias(self, verbs: LayerVerbs[Any], spec: Spec, b: Any, b_w: Any, alpha: float) -> Any:
        return verbs.interpolate_bias(b, spec, b_w, alpha, add=True)
