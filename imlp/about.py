"""What this machine has: versions and devices, as `info` prints, runs record and benchmarks report them."""

import os
import platform
from typing import Any

import numpy
import scipy

import imlp
from imlp.backend import backend
from imlp.errors import BackendError


def facts_of_this_machine() -> dict[str, Any]:
    """Versions, cores, and which path interpolation takes.

    >>> facts_of_this_machine()["numpy"] == numpy.__version__
    True
    """
    facts: dict[str, Any] = {
        "imlp": imlp.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
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
    facts |= {"interpolation": described["path"], "because": described["why"]}
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
    return facts
