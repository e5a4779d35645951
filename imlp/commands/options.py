"""What the commands that train have in common: options for all settings, the engine, and how they are stopped."""

import dataclasses
import inspect
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, Any, Optional, get_args, get_origin

import typer

from imlp.commands.console import err, in_panel
from imlp.couplings.setting import TRAINING, shown
from imlp.errors import ConfigError
from imlp.files import parse_json
from imlp.study.cluster import Cluster
from imlp.train.config import RECIPES, Config, Lane, combined, read
from imlp.train.loop import Interrupted
from imlp.train.run_folder import RunFolder

ENGINES = ("local", "ray")
RECIPE_NAMES = ", ".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
RECIPE_HELP = f"Settings for training, from the package: {RECIPE_NAMES}. Other options win over it."


_output, _engine = in_panel("Output"), partial(in_panel("Engine"), show_default=False)


@dataclass(frozen=True)
class Output:
    """What all commands that train can show."""

    out_folder: Annotated[
        Path | None, _output("The folder for everything. Default: one in runs/, named by the settings.", "--out")
    ] = None
    estimate: Annotated[bool, _output("Only print what would be trained, and the expected time.", "--estimate")] = False
    check: Annotated[bool, _output("Check the network against the reference.", "--verify/--no-verify")] = True
    quiet: Annotated[bool, _output("Print only warnings and the result.", "--quiet")] = False
    json: Annotated[bool, _output("Print only the result, as JSON.", "--json")] = False

    @property
    def silent(self) -> bool:
        """Whether nothing is shown on the way."""
        return self.quiet or self.json


@dataclass(frozen=True)
class Study(Output):
    """What all commands for many runs have in common."""

    engine: Annotated[
        str, _engine("local: one run after the other, here (the default). ray: as many at a time as there is room for.")
    ] = "local"
    address: Annotated[
        str | None,
        _engine("A Ray cluster, from one of its machines: auto or HOST:PORT. Default: Ray on this machine alone."),
    ] = None
    cpus_per_run: Annotated[
        int | None, _engine("CPUs per run on Ray; also its threads, unless --threads is given. Default 1.", min=1)
    ] = None
    gpus_per_run: Annotated[
        float | None,
        _engine("GPUs of a run on Ray: 0.5 lets two share one. Default 1 where the cluster has any.", min=0),
    ] = None
    at_once: Annotated[
        int | None, _engine("Lanes in one run. Default: as many as memory allows (search: 8).", "--lanes-at-once")
    ] = None

    @property
    def common(self) -> dict[str, Any]:
        """What the functions of the library that do the same take as well."""
        if self.engine not in ENGINES:
            raise ConfigError(f"engine is {self.engine!r}", f"use {' or '.join(ENGINES)}")
        given = {"--address": self.address, "--cpus-per-run": self.cpus_per_run, "--gpus-per-run": self.gpus_per_run}
        cluster = Cluster(self.address, self.cpus_per_run, self.gpus_per_run) if self.engine == "ray" else None
        for name in (name for name, value in given.items() if value is not None and cluster is None):
            raise ConfigError(f"{name} is for Ray", "add --engine ray, or leave it out")
        return {"out": self.out_folder, "lanes_at_once": self.at_once, "check": self.check, "cluster": cluster}


@contextmanager
def exit_if_interrupted(remedy: str = "run the same command again") -> Iterator[None]:
    """End what a signal stopped with the exit code that a shell expects, and say that nothing is lost."""
    try:
        yield
    except Interrupted as stop:
        err.print(f"{stop.problem}; nothing is lost: {remedy}", soft_wrap=True)
        raise typer.Exit(128 + signal.Signals[stop.signal]) from None


def settings_as_options(*, hidden: Collection[str] = (), **helps: str) -> Callable[..., Callable[..., None]]:
    """Give a command an option for every setting of `Config` and `Lane`, documented there, or by `helps`.

    The command is given those that were set as its last parameter, `settings`, and before it an `Output` or a `Study`.
    Settings that it refuses are `hidden` from its help; options that it has itself take the place of others of that
    name.
    """

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        *parameters, group, _ = inspect.signature(function, eval_str=True).parameters.values()  # the last: the settings
        names = [p.name for p in parameters]
        inside = dataclasses.fields(group.annotation)
        options = [_keyword(p.name, p.annotation, p.default) for p in parameters]
        options += [_keyword(f.name, f.type, f.default) for f in inside]
        for f in (*dataclasses.fields(Lane), *dataclasses.fields(Config)):
            if f.name not in ("lanes", "source", "coupling_source", "held_out", *names):  # `search` has --validation
                options.append(_option_for(f, helps.get(f.name, f.metadata["help"]), hidden=f.name in hidden))
        recipe = in_panel(TRAINING)(RECIPE_HELP, "--recipe", show_default=False)
        options.append(_keyword("recipe", Annotated[Optional[str], recipe]))  # noqa: UP045

        def command(**given: Any) -> None:
            mine = {name: given.pop(name) for name in names}
            output = group.annotation(**{f.name: given.pop(f.name) for f in inside})
            settings = {name: value for name, value in given.items() if value is not None}
            function(**mine, **{group.name: output}, settings=settings)

        command.__doc__, command.__name__ = function.__doc__, function.__name__
        command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in options}
        return command

    return decorated


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option_for(f: "dataclasses.Field[Any]", help: str, *, hidden: bool) -> inspect.Parameter:
    """The option of a setting; it is None where it is not given."""
    kind = get_args(f.type)[0] if get_origin(f.type) is not None else f.type
    kind = list[str] if f.name in ("alpha", "layers", "options", "coupling_options") else kind
    name, default = f.name.replace("_", "-"), "" if f.default in (None, (), "") else shown(f.default)
    name = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    help += f" Default {default}." if default and "Default" not in help else ""
    option = in_panel(f.metadata["panel"])(help, name, show_default=False, hidden=hidden)
    return _keyword(f.name, Annotated[Optional[kind], option])  # noqa: UP045 (kind is a value)


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
    return settings | {
        name: named_values(settings[name]) for name in ("options", "coupling_options") if name in settings
    }


def lane_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of lanes out of those of the command line."""
    return with_options({f.name: settings.pop(f.name) for f in dataclasses.fields(Lane) if f.name in settings})


def named_values(given: Iterable[str] | None) -> dict[str, Any]:
    """`residual=false` by name, as JSON where it is JSON, otherwise as text."""
    values: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--options {text!r:.60}", "write NAME=VALUE, for example residual=false")
        if value == "null":
            raise ConfigError(f"--options {name} is null", "leave it out, and the network takes its default")
        try:
            values[name] = parse_json(value)
        except JSONDecodeError:
            values[name] = value
        except ValueError as error:
            raise ConfigError(f"--options {name}: {error}", "give a value like the option's default") from error
    return values
