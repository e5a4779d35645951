"""What a run reports: the rows of `metrics.jsonl`, and `result.json` at its end."""

from collections.abc import Mapping
from typing import Any

from imlp.data import Dataset
from imlp.model import Model
from imlp.networks import Network
from imlp.train.callbacks import Row
from imlp.train.config import Config
from imlp.train.images import Score
from imlp.train.lanes import LaneInterpolation
from imlp.train.state import State


def measure_bias(
    backend: Any, network: Network, prior: Model | None, lanes: Model | None
) -> dict[str, dict[str, list[float]]]:
    """The bias meter of every interpolated layer, per lane, and what it shows of a random matrix."""
    found = {}
    for name in network.interpolated if lanes is not None else ():
        spec = network.layer(name).spec
        beside = None if prior is None else prior.weight_of(name, spec)
        measured = backend.measure(backend.weight(lanes, name), spec, beside)
        own = {key: backend.to_numpy(numbers).tolist() for key, numbers in measured.items()}
        of_random = {f"random_{part}": value for part, value in backend.measure_random(spec).items()}
        found[name] = {**own, **{key: [value] * len(own["shared"]) for key, value in of_random.items()}}
    return found


def rows(
    config: Config,
    interpolation: LaneInterpolation,
    state: State,
    *,
    train_losses: Mapping[int | str, float],
    test: Mapping[int | str, Score],
    before: Mapping[int | str, Score],
    held_out: Mapping[int | str, Score],
    bias: Mapping[str, Mapping[str, list[float]]],
    shift: Mapping[int | str, Mapping[str, float]],
) -> list[Row]:
    """The rows of the epoch that ends: the prior's, if there is one, then one per active lane.

    `before` has the lanes that may differ before the interpolation, `held_out` is empty if no images are,
    `shift` if that meter was not asked for.
    """
    found = []
    keys: list[Any] = [*(key for key in test if key == "prior"), *state.active]
    for key in keys:
        row: Row = {"epoch": state.epoch + 1, "lane": key, "name": "prior"}
        if key != "prior":
            row["name"] = config.lanes[key].title
            knobs = interpolation.alphas(key, state.epoch)  # a second one is shown where it is not as the first
            row |= {name: own for name, own in knobs.items() if name == "alpha" or own != knobs["alpha"]}
        row["train_loss"] = train_losses[key]
        if key != "prior":
            row["test_accuracy_before"] = before.get(key, test[key]).accuracy
        row |= {"test_accuracy": test[key].accuracy, "test_loss": test[key].loss}
        if key in held_out:
            row |= {"validation_accuracy": held_out[key].accuracy, "validation_loss": held_out[key].loss}
        row |= shift.get(key, {})
        if key != "prior":
            index = state.active.index(key)
            row["bias"] = {layer: {name: of[index] for name, of in own.items()} for layer, own in bias.items()}
        found.append(row)
    return found


def result(config: Config, network: Network, data: Dataset, state: State) -> dict[str, Any]:
    """The last row of each lane, and what it takes to read it."""
    last = [row for row in state.rows if row["epoch"] == state.epoch and row["lane"] in ("prior", *state.active)]
    return {
        "identity": config.identity,
        "network": network.name,
        "data": data.name,
        "data_digest": data.digest,
        "epochs": state.epoch,
        "parameters": {kind: network.n_parameters(dense=kind == "dense") for kind in ("prior", "dense")},
        "interpolated": network.n_interpolated,
        "models": last,
        "stopped": state.stopped,
    }
