"""`line`: walk from a trained lane to its prior, without training."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import (
    PICTURES,
    Force,
    OutsideCoupling,
    OutsideNetwork,
    out,
    output_file,
    print_json,
    table,
    watched,
)


def line(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    lane: Annotated[int, typer.Option(min=0, help="The lane's number, from 0 in the order of config.toml.")] = 0,
    points: Annotated[int, typer.Option(min=2, max=1001, help="How many values of t, from 0 to 1.")] = 11,
    align: Annotated[
        bool, typer.Option("--align", help="First put the MLP's hidden units into the order nearest to the prior's.")
    ] = False,
    head: Annotated[bool, typer.Option("--head", help="Move the head as well, which the paper does not.")] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The picture (.png, .svg or .pdf). Default: RUN/lineK.png.")
    ] = None,
    network: OutsideNetwork = None,
    coupling: OutsideCoupling = None,
    force: Force = False,
    json: Annotated[bool, typer.Option("--json", help="Print only the numbers, as JSON.")] = False,
) -> None:
    """Measure a lane on its way to the prior: accuracy and loss of (1 - t) W + t W_P on the test images.

    All layers move together, then each alone. Nothing is trained; head and norms stay the lane's. This is the paper's
    test-time interpolation (appendix F, `--alpha end:t`) for every t.
    """
    from imlp.look import plot as drawing  # matplotlib takes a second to import
    from imlp.train import line as measuring

    path = output_file(out_file, run / f"line{lane}.png", *PICTURES, force=force)
    options = {"points": points, "align": align, "head": head, "network": network, "coupling": coupling}
    with watched(quiet=json) as progress:
        measured = measuring.line(run, lane, **options, progress=progress)  # type: ignore[arg-type]
    title = f"{run.resolve().name}, lane {lane}" + (", aligned" if align else "")
    drawing.save(drawing.line_figure(measured, title), path)
    if json:
        print_json(measured.as_dict())
        return
    rows = [
        [f"{points[0].t:.3g}", *(f"{100 * point.accuracy:.2f}" for point in points)]
        for points in zip(*measured.values(), strict=True)
    ]
    shown = table(f"test accuracy, %: {title}", ("t", *measured), rows, text=0)
    shown.add_section()
    shown.add_row("barrier", *(f"{100 * measured.barrier(name)[0]:.2f}" for name in measured))
    out.print(shown)
    out.print(f"drawn: {path}", soft_wrap=True)
