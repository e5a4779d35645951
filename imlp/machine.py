"""The machine that we are on: device, memory, and the facts that `info` and `env.json` state."""

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from typing import Any

import numpy
import scipy

import imlp
from imlp.backend import backend as get_backend
from imlp.errors import BackendError, ConfigError, RunError, in_a_line
from imlp.networks import Network

# by the flag that Linux has for them, widest first
VECTOR_UNITS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2", "sve": "SVE", "asimd": "NEON"}


def device(backend: str, wanted: str, dtype: str) -> str:
    """Where a backend computes in `dtype`, if it is to compute on `wanted`: on the best device there is for `auto`."""
    if backend == "reference":
        if wanted not in ("auto", "cpu"):
            raise ConfigError(f"device is {wanted!r}", "the reference computes on the cpu")
        return "cpu"
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"  # mps (untested) only by name
    if re.fullmatch("cpu:0*[1-9][0-9]*", wanted):  # which torch takes for the cpu
        raise ConfigError(f"device {wanted!r:.60} does not work: there is one cpu", "use auto or cpu")
    try:
        torch.zeros(1, dtype=getattr(torch, dtype), device=wanted).cpu()
    except Exception as error:  # each kind of device that is missing fails in its own way
        raise ConfigError(f"device {wanted!r:.60} does not work: {in_a_line(error)}", "use auto or cpu") from error
    return wanted


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


@dataclass(frozen=True)
class Memory:
    """Bytes that `lanes` lanes of a network need on a device, about: what is there once, and what each lane adds."""

    network: str
    device: str
    lanes: int
    once: int
    lane: int

    @property
    def total(self) -> int:
        return self.once + self.lanes * self.lane

    def check(self) -> None:
        """Refuse a run that needs more than is free: the operating system would end it without a word."""
        if self.total > free_memory(self.device):
            raise self._too_large()

    @contextmanager
    def shortage_explained(self) -> Iterator[None]:
        """Turn running out of memory into an error that says what these lanes need and how many would fit."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):
                raise
            raise self._too_large() from error

    def _too_large(self) -> RunError:
        free = free_memory(self.device)
        fit = max(0, (free - self.once) // self.lane)
        needed, left = (f"{number / 2**30:,.1f} GiB" for number in (self.total, free))
        lanes, smaller = "1 lane" if self.lanes == 1 else f"{self.lanes} lanes", "take a smaller --batch or network"
        return RunError(
            f"{self.network} with {lanes} needs about {needed} on {self.device}, where {left} are free",
            f"about {fit} would fit: run the others apart, as sweep does, or {smaller}" if fit else smaller,
        )


def memory(network: Network, *, lanes: int, batch: int, itemsize: int, images: int, device: str = "cpu") -> Memory:
    """What a run needs.

    A parameter takes four numbers (itself, two moments, room for its gradient), an activation about three.
    """
    widths = network.activations
    once = 4 * network.n_parameters(dense=False) * itemsize + images * prod(network.image)
    lane = (4 * network.n_parameters(dense=True) + 3 * batch * widths) * itemsize
    return Memory(network.name, device, lanes, once, lane)


def facts_of_this_machine() -> dict[str, Any]:
    """Versions, cores, and which path interpolation takes."""
    facts: dict[str, Any] = {
        "imlp": imlp.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "processor": processor(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
    try:
        accel: Any = get_backend("accel")
    except BackendError as error:
        return facts | {"accel": str(error)}
    import torch

    described = accel.describe()
    facts |= {"torch": described["torch"], "threads": torch.get_num_threads()}
    facts["vector units"] = torch.backends.cpu.get_cpu_capability()
    facts |= {"interpolation": described["path"], "because": described["why"]}
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
    return facts


def processor() -> str:
    """The processor's name and its widest vector units: how a sum is rounded depends on them."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line]
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    found = {key.strip(): value.strip() for key, value in lines}
    name = found.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in found:  # a virtual machine may say no more than "AMD EPYC"
        name += f" (family {found['cpu family']}, model {found.get('model', '?')})"
    flags = found.get("flags", found.get("Features", "")).split()
    widest = next((unit for flag, unit in VECTOR_UNITS.items() if flag in flags), "no known vector units")
    return f"{name}, {widest}"


def environment() -> dict[str, Any]:
    script = os.path.basename(sys.argv[0])
    return {
        **facts_of_this_machine(),
        "command": "python " * script.endswith(".py") + shlex.join([script, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
