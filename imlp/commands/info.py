"""`info`: versions, devices, and which path the accelerated backend takes."""

from typing import Annotated

import typer

from imlp.commands.console import print_facts, print_json
from imlp.machine import facts_of_this_machine


def info(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show versions and devices of this machine, which path interpolation takes on it, and why."""
    facts = facts_of_this_machine()
    print_json(facts) if json else print_facts(facts)
