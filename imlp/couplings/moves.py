"""What each coupling does, as data: the backends compute it.

| coupling | rule | when |
|---|---|---|
| `interpolate` | `W <- (1 - alpha) W + alpha W_P` | after each step or epoch that is due: a `Move` |
| `add` | `W <- W + alpha W_P` | likewise |
| `self` | `W <- W - locality (W - M * W) - sharing (M * W - Pi(W))`; alpha sets both | likewise, without a prior |
| `relax` | the dense network becomes the prior, then trains freely | once, after an epoch |
| `pathway` | `W = matrix(w) + U` | in every pass: a `Branch` |
| `gate` | `W = g matrix(w) + (1 - g) U`, `g = sigmoid(a)` | likewise |

`W_P = matrix(w)` is the prior's matrix, `Pi(W) = matrix(project(W))` the nearest one of its kind, and `M` is 1 at the
entries that such a matrix can fill and 0 elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

MIXING = ("interpolate", "add", "self")  # they change W itself, by alpha
BRANCHING = ("pathway", "gate")  # they compute W of two parts, both trained
COUPLINGS = (*MIXING, "relax", *BRANCHING)
WITHOUT_PRIOR = ("self", *BRANCHING)  # these need no prior to be trained beside them
MOMENTS = ("keep", "zero")


class Move(NamedTuple):
    """What is done to one layer of one lane."""

    coupling: str  # one of MIXING
    alpha: float  # of `self`: that of locality
    sharing: float | None = None  # of `self`, where it is not alpha
    biases: bool = True
    moments: str = "keep"  # or zero: Adam starts again for the parameters that were moved

    @property
    def both(self) -> tuple[float, float]:
        """The alphas of locality and of sharing."""
        return self.alpha, self.alpha if self.sharing is None else self.sharing

    @property
    def is_idle(self) -> bool:
        """Whether it leaves everything as it is."""
        return not any(self.both)


Moves: TypeAlias = Mapping[str, Sequence[Move | None]]  # for each layer one per lane; None leaves that lane untouched


@dataclass(frozen=True)
class Branch:
    """How a lane with a branch computes its layers: beside `U`, which is `NAME.weight`, they have `NAME.prior.weight`.

    A gate is one more number per layer, `NAME.gate`: `a`, of which `g` is the sigmoid.
    """

    coupling: str  # one of BRANCHING
    layers: tuple[str, ...]
    gate: float = 0.5  # what g starts with
    decay_prior: float = 0.0  # the weight decay of w,
    decay_rest: float = 0.0  # and of U

    def decay(self, parameter: str) -> float:
        """The weight decay of a parameter by its name."""
        layer, _, part = parameter.rpartition(".")
        if part == "gate":
            return 0.0
        if layer.endswith(".prior"):
            return self.decay_prior
        return self.decay_rest if layer in self.layers else 0.0
