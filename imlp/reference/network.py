"""The verbs on whole networks: forward, backward, one training step.

Nothing here knows a particular network: `Network.operations` says what to do, `operations` how.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from imlp import checks
from imlp.couplings import RELAX, AnyCoupling, Branch, Moves, Replacing
from imlp.errors import ArrayError
from imlp.init import network_parameters
from imlp.model import Model, batch_fits, exported, lanes_fit, loaded, refuse_non_finite
from imlp.model.mixing import move_lane, moves_of, prepare, with_lane_of_prior
from imlp.networks import Network
from imlp.optimizers import ADAM, SGD, Adam, AdamW, Optimizer
from imlp.reference import layer_verbs
from imlp.reference import layers as ops
from imlp.reference.adam import adam
from imlp.reference.gradients import prepared
from imlp.reference.operations import Watch, run
from imlp.reference.sgd import sgd

STEPS: dict[type[Optimizer], Callable[..., None]] = {Adam: adam, AdamW: adam, SGD: sgd}  # how each takes a step


@contextmanager
def computing(*, threads: int = 0, deterministic: bool = False, products: str = "full") -> Iterator[None]:
    """Nothing is set: NumPy computes in float64, in the same order each time, on the threads it was started with."""
    yield


def init(
    network: Network,
    *,
    dense: bool,
    seed: int,
    lanes: int | None = None,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The prior (`dense=False`), one I-MLP, or `lanes` of them that start from the same numbers.

    `branches` says which of them compute their layers of two parts.

    >>> from imlp import networks
    >>> init(networks.mixer(), dense=True, seed=0, lanes=3).parameters["embed.bias"].shape
    (3, 2048)
    """
    _float64_on_cpu(dtype, device)
    lanes_fit(dense, lanes)
    parameters = network_parameters(network, dense=dense, seed=seed, branches=branches)
    if lanes is not None:
        parameters = {name: np.stack([value] * lanes) for name, value in parameters.items()}
    return Model.start(network, dense, lanes, parameters, branches)


def forward(model: Model, x: Any, *, watch: Watch | None = None) -> np.ndarray:
    """Logits `(N, classes)`, or `(L, N, classes)`, of images `x (N, M_in)`; `watch` sees each operation's result."""
    return run(model, model.network.operations(dense=model.dense), _images(model, x), watch)[0]


def loss_and_grads(model: Model, x: Any, y: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The mean cross entropy, a number or `(L,)`, and its gradient at every parameter by name.

    `y` are labels `(N,)`, or how much of each class an image counts as, `(N, classes)`.
    """
    x, y = _images(model, x), checks.numbers(y, "labels") if np.ndim(y) == 2 else _labels(y)
    batch_fits(model, x.shape, y.shape, shares=True)
    logits, backward = run(model, model.network.operations(dense=model.dense), x)
    losses, dlogits = ops.cross_entropy(logits, y)  # (..., N), (..., N, classes)
    return losses.mean(axis=-1), backward(dlogits / len(y))[1]


def train_step(
    model: Model,
    x: Any,
    y: Any,
    *,
    optimizer: Optimizer = ADAM,
    compile: bool = False,
    check: bool = False,
    prior: Model | None = None,
    moves: Moves | None = None,
) -> Any:
    """One step of the optimizer on one batch, in place; returns the loss before it, a number or `(L,)`.

    `moves` are those of `mix`, done after it. `check` refuses a loss that is not finite before anything is changed.
    """
    if compile:
        raise ArrayError("the reference backend cannot compile a step", "use compile=False, or the accel backend")
    loss, grads = loss_and_grads(model, x, y)
    if check:
        refuse_non_finite(model, x, loss, forward, np.asarray)
    model.keep_state(optimizer, np.zeros_like)
    STEPS[type(optimizer)](model, prepared(model, grads, optimizer), optimizer)
    model.step += 1
    if moves:
        prepare(model, prior, moves)
        for index in range(model.lanes or 1):
            move_lane(layer_verbs, model.lane(index), index, prior, moves, step=model.step)
    return loss


def mix(
    model: Model,
    prior: Model | None,
    alpha: Any,
    *,
    coupling: AnyCoupling = "interpolate",
    layers: Iterable[str] | None = None,
    biases: bool = True,
    head: bool = False,
) -> Model:
    """The interpolation step of algorithm 1 on a whole network, in place: `W <- (1 - alpha) W + alpha W_P` by layer.

    `alpha` is a number, one per lane, or a mapping from layer names to either; None leaves a lane untouched. `layers`
    are those of the network's description unless given. Adam's moments and learned norms stay as they are. `head`
    mixes the head as well, which the paper does not. Where the lanes have different couplings, `alpha` is `Moves`,
    from layer names to a `Move` per lane. Couplings that need no prior, like `self`, are given None.

    >>> from imlp import networks
    >>> from imlp.reference import init
    >>> network = networks.cnn(width=64, strides=(1, 2, 2), image=(1, 8, 8))
    >>> prior, model = init(network, dense=False, seed=0), init(network, dense=True, seed=0, lanes=2)
    >>> mixed = mix(model, prior, [0.5, None])
    """
    moves = moves_of(model, alpha, coupling=coupling, layers=layers, biases=biases, head=head)
    prepare(model, prior, moves)
    for index in range(model.lanes or 1):
        move_lane(layer_verbs, model.lane(index), index, prior, moves, step=model.step)
    return model


def evaluate(model: Model, x: Any, y: Any, *, batch: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """How many images are classified correctly, and the sum of their losses: numbers, or one per lane."""
    x, y = _images(model, x), _labels(y)
    batch_fits(model, x.shape, y.shape)
    correct, total = (np.zeros(() if model.lanes is None else model.lanes, dtype=dtype) for dtype in (np.int64, float))
    for start in range(0, len(x), batch):
        labels = y[start : start + batch]
        logits = forward(model, x[start : start + batch])
        correct += (logits.argmax(axis=-1) == labels).sum(axis=-1)
        total += ops.cross_entropy(logits, labels)[0].sum(axis=-1)
    return correct, total


def select(model: Model, lanes: Sequence[int]) -> Model:
    """A new model of exactly these lanes, moments included."""
    return model.select(lanes)


def relax(
    prior: Model, lanes: Model | None, branches: Sequence[Branch | None] = (), coupling: Replacing = RELAX
) -> Model:
    """The lanes, and after them a lane that is the prior: trunk, head and norms. Adam starts again for it.

    `branches` are those of all lanes, if any lane has one.
    """

    def join(stack: np.ndarray | None, lane: np.ndarray) -> np.ndarray:
        return np.array(lane[None] if stack is None else np.concatenate([stack, lane[None]]))

    return with_lane_of_prior(prior, lanes, branches, coupling, verbs=layer_verbs, zeros=np.zeros, joined=join)


def weight(model: Model, layer: str) -> np.ndarray:
    """The matrix that a layer of the I-MLP computes with, `(M_out, M_in)` or `(L, M_out, M_in)`."""
    W: np.ndarray = model.parameters[f"{layer}.weight"].copy()
    spec = model.network.layer(layer).spec
    for index in range(len(model.branches)):
        lane, place = model.lane(index), ... if model.lanes is None else index
        branch = lane.branch_of(layer)
        if branch is not None:
            parts = lane.parts_of(layer, branch.coupling)
            W[place] = branch.coupling.call("made", layer_verbs, spec, parts)[0]
    return W


def export(model: Model) -> dict[str, np.ndarray]:
    """Everything that it takes to resume exactly: parameters, the optimizer's state, the step."""
    return exported(model, np.asarray)


def restore(
    network: Network,
    arrays: Mapping[str, Any],
    *,
    dense: bool,
    branches: Sequence[Branch | None] = (),
    dtype: Any = None,
    device: Any = None,
) -> Model:
    """The model that `export` wrote."""
    _float64_on_cpu(dtype, device)
    convert = partial(np.array, dtype=np.float64)
    return loaded(network, arrays, dense=dense, convert=convert, branches=branches)


def _images(model: Model, x: Any) -> np.ndarray:
    x = checks.numbers(x, "images")
    batch_fits(model, x.shape)
    return x


def _labels(y: Any) -> np.ndarray:
    if checks.numbers(y, "labels").size and np.asarray(y).dtype.kind not in "iu":
        raise ArrayError(f"labels of {np.asarray(y).dtype}", "give whole numbers from 0")
    return np.asarray(y)


def _float64_on_cpu(dtype: Any, device: Any) -> None:
    if dtype not in (None, "float64", np.float64) or device not in (None, "cpu"):
        raise ArrayError(f"the reference backend got dtype {dtype}, device {device}", "it has float64 on the cpu only")
