"""`explore`: the teaching page as a file."""

from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import Force, check_suffix
from imlp.commands.console import out as console
from imlp.files import check_new, write_whole
from imlp.look.explore import page


def explore(
    out: Annotated[Path, typer.Option(help="The page: a single self-contained .html file.")] = Path("explore.html"),
    force: Force = False,
) -> None:
    """Write a page where you can point at every entry of a layer's matrix.

    Choose a layer and its geometry, see the input, the matrix and the output side by side, step through the formula of
    an entry, drag alpha and watch a plain layer turn into the structured one.

    The page opens from disk. On a machine without a screen, `python -m http.server --bind 127.0.0.1` serves it behind
    `ssh -L 8000:127.0.0.1:8000`.
    """
    check_suffix(out, ".html", ".htm")
    check_new(out, force=force)
    with write_whole(out) as file:
        file.write(page().encode())
    console.print(f"written: {out} (open it in a browser)", soft_wrap=True)
