"""The machine that a run is on: device, threads, memory, and what `env.json` says of it."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING, Any

from imlp.errors import ConfigError, RunError
from imlp.networks import Network

if TYPE_CHECKING:
    from imlp.train.config import Config
    from imlp.train.loop import Trainer


def device(config: "Config") -> str:
    """Where the run computes: the best there is for `auto`."""
    if config.backend == "reference":
        if config.device not in ("auto", "cpu"):
            raise ConfigError(f"device is {config.device!r}", "the reference computes on the cpu")
        return "cpu"
    import torch

    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"  # mps only by name: nobody has tried it yet
    try:
        torch.zeros(1, dtype=getattr(torch, config.dtype), device=config.device).cpu()
    except Exception as error:  # each kind of device that is missing fails in its own way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"device {config.device!r:.60} does not work: {reason:.200}", "use auto or cpu") from error
    return config.device


@contextmanager
def settings(config: "Config") -> Iterator[None]:
    """Threads and determinism for the time of a run, and as they were after it."""
    if config.backend == "reference":
        yield
        return
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)


def memory(network: Network, *, lanes: int, batch: int, itemsize: int, images: int) -> dict[str, int]:
    """Bytes that a run needs, about: what is there once, and what each lane adds.

    A parameter takes four numbers (itself, two moments, room for its gradient), an activation about three.
    """
    widths = sum(shape[0] for name, shape in network.shapes(dense=True).items() if name.endswith(".bias"))
    once = 4 * network.n_parameters(dense=False) * itemsize + images * prod(network.image)
    lane = (4 * network.n_parameters(dense=True) + 3 * batch * widths) * itemsize
    return {"once": once, "lane": lane, "total": once + lanes * lane}


def free_memory(device: str) -> int:
    """Bytes that a run could have there now, those that this process has reserved included."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: the memory that there is at all
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(trainer: "Trainer") -> None:
    """Refuse a run that needs more than is free: the operating system would end it without a word."""
    if trainer.memory()["total"] > free_memory(trainer.device):
        raise _too_large(trainer)


def _too_large(trainer: "Trainer") -> RunError:
    """What these lanes need, what is free, and how many would fit."""
    lanes, need, free = len(trainer.config.lanes), trainer.memory(), free_memory(trainer.device)
    fit = max(0, (free - need["once"]) // need["lane"])
    needed, left = (f"{number / 2**30:,.1f} GiB" for number in (need["total"], free))
    return RunError(
        f"{lanes} lanes of {trainer.network.name} need about {needed} on {trainer.device}, where {left} are free",
        f"about {fit} would fit: run the others apart, as sweep does, or take a smaller --batch or network",
    )


@contextmanager
def out_of_memory_explained(trainer: "Trainer") -> Iterator[None]:
    """Turns running out of memory into what these lanes need and how many would fit; checkpoints stay as they are."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):
            raise
        raise _too_large(trainer) from error


def environment() -> dict[str, Any]:
    """What `env.json` holds: versions, devices, the command and the time."""
    from imlp.about import facts_of_this_machine

    return {
        **facts_of_this_machine(),
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
