"""Data sets by name or by path, in memory as uint8: `load_data_set("shapes")`, or `"cifar10"`, or `"my/folder"`.

| name or path | what |
|---|---|
| `shapes` | generated from the seed, no download: glyphs anywhere on textured backgrounds |
| `cifar10`, `cifar100` | fetched with `data fetch`, which takes the official archive where it lies in the folder |
| folder of class folders | PNG and JPEG, resized; `train` and `test` inside it, or a seeded split |
| `.npz` | `x`, `y`, `x_test`, `y_test`, and `classes` if you like |
"""

from dataclasses import dataclass
from pathlib import Path

from imlp.data import cifar, fetch, folder, shapes, store
from imlp.data.dataset import Dataset, Image, ProgressCallback, silent
from imlp.errors import DataError, known, program
from imlp.files import expanded, reason, shown

NAMES = ("shapes", *cifar.LAYOUTS)


def load_data_set(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    train_size: int | None = None,
    test_size: int | None = None,
    validation: int = 0,
    seed: int = 0,
    image: Image | None = (3, 32, 32),
    labels: str = "fine",
    progress: ProgressCallback = silent,
) -> Dataset:
    """The data set of that name under `root` (see `store.data_root`), or at that path.

    `train_size` and `test_size` choose some of its images by `seed`; None takes all (of `shapes`: 10,000 and 2,000).
    Of the training images, `validation` are held out.
    `image` is what the network takes: folders of pictures are resized to it, any other set must have it
    (None: whatever the set has). `labels="coarse"` selects CIFAR-100's 20 superclasses.

    >>> load_data_set("shapes", root="/tmp/imlp-example", train_size=20, test_size=10, seed=7).x.shape
    (20, 3, 32, 32)
    """
    if known(labels, ("fine", "coarse"), "labels", DataError) == "coarse" and str(name_or_path) != "cifar100":
        raise DataError(f"{name_or_path} has no coarse labels", "only cifar100 has; leave labels out")
    if str(name_or_path) == "shapes":
        data = shapes.dataset(store.data_root(root), train_size, test_size, seed=seed, progress=progress)
    elif (layout := cifar.LAYOUTS.get(str(name_or_path))) is not None:
        cached = fetch.cache_file(layout, store.data_root(root))
        if not cached.is_file():
            remedy = f"fetch it: {program()} data fetch {layout.name}"
            raise DataError(f"{layout.name} is not in {cached.parent}", remedy)
        data = cifar.dataset(layout, store.read(cached), labels).take(train_size, test_size, seed=seed)
    else:
        try:
            whole = _from_path(expanded(name_or_path), seed, image, progress)
        except OSError as error:
            problem = f"cannot read {shown(error.filename or name_or_path)}: {reason(error)}"
            raise DataError(problem, "name data that you may read") from error
        data = whole.take(train_size, test_size, seed=seed)
    if image is not None and data.image != tuple(image):
        given, wanted = ("x".join(map(str, size)) for size in (data.image, image))
        problem = f"{data.name} has images of {given}, the network takes {wanted}"
        raise DataError(problem, "resize the images, or use a network for them")
    return data.validate(validation, seed=seed) if validation else data


@dataclass(frozen=True)
class Listed:
    """What there is to say of a data set with a name without loading it."""

    name: str
    train: int
    test: int
    n_classes: int
    path: Path  # of its file, whether it is there or not
    is_fetched: bool = True  # otherwise it is drawn when it is needed
    image: Image = (3, 32, 32)


def listed(root: str | Path | None = None) -> list[Listed]:
    """The data sets with names, and where they are or would be under `root`."""
    folder = store.data_root(root)
    sizes = shapes.TRAIN_SIZE, shapes.TEST_SIZE
    drawn = shapes.cache_file(folder, *sizes, seed=0)
    fetched = [
        Listed(name, cifar.TRAIN_SIZE, cifar.TEST_SIZE, layout.labels["fine"][2], fetch.cache_file(layout, folder))
        for name, layout in cifar.LAYOUTS.items()
    ]
    return [Listed("shapes", *sizes, len(shapes.GLYPHS), drawn, is_fetched=False), *fetched]


def fetch_data_set(
    name: str, *, root: str | Path | None = None, url: str | None = None, progress: ProgressCallback = silent
) -> tuple[Path, str | None]:
    """Fetch a data set by its name; its file, and the source that served it (None: it was there)."""
    layout, folder = cifar.LAYOUTS[known(name, cifar.LAYOUTS, "data set to fetch", DataError)], store.data_root(root)
    source = fetch.fetch(layout, folder, url=url, progress=progress)
    return fetch.cache_file(layout, folder), source


def _from_path(path: Path, seed: int, image: Image | None, progress: ProgressCallback) -> Dataset:
    if not path.exists():
        problem = f"there is no data set and no file or folder called {shown(path)!r}"
        raise DataError(problem, f"name {', '.join(NAMES)}, a folder or an .npz")
    if path.is_dir():
        return folder.read(path, image or (3, 32, 32), seed=seed, progress=progress)
    if path.suffix == ".npz":
        return store.dataset(path)
    remedy = f"give a folder or an .npz; CIFAR's own archive: {program()} data fetch cifar10 --url file://..."
    raise DataError(f"{path} is of no known type", remedy)
