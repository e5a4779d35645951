# own_coupling.py
from dataclasses import dataclass

from imlp.couplings import Branching, Mixing, prior_weight, setting


@dataclass(frozen=True)
class Steer(Mixing):
    """`W <- W + alpha (W_P - Pi(W))`: the part of W that no prior layer could be stays as it is."""

    strength: float = setting(1.0, "What alpha is multiplied by.")

    def weight(self, verbs, spec, W, w, alpha):
        W_P, Pi = (verbs.matrix(spec, own, layout="dense") for own in (w, verbs.project(W, spec)))
        return W + self.strength * alpha * (W_P - Pi)

    def bias(self, verbs, spec, b, b_w, alpha):
        return verbs.interpolate_bias(b, spec, b_w, alpha)


@dataclass(frozen=True)
class Scaled(Branching):
    """`W = (1 + s) matrix(w) + U`: w, U and one number s per layer are trained."""

    def numbers(self, spec):
        return {"scale": 0.0}

    def made(self, verbs, spec, parts):
        W_P = verbs.matrix(spec, prior_weight(spec, parts), layout="dense")
        return (1 + parts["scale"]) * W_P + parts["weight"], parts["bias"]

    def pulled_back(self, verbs, spec, parts, dW, db):
        W_P = verbs.matrix(spec, prior_weight(spec, parts), layout="dense")
        dw = spec.named(verbs.adjoint(spec, (1 + parts["scale"]) * dW))
        small = {f"prior.{name}": gradient for name, gradient in dw.items()}
        return {"weight": dW, "bias": db, "scale": (dW * W_P).sum(), **small}
