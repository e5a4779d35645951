"""The interface that both backends implement, and the way to get one by name.

A backend is a module: `imlp.reference` (NumPy and SciPy, float64, made to be read) or `imlp.accel` (PyTorch, made
to be fast). `imlp.nn.verbs` has the same verbs for PyTorch models of others. The trainer only knows the verbs below.
Each backend says that it implements them, so mypy compares every type (and a test the names of the parameters).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np

from imlp.augment import Draw
from imlp.couplings.moves import Branch, Moves
from imlp.errors import BackendError, install_hint
from imlp.model import Model
from imlp.networks import Network
from imlp.spec import Spec

Array = TypeVar("Array")  # numpy.ndarray in the reference, torch.Tensor in accel

NAMES = ("reference", "accel")


class Backend(Protocol[Array]):
    """The verbs. Shapes: `W (M_out, M_in)` or a stack of lanes `(L, M_out, M_in)`, `x (N, M_in)`, `y (N, M_out)`.

    A `weight` is an array; a mapping from names to arrays if the noun has several parameters; None if it has none.
    """

    def matrix(self, spec: Spec, weight: Any = None, *, layout: str | None = None) -> Array:
        """`W_P (M_out, M_in)`, `layout="sparse"` (the reference's default) or `"dense"` (accel's)."""

    def expand_bias(self, spec: Spec, bias: Array | None) -> Array:
        """The bias of the dense layer `(M_out,)` from the small one."""

    def apply(self, spec: Spec, weight: Any, bias: Array | None, x: Array) -> Array:
        """The structured layer on a batch, `x W_P^T + b`."""

    def interpolate(self, dense: Array, spec: Spec, weight: Any, alpha: Any, *, mode: str = "interpolate") -> Array:
        """`(1 - alpha) W + alpha W_P`, or `W + alpha W_P` with `mode="add"`; one alpha, or one per lane."""

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

    def to_numpy(self, array: Array) -> np.ndarray:
        """The same numbers as a dense `numpy.ndarray`."""

    def init(
        self,
        network: Network,
        *,
        dense: bool,
        seed: int,
        lanes: int | None = None,
        branches: Sequence[Branch | None] = (),
        dtype: Any = None,
        device: Any = None,
    ) -> Model:
        """The prior (`dense=False`), one I-MLP, or `lanes` of them that start from the same numbers."""

    def forward(self, model: Model, x: Array, *, watch: Callable[[str, Array], None] | None = None) -> Array:
        """Logits `(N, classes)`, or `(L, N, classes)`; `watch(name, x)` sees each operation's result."""

    def loss_and_grads(self, model: Model, x: Array, y: Array) -> tuple[Array, dict[str, Array]]:
        """The mean cross entropy, a number or `(L,)`, and its gradient at every parameter by name."""

    def train_step(
        self,
        model: Model,
        x: Array,
        y: Array,
        *,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        compile: bool = False,
        check: bool = False,
        prior: Model | None = None,
        moves: Moves | None = None,
    ) -> Array:
        """One step of Adam, then `moves`, in place; the loss before it, or `(L,)`. `check` refuses a loss like NaN."""

    def evaluate(self, model: Model, x: Array, y: Array, *, batch: int = 1000) -> tuple[Array, Array]:
        """How many are correct and the sum of the losses: numbers, or `(L,)`."""

    def inject(
        self,
        model: Model,
        prior: Model,
        alpha: Any,
        *,
        mode: str = "interpolate",
        layers: Iterable[str] | None = None,
        biases: bool = True,
        head: bool = False,
    ) -> Model:
        """The interpolation step of algorithm 1 on a whole network, in place."""

    def mix(self, model: Model, prior: Model | None, moves: Moves) -> Model:
        """Move the layers of each lane by the coupling that it has, in place."""

    def relax(self, prior: Model, lanes: Model | None, branches: Sequence[Branch | None] = ()) -> Model:
        """The lanes and one more, which is the prior."""

    def weight(self, model: Model, layer: str) -> Array:
        """The matrix that a layer of the I-MLP computes with, `(M_out, M_in)` or `(L, M_out, M_in)`."""

    def select(self, model: Model, lanes: Sequence[int]) -> Model:
        """A new model of exactly these lanes."""

    def export(self, model: Model) -> dict[str, np.ndarray]:
        """Everything that it takes to resume exactly, as `numpy.ndarray` by name."""

    def restore(
        self,
        network: Network,
        arrays: Mapping[str, Any],
        *,
        dense: bool,
        branches: Sequence[Branch | None] = (),
        dtype: Any = None,
        device: Any = None,
    ) -> Model:
        """The model that `export` wrote."""

    def measure(self, dense: Array, spec: Spec, weight: Any = None) -> dict[str, Array]:
        """The bias meter: which shares of `|W|^2` are `shared`, `local` and `outside`; `distance`, given a weight."""

    def measure_random(self, spec: Spec) -> dict[str, float]:
        """The three parts that a matrix of independent random numbers is expected to have."""

    def place(self, array: Any, *, device: Any = None) -> Array:
        """A NumPy array as the backend's own, on the device, in the type that it has."""

    def batch(
        self, x: Array, index: Any, draw: Draw | None, mean: Any, std: Any, *, fill: Any = None, dtype: Any = None
    ) -> Array:
        """Rows `index` of uint8 images, cropped and flipped as drawn, standardised and flat."""


def backend(name: str) -> Backend[Any]:
    """The backend called `name`.

    >>> from imlp import Transpose, backend
    >>> backend("reference").matrix(Transpose(2, 3)).shape
    (6, 6)
    """
    if name not in (*NAMES, "nn"):
        raise BackendError(f"unknown backend {name!r}", f"the known ones are {' and '.join(NAMES)}")
    try:
        return import_module("imlp.nn.verbs" if name == "nn" else f"imlp.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "imlp":
            raise
        raise BackendError(
            f"backend {name!r} needs the package {error.name}, which is not installed",
            install_hint("accel"),
        ) from error
