"""A network with its numbers, and the checks that both backends make of what they are given.

Like `imlp.checks`, this looks only at shapes and numbers, never at an array library.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from imlp import checks
from imlp.errors import AlphaError, ArrayError, NonFiniteError, known
from imlp.networks import Network, check_layers
from imlp.spec import Spec

BUFFER = "buffer:"  # how the names of buffers begin in files
Arrays = dict[str, Any]  # by parameter name: numpy.ndarray in the reference, torch.Tensor in accel


@dataclass
class Model:
    """A prior, or an I-MLP (`dense`): one, or `lanes` of them along a leading axis of every parameter.

    The moments are Adam's, `step` is the number of steps taken. The verbs change a model in place.
    """

    network: Network
    dense: bool
    lanes: int | None
    parameters: Arrays
    first_moments: Arrays
    second_moments: Arrays
    step: int = 0
    buffers: Arrays = field(default_factory=dict)  # what a step changes besides: running statistics of other models
    scratch: Arrays = field(default_factory=dict, repr=False)  # room that a backend keeps from step to step

    @classmethod
    def start(cls, network: Network, dense: bool, lanes: int | None, parameters: Arrays, zeros_like: Any) -> "Model":
        """A model that has not been trained yet: no moments, no steps."""
        first, second = ({name: zeros_like(p) for name, p in parameters.items()} for _ in range(2))
        return cls(network, dense, lanes, parameters, first, second)

    def weight_of(self, name: str, spec: Spec) -> Any:
        """What the verbs take as the weight of a prior's layer: an array, or a mapping of several."""
        return spec.unnamed({part: self.parameters[f"{name}.{part}"] for part in spec.parameters})

    def select(self, lanes: Sequence[int]) -> "Model":
        """A new model of exactly these lanes, moments included."""
        chosen = lanes_chosen(self, lanes)
        groups = (self.parameters, self.first_moments, self.second_moments, self.buffers)
        parameters, first, second, buffers = (
            {name: array[chosen] for name, array in group.items()} for group in groups
        )
        return Model(self.network, self.dense, len(chosen), parameters, first, second, self.step, buffers)

    @property
    def numbers(self) -> Arrays:
        """Everything that its answers depend on."""
        return {**self.parameters, **self.buffers}


def lanes_fit(dense: bool, lanes: int | None) -> None:
    """Refuse lanes of a prior, and none at all."""
    if lanes is None:
        return
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise ArrayError(f"lanes is {lanes!r}", "give at least 1, or None for a model without the lane axis")
    if not dense:
        raise ArrayError(f"{lanes} lanes of a prior", "one prior serves all lanes: use lanes=None, or dense=True")


def batch_fits(model: Model, x_shape: Sequence[int], y_shape: Sequence[int] | None = None) -> None:
    """Refuse images that are not `(N, M_in)` and labels that are not `(N,)`."""
    c, h, w = model.network.image
    if len(x_shape) != 2 or x_shape[1] != c * h * w:
        raise ArrayError(
            f"images of shape {tuple(x_shape)} for {model.network.name}", f"flatten them to (N, {c * h * w})"
        )
    if y_shape is not None and tuple(y_shape) != (x_shape[0],):
        raise ArrayError(f"labels of shape {tuple(y_shape)} for {x_shape[0]} images", f"give {x_shape[0]} of them")


def lanes_chosen(model: Model, lanes: Sequence[int]) -> list[int]:
    """The indices of lanes to keep, each of which the model must have."""
    if model.lanes is None:
        raise ArrayError("the model has no lane axis to select from", "make it with lanes=1 or more")
    chosen = list(lanes)
    if not chosen:
        raise ArrayError("no lanes selected", f"give at least one of 0 to {model.lanes - 1}")
    for lane in chosen:
        if lane not in range(model.lanes):
            raise ArrayError(f"there is no lane {lane!r}", f"the lanes are 0 to {model.lanes - 1}")
    return chosen


class Mix(NamedTuple):
    """One layer of neighbouring lanes that is to be mixed: views of the I-MLP's numbers, and the prior's own."""

    spec: Spec
    W: Any  # (lanes, M_out, M_in), to be changed in place
    b: Any  # (lanes, M_out), to be changed in place
    prior_weight: Any
    prior_bias: Any  # before it is expanded; None if the prior has none
    alphas: list[float]  # one per lane


def mixes(
    model: Model, prior: Model, alpha: Any, *, mode: str, layers: Iterable[str] | None, head: bool
) -> Iterator[Mix]:
    """What an interpolation step has to mix, after all of what was given has been checked."""
    for name, alphas in alphas_by_layer(model, prior, alpha, mode=mode, layers=layers, head=head).items():
        spec, (weight, bias) = model.network.layer(name).spec, (f"{name}.weight", f"{name}.bias")
        dense = (model.parameters[weight], model.parameters[bias])
        W, b = dense if model.lanes is not None else (array[None] for array in dense)
        for lanes, given in runs(alphas):
            yield Mix(spec, W[lanes], b[lanes], prior.weight_of(name, spec), prior.parameters.get(bias), given)


def alphas_by_layer(
    model: Model, prior: Model, alpha: Any, *, mode: str, layers: Iterable[str] | None, head: bool
) -> dict[str, list[float | None]]:
    """For each layer to be mixed, one alpha per lane; None leaves that lane's layer untouched.

    `alpha` is a number, one per lane, or a mapping from layer names to either; a layer that a mapping leaves out is
    left untouched. The head, if it is to be mixed, takes the alpha of the mapping's "head", or the common one.
    """
    if not model.dense or prior.dense:
        raise ArrayError("inject mixes a prior into an I-MLP", "give the I-MLP (dense) first, then the prior")
    if prior.network != model.network:
        raise ArrayError(f"a prior of {prior.network.name} for {model.network.name}", "make both of one network")
    checks.mode_known(mode)
    names = model.network.interpolated if layers is None else check_layers(model.network, layers)
    names = (*names, "head") if head else names
    if isinstance(alpha, Mapping):
        for name in alpha:
            known(name, names, "layer in alpha")
        given = {name: alpha[name] for name in names if name in alpha}
    else:
        given = dict.fromkeys(names, alpha)
    return {name: _one_per_lane(value, model.lanes) for name, value in given.items()}


def _one_per_lane(alpha: Any, lanes: int | None) -> list[float | None]:
    n = 1 if lanes is None else lanes
    several = isinstance(alpha, (list, tuple)) or getattr(alpha, "ndim", 0) == 1
    values = list(alpha) if several else [alpha] * n
    if len(values) != n or (several and lanes is None):
        remedy = "give a single one" if lanes is None else f"give one, or a list of {n}"
        raise AlphaError(
            f"{len(values)} alphas for {'a model without lanes' if lanes is None else f'{n} lanes'}", remedy
        )
    return [None if value is None else checks.alphas(value, None)[0] for value in values]


def runs(alphas: Sequence[float | None]) -> Iterator[tuple[slice, list[float]]]:
    """Neighbouring lanes that have an alpha, to be mixed in one go.

    >>> list(runs([0.1, 0.2, None, 0.4]))
    [(slice(0, 2, None), [0.1, 0.2]), (slice(3, 4, None), [0.4])]
    """
    start = 0
    for lane, alpha in enumerate([*alphas, None]):
        if alpha is None:
            if start < lane:
                yield slice(start, lane), [a for a in alphas[start:lane] if a is not None]
            start = lane + 1


def exported(model: Model, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, np.ndarray]:
    """Everything that it takes to resume exactly, by name: `conv1.weight`, ..., `adam.first.conv1.weight`, ...."""
    return {name: np.array(array) for name, array in shared(model, to_numpy).items()}


def shared(model: Model, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, np.ndarray]:
    """The same without copies where possible: what changes the model changes these arrays."""
    groups = {"": model.parameters, "adam.first.": model.first_moments, "adam.second.": model.second_moments}
    groups[BUFFER] = model.buffers
    arrays = {prefix + name: to_numpy(array) for prefix, group in groups.items() for name, array in group.items()}
    return arrays | {"adam.step": np.array(model.step)}


def loaded(network: Network, arrays: Mapping[str, Any], *, dense: bool, convert: Callable[[Any], Any]) -> Model:
    """The model that `exported` wrote; every name and shape is checked against the network."""
    shapes, buffers = network.shapes(dense=dense), network.buffers(dense=dense)
    prefixes = {"": shapes, "adam.first.": shapes, "adam.second.": shapes, BUFFER: buffers}
    expected = {prefix + name for prefix, own in prefixes.items() for name in own} | {"adam.step"}
    for name in sorted(expected - set(arrays)):
        raise ArrayError(f"{network.name}: array {name} is missing", "give everything that export wrote")
    for name in sorted(set(arrays) - expected):
        raise ArrayError(
            f"{network.name} has no array {name}", "restore it with the network and dense that were exported"
        )
    name, shape = next(iter(shapes.items()))
    found = np.shape(arrays[name])
    lanes = found[0] if len(found) > len(shape) else None
    lanes_fit(dense, lanes)
    groups: list[Arrays] = []
    for prefix, own in prefixes.items():
        for name, shape in own.items():
            given, wanted = np.shape(arrays[prefix + name]), shape if lanes is None else (lanes, *shape)
            if given != wanted:
                raise ArrayError(f"{network.name}: array {prefix}{name} has shape {given}", f"it must have {wanted}")
        try:
            groups.append({name: convert(arrays[prefix + name]) for name in own})
        except (TypeError, ValueError) as error:
            problem = f"{network.name}: an array does not hold numbers: {error}"
            raise ArrayError(problem, "give what export wrote") from error
    parameters, first, second, others = groups
    return Model(network, dense, lanes, parameters, first, second, int(arrays["adam.step"]), others)


def not_finite(model: Model) -> dict[int, str]:
    """The lanes (0 for a model without them) with a parameter or moment that is not finite, and its layer.

    Of several layers the first one. One lane at a time, to save memory.
    """
    found: dict[int, str] = {}
    moments = (model.first_moments, model.second_moments)
    named = [(name, group[name]) for name in model.parameters for group in (model.parameters, *moments)]
    named += [(name, 1.0 * array) for name, array in model.buffers.items()]  # some of them are not numbers
    for name, array in named:
        for lane, own in enumerate([array] if model.lanes is None else array):
            if lane not in found and not (abs(own) < np.inf).all():
                found[lane] = name.rpartition(".")[0]
    return found


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
