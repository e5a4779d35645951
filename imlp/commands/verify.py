"""`verify`: does the fast path agree with the reference, on every layer and on whole networks?"""

from functools import cache, partial
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from imlp import kinds, machine, networks
from imlp.backend import backend as get_backend
from imlp.commands.console import out, print_json, watched
from imlp.commands.options import named_values
from imlp.errors import BackendError, ConfigError
from imlp.look.verify import TOLERANCE, layer_errors, network_errors

SHORT = {"gradients": "grads", "interpolate": "interp.", "interpolation": "interp."}  # to fit into 80 columns
Dtype = Literal["float64", "float32", "bfloat16", "float16"]


def verify(
    network: Annotated[
        list[str] | None,
        typer.Option(help="A network to check, or FILE.py:NAME; repeat for more. Default: cnn and mixer."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "--spec",
            help="Check a kind of layer (of build-prior, or FILE.py:Class) instead; repeat for more.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(help="Options of the network or kind, if there is only one: NAME=VALUE. Repeat for more."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where accel computes: auto, cpu, cuda, cuda:1, mps.")] = "cpu",
    dtype: Annotated[
        Dtype, typer.Option(help="The type that accel computes in; the reference always uses float64.")
    ] = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights and inputs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the errors as JSON.")] = False,
) -> None:
    """Check that accel equals the reference, and show the largest errors per layer and network.

    Exits with 1 if they differ.
    """
    whole = network or ([] if kind else ["cnn", "mixer"])
    given = named_values(options)
    if given and len([*whole, *(kind or [])]) > 1:
        raise ConfigError("--options are given for several networks or kinds", "name one of them: --network or --kind")
    made = {name: networks.make(name, **given) for name in whole}
    layers = {name: kinds.make(name, **given) for name in kind or []}
    layers |= {f"{name} {layer.name}": layer.spec for name, whole_one in made.items() for layer in whole_one.layers}
    get_backend("accel")  # it names what is missing
    device = machine.device("accel", device, dtype)
    # On some processors torch's half-precision products kill the process.
    if device == "cpu" and dtype in ("bfloat16", "float16"):
        raise BackendError(f"{dtype} on the CPU depends on what the processor can do", "use float32, or --device cuda")
    errors_of_layers = cache(partial(layer_errors, dtype=dtype, device=device, seed=seed))  # each geometry once
    errors, errors_of_networks = {}, {}
    total = len(layers) + len(whole)
    with watched(quiet=json) as progress:
        for n, (name, one) in enumerate(layers.items()):
            progress(name, n, total)
            errors[name] = errors_of_layers(one)
        for n, (name, whole_one) in enumerate(made.items(), start=len(layers)):
            progress(f"{name}, the whole network", n, total)
            errors_of_networks[name] = network_errors(whole_one, dtype=dtype, device=device, seed=seed)
    tolerance = TOLERANCE[dtype]
    rows = [*errors.values(), *errors_of_networks.values()]
    passed = all(error <= tolerance for row in rows for error in row.values())
    if json:
        report = {"dtype": dtype, "device": device, "tolerance": tolerance, "passed": passed, "errors": errors}
        print_json(report | {"networks": errors_of_networks})
    else:
        title = f"accel ({dtype}, {device}) against the reference"
        _print(errors, tolerance, f"{title}:\nlargest relative error; at most {tolerance:g} is allowed", "layer")
        if whole:
            _print(errors_of_networks, tolerance, "and on whole networks", "network")
        told = "all equal within rounding" if passed else "not equal: see the numbers marked in red"
        out.print(told, style="" if passed else "bold red")
    if not passed:
        raise typer.Exit(1)


def _print(errors: dict[str, dict[str, float]], tolerance: float, title: str, what: str) -> None:
    verbs = list(next(iter(errors.values())))
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(what, no_wrap=True)
    for verb in verbs:
        table.add_column(SHORT.get(verb, verb), justify="right")
    for name, row in errors.items():
        cells = [(f"{row[verb]:.0e}" if row[verb] else "0", row[verb] <= tolerance) for verb in verbs]
        table.add_row(name, *(Text(number, style="" if fine else "bold red") for number, fine in cells))
    out.print(table)
