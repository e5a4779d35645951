"""The interface that both backends implement, and the way to get one by name.

A backend is a module: `imlp.reference` (NumPy and SciPy, float64, made to be read) or `imlp.accel` (PyTorch, made
to be fast). The trainer only knows the verbs below.
"""

from importlib import import_module
from typing import Any, Protocol

from imlp.errors import BackendError
from imlp.spec import Spec

Array = Any  # numpy.ndarray in the reference, torch.Tensor in accel

NAMES = ("reference", "accel")


class Backend(Protocol):
    """The verbs. Shapes: `W (M_out, M_in)` or a stack of lanes `(L, M_out, M_in)`, `x (N, M_in)`, `y (N, M_out)`."""

    def matrix(self, spec: Spec, weight: Array | None = None, *, layout: str | None = None) -> Array:
        """`W_P (M_out, M_in)`, `layout="sparse"` (the reference's default) or `"dense"` (accel's)."""

    def expand_bias(self, spec: Spec, bias: Array | None) -> Array:
        """The bias of the dense layer `(M_out,)` from the small one."""

    def apply(self, spec: Spec, weight: Array | None, bias: Array | None, x: Array) -> Array:
        """The structured layer on a batch, `x W_P^T + b`."""

    def interpolate(
        self, dense: Array, spec: Spec, weight: Array | None, alpha: Any, *, mode: str = "interpolate"
    ) -> Array:
        """`(1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `mode="add"`; one alpha, or one a lane."""

    def project(self, dense: Array, spec: Spec) -> Array | None:
        """The weight whose matrix is nearest to `W` in least squares."""

    def to_numpy(self, array: Array) -> Any:
        """The same numbers as a dense `numpy.ndarray`."""


def backend(name: str) -> Backend:
    """The backend called `name`.

    >>> from imlp import Transpose, backend
    >>> backend("reference").matrix(Transpose(2, 3)).shape
    (6, 6)
    """
    if name not in NAMES:
        raise BackendError(f"unknown backend {name!r}", f"the known ones are {' and '.join(NAMES)}")
    try:
        return import_module(f"imlp.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "imlp":
            raise
        raise BackendError(
            f"backend {name!r} needs the package {error.name}, which is not installed",
            "install it with: pip install torch torchvision",
        ) from error
