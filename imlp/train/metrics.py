"""What a run reports: the rows of `metrics.jsonl`, and `result.json` at its end."""

from typing import Any

from imlp.model import Model
from imlp.networks import Network
from imlp.train.config import Config
from imlp.train.data import Dataset
from imlp.train.state import State


def measure_bias(
    backend: Any, network: Network, prior: Model, lanes: Model | None
) -> dict[str, dict[str, list[float]]]:
    """The bias meter of every interpolated layer: share and distance per lane, and the share of a random matrix."""
    found = {}
    for name in network.interpolated if lanes is not None else ():
        spec, key = network.layer(name).spec, f"{name}.weight"
        measured = backend.measure(lanes.parameters[key], spec, prior.parameters[key])  # type: ignore[union-attr]
        share, distance = (backend.to_numpy(numbers).tolist() for numbers in measured)
        m_out, m_in = spec.matrix_shape
        found[name] = {"share": share, "random": [spec.rank / (m_out * m_in)] * len(share), "distance": distance}
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
