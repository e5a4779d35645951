"""`plot`: a run as a picture."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from imlp.commands.console import out
from imlp.errors import FileError, RunError


def plot(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The picture: .png, .svg or .pdf. Default: RUN/run.png.")
    ] = None,
) -> None:
    """Draw a run: test accuracy and inductive bias by epoch."""
    from imlp import plot as drawing  # matplotlib takes a second to import

    path = out_file or run / "run.png"
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise FileError(f"{path} does not end in a known type", "use .png, .svg or .pdf")
    drawing.save(drawing.run_figure(read_rows(run), run.resolve().name), path)
    out.print(f"drawn: {path}", soft_wrap=True)


def read_rows(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    path = run / "metrics.jsonl"
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}", "name the folder of a run of train") from error
    if not rows:
        raise RunError(f"{run} has no complete epoch yet", "let it train for a while")
    return rows
