"""A folder of class folders with PNG and JPEG images, resized to what the network takes."""

from pathlib import Path

import numpy as np
from PIL import Image as Picture
from PIL import ImageOps

from imlp.data.dataset import Dataset, Image, ProgressCallback, silent
from imlp.errors import DataError
from imlp.files import is_text, reason

SUFFIXES = (".png", ".jpg", ".jpeg")
TEST_SHARE = 5  # without a test folder, one image of five of each class is for testing
MODES = {1: "L", 3: "RGB"}
DEEP = ("I", "F")  # modes of 16 and 32 bits, which Pillow would clip to 8 without a word


def read(path: Path, image: Image, *, seed: int, progress: ProgressCallback = silent) -> Dataset:
    """`path/train/CLASS/*.png` and `path/test/CLASS/*.png`, or `path/CLASS/*.png` split by `seed`."""
    if image[0] not in MODES:
        raise DataError(f"pictures cannot be given {image[0]} channels", "use 1 (grey) or 3 (colour)")
    if (path / "train").is_dir():
        if not (path / "test").is_dir():
            raise DataError(f"{path} has a folder train but no folder test", "add one, or put the class folders above")
        train, test = _files(path / "train"), _files(path / "test")
        if unknown := sorted(set(test) - set(train)):
            raise DataError(f"{path / 'test'} has classes that train lacks: {', '.join(unknown)}", "give both the same")
    else:
        train, test = _split(_files(path), seed)
    classes = tuple(sorted(train))
    labelled = [(file, k) for part in (train, test) for k, name in enumerate(classes) for file in part.get(name, ())]
    x, n = np.empty((len(labelled), *image), dtype=np.uint8), sum(map(len, train.values()))
    for i, (file, _) in enumerate(labelled):
        x[i] = _picture(file, image)
        progress("reading images", i + 1, len(x))
    y = np.array([label for _, label in labelled], dtype=np.int64)
    return Dataset(path.name, x[:n], y[:n], x[n:], y[n:], classes)


def _files(path: Path) -> dict[str, list[Path]]:
    """The pictures of each class folder, by name; hidden folders and files that are no pictures do not count."""
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for entry in folders:
        if not is_text(entry.name):
            raise DataError(f"{path} has a class folder whose name is not UTF-8: {entry.name!a}", "rename it")
    if not folders:
        raise DataError(f"{path} has no class folders", "make one folder per class, with its images inside")
    pictures_by_class = {}
    for folder in folders:
        pictures = (file for file in sorted(folder.iterdir()) if file.suffix.lower() in SUFFIXES)
        pictures_by_class[folder.name] = [file for file in pictures if not file.name.startswith(".") and file.is_file()]
        if not pictures_by_class[folder.name]:
            raise DataError(f"{folder} has no images", f"put {', '.join(SUFFIXES)} files there, or remove it")
    return pictures_by_class


def _split(files: dict[str, list[Path]], seed: int) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    train, test = {}, {}
    rng = np.random.default_rng(seed)
    for name, known in files.items():
        if len(known) < 2:
            raise DataError(f"class {name} has a single image", "give at least two: one to train, one to test")
        held_out = set(rng.permutation(len(known))[: max(1, len(known) // TEST_SHARE)].tolist())
        train[name] = [file for i, file in enumerate(known) if i not in held_out]
        test[name] = [file for i, file in enumerate(known) if i in held_out]
    return train, test


def _picture(file: Path, image: Image) -> np.ndarray:
    """One picture, turned as its camera was held, as uint8 `(c, h, w)`; smaller ones are smoothed, not thinned out."""
    channels, height, width = image
    try:
        with Picture.open(file, formats=("PNG", "JPEG")) as picture:
            if picture.mode.startswith(DEEP):
                raise DataError(f"{file} has {picture.mode} pixels, deeper than 8 bits", "convert it to 8 bits")
            upright = ImageOps.exif_transpose(picture).convert(MODES[channels])
    except (OSError, SyntaxError, ValueError, Picture.DecompressionBombError) as error:
        raise DataError(f"{file} is not an image that can be read: {reason(error)}", "replace or remove it") from error
    pixels = np.asarray(upright.resize((width, height), Picture.Resampling.BILINEAR))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)
