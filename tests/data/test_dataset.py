"""Data sets in memory, `shapes`, folders of pictures, `.npz` files, and how each is loaded."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from imlp import data
from imlp.data import Dataset, folder, shapes, store
from imlp.errors import DataError, ImlpError


def tiny(**changes: object) -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 3, 4, 5), dtype=np.uint8), np.arange(12) % 3
    given = {"name": "tiny", "x": x, "y": y, "x_test": x[:6].copy(), "y_test": y[:6].copy(), "classes": ("a", "b", "c")}
    return Dataset(**{**given, **changes})


def test_statistics_are_computed_from_the_training_images() -> None:
    dataset = tiny()
    scaled = dataset.x / 255
    np.testing.assert_allclose(dataset.mean, scaled.mean(axis=(0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(dataset.std, scaled.std(axis=(0, 2, 3)), rtol=1e-13)
    assert dataset.mean is dataset.mean
    assert (dataset.image, dataset.n_classes) == ((3, 4, 5), 3)


def test_statistics_over_several_blocks() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2500, 1, 3, 2), dtype=np.uint8)
    y = np.zeros(2500, dtype=np.int64)
    dataset = Dataset("grey", x, y, x, y, ("all",))
    np.testing.assert_allclose(dataset.std, (x / 255).std(axis=(0, 2, 3)), rtol=1e-13)


def test_a_channel_that_never_changes_can_be_divided_by() -> None:
    x = np.full((12, 3, 4, 5), 255, np.uint8)
    assert tiny(x=x).std.tolist() == [1, 1, 1]
    assert tiny(x=x).mean.tolist() == [1, 1, 1]


def test_digest_knows_the_contents_and_nothing_else() -> None:
    dataset = tiny()
    assert dataset.digest == tiny(name="other", classes=("x", "y", "z")).digest
    for name in ("x", "y", "x_test", "y_test"):
        changed = getattr(dataset, name).copy()
        changed.flat[0] ^= 1
        assert tiny(**{name: changed}).digest != dataset.digest, name
    by_hand = hashlib.sha256()
    for name, kind in (("x", "|u1"), ("y", "<i8"), ("x_test", "|u1"), ("y_test", "<i8")):
        array = getattr(dataset, name)
        by_hand.update(f"{name} {kind} {array.shape}\n".encode() + array.astype(kind).tobytes())
    assert dataset.digest == by_hand.hexdigest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((12, 3, 4, 5))}, r"tiny: the images of x, y are float64 of shape \(12, 3, 4, 5\)"),
        ({"x": np.zeros((12, 5, 4, 3), np.uint8).transpose(0, 3, 2, 1)}, "give at least one, as C-contiguous uint8"),
        ({"x": np.zeros((0, 3, 4, 5), np.uint8), "y": np.zeros(0, np.int64)}, "give at least one"),
        ({"y": np.zeros(11, np.int64)}, r"12 images but labels that are int64 of shape \(11,\)"),
        ({"y": np.zeros(12)}, "labels that are float64"),
        ({"y": np.arange(12)}, "label 3 of image 3 in x, y names no class; labels go from 0 to 2"),
        ({"y_test": np.full(6, -1)}, "label -1 of image 0 in x_test, y_test"),
        ({"x_test": np.zeros((6, 3, 5, 4), np.uint8)}, "training images are 3x4x5, test images 3x5x4"),
    ],
)
def test_wrong_arrays(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        tiny(**changes)


def test_take_chooses_by_seed_and_keeps_the_order() -> None:
    dataset = tiny(y=np.arange(12), y_test=np.arange(6), classes=tuple("abcdefghijkl"))
    some = dataset.take(5, 2, seed=1)
    assert (len(some.x), len(some.x_test)) == (5, 2)
    assert (np.diff(some.y) > 0).all()
    np.testing.assert_array_equal(some.x, dataset.x[some.y])
    np.testing.assert_array_equal(some.x_test, dataset.x_test[some.y_test])
    assert some.digest == dataset.take(5, 2, seed=1).digest
    assert some.digest != dataset.take(5, 2, seed=2).digest
    assert dataset.take(None, None, seed=0) is dataset
    for size in (0, 13, -1):
        with pytest.raises(DataError, match=rf"--train-size is {size}; tiny has 12 such images"):
            dataset.take(size, None, seed=0)


# shapes


def test_shapes_are_the_same_bytes_everywhere() -> None:
    x, y = shapes.draw(600, seed=0, stream=0)
    content = x.tobytes() + y.astype("<i8").tobytes()
    assert hashlib.sha256(content).hexdigest() == "cb666245433012e1324b4b27a230ebc60689335cac0d174119c985c386b22bbe"


def test_shapes_need_no_download_and_are_cached(tmp_path: Path) -> None:
    first = data.load_data_set("shapes", root=tmp_path, train_size=300, test_size=60, seed=5)
    (cached,) = tmp_path.iterdir()
    assert cached == shapes.cache_file(tmp_path, 300, 60, seed=5)
    seen: list[str] = []
    again = data.load_data_set(
        "shapes", root=tmp_path, train_size=300, test_size=60, seed=5, progress=lambda what, *_: seen.append(what)
    )
    assert seen == []
    assert again.digest == first.digest
    assert (first.x.shape, first.x_test.shape, first.n_classes) == ((300, 3, 32, 32), (60, 3, 32, 32), 10)


def test_shapes_seeds_sizes_and_streams_differ_as_they_should() -> None:
    x, y = shapes.draw(300, seed=0, stream=0)
    fewer, _ = shapes.draw(20, seed=0, stream=0)
    np.testing.assert_array_equal(fewer, x[:20])
    for other in (shapes.draw(20, seed=1, stream=0), shapes.draw(20, seed=0, stream=1)):
        assert not np.array_equal(other[0], fewer)
    assert np.bincount(y[: shapes.BLOCK]).tolist() == [shapes.BLOCK // 10] * 10
    assert x[: shapes.BLOCK].std(axis=0).min() > 20, "some pixels never change: glyphs do not go everywhere"


@pytest.mark.parametrize("name", shapes.GLYPHS)
def test_every_glyph_is_its_own_mirror_image_and_covers_half_its_circle(name: str) -> None:
    at = np.arange(-300, 301)
    u, v = np.meshgrid(at, at)
    inside = shapes.GLYPHS[name](u, v)
    circle = u * u + v * v < shapes.RADIUS**2
    assert (inside == inside[:, ::-1]).mean() > 0.995  # floor division shifts an edge by one
    assert 0.35 < inside.sum() / circle.sum() < 0.7
    assert (inside & (u * u + v * v > 300**2)).sum() == 0


def test_damaged_cache_of_shapes_is_drawn_again(tmp_path: Path) -> None:
    first = data.load_data_set("shapes", root=tmp_path, train_size=50, test_size=20)
    (cached,) = tmp_path.iterdir()
    whole = cached.read_bytes()
    middle = len(whole) // 2
    for damage in (whole[:middle], whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :], b"", b"no zip"):
        cached.write_bytes(damage)
        assert data.load_data_set("shapes", root=tmp_path, train_size=50, test_size=20).digest == first.digest
        assert cached.read_bytes() == whole


def test_shapes_do_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(data.load_data_set("shapes", root=tmp_path / "file", train_size=20, test_size=10).x) == 20


@pytest.mark.parametrize("wrong", [{"train_size": 0}, {"train_size": 10**12}, {"test_size": -3}, {"seed": -1}])
def test_shapes_refuse_wrong_numbers(wrong: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is -?[0-9]+; give"):
        data.load_data_set("shapes", root=tmp_path, **wrong)


# folders of pictures


def picture(path: Path, level: int, size: tuple[int, int] = (40, 24), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, level if mode == "L" else (level, 0, 255 - level)).save(path)


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    for i, name in enumerate(("cat", "dog")):
        picture(tmp_path / "train" / name / "1.png", 10 + i)
        picture(tmp_path / "train" / name / "2.JPG", 100 + i)
        picture(tmp_path / "test" / name / "3.jpeg", 200 + i, mode="L")
        (tmp_path / "train" / name / "notes.txt").write_text("not a picture, and not meant to be one")
    loaded = data.load_data_set(tmp_path, image=(3, 16, 8))
    assert loaded.classes == ("cat", "dog")
    assert (loaded.y.tolist(), loaded.y_test.tolist()) == ([0, 0, 1, 1], [0, 1])
    assert loaded.x.shape == (4, 3, 16, 8)
    assert loaded.x[0, :, 3, 3].tolist() == [10, 0, 245]
    assert loaded.x[2, :, 3, 3].tolist() == [11, 0, 244]
    assert loaded.x_test[1, :, 3, 3].tolist() == [201, 201, 201]


def test_folder_is_split_by_seed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for i in range(10):
            picture(tmp_path / name / f"{i}.png", i)
    one, same, other = (data.load_data_set(tmp_path, seed=seed) for seed in (0, 0, 1))
    assert np.bincount(one.y).tolist() == [8, 8]
    assert np.bincount(one.y_test).tolist() == [2, 2]
    for label in (0, 1):
        levels = [*one.x[one.y == label, 0, 0, 0], *one.x_test[one.y_test == label, 0, 0, 0]]
        assert sorted(levels) == list(range(10)), "an image is in both parts, or in none"
    assert one.digest == same.digest != other.digest


def test_pictures_are_resized_as_pillow_does(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "1.png")
    expected = np.asarray(Image.fromarray(pixels).resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(folder._picture(tmp_path / "a" / "1.png", (3, 32, 32)), expected)
    grey = folder._picture(tmp_path / "a" / "1.png", (1, 32, 32))
    assert grey.shape == (1, 32, 32)


def test_pictures_are_turned_as_the_camera_was_held(tmp_path: Path) -> None:
    upright = Image.new("RGB", (20, 20), (0, 0, 0))
    upright.paste((255, 255, 255), (0, 0, 20, 10))  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    upright.rotate(180).save(tmp_path / "1.png", exif=exif)
    read = folder._picture(tmp_path / "1.png", (3, 20, 20))
    assert read[:, 2].min() == 255
    assert read[:, 17].max() == 0


def _two_classes(path: Path) -> Path:
    for name in ("a", "b"):
        for i in range(2):
            picture(path / name / f"{i}.png", i)
    return path


def _bad(content: bytes):
    return lambda path: (path / "a" / "0.png").write_bytes(content)


FOLDERS = {
    "text as png": (_bad(b"not an image"), r"a/0.png is not an image that can be read: cannot identify"),
    "empty": (_bad(b""), r"a/0.png is not an image that can be read"),
    "gif as png": (_bad(b"GIF89a" + bytes(20)), r"a/0.png is not an image that can be read"),
    "no pictures": (lambda path: (path / "c").mkdir(), r"c has no images"),
    "one picture": (lambda path: picture(path / "c" / "1.png", 3), r"class c has a single image"),
    "train only": (lambda path: picture(path / "train" / "a" / "1.png", 3), r"has a folder train but no folder test"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_wrong_folders(case: str, tmp_path: Path) -> None:
    harm, message = FOLDERS[case]
    harm(_two_classes(tmp_path))
    with pytest.raises(DataError, match=message):
        data.load_data_set(tmp_path)


def test_truncated_picture_is_named(tmp_path: Path) -> None:
    _two_classes(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a" / "0.png")
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a/0.png is not an image that can be read: .*truncated"):
        data.load_data_set(tmp_path)


def test_deep_picture_is_refused(tmp_path: Path) -> None:
    _two_classes(tmp_path)
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "a" / "0.png")
    with pytest.raises(DataError, match=r"a/0.png has I;16 pixels, deeper than 8 bits"):
        data.load_data_set(tmp_path)


def test_picture_bomb_is_refused(tmp_path: Path) -> None:
    _two_classes(tmp_path)
    Image.new("1", (20_000, 10_000)).save(tmp_path / "a" / "0.png")
    with pytest.raises(DataError, match=r"a/0.png is not an image that can be read: Image size .* exceeds limit"):
        data.load_data_set(tmp_path)


def test_folder_for_other_networks(tmp_path: Path) -> None:
    _two_classes(tmp_path)
    assert data.load_data_set(tmp_path, image=(1, 28, 28)).image == (1, 28, 28)
    with pytest.raises(DataError, match="pictures cannot be given 4 channels; use 1"):
        data.load_data_set(tmp_path, image=(4, 28, 28))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no class folders"):
        data.load_data_set(tmp_path / "empty")


def test_test_folder_with_an_unknown_class(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "a" / "1.png", 3)
    picture(tmp_path / "test" / "b" / "1.png", 3)
    with pytest.raises(DataError, match="has classes that train lacks: b"):
        data.load_data_set(tmp_path)


# .npz


def arrays(**changes: object) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
    given = {"x": x, "y": np.arange(6) % 3, "x_test": x[:3], "y_test": np.arange(3)}
    return {name: np.asarray(value) for name, value in {**given, **changes}.items() if value is not None}


def save(path: Path, **changes: object) -> Path:
    np.savez(path / "own.npz", **arrays(**changes))
    return path / "own.npz"


def test_npz(tmp_path: Path) -> None:
    loaded = data.load_data_set(save(tmp_path))
    np.testing.assert_array_equal(loaded.x, arrays()["x"])
    assert (loaded.name, loaded.classes, loaded.y.dtype) == ("own", ("0", "1", "2"), np.int64)
    named = data.load_data_set(save(tmp_path, classes=["cat", "dog", "owl"], y=np.array([0, 1, 2, 0, 1, 2], np.uint8)))
    assert named.classes == ("cat", "dog", "owl")
    last = {name: arrays()[name].transpose(0, 2, 3, 1) for name in ("x", "x_test")}
    assert data.load_data_set(save(tmp_path, **last)).digest == loaded.digest
    grey = data.load_data_set(save(tmp_path, x=arrays()["x"][:, 0], x_test=arrays()["x_test"][:, 0]), image=(1, 32, 32))
    assert grey.image == (1, 32, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, r"own.npz has no y; save x, y, x_test, y_test"),
        ({"x": np.zeros((6, 3, 32, 32))}, r"own: the images of x, y are float64 of shape .*; give .* uint8"),
        ({"y": np.zeros(6)}, r"own.npz: y is float64"),
        ({"y": np.zeros(5, int)}, r"6 images but labels"),
        ({"y": np.full(6, -1)}, r"label -1 of image 0"),
        ({"classes": ["cat"]}, r"label 1 of image 1 in x, y names no class"),
        ({"classes": [1, 2]}, r"own.npz: classes is int64"),
        ({"x": np.zeros((6, 3, 8, 8), np.uint8)}, r"training images are 3x8x8, test images 3x32x32"),
        ({"y": np.array([None] * 6)}, r"own.npz is damaged, or not a plain .npz: it holds Python objects"),
    ],
)
def test_wrong_npz(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        data.load_data_set(save(tmp_path, **changes))


def test_images_of_another_size_than_the_networks(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.zeros((6, 3, 8, 8), np.uint8), x_test=np.zeros((3, 3, 8, 8), np.uint8))
    with pytest.raises(DataError, match="own has images of 3x8x8, the network takes 3x32x32"):
        data.load_data_set(path)
    assert data.load_data_set(path, image=None).image == (3, 8, 8)


def test_truncated_npz(tmp_path: Path) -> None:
    path = save(tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"own.npz is damaged, or not a plain .npz"):
        data.load_data_set(path)


def test_npy_under_the_name_of_an_npz(tmp_path: Path) -> None:
    with open(tmp_path / "own.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match=r"own.npz holds a single array: it is an .npy"):
        data.load_data_set(tmp_path / "own.npz")


# names, paths and folders


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data set and no file or folder called 'cifar11'; name shapes, cifar10"):
        data.load_data_set("cifar11")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"a.txt is of no known type; .* data fetch cifar10 --url"):
        data.load_data_set(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"cifar100 is not in .*; fetch it: python cli.py data fetch cifar100"):
        data.load_data_set("cifar100", root=tmp_path)
    with pytest.raises(DataError, match=r"unknown labels: 'medium'"):
        data.load_data_set("shapes", labels="medium")
    with pytest.raises(DataError, match=r"has no coarse labels; only cifar100 has"):
        data.load_data_set(tmp_path, labels="coarse")


def test_where_data_sets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IMLP_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert store.data_root() == Path("/home/someone/.cache/imlp")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store.data_root() == Path("/cache/imlp")
    monkeypatch.setenv("IMLP_DATA", "/data")
    assert store.data_root() == Path("/data")
    assert store.data_root("here") == Path("here")


def test_data_and_augmentation_do_without_torch() -> None:
    code = (
        "import sys; import imlp.data, imlp.augment, imlp.reference.augment, imlp.cli;"
        "sys.exit(' '.join({'torch', 'torchvision', 'cupy', 'matplotlib'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_error_can_be_caught_by_one_name() -> None:
    assert issubclass(DataError, ImlpError)
