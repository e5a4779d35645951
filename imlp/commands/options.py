"""What the commands that run many runs have in common: which engine, this process or Ray, and what is shown."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from imlp.commands.console import err
from imlp.errors import ConfigError

if TYPE_CHECKING:
    from imlp.study.cluster import Cluster

ENGINES = ("local", "ray")


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Engine", show_default=False, **more)


Engine: TypeAlias = Annotated[
    str,
    _option(
        "local: one run after the other, here (the default). ray: as many at a time as there is room for.", "--engine"
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    _option(
        "A Ray cluster, from one of its machines: auto or HOST:PORT. Default: Ray on this machine alone.", "--address"
    ),
]
Cpus: TypeAlias = Annotated[
    int | None,
    _option("CPUs of a run on Ray, and its threads unless --threads says. Default 1.", "--cpus-per-run", min=1),
]
Gpus: TypeAlias = Annotated[
    float | None,
    _option(
        "GPUs of a run on Ray: 0.5 lets two share one. Default 1 where the cluster has any.", "--gpus-per-run", min=0
    ),
]


def _shown(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Output")


Check: TypeAlias = Annotated[bool, _shown("Check the network against the reference.", "--verify/--no-verify")]
Quiet: TypeAlias = Annotated[bool, _shown("Print only warnings and the result.", "--quiet")]
Json: TypeAlias = Annotated[bool, _shown("Print only the result, as JSON.", "--json")]


@contextmanager
def started(
    engine: str, address: str | None, cpus: int | None, gpus: float | None, *, quiet: bool
) -> Iterator["Cluster | None"]:
    """The cluster to run on; None: this process."""
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}", f"use {' or '.join(ENGINES)}")
    if engine == "local":
        given = {"--address": address, "--cpus-per-run": cpus, "--gpus-per-run": gpus}
        for name in (name for name, value in given.items() if value is not None):
            raise ConfigError(f"{name} is for Ray", "add --engine ray, or leave it out")
        yield None
        return
    from imlp.study.cluster import connected

    waiting = nullcontext() if quiet else err.status(f"joining Ray at {address}" if address else "starting Ray here")
    with ExitStack() as stack:
        with waiting:
            cluster = stack.enter_context(connected(address, cpus=cpus, gpus=gpus))
        yield cluster
