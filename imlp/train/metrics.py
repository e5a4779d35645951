"""What a run reports: the rows of `metrics.jsonl`, and `result.json` at its end."""

from dataclasses import dataclass
from typing import Any

from imlp.data import Dataset
from imlp.model import Model
from imlp.networks import Network
from imlp.train.callbacks import Row
from imlp.train.config import Config
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


@dataclass(frozen=True)
class EpochScores:
    """What came of an epoch: lists have the prior first, then each active lane."""

    train_losses: list[float]
    test: dict[int | str, tuple[Any, Any]]  # correct answers and summed losses, by lane and of the "prior"
    before: dict[int, Any]  # correct answers before the interpolation, of lanes that may differ then
    held_out: list[dict[str, float]]  # the columns for the images held out, if there are any
    bias: dict[str, dict[str, list[float]]]  # as `measure_bias` returns it


def rows(config: Config, interpolation: LaneInterpolation, state: State, scores: EpochScores, n_test: int) -> list[Row]:
    """The rows of the epoch that ends: the prior's, if there is one, then one per active lane."""
    common, found = {"epoch": state.epoch + 1}, []
    held_out = scores.held_out if "prior" in scores.test else [{}, *scores.held_out]
    if "prior" in scores.test:
        correct, loss = scores.test["prior"]
        found.append({
            **common, "lane": "prior", "name": "prior", "train_loss": scores.train_losses[0],
            "test_accuracy": float(correct / n_test), "test_loss": float(loss / n_test), **held_out[0],
        })  # fmt: skip
    for index, lane in enumerate(state.active):
        correct, loss = scores.test[lane]
        bias = {layer: {key: of[index] for key, of in own.items()} for layer, own in scores.bias.items()}
        found.append({
            **common, "lane": lane, "name": config.lanes[lane].title,
            **_alphas(interpolation, lane, state.epoch),
            "train_loss": scores.train_losses[1 + index],
            "test_accuracy_before": float(scores.before.get(lane, correct) / n_test),
            "test_accuracy": float(correct / n_test), "test_loss": float(loss / n_test),
            **held_out[1 + index], "bias": bias,
        })  # fmt: skip
    return found


def _alphas(interpolation: LaneInterpolation, lane: int, epoch: int) -> dict[str, Any]:
    """The alphas of its layers by knob; a second knob only where it is not as the first."""
    knobs = interpolation.by_knob(lane, epoch)
    return {name: own for name, own in knobs.items() if name == "alpha" or own != knobs["alpha"]}


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
