"""Files are written whole or not at all."""

import os

import pytest

from imlp.errors import FileError
from imlp.files import write_whole


def test_a_file_appears_whole(tmp_path):
    with write_whole(tmp_path / "a.bin") as file:
        file.write(b"whole")
        assert not (tmp_path / "a.bin").exists()
    assert (tmp_path / "a.bin").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), write_whole(tmp_path / "a.bin") as file:
        file.write(b"ne")
        raise RuntimeError("stop")
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileError, match=r"cannot write .*a\.bin: No such file.*choose a folder"):
        with write_whole(tmp_path / "missing" / "a.bin") as file:
            file.write(b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full on this system")
def test_a_full_disk_is_an_error_and_not_a_short_file(tmp_path, monkeypatch):
    """/dev/full refuses every write, as a full disk does."""
    os.symlink("/dev/full", tmp_path / f".a.bin.{os.getpid()}.part")
    with pytest.raises(FileError, match="No space left on device"), write_whole(tmp_path / "a.bin") as file:
        file.write(b"x" * 100_000)
    assert os.listdir(tmp_path) == []
