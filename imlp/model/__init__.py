"""A network with its numbers, and the checks that both backends make of what they are given.

Like `imlp.checks`, this imports no array library but NumPy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from imlp.couplings import Branch, Branching
from imlp.errors import ArrayError, NonFiniteError
from imlp.networks import Network
from imlp.optimizers import Optimizer
from imlp.spec import Shape, Spec

STATE = "optimizer."  # how the names of what belongs to the optimizer begin in files: `optimizer.first.conv1.weight`
RESTART, STEP = f"{STATE}restart.", f"{STATE}step"
BUFFER = "buffer:"  # how the names of buffers begin in files
Arrays = dict[str, Any]  # by parameter name: numpy.ndarray in the reference, torch.Tensor in accel


@dataclass
class Model:
    """A prior, or an I-MLP (`dense`): one, or `lanes` of them along a leading axis of every parameter.

    `step` is the number of steps taken, `state` what the optimizer keeps, by its names. The verbs change it in place.
    """

    network: Network
    dense: bool
    lanes: int | None
    parameters: Arrays
    state: dict[str, Arrays] = field(default_factory=dict)
    step: int = 0
    buffers: Arrays = field(default_factory=dict)  # what a step changes besides: running statistics of other models
    scratch: Arrays = field(default_factory=dict, repr=False)  # room that a backend keeps from step to step
    restarts: dict[str, np.ndarray] = field(default_factory=dict)  # after which step it has started again
    branches: tuple[Branch | None, ...] = ()  # one per lane; empty: no lane has a branch

    @classmethod
    def start(
        cls,
        network: Network,
        dense: bool,
        lanes: int | None,
        parameters: Arrays,
        branches: Sequence[Branch | None] = (),
    ) -> "Model":
        """A model that has not been trained yet: no state, no steps, couplings' numbers at their start."""
        made = cls(network, dense, lanes, parameters, branches=tuple(branches))
        if branches and len(branches) != (lanes or 1):
            raise ArrayError(f"{len(branches)} branches for {lanes or 1} lanes", "give one per lane, or None")
        for index, branch in enumerate(made.branches):
            if branch is None:
                continue
            for layer in branch.layers:
                for name, value in branch.coupling.numbers(network.layer(layer).spec).items():
                    made.lane(index).parameters[f"{layer}.{name}"][...] = value
        return made

    def weight_of(self, name: str, spec: Spec) -> Any:
        """What the verbs take as the weight of a prior's layer: an array, or a mapping of several.

        In the noun's own shapes: torch has another for convolutions of one dimension.
        """
        shapes = {part: parameter.shape for part, parameter in spec.parameters.items()}
        numbers = {**self.buffers, **self.parameters}  # that of a pooling is not trained
        return spec.unnamed({part: numbers[f"{name}.{part}"].reshape(shapes[part]) for part in shapes})

    def select(self, lanes: Sequence[int]) -> "Model":
        """A new model of exactly these lanes, the optimizer's state included."""
        chosen = list(lanes)
        if self.lanes is None:
            raise ArrayError("the model has no lane axis to select from", "make it with lanes=1 or more")
        if not chosen:
            raise ArrayError("no lanes selected", f"give at least one of 0 to {self.lanes - 1}")
        for lane in chosen:
            if lane not in range(self.lanes):
                raise ArrayError(f"there is no lane {lane!r}", f"the lanes are 0 to {self.lanes - 1}")
        groups = {key: {name: array[chosen] for name, array in group.items()} for key, group in self._groups.items()}
        made = Model(self.network, self.dense, len(chosen), groups.pop(""), step=self.step, buffers=groups.pop(BUFFER))
        made.state = groups
        made.restarts = {name: array[chosen] for name, array in self.restarts.items()}
        made.branches = tuple(self.branches[lane] for lane in chosen) if self.branches else ()
        return made

    def lane(self, index: int) -> "Model":
        """One lane as a separate model that shares its numbers, and the room for gradients."""
        if self.lanes is None:
            return self
        groups = {
            key: {name: array[index, ...] for name, array in group.items()} for key, group in self._groups.items()
        }
        parameters, buffers = groups.pop(""), groups.pop(BUFFER)
        made = Model(self.network, self.dense, None, parameters, groups, self.step, buffers, self.scratch)
        made.restarts = {name: steps[index : index + 1] for name, steps in self.restarts.items()}
        made.branches = self.branches[index : index + 1]
        return made

    @property
    def _groups(self) -> dict[str, Arrays]:
        """All arrays that have a lane axis: the parameters, the buffers, and the optimizer's state."""
        return {"": self.parameters, BUFFER: self.buffers, **self.state}

    def keep_state(self, optimizer: Optimizer, zeros_like: Callable[[Any], Any]) -> None:
        """Make place for what the optimizer keeps, where there is none yet."""
        for group in optimizer.state:
            if group not in self.state:
                self.state[group] = {name: zeros_like(parameter) for name, parameter in self.parameters.items()}

    def restart_optimizer(self, names: Iterable[str], step: int) -> None:
        """Let it start again for these parameters of a model without lanes: its next step counts as the first."""
        for name in names:
            for group in self.state.values():
                group[name][...] = 0
            self.restarts[name][0] = step

    def branch_of(self, layer: str) -> Branch | None:
        """The branch of a layer of a model without lanes."""
        branch = self.branches[0] if self.branches else None
        return branch if branch is not None and layer in branch.layers else None

    def parts_of(self, layer: str, coupling: Branching) -> Arrays:
        """What the coupling makes a layer of, in a model without lanes, by the names of the parts."""
        names = {part: f"{layer}.{part}" for part in coupling.parts(self.network.layer(layer).spec)}
        return {part: self.parameters[name] for part, name in names.items() if name in self.parameters}


def lanes_fit(dense: bool, lanes: int | None) -> None:
    """Refuse lanes of a prior, and none at all."""
    if lanes is None:
        return
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise ArrayError(f"lanes is {lanes!r}", "give at least 1, or None for a model without the lane axis")
    if not dense:
        raise ArrayError(f"{lanes} lanes of a prior", "one prior serves all lanes: use lanes=None, or dense=True")


def batch_fits(
    model: Model, x_shape: Sequence[int], y_shape: Sequence[int] | None = None, *, shares: bool = False
) -> None:
    """Refuse images that are not `(N, M_in)`, and labels that are not `(N,)`, nor `shares` `(N, classes)`."""
    c, h, w = model.network.image
    if len(x_shape) != 2 or x_shape[1] != c * h * w:
        problem = f"images of shape {tuple(x_shape)} for {model.network.name}"
        raise ArrayError(problem, f"flatten them to (N, {c * h * w})")
    fitting = [(x_shape[0],), (x_shape[0], model.network.classes)] if shares else [(x_shape[0],)]
    if y_shape is not None and tuple(y_shape) not in fitting:
        raise ArrayError(f"labels of shape {tuple(y_shape)} for {x_shape[0]} images", f"give {x_shape[0]} of them")


def exported(model: Model, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, np.ndarray]:
    """Everything that it takes to resume exactly, by name: `conv1.weight`, ..., `optimizer.first.conv1.weight`, ...."""
    return {name: np.array(array) for name, array in arrays_of(model, to_numpy).items()}


def arrays_of(model: Model, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, np.ndarray]:
    """The same without copies where possible: what changes the model changes these arrays."""
    state = {f"{STATE}{name}.": group for name, group in model.state.items()}
    groups = {"": model.parameters, **state, BUFFER: model.buffers}
    arrays = {prefix + name: to_numpy(array) for prefix, group in groups.items() for name, array in group.items()}
    restarts = {RESTART + name: step for name, step in model.restarts.items()}
    return arrays | {STEP: np.array(model.step)} | restarts


def shapes_of(network: Network, *, dense: bool, branches: Sequence[Branch | None] = ()) -> dict[str, Shape]:
    """The shapes of all parameters by name; those of the branches come last."""
    shapes, there = dict(network.shapes(dense=dense)), [branch for branch in branches if branch is not None]
    for layer in network.layers if there else ():
        couplings = [branch.coupling for branch in there if layer.name in branch.layers]
        if couplings:
            parts = layer.spec.shapes().items()
            there_too = {part: shape for part, shape in parts if part != "bias" or f"{layer.name}.bias" in shapes}
            shapes |= {f"{layer.name}.prior.{part}": shape for part, shape in there_too.items()}
        for coupling in couplings:
            shapes |= {f"{layer.name}.{name}": np.shape(start) for name, start in coupling.numbers(layer.spec).items()}
    return shapes


def loaded(
    network: Network,
    arrays: Mapping[str, Any],
    *,
    dense: bool,
    convert: Callable[[Any], Any],
    branches: Sequence[Branch | None] = (),
) -> Model:
    """The model that `exported` wrote; every name and shape is checked against the network."""
    shapes = shapes_of(network, dense=dense, branches=branches)
    kept = dict.fromkeys(name.split(".")[1] for name in arrays if name.startswith(STATE))
    states = [name for name in kept if name not in ("restart", "step")]
    prefixes = {"": shapes, BUFFER: network.buffers(dense=dense), **{f"{STATE}{name}.": shapes for name in states}}
    expected = {prefix + name: shape for prefix, group in prefixes.items() for name, shape in group.items()}
    restarts = {name: arrays[RESTART + name] for name in shapes if RESTART + name in arrays}
    names = {*expected, STEP, *(RESTART + name for name in restarts)}
    for name in sorted(names - set(arrays)):
        raise ArrayError(f"{network.name}: array {name} is missing", "give everything that export wrote")
    for name in sorted(set(arrays) - names):
        remedy = "restore it with the network and dense that were exported"
        raise ArrayError(f"{network.name} has no array {name}", remedy)
    if np.shape(arrays[STEP]) or not arrays[STEP] >= 0:
        raise ArrayError(f"{network.name}: array {STEP} is {arrays[STEP]!r:.60}", "give what export wrote")
    name, shape = next(iter(shapes.items()))
    stacked = np.shape(arrays[name])
    lanes = stacked[0] if len(stacked) > len(shape) else None
    lanes_fit(dense, lanes)
    for name, shape in expected.items():
        given, wanted = np.shape(arrays[name]), shape if lanes is None else (lanes, *shape)
        if given != wanted:
            raise ArrayError(f"{network.name}: array {name} has shape {given}", f"it must have {wanted}")
    for name, steps in restarts.items():
        if np.shape(steps) != (lanes or 1,):
            raise ArrayError(f"{network.name}: {RESTART}{name} has shape {np.shape(steps)}", "give what export wrote")
    try:
        groups = [{name: convert(arrays[prefix + name]) for name in group} for prefix, group in prefixes.items()]
    except (TypeError, ValueError) as error:
        problem = f"{network.name}: an array does not hold numbers: {error}"
        raise ArrayError(problem, "give what export wrote") from error
    parameters, buffers, *kept_groups = groups
    state = dict(zip(states, kept_groups, strict=True))
    made = Model(network, dense, lanes, parameters, state, int(arrays[STEP]), buffers, branches=tuple(branches))
    made.restarts = {name: np.array(steps, np.int64) for name, steps in restarts.items()}
    return made


def not_finite(model: Model) -> dict[int, str]:
    """The lanes (0 for a model without them) with a number that is not finite, and its layer.

    Of several layers the first one. One lane at a time, to save memory.
    """
    layers: dict[int, str] = {}
    groups = (model.parameters, *model.state.values())
    named = [(name, group[name]) for name in model.parameters for group in groups]
    named += [(name, 1.0 * array) for name, array in model.buffers.items()]  # some of them are not numbers
    for name, array in named:
        for lane, numbers in enumerate([array] if model.lanes is None else array):
            if lane not in layers and not (abs(numbers) < np.inf).all():
                layers[lane] = name.rpartition(".")[0].removesuffix(".prior")
    return layers


def refuse_non_finite(
    model: Model, x: Any, loss: Any, forward: Callable[..., Any], to_numpy: Callable[[Any], Any]
) -> None:
    """Raise if a lane's loss is not finite, with the first layer whose result is not either."""
    wrong = np.flatnonzero(~np.isfinite(np.atleast_1d(loss))).tolist()
    if not wrong:
        return
    broken: list[str] = []

    def watch(name: str, result: Any) -> None:
        lanes = to_numpy(result) if model.lanes is None else to_numpy(result)[wrong]
        if not np.isfinite(lanes).all():
            broken.append(name)

    forward(model, x, watch=watch)
    raise NonFiniteError(wrong, broken[0] if broken else "the loss")
