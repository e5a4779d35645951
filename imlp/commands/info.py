"""`info`: versions, devices, and which path the accelerated backend takes."""

import os
import platform
from typing import Annotated, Any

import numpy
import scipy
import typer
from rich.table import Table

import imlp
from imlp.backend import backend
from imlp.commands.console import out, print_json
from imlp.errors import BackendError


def info(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show what this machine has, which path interpolation takes here, and why."""
    facts = facts_of_this_machine()
    if json:
        print_json(facts)
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    out.print(table)


def facts_of_this_machine() -> dict[str, Any]:
    """Versions and devices, as a benchmark or a run records them."""
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
