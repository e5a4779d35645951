"""What can be done with one layer: the verbs that couplings and `imlp.nn` use, and that both backends have."""

from typing import Any, Protocol, TypeVar

import numpy as np

from imlp.spec import Spec

Array = TypeVar("Array")  # numpy.ndarray in the reference, torch.Tensor in accel


class LayerVerbs(Protocol[Array]):
    """Shapes: `W (M_out, M_in)` or a stack of lanes `(L, M_out, M_in)`, `x (N, M_in)`, `y (N, M_out)`.

    A `weight` is an array; a mapping from names to arrays if the noun has several parameters; None if it has none. What
    changes `W` or `b` returns it: accel changes it in place, the reference returns a new array.
    """

    def matrix(self, spec: Spec, weight: Any = None, *, layout: str | None = None) -> Array:
        """`W_P (M_out, M_in)`, `layout="sparse"` (the reference's default) or `"dense"` (accel's)."""

    def expand_bias(self, spec: Spec, bias: Array | None) -> Array:
        """The bias of the dense layer `(M_out,)` from the small one."""

    def apply(self, spec: Spec, weight: Any, bias: Array | None, x: Array) -> Array:
        """The structured layer on a batch, `x W_P^T + b`."""

    def interpolate(self, dense: Array, spec: Spec, weight: Any, alpha: Any, *, add: bool = False) -> Array:
        """`(1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `add`; one alpha, or one per lane."""

    def interpolate_bias(
        self, dense_bias: Array, spec: Spec, bias: Array | None, alpha: float, *, add: bool = False
    ) -> Array:
        """The same for the bias: `(1 - alpha) b + alpha b_P`, with `b_P = expand_bias(bias)`."""

    def adjoint(self, spec: Spec, dense: Array) -> Any:
        """The transpose of `w -> matrix(w)`: turns a gradient of `W` into one of `w`."""

    def adjoint_bias(self, spec: Spec, dense_bias: Array) -> Any:
        """The transpose of `b -> expand_bias(b)`: turns a gradient `(M_out,)` or `(L, M_out)` into one of `b`."""

    def project(self, dense: Array, spec: Spec) -> Any:
        """The weight whose matrix is nearest to `W` in least squares."""

    def pull(self, dense: Array, spec: Spec, locality: Any, sharing: Any = None) -> Array:
        """`W - locality (W - M * W) - sharing (M * W - Pi(W))`; one alpha each, or one per lane."""

    def pull_bias(self, dense_bias: Array, spec: Spec, sharing: float) -> Array:
        """`(1 - sharing) b + sharing Pi(b)`."""

    def measure(self, dense: Array, spec: Spec, weight: Any = None) -> dict[str, Array]:
        """The bias meter: which shares of `|W|^2` are `shared`, `local` and `outside`; `distance`, given a weight."""

    def measure_random(self, spec: Spec) -> dict[str, float]:
        """The three parts that a matrix of independent random numbers is expected to have."""

    def place(self, array: Any, *, device: Any = None) -> Array:
        """A NumPy array as the backend's own, on the device, in the type that it has."""

    def to_numpy(self, array: Array) -> np.ndarray:
        """The same numbers as a dense `numpy.ndarray`."""
