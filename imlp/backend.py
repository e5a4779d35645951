"""The interface that both backends implement, and the way to get one by name.

A backend is a module: `imlp.reference` (NumPy and SciPy, float64, made to be read) or `imlp.accel` (PyTorch, made
to be fast). The trainer only knows the verbs below. Each backend says that it implements them, so mypy compares every
type (and a test the names of the parameters).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from imlp.augment import Draw
from imlp.couplings import RELAX, AnyCoupling, Branch, Moves, Replacing
from imlp.errors import BackendError, install_hint, known
from imlp.model import Model
from imlp.networks import Network
from imlp.optimizers import ADAM, Optimizer
from imlp.verbs import Array, LayerVerbs

NAMES = ("reference", "accel")


class ModelVerbs(Protocol[Array]):
    """The verbs on whole networks, which the trainer uses."""

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
        optimizer: Optimizer = ADAM,
        compile: bool = False,
        check: bool = False,
        prior: Model | None = None,
        moves: Moves | None = None,
    ) -> Array:
        """One step, then `moves`, in place; the loss before it, or `(L,)`. `check` refuses a loss like NaN."""

    def computing(
        self, *, threads: int = 0, deterministic: bool = False, products: str = "full"
    ) -> AbstractContextManager[None]:
        """Threads (0: as they are), determinism and the precision of products inside a `with`; then as before."""

    def evaluate(self, model: Model, x: Array, y: Array, *, batch: int = 1000) -> tuple[Array, Array]:
        """How many are correct and the sum of the losses: numbers, or `(L,)`."""

    def mix(
        self,
        model: Model,
        prior: Model | None,
        alpha: Any,
        *,
        coupling: AnyCoupling = "interpolate",
        layers: Iterable[str] | None = None,
        biases: bool = True,
        head: bool = False,
    ) -> Model:
        """Move the layers of each lane by the coupling, in place; `alpha` may hold a `Move` instead of a number."""

    def relax(
        self, prior: Model, lanes: Model | None, branches: Sequence[Branch | None] = (), coupling: Replacing = RELAX
    ) -> Model:
        """The lanes and one more, which is what the coupling makes of the prior: with `relax`, the prior itself."""

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

    def batch(
        self, x: Array, index: Any, draw: Draw | None, mean: Any, std: Any, *, fill: Any = None, dtype: Any = None
    ) -> Array:
        """Rows `index` of uint8 images, cropped and flipped as drawn, standardised and flat."""


class Backend(LayerVerbs[Array], ModelVerbs[Array], Protocol[Array]):
    """All verbs: what `imlp.reference` and `imlp.accel` are."""


def backend(name: str) -> Backend[Any]:
    """The backend called `name`.

    >>> from imlp import Transpose, backend
    >>> backend("reference").matrix(Transpose(2, 3)).shape
    (6, 6)
    """
    try:
        return import_module(f"imlp.{known(name, NAMES, 'backend', BackendError)}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "imlp":
            raise
        problem = f"backend {name!r} needs the package {error.name}, which is not installed"
        raise BackendError(problem, install_hint("accel")) from error
