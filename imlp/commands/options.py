"""What the commands that train have in common: options for all settings, the engine, and how they are stopped."""

import dataclasses
import inspect
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, Any, Optional, TypeAlias, get_args, get_origin

import typer

from imlp.commands.console import err, out, print_json
from imlp.couplings.setting import shown_default
from imlp.data import NAMES
from imlp.errors import ConfigError
from imlp.files import parse_json
from imlp.networks import NETWORKS
from imlp.study.cluster import Cluster
from imlp.train.config import Config, Lane, combined, read
from imlp.train.loop import Interrupted
from imlp.train.run_folder import RunFolder

ENGINES = ("local", "ray")
ALPHA_HELP = (
    "How far W moves towards the prior; may be repeated: 0.5, a list 0,0.01,1, a range 1e-4..1:9log (or :9lin), "
    "decay:0.5:2, end:0.5, "
    "once:10:1, list:0.5:0.4:0.3, NAME=... by layer; each may end with its cadence: 0.01@epoch."
)
EVERY_HELP = (
    "How often: step, epoch (the paper's algorithm 1), a number of steps; or a list: epoch,step. "
    "Default: step, but epoch with --coupling add."
)


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
    _option("CPUs per run on Ray; also its threads, unless --threads is given. Default 1.", "--cpus-per-run", min=1),
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
ListAll: TypeAlias = Annotated[bool, _shown("List the available networks and data sets.", "--list")]
Estimate: TypeAlias = Annotated[bool, _shown("Only print lanes, seeds and the expected time.", "--estimate")]


def cluster_of(engine: str, address: str | None, cpus: int | None, gpus: float | None) -> Cluster | None:
    """The Ray cluster that these options name; None: this process."""
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}", f"use {' or '.join(ENGINES)}")
    if engine == "ray":
        return Cluster(address, cpus, gpus)
    given = {"--address": address, "--cpus-per-run": cpus, "--gpus-per-run": gpus}
    for name in (name for name, value in given.items() if value is not None):
        raise ConfigError(f"{name} is for Ray", "add --engine ray, or leave it out")
    return None


def print_choices(json: bool) -> None:
    """The networks and the data sets that can be named."""
    found = {"networks": list(NETWORKS), "data": list(NAMES)}
    if json:
        print_json(found)
        return
    out.print(f"--network: {', '.join(found['networks'])}", soft_wrap=True)
    out.print(f"--data: {', '.join(found['data'])}, a folder, an .npz, or a CIFAR .tar.gz", soft_wrap=True)


def exit_code(stop: Interrupted) -> int:
    """What a shell expects of a program that a signal has stopped."""
    return 128 + signal.Signals[stop.signal]


@contextmanager
def exit_if_interrupted() -> Iterator[None]:
    """What a signal has stopped ends with the exit code that a shell expects, and says that nothing is lost."""
    try:
        yield
    except Interrupted as stop:
        err.print(f"{stop.problem}; nothing is lost: run the same command again", soft_wrap=True)
        raise typer.Exit(exit_code(stop)) from None


def settings_as_options(*, hidden: Collection[str] = (), **helps: str) -> Callable[..., Callable[..., None]]:
    """Give a command an option for every setting of `Config` and `Lane`, documented there, or by `helps`.

    Those that a command refuses are `hidden` from its help.
    """
    return lambda function: _with_settings(function, hidden, helps)


def _with_settings(
    function: Callable[..., None], hidden: Collection[str], helps: dict[str, str]
) -> Callable[..., None]:
    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "settings"]
    added = []
    for f in (*dataclasses.fields(Lane), *dataclasses.fields(Config)):
        if f.name in ("lanes", "source", "coupling_source", "held_out") or f.name in [
            p.name for p in own
        ]:  # `search` has a --validation of its own
            continue
        kind, shown = _option_type(f), shown_default(f)
        names = [f"--{f.name.replace('_', '-')}"]
        names = [f"{names[0]}/--no-{names[0][2:]}"] if kind is bool else names
        help = helps.get(f.name, f.metadata["help"])
        help += f" Default {shown}." if shown and "Default" not in help else ""
        more: dict[str, Any] = {"rich_help_panel": f.metadata["panel"], "hidden": f.name in hidden}
        option = typer.Option(*names, help=help, show_default=False, **more)
        annotation = Annotated[Optional[kind], option]  # type: ignore[valid-type]  # noqa: UP045 (kind is a value)
        added.append(inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

    def command(**given: Any) -> None:
        mine = {p.name: given.pop(p.name) for p in own}
        function(settings={name: value for name, value in given.items() if value is not None}, **mine)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature([*keyword, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*keyword, *added)}
    return command


def _option_type(f: "dataclasses.Field[Any]") -> Any:
    if f.name in ("alpha", "layers", "options", "coupling_options"):
        return list[str]
    return get_args(f.type)[0] if get_origin(f.type) is not None else f.type


def config_of(file: Path | None, settings: dict[str, Any]) -> Config:
    """The configuration of a file, with the options of the command line over it.

    A file in a run's folder may be somebody else's: code that it names is only run if `--network` names it too.
    """
    values = read(file) if file is not None else {}
    if file is not None and RunFolder(file.resolve().parent).config.exists():
        values = {**values, "source": values.get("source") or ""}
    return combined(values, with_options(settings))


def with_options(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the command line as a file would have them: `--options` and `--coupling-options` as tables."""
    tables = [name for name in ("options", "coupling_options") if name in settings]
    return {**settings, **{name: dict(map(_named_value, settings[name])) for name in tables}}


def lane_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of lanes out of those of the command line."""
    return with_options({f.name: settings.pop(f.name) for f in dataclasses.fields(Lane) if f.name in settings})


def _named_value(text: str) -> tuple[str, Any]:
    """`residual=false` as a name and a value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--options {text!r:.60}", "write NAME=VALUE, for example residual=false")
    if value == "null":
        raise ConfigError(f"--options {name} is null", "leave it out, and the network takes its default")
    try:
        return name, parse_json(value)
    except JSONDecodeError:
        return name, value
    except ValueError as error:
        raise ConfigError(f"--options {name}: {error}", "give a value like the option's default") from error
