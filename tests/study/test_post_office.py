"""The post office of a sweep on Ray writes, reads and deletes files of its runs, and no others."""

import os

import pytest

from imlp.errors import RunError
from imlp.study.cluster.post_office import PostOffice


@pytest.fixture
def post(tmp_path, monkeypatch) -> PostOffice:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "run" / ".linked.part").symlink_to(tmp_path / "victim")
    monkeypatch.chdir(tmp_path)
    return PostOffice([str(tmp_path / "run")])


@pytest.mark.parametrize(
    "name", ["../victim", "checkpoint/../../victim", "{}/victim", "elsewhere/victim", "..", ".", "", "a/../b"]
)
def test_names_outside_of_the_runs_folder_are_refused(name, post, tmp_path):
    folder, name = str(tmp_path / "run"), name.format(tmp_path)
    for call in (
        lambda: post.write(folder, name, 0, b"x", True),
        lambda: post.read(folder, name, 0),
        lambda: post.delete(folder, [name]),
    ):
        with pytest.raises(RunError, match="is not a file in"):
            call()
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_link_in_the_place_of_a_partial_file_is_not_followed(post, tmp_path):
    with pytest.raises(RunError, match="is not a file in"):
        post.write(str(tmp_path / "run"), "linked", 0, b"x", True)
    assert (tmp_path / "victim").read_text() == "precious"


def test_other_folders_are_refused(post, tmp_path):
    for folder in (str(tmp_path), str(tmp_path / "run" / ".."), os.fspath(tmp_path / "other")):
        with pytest.raises(RunError, match="is not the folder of a run of this sweep"):
            post.write(folder, "victim", 0, b"x", True)
        with pytest.raises(RunError, match="is not the folder of a run of this sweep"):
            post.listed(folder)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "other").exists()


def test_files_of_the_run_come_and_go(post, tmp_path):
    folder = str(tmp_path / "run")
    post.write(folder, "checkpoint/epoch1", 0, b"one ", False)
    post.write(folder, "checkpoint/epoch1", 4, b"two", True)
    assert post.read(folder, "checkpoint/epoch1", 4) == b"two"
    post.delete(folder, ["checkpoint/epoch1", "not there"])
    assert not (tmp_path / "run" / "checkpoint" / "epoch1").exists()
