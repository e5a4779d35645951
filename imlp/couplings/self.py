"""`self` (not in the paper): towards the nearest layer of the prior's kind, without a prior network.

With one alpha for both, `W <- (1 - alpha) W + alpha Pi(W)` is the proximal step of `lambda/2 |W - Pi(W)|^2` with
`alpha = lambda / (1 + lambda)`.
"""

from dataclasses import dataclass
from typing import Any

from imlp.couplings.base import Mixing
from imlp.couplings.schedule import Alpha
from imlp.couplings.setting import setting
from imlp.spec import Spec
from imlp.verbs import LayerVerbs


@dataclass(frozen=True)
class Self(Mixing):
    """`W <- W - locality (W - M * W) - sharing (M * W - Pi(W))`; alpha sets both."""

    alpha_locality: str = setting(
        "", "With self: the alpha for entries outside the prior's support (locality). Default: that of alpha."
    )
    alpha_sharing: str = setting(
        "", "With self: the alpha for entries in the support that are not shared (sharing). Default: that of alpha."
    )

    formula = "towards the nearest W_P, with no prior"
    needs_prior = False
    knobs = ("alpha", "alpha_sharing")

    def weight(
        self, verbs: LayerVerbs[Any], spec: Spec, W: Any, w: Any, alpha: float, sharing: float | None = None
    ) -> Any:
        return verbs.pull(W, spec, alpha, sharing)

    def bias(
        self, verbs: LayerVerbs[Any], spec: Spec, b: Any, b_w: Any, alpha: float, sharing: float | None = None
    ) -> Any:
        return verbs.pull_bias(b, spec, alpha if sharing is None else sharing)

    def alphas(self, alpha: Alpha) -> tuple[Alpha, ...]:
        return Alpha(self.alpha_locality or alpha), Alpha(self.alpha_sharing or alpha)

    def spelled(self, alpha: Alpha) -> dict[str, Any]:
        locality, sharing = self.alphas(alpha)
        return {"alpha": locality, "alpha_locality": "", "alpha_sharing": "" if sharing == locality else sharing}
