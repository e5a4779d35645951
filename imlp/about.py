"""What this machine has: versions and devices, as `info` prints, runs record and benchmarks report them."""

import os
import platform
from typing import Any

import numpy
import scipy

import imlp
from imlp.backend import backend
from imlp.errors import BackendError

# by the flag that Linux has for them, widest first
VECTOR_UNITS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2", "sve": "SVE", "asimd": "NEON"}


def facts_of_this_machine() -> dict[str, Any]:
    """Versions, cores, and which path interpolation takes.

    >>> facts_of_this_machine()["numpy"] == numpy.__version__
    True
    """
    facts: dict[str, Any] = {
        "imlp": imlp.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "processor": processor(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
    try:
        accel: Any = backend("accel")
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
    """The processor's name and its widest vector units: how a sum is rounded depends on them.

    >>> bool(processor())
    True
    """
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
