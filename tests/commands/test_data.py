"""`data list` and `data fetch`: what they print, what they write, and how they fail."""

import json
from pathlib import Path

import cifar_files as files
import pytest
from typer.testing import CliRunner, Result

from imlp import data
from imlp.cli import app
from imlp.commands import console
from imlp.data import cifar, shapes


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture
def ten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> cifar.Layout:
    """A small CIFAR-10 under the real one's name, with its archive in `origin`."""
    small = files.small(cifar.CIFAR10)
    (tmp_path / "origin").mkdir()
    arrays = files.contents(small)
    layout = files.known(small, files.write_archive(small, arrays, tmp_path / "origin"), arrays)
    monkeypatch.setitem(cifar.LAYOUTS, "cifar10", layout)
    return layout


def test_list_shows_what_is_there(ten: cifar.Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "width", 200)
    root = tmp_path / "root"
    before = run("list", "--root", root)
    assert before.exit_code == 0
    assert "drawn when it is needed" in before.output
    assert "not here: data fetch cifar10" in before.output
    assert run("fetch", "cifar10", "--url", (tmp_path / "origin").as_uri(), "--root", root).exit_code == 0
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--root", root, "--json").stdout)}
    assert list(entries) == ["shapes", "cifar10", "cifar100"]
    assert entries["cifar10"]["path"] == str(root / "cifar10.npz")
    assert (entries["cifar10"]["train"], entries["cifar10"]["test"]) == (50_000, 10_000)
    assert entries["cifar100"]["path"] is None
    assert entries["shapes"]["n_classes"] == len(shapes.GLYPHS)


def test_both_kinds_of_labels_of_cifar100_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = files.small(cifar.CIFAR100)
    arrays = files.contents(layout)
    archive = files.write_archive(layout, arrays, tmp_path)
    monkeypatch.setitem(cifar.LAYOUTS, "cifar100", files.known(layout, archive, arrays))
    assert run("fetch", "cifar100", "--root", tmp_path).exit_code == 0
    assert not archive.exists(), "what is in the cache need not be kept twice"
    for kind, n in (("fine", 100), ("coarse", 20)):
        loaded = data.load_data_set("cifar100", root=tmp_path, labels=kind)
        assert list(loaded.classes) == [f"{kind}_{i}" for i in range(n)]


def test_fetch_says_where_from_and_where_to(ten: cifar.Layout, tmp_path: Path) -> None:
    url = (tmp_path / "origin").as_uri()
    first = run("fetch", "cifar10", "--url", url, "--root", tmp_path / "root")
    assert first.exit_code == 0
    assert f"cifar10: from {url}/cifar-10-python.tar.gz, {tmp_path}/root/cifar10.npz (" in first.stdout
    again = json.loads(run("fetch", "cifar10", "--root", tmp_path / "root", "--json").stdout)
    assert again["source"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "imagenet"], "unknown data set to fetch: 'imagenet'; the known ones are cifar10, cifar100"),
        (["fetch", "cifar10", "--url", "gopher://x"], "is not a URL that can be fetched"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, "--root", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_progress_without_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.watched() as show:
        for now in range(12):
            show("fetching", now, 12)
        show("npm pack", 0, None)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["fetching 41 %", "fetching 83 %", "npm pack"]
    assert printed.out == ""
    with console.watched(quiet=True) as show:
        show("npm pack", 0, None)
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    screen = Console(force_terminal=True, width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    monkeypatch.setattr(console, "err", screen)
    with console.watched() as show:
        show("fetching", 30, 100)
        show("fetching", 60, 100)
        show("npm pack", 0, None)
    screen.file.close()
    assert "npm pack" in screen.export_text()
