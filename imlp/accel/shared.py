"""A shared layer: one `linear` for all rows. Seen as `(R, o, R, k)`, `W~` is where the two axes `R` agree."""

from torch import Tensor
from torch.nn import functional

from imlp.accel.diagonals import Axis, Diagonal
from imlp.spec import Shared


def apply(spec: Shared, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return functional.linear(x.view(-1, spec.rows, spec.in_features), weight, bias).flatten(1)


def diagonals(spec: Shared) -> list[Diagonal]:
    R, C_out, C_in = spec.rows, spec.out_features, spec.in_features
    return [Diagonal((Axis(R, 0, C_out, C_in), Axis(C_out, C_in, 1, 0), Axis(C_in, 1, 0, 1)))]
