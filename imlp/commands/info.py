"""`info`: versions, devices, and which path the accelerated backend takes."""

from typing import Annotated

import typer
from rich.table import Table

from imlp.commands.console import out, print_json
from imlp.machine import facts_of_this_machine


def info(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show versions and devices of this machine, which path interpolation takes on it, and why."""
    facts = facts_of_this_machine()
    if json:
        print_json(facts)
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    out.print(table)
