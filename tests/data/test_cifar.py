"""CIFAR from the official formats, against torchvision's own reader; and all damage that an error must name."""

import os
import pickle
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path

import cifar_files as files
import numpy as np
import pytest
from conftest import needs

from imlp import data
from imlp.data import cifar, fetch, store
from imlp.errors import DataError

LAYOUTS = {"cifar10": files.small(cifar.CIFAR10), "cifar100": files.small(cifar.CIFAR100)}
each = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture
def ten() -> cifar.Layout:
    return LAYOUTS["cifar10"]


def packed(folder: Path, layout: cifar.Layout) -> cifar.Arrays:
    """What is read from an archive of the folder."""
    members = {f"{folder.name}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    return cifar.read(files.write_tar(folder.parent / layout.archive, members), layout)


def same(one: cifar.Arrays, other: cifar.Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@each
def test_an_archive_gives_what_was_written(layout: cifar.Layout, tmp_path: Path) -> None:
    arrays = files.contents(layout)
    same(cifar.read(files.write_archive(layout, arrays, tmp_path), layout), arrays)


@each
def test_reads_what_torchvision_reads(layout: cifar.Layout, tmp_path: Path) -> None:
    needs("accel")
    import torchvision

    folder = files.write(layout, files.contents(layout), tmp_path)
    official = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}[layout.name]
    assert (official.base_folder, official.filename, official.tgz_md5) == (
        files.FOLDERS[layout.name], layout.archive, layout.md5,
    )  # fmt: skip
    published = {**dict(official.train_list + official.test_list), official.meta["filename"]: official.meta["md5"]}
    assert published == cifar.LAYOUTS[layout.name].files

    def checks(names: tuple[str, ...]) -> list[list[str]]:
        return [[name, torchvision.datasets.utils.calculate_md5(folder / name)] for name in names]

    meta = {**official.meta, "md5": checks((layout.meta,))[0][1]}
    theirs = type(
        "Pointed", (official,), {"train_list": checks(layout.train), "test_list": checks(layout.test), "meta": meta}
    )
    ours = cifar.dataset(layout, packed(folder, layout))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)  # of dtypes pickled by Python 2
        train, test = theirs(tmp_path, train=True), theirs(tmp_path, train=False)
    for their, x, y in ((train, ours.x, ours.y), (test, ours.x_test, ours.y_test)):
        np.testing.assert_array_equal(their.data.transpose(0, 3, 1, 2), x)
        assert their.targets == y.tolist()
    assert tuple(train.classes) == ours.classes


def test_coarse_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS["cifar100"]
    monkeypatch.setitem(cifar.LAYOUTS, "cifar100", layout)
    arrays = files.contents(layout)
    store.save(fetch.cache_file(layout, tmp_path), arrays)
    coarse, fine = (data.load_data_set("cifar100", root=tmp_path, labels=labels) for labels in ("coarse", "fine"))
    assert (coarse.n_classes, fine.n_classes) == (20, 100)
    np.testing.assert_array_equal(coarse.y, arrays["y_coarse"])
    np.testing.assert_array_equal(fine.y_test, arrays["y_fine_test"])
    with pytest.raises(DataError, match=r"cifar10 has no coarse labels"):
        data.load_data_set("cifar10", root=tmp_path, labels="coarse")


class Malice:
    """Python's own reader would create a file when unpickling this."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def test_malicious_pickle_does_not_run_and_is_named(ten: cifar.Layout, tmp_path: Path) -> None:
    folder, target = files.write(ten, files.contents(ten), tmp_path), tmp_path / "made by a pickle"
    content = pickle.dumps({"data": Malice(Path("'" + str(target) + "'"))})
    pickle.loads(content)
    assert target.exists(), "the pickle is harmless, so this test would prove nothing"
    target.unlink()
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_3 is damaged, or not what its name says"):
        packed(folder, ten)
    with pytest.raises(DataError, match=r"batch is refused or damaged: it asks for \w+\.system"):
        cifar.unpickle(content, Path("batch"))  # even if it had the published MD5
    assert not target.exists()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:1000])


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def swap(one: str, other: str) -> Callable[[Path], object]:
    def harm(folder: Path) -> None:
        first, second = (folder / one).read_bytes(), (folder / other).read_bytes()
        (folder / one).write_bytes(second)
        (folder / other).write_bytes(first)

    return harm


DAMAGE = [
    (cut("data_batch_2"), r"data_batch_2 is damaged, or not what its name says: it has the MD5 "),
    (write("test_batch", b""), r"test_batch is damaged"),
    (remove("data_batch_4"), r"has no data_batch_4: it is not a whole cifar10"),
    (swap("data_batch_1", "data_batch_2"), r"data_batch_1 is damaged, or not what its name says"),
    (write("batches.meta", b"{}"), r"batches.meta is damaged"),
]


@pytest.mark.parametrize(("harm", "message"), DAMAGE, ids=[message[:40] for _, message in DAMAGE])
def test_damage_is_named(harm: Callable[[Path], object], message: str, ten: cifar.Layout, tmp_path: Path) -> None:
    folder = files.write(ten, files.contents(ten), tmp_path)
    packed(folder, ten)
    harm(folder)
    with pytest.raises(DataError, match=message):
        packed(folder, ten)


def test_truncated_archive(ten: cifar.Layout, tmp_path: Path) -> None:
    archive = files.write_archive(ten, files.contents(ten), tmp_path)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz is not a whole tar archive"):
        cifar.read(archive, ten)


def test_archive_that_is_none(ten: cifar.Layout, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"<html>sign in</html>")
    with pytest.raises(DataError, match=r"a.tar.gz is not a whole tar archive"):
        cifar.read(tmp_path / "a.tar.gz", ten)
    files.write_tar(tmp_path / "b.tar.gz", {"readme": b"hello"})
    with pytest.raises(DataError, match=r"b.tar.gz has no data_batch_1, .*: it is not a whole cifar10"):
        cifar.read(tmp_path / "b.tar.gz", ten)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil", "C:/evil"])
def test_member_that_leaves_its_folder(name: str, ten: cifar.Layout, tmp_path: Path) -> None:
    members = files.python_files(ten, files.contents(ten))
    archive = files.write_tar(tmp_path / ten.archive, {**members, name: b"evil"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"has a member that leaves its folder: "):
        cifar.read(archive, ten)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_member_that_is_a_link_or_a_device(kind: bytes, tmp_path: Path, ten: cifar.Layout) -> None:
    with tarfile.open(tmp_path / ten.archive, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(DataError, match=r"a member that is a link or a device: 'cifar-10-batches-py/data_batch_1'"):
        cifar.read(tmp_path / ten.archive, ten)


def test_member_beyond_all_measure(ten: cifar.Layout, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / ten.archive, "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = 2**40
        tar.addfile(info)
    with pytest.raises(DataError, match=r"has a member of 1,099,511,627,776 bytes"):
        cifar.read(tmp_path / ten.archive, ten)
