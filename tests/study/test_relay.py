"""The relay of a sweep on Ray writes, reads and deletes files of its runs, and no others."""

import os

import pytest

from imlp.errors import RunError
from imlp.study.cluster.driver import Relay


@pytest.fixture
def relay(tmp_path, monkeypatch) -> Relay:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "run" / f".linked.{os.getpid()}.part").symlink_to(tmp_path / "victim")
    monkeypatch.chdir(tmp_path)
    return Relay([str(tmp_path / "run")])


@pytest.mark.parametrize(
    "name", ["../victim", "checkpoint/../../victim", "{}/victim", "elsewhere/victim", "..", ".", "", "a/../b"]
)
def test_names_outside_of_the_runs_folder_are_refused(name, relay, tmp_path):
    folder, name = str(tmp_path / "run"), name.format(tmp_path)
    for call in (lambda: relay.put(folder, {name: b"x"}), lambda: relay.put(folder, {}, [name])):
        with pytest.raises(RunError, match="is not a file in"):
            call()
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_link_in_the_place_of_a_partial_file_is_not_followed(relay, tmp_path):
    relay.put(str(tmp_path / "run"), {"linked": b"x"})
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "run" / "linked").read_bytes() == b"x"


def test_a_pipe_is_not_waited_for(relay, tmp_path):
    os.mkfifo(tmp_path / "run" / "config.toml")
    with pytest.raises(OSError, match="it is not a regular file"):
        relay.take(str(tmp_path / "run"))


def test_other_folders_are_refused(relay, tmp_path):
    for folder in (str(tmp_path), str(tmp_path / "run" / ".."), os.fspath(tmp_path / "other")):
        with pytest.raises(RunError, match="is not the folder of a run of this sweep"):
            relay.put(folder, {"victim": b"x"})
        with pytest.raises(RunError, match="is not the folder of a run of this sweep"):
            relay.take(folder)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "other").exists()


def test_files_of_the_run_come_and_go(relay, tmp_path):
    folder = str(tmp_path / "run")
    name = "checkpoint/epoch00001-step000000.safetensors"
    relay.put(folder, {name: b"one", "other": b"not needed to resume"})
    relay.put(folder, {name: b"two"})
    assert relay.take(folder) == {name: b"two"}  # locked from now on
    relay.put(folder, {}, [name, "not there"])
    assert relay.take(folder) == {}
    assert not (tmp_path / "run" / name).exists()
