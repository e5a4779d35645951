"""What a run reports: the rows of `metrics.jsonl`, and `result.json` at its end."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from imlp.train.callbacks import Row
from imlp.train.images import Score
from imlp.train.shift import measure_shift

if TYPE_CHECKING:
    from imlp.train.loop import Trainer


def measure_bias(run: "Trainer") -> dict[str, dict[str, list[float]]]:
    """The bias meter of every interpolated layer, per lane, and what it shows of a random matrix."""
    backend: Any = run.backend
    bias, prior, lanes = {}, run.state.prior, run.state.lanes
    for name in run.network.interpolated if lanes is not None else ():
        spec = run.network.layer(name).spec
        beside = None if prior is None else prior.weight_of(name, spec)
        measured = backend.measure(backend.weight(lanes, name), spec, beside)
        of_lanes = {key: backend.to_numpy(numbers).tolist() for key, numbers in measured.items()}
        of_random = {f"random_{part}": value for part, value in backend.measure_random(spec).items()}
        bias[name] = {**of_lanes, **{key: [value] * len(of_lanes["shared"]) for key, value in of_random.items()}}
    return bias


def rows(run: "Trainer", test: Mapping[int | str, Score], before: Mapping[int | str, Score]) -> list[Row]:
    """The rows of the epoch that ends: the prior's, if there is one, then one per active lane.

    `test` has the scores of all, `before` those of the lanes that may differ before the interpolation.
    """
    config, state = run.config, run.state
    held_out, bias = run.images.scores(state, on="validation"), measure_bias(run)
    metered = config.shift == "epoch" or (config.shift == "end" and state.epoch + 1 == config.epochs)
    shift = measure_shift(run.images, state) if metered else {}
    sums = np.concatenate([np.atleast_1d(run.backend.to_numpy(total)) for total in state.losses])
    train_losses = dict(zip(["prior", *state.active], (sums / len(run.data.x)).tolist(), strict=True))
    reported = []
    keys: list[Any] = [*(["prior"] if "prior" in test else []), *state.active]
    for key in keys:
        row: Row = {"epoch": state.epoch + 1, "lane": key, "name": "prior"}
        if key != "prior":
            row["name"] = config.lanes[key].title
            knobs = run.interpolation.alphas(key, state.epoch)  # a second one is shown where it is not as the first
            row |= {name: knob for name, knob in knobs.items() if name == "alpha" or knob != knobs["alpha"]}
        row["train_loss"] = train_losses[key]
        if key != "prior":
            row["test_accuracy_before"] = before.get(key, test[key]).accuracy
        row |= {"test_accuracy": test[key].accuracy, "test_loss": test[key].loss}
        if key in held_out:
            row |= {"validation_accuracy": held_out[key].accuracy, "validation_loss": held_out[key].loss}
        row |= shift.get(key, {})
        if key != "prior":
            index = state.active.index(key)
            row["bias"] = {layer: {name: of[index] for name, of in parts.items()} for layer, parts in bias.items()}
        reported.append(row)
    return reported


def result(run: "Trainer") -> dict[str, Any]:
    """The last row of each lane, and what it takes to read it."""
    state, network = run.state, run.network
    last = [row for row in state.rows if row["epoch"] == state.epoch and row["lane"] in ("prior", *state.active)]
    return {
        "identity": run.config.identity,
        "network": network.name,
        "data": run.data.name,
        "data_digest": run.data.digest,
        "epochs": state.epoch,
        "parameters": {kind: network.n_parameters(dense=kind == "dense") for kind in ("prior", "dense")},
        "interpolated": network.n_interpolated,
        "models": last,
        "stopped": state.stopped,
    }
