"""`train`: one prior and one or more lanes beside it."""

import dataclasses
import inspect
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, Any, Optional, get_args, get_origin

import typer
from rich.table import Table

from imlp import machine, verify
from imlp.backend import backend as get_backend
from imlp.commands import run_display as display
from imlp.commands.console import err, out, print_json
from imlp.commands.progress import watched
from imlp.errors import ConfigError, RunError, install_hint
from imlp.files import check_path, parse_json
from imlp.study.scores import PRIORS
from imlp.study.sweep import Stoppable
from imlp.train import config as configuration
from imlp.train import data as data_sets
from imlp.train.callbacks import Callback, TensorBoard
from imlp.train.config import Config, Lane
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_folder import TENSORBOARD

TRAINED_WITH = ("bias", "apply", "gradients", "interpolate", "project")  # `verify` checks the others too
RUN = "This run"


def _run_option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=RUN, **more)


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
        if f.name == "lanes" or f.name in [p.name for p in own]:  # `search` has a --validation of its own
            continue
        kind, shown = _option_type(f), configuration.shown_default(f)
        names = [f"--{f.name.replace('_', '-')}"]
        names = [f"{names[0]}/--no-{names[0][2:]}"] if kind is bool else names
        help = helps.get(f.name, f.metadata["help"]) + (f" Default {shown}." if shown else "")
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
    if f.name in ("alpha", "layers", "options"):
        return list[str]
    return get_args(f.type)[0] if get_origin(f.type) is not None else f.type


def config_of(file: Path | None, settings: dict[str, Any]) -> Config:
    """The configuration of a file, with the options of the command line over it."""
    values = configuration.read(file) if file is not None else {}
    lane = {f.name: settings.pop(f.name) for f in dataclasses.fields(Lane) if f.name in settings}
    if "options" in settings:
        base = values.get("options", {})
        if not isinstance(base, dict):
            raise ConfigError(f"options is {base!r}", "give a table of the network's options")
        settings["options"] = {**base, **dict(map(_option, settings["options"]))}
    values |= settings
    values["lanes"] = [values["lanes"]] if isinstance(values.get("lanes"), dict) else values.get("lanes")
    if values["lanes"] is None or "alpha" in lane:
        alphas = lane.pop("alpha", ["0.5"])
        values["lanes"] = [_lane(alpha, lane) for alpha in alphas]
    elif lane:
        values["lanes"] = [{**one, **lane} for one in values["lanes"]]
    config: Config = configuration.from_mapping(Config, values)
    return config


def _lane(alpha: str, common: dict[str, Any]) -> dict[str, Any]:
    """`0.01@step` is alpha 0.01 after every step."""
    alpha, at, every = alpha.partition("@")
    return {**common, "alpha": alpha, **({"every": every} if at else {})}


def _option(text: str) -> tuple[str, Any]:
    """`residual=false` as a name and a value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--options {text!r:.60}", "write NAME=VALUE, for example residual=false")
    try:
        return name, parse_json(value)
    except JSONDecodeError:
        return name, value
    except ValueError as error:
        raise ConfigError(f"--options {name}: {error}", "give a value like the option's default") from error


@settings_as_options()
def train(
    config: Annotated[Path | None, _run_option("Settings from a TOML file; options of the command line win.")] = None,
    out_folder: Annotated[
        Path | None, _run_option("The run's folder. Default: runs/NETWORK-DATA-HASH of the settings.", "--out")
    ] = None,
    resume: Annotated[bool, _run_option("Go on with the run in the folder, or start it.", "--resume")] = False,
    again: Annotated[bool, _run_option("Delete the run in the folder and start anew.", "--again")] = False,
    estimate: Annotated[bool, _run_option("Only print parameters, memory and expected time.", "--estimate")] = False,
    check: Annotated[bool, _run_option("Check the network against the reference.", "--verify/--no-verify")] = True,
    quiet: Annotated[bool, _run_option("Print only warnings and the result.", "--quiet")] = False,
    json: Annotated[bool, _run_option("Print only the result, as JSON.", "--json")] = False,
    tensorboard: Annotated[bool, _run_option("Also write TensorBoard's files.", "--tensorboard")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a prior and one or more I-MLPs beside it: W <- (1 - alpha) W + alpha W_P after every epoch.

    The first things to try:

    - `train`: the CNN pair on the embedded data set, alpha 0.5
    - `train --alpha 0 --alpha 0.01 --alpha 1`: three lanes beside one prior; alpha 0 is the plain MLP
    - `train --alpha 1@step --alpha decay:0.5:2`: after every step; decaying over the epochs
    - `train --data cifar10 --epochs 100`: the paper's setting, after `data fetch cifar10`
    """
    chosen = config_of(config, settings)
    get_backend(chosen.backend)  # before anything slow: it names what is missing
    folder = check_path(out_folder or Path("runs") / f"{chosen.network}-{Path(chosen.data).name}-{chosen.identity}")
    data = load_data(chosen, quiet=quiet or json)
    trainer = Trainer(chosen, data, folder)
    if estimate:
        print_estimate(trainer, json)
        return
    result = None if again else trainer.finished()
    if result is not None and not json:
        out.print(f"this run is done already (--again would repeat it): {folder}", soft_wrap=True)
    if result is not None:
        print_json(result) if json else print_result(result, folder)
        return
    if check and chosen.backend == "accel" and trainer.network.interpolated:
        with machine.settings(chosen.backend, threads=chosen.threads, deterministic=chosen.deterministic):
            verify_first(trainer, quiet=quiet or json)
    watch: Callback = display.Silent() if quiet or json else display.Watch() if err.is_terminal else display.Lines()
    trainer.callbacks.append(watch)
    if tensorboard:
        trainer.callbacks.append(_tensorboard(folder))
    try:
        with stopping_on_signals(trainer):
            result = trainer.run(resume=resume, again=again)
    except Interrupted as stop:
        watch.close()
        err.print(f"{stop}", soft_wrap=True, markup=False)
        raise typer.Exit(143 if trainer.stop_requested == "SIGTERM" else 130) from None
    finally:
        watch.close()
    if json:
        print_json(result)
    else:
        print_result(result, folder)


def print_result(result: dict[str, Any], folder: Path) -> None:
    out.print(display.result_table(result, f"{PRIORS.get(result['network'], result['network'])} (prior)"))
    out.print(f"files: {folder}/ (config.toml, metrics.jsonl, result.json, checkpoint/)", soft_wrap=True)
    out.print(f"draw them: python cli.py plot {folder}", soft_wrap=True)


def load_data(config: Config, *, quiet: bool) -> data_sets.Dataset:
    """The data set, with a bar while it is read or drawn."""
    with watched(quiet=quiet) as progress:
        return data_sets.load(
            config.data,
            train_size=config.train_size,
            test_size=config.test_size,
            validation=config.validation,
            image=dict(config.options).get("image"),
            labels=config.labels,
            progress=progress,
        )


def verify_first(trainer: Trainer, *, quiet: bool) -> None:
    """Every interpolated layer against the reference, each geometry once; a run on a wrong layer would be worthless."""
    specs = {trainer.network.layer(name).spec for name in trainer.network.interpolated}
    begin, dtype = time.monotonic(), trainer.config.dtype
    with nullcontext() if quiet else err.status("checking the network against the reference"):
        options: dict[str, Any] = {"dtype": dtype, "device": trainer.device, "verbs": TRAINED_WITH}
        errors = [max(verify.layer_errors(spec, **options).values()) for spec in specs]
    if max(errors) > verify.TOLERANCE[dtype]:
        raise RunError(
            f"accel differs from the reference by {max(errors):.1e} on this machine", "see: python cli.py verify"
        )
    if not quiet:
        took = time.monotonic() - begin
        err.print(f"checked against the reference: {len(specs)} layers, error at most {max(errors):.0e} ({took:.1f} s)")


@contextmanager
def stopping_on_signals(run: Stoppable) -> Iterator[None]:
    """SIGINT and SIGTERM ask the run to save and stop after its step; a second one ends it at once."""

    def ask(number: Any, frame: Any) -> None:
        run.stop_requested = signal.Signals(number).name
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tensorboard(folder: Path) -> TensorBoard:
    if find_spec("tensorboard") is None:
        raise ConfigError("TensorBoard is not installed", install_hint("tensorboard"))
    return TensorBoard(folder / TENSORBOARD)


def print_estimate(trainer: Trainer, json: bool) -> None:
    """Parameters, memory, and the time that a few real steps foretell."""
    config, network = trainer.config, trainer.network
    need, free = trainer.memory().total, machine.free_memory(trainer.device)
    step, steps = trainer.seconds_a_step(), config.epochs * trainer.steps
    seconds = 1.1 * step * steps  # evaluation and checkpoints take about a tenth
    prior, lane = (network.n_parameters(dense=dense) for dense in (False, True))
    if json:
        print_json({
            "prior_parameters": prior, "parameters_a_lane": lane, "lanes": len(config.lanes), "device": trainer.device,
            "memory_bytes": need, "free_bytes": free, "steps": steps, "seconds_a_step": step, "seconds": seconds,
        })  # fmt: skip
        return
    table = Table(show_header=False)
    table.add_row("prior", f"{prior:,} parameters")
    table.add_row("lanes", f"{len(config.lanes)} with {lane:,} parameters each")
    table.add_row("memory", f"about {need / 2**30:.2f} GiB on {trainer.device}, where {free / 2**30:.1f} GiB are free")
    table.add_row("time", f"about {duration(seconds)}: {steps:,} steps of {1e3 * step:.0f} ms, and evaluation")
    out.print(table)


def duration(seconds: float) -> str:
    """`4 min`, `2 h 10 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
