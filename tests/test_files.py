"""Files are written completely or not at all."""

import os
import socket
import stat

import numpy as np
import pytest

from imlp.errors import FileError
from imlp.files import check_path, parse_json, parse_toml, reason, whole_file, write_whole


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


def test_a_full_disk_is_an_error_and_not_a_short_file(tmp_path):
    """No file of this process may grow beyond 50,000 bytes, which looks like a full disk to a writer."""
    resource = pytest.importorskip("resource", reason="this system has no limits of resources")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(FileError, match="File too large"), write_whole(tmp_path / "a.bin") as file:
            file.write(b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_links_are_followed(tmp_path):
    """The link stays a link; a link to nothing creates the file that it names."""
    (tmp_path / "there").mkdir()
    for name in ("old", "new"):
        (tmp_path / name).symlink_to(f"there/{name}.bin")
    (tmp_path / "there" / "old.bin").write_bytes(b"old")
    for name in ("old", "new"):
        with write_whole(tmp_path / name) as file:
            file.write(b"whole")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / f"{name}.bin").read_bytes() == b"whole"
    assert sorted(os.listdir(tmp_path / "there")) == ["new.bin", "old.bin"]


def test_what_is_not_a_regular_file_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    served = socket.socket(socket.AF_UNIX)
    served.bind(str(tmp_path / "socket"))
    before = sorted(os.listdir(tmp_path))
    messages = {"pipe": "not a regular file", "folder": "it is a folder", "to-pipe": "not a regular file"}
    messages |= {"socket": "not a regular file", "loop": "Too many levels of symbolic links"}
    for name, message in messages.items():
        with pytest.raises(FileError, match=f"cannot write .*{name}: .*{message}"), write_whole(tmp_path / name):
            pytest.fail("it was opened")
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    served.close()


def test_a_device_is_refused_and_stays():
    if not os.path.exists("/dev/null"):
        pytest.skip("there is no /dev/null on this system")
    with pytest.raises(FileError, match="/dev/null: it is not a regular file"), write_whole("/dev/null"):
        pytest.fail("it was opened")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["a" * 300, "a" * 5000, "a\0b", ""])
def test_names_that_no_file_can_have(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="cannot write") as caught, write_whole(name):
        pytest.fail("it was opened")
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_umask_decides_who_may_read(umask, tmp_path):
    """Even if the writer creates a file that only its owner may read, as safetensors does."""
    before = os.umask(umask)
    try:
        with whole_file(tmp_path / "a.bin") as partial:
            descriptor = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT, 0o600)
            os.close(descriptor)
            os.replace(tmp_path / "own", partial)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "a.bin").st_mode) == 0o666 & ~umask


def test_what_a_killed_process_has_left_is_no_obstacle(tmp_path):
    """Nor is a link that somebody has put there followed."""
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / f".a.bin.{os.getpid()}.part").symlink_to(tmp_path / "other")
    with write_whole(tmp_path / "a.bin") as file:
        file.write(b"whole")
    assert (tmp_path / "a.bin").read_bytes() == b"whole"
    assert (tmp_path / "other").read_bytes() == b"other"
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "other"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, f"[{'9' * 400}]", '"\\ud800"', "{", ""])
def test_hostile_json_is_a_value_error(text):
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            parse_json(given)


def test_json_that_is_not_utf_8():
    with pytest.raises(ValueError, match="not UTF-8"):
        parse_json(b'"\xff"')
    assert parse_json(b'["\\ud83d\\ude00", 1.5, 123]') == ["\U0001f600", 1.5, 123]


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "9" * 5000,
        "a = " + "9" * 400,
        "a = 0x" + "f" * 5000,
        "a." * 100_000 + "a = 1",
        "a = " + "{a=" * 10_000,
        "a = ",
        "a = '\xff'",
    ],
)
def test_hostile_toml_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_toml(text.encode("latin1"))


def test_the_advice_to_unpickle_is_not_passed_on(tmp_path):
    np.save(tmp_path / "a.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle") as caught:
        np.load(tmp_path / "a.npy", allow_pickle=False)
    assert "allow_pickle" not in reason(caught.value)
    assert "could run any program" in reason(caught.value)


def test_paths_that_cannot_be_looked_at(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop", tmp_path / "loop" / "a", "a" * 5000, "a\0b"):
        with pytest.raises(FileError, match="cannot look at"):
            check_path(path)
    for path in (tmp_path, tmp_path / "missing", "", tmp_path / "missing" / "below"):
        check_path(path)
