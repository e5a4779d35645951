"""The tasks of a sweep on Ray: a cluster, or one that is started on this machine for the time of the sweep.

Each task runs the same `run_task` as on one machine, so it leaves the same files. `driver` hands the tasks out and
follows them, `worker` runs one of them. Ray is imported only once a cluster is joined.
"""

import dataclasses
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from imlp import machine
from imlp.errors import ConfigError, RunError, install_hint
from imlp.study.watcher import Watcher
from imlp.train.config import Config


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and what one run takes of it (None: what its settings say).

    `address` is `auto` or `HOST:PORT`; None starts Ray on this machine, for the time that it is needed. Runs go to it
    inside `with connected(cluster):`, which `imlp.study.sweep`, `search` and `reproduce` see to themselves.
    """

    address: str | None = None
    cpus: int | None = None
    gpus: float | None = None

    def needs(self, config: Config) -> tuple[int, float]:
        """CPUs and GPUs of a run: as many CPUs as threads, and a GPU wherever there is one and the run may use it."""
        import ray

        some = 1.0 if ray.cluster_resources().get("GPU") and config.device != "cpu" else 0.0
        return self.cpus or config.threads or 1, some if self.gpus is None else self.gpus

    def room(self, config: Config) -> float:
        """Bytes for one run, where as many run at a time as Ray will start on the smallest machine that takes any."""
        cpus, gpus = self.needs(config)
        if gpus:
            return machine.free_memory(machine.device(config.backend, config.device, config.dtype)) * min(1.0, gpus)
        return min(node["memory"] / (node["CPU"] // cpus) for node in self.nodes_for(config))

    def runs(self, config: Config) -> int:
        """How many runs the cluster takes at a time."""
        cpus, _ = self.needs(config)
        return int(sum(node["CPU"] // cpus for node in self.nodes_for(config)))

    def settings(self, config: Config) -> Config:
        """The settings with which a worker runs it: the number of threads is always set, because bits depend on it."""
        cpus, gpus = self.needs(config)
        place = "cpu" if config.device == "auto" and not gpus else config.device
        return dataclasses.replace(config, threads=config.threads or cpus, device=place)

    def nodes_for(self, config: Config) -> list[dict[str, float]]:
        """The resources of the machines that can take a run."""
        import ray

        cpus, gpus = self.needs(config)
        nodes = [{"CPU": 0.0, "GPU": 0.0, **node["Resources"]} for node in ray.nodes() if node["Alive"]]
        fit = [node for node in nodes if node["CPU"] >= cpus and node["GPU"] >= gpus]
        if not fit:
            most = " and ".join(f"{max(node[kind] for node in nodes):g} {kind}s" for kind in ("CPU", "GPU"))
            remedy = f"the most that one has is {most}; give a smaller --cpus-per-run or --gpus-per-run"
            raise ConfigError(f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs for a run", remedy)
        return fit


@contextmanager
def connected(cluster: Cluster | None, watcher: Watcher | None = None) -> Iterator[None]:
    """Join the cluster, or start Ray on this machine for this process alone; None needs neither."""
    if cluster is None:
        yield
        return
    if watcher is not None:
        watcher.progress(f"joining Ray at {cluster.address}" if cluster.address else "starting Ray here", 0, None)
    ray = _joined(cluster.address)
    try:
        yield
    finally:
        ray.shutdown()


def _joined(address: str | None) -> Any:
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed", install_hint("ray"))
    if address is not None and "://" in address:
        raise ConfigError(f"address is {address!r}", "run this on a machine of the cluster, with --address auto")
    if address not in (None, "auto", "local"):
        _refuse_silence(str(address))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listens on 127.0.0.1 only, on Linux as well
        if "RAY_AUTH_MODE" not in os.environ:  # a password for this time only: Ray's own would stay in the home folder
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    alone: dict[str, Any] = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **alone)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "start it with ray start, and if it has a token, set RAY_AUTH_MODE=token here too (docs/scale.md)"
        raise RunError(f"cannot reach Ray at {address or 'this machine'}: {reason}", remedy) from error
    return ray


def _refuse_silence(address: str) -> None:
    """Ray itself would wait for minutes for a head that does not respond."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"address is {address!r}", "use auto, or HOST:PORT of the cluster's first machine")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        remedy = "start it with ray start --head there, and check that this machine may reach it (docs/scale.md)"
        raise RunError(f"no Ray head responds at {address}: {error}", remedy) from error
