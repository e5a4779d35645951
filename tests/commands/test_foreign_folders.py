"""Folders of runs from somebody else: no command runs code that only they name, or writes through their links."""

import json
import shutil
from itertools import chain
from pathlib import Path

import build
import pytest
import tiny_runs
from click.testing import Result
from conftest import needs
from results_page import MARK
from typer.testing import CliRunner

from imlp import plugins
from imlp.cli import COMMANDS, app
from imlp.errors import OutsideError
from imlp.study.scores import arms_of
from imlp.train.export import load, parameters
from imlp.train.run_reader import find_runs

NETWORK = """
from imlp import networks

def mine(image, classes):
    return networks.make("cnn", image=image, classes=classes, width=64, strides=(1, 2, 2))
"""
RAISES = "open('ran', 'w')\nraise RuntimeError('code of somebody else was run')\n"
EXPERIMENT = """
title = "Theirs"
asks = "What?"
settings = { network = "NETWORK", data = "bars.npz", epochs = 2, batch = 20, lr = 0.003, backend = "reference" }
[[arms]]
name = "mine"
alphas = "0.5"
[budgets.paper]
[[claims]]
kind = "one-is-prior"
claim = "alpha 1 is the prior"
arm = "mine"
"""
SMALL = ["--data", "bars.npz", "--batch", "20", "--epochs", "2", "--lr", "0.003", "--backend", "reference"]
OURS = [*SMALL, "--options", "width=64", "--options", "strides=[1,2,2]"]
CONFIG = ["--config", "theirs/run/config.toml"]
NAME_IT = "which is only run if you name it; add --network"
READERS = {  # by command: arguments, and what it says of the network if it needs it
    "train --config": (["train", *CONFIG, "--out", "new"], NAME_IT),
    "train --config --estimate": (["train", *CONFIG, "--estimate"], NAME_IT),
    "train --config --resume": (["train", *CONFIG, "--out", "theirs/run", "--resume"], NAME_IT),
    "train --config --again": (["train", *CONFIG, "--out", "theirs/run", "--again"], NAME_IT),
    "train": (["train", *OURS, "--out", "theirs/run"], "holds another run"),
    "train --resume": (["train", *OURS, "--out", "theirs/run", "--resume"], NAME_IT),
    "train --again": (["train", *OURS, "--out", "theirs/run", "--again"], None),
    "sweep --config": (["sweep", *CONFIG, "--out", "new"], NAME_IT),
    "sweep": (["sweep", *OURS, "--alpha", "0", "--seeds", "1", "--out", "theirs"], None),
    "search --config": (["search", *CONFIG, "--out", "new"], NAME_IT),
    "search": (["search", *OURS, "--trials", "2", "--validation", "0.3", "--out", "theirs"], None),
    "plot": (["plot", "theirs/run"], None),
    "line": (["line", "theirs/run"], NAME_IT),
    "report of one run": (["report", "theirs/run", "--out", "page.html"], None),
    "report": (["report", "theirs"], None),
    "report of a record": (["report", "record"], None),
    "reproduce": (["reproduce", "own.toml", "--budget", "paper", "--seeds", "1", "--out", "theirs"], None),
    "results --collect": (["results", "--collect", "theirs"], None),
    "results": (["results", "--folder", "record"], None),
    "results --check": (["results", "--folder", "record", "--check"], "record/README.md is not what the runs give"),
    "export": (["export", "theirs/run"], NAME_IT),
    "export --lane prior": (["export", "theirs/run", "--lane", "prior"], NAME_IT),
}
READ_NO_RUNS = {"explore", "build-prior", "densify", "data", "verify", "info"}


def invoke(arguments: list[str]) -> Result:
    """A command; `results` stands for `python results/build.py` on a record in the working folder."""
    if arguments[0] != "results":
        return CliRunner().invoke(app, arguments)
    folder = [] if "--folder" in arguments else ["--folder", "results"]
    return CliRunner().invoke(build.app, [*folder, *arguments[1:]])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of a network in a file, in `theirs`, and the same with an experiment and findings on record."""
    place = tmp_path_factory.mktemp("made")
    tiny_runs.save_npz(place / "bars.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(plugins, "_named", {})
        Path("evil.py").write_text(NETWORK)
        arguments = ["--network", "evil.py:mine", "--alpha", "0.5", "--out", "theirs/run", "--quiet"]
        result = CliRunner().invoke(app, ["train", *SMALL, *arguments])
    assert result.exit_code == 0, result.output
    (arm,) = arms_of(find_runs([place / "theirs"]))
    said = {**dict.fromkeys(("title", "asks", "command", "shortfall"), ""), "name": "evil.toml", "budget": "paper"}
    said |= {"arms": [{"name": "mine", "key": arm.key}], "table": [], "verdicts": [], "paper": []}
    (place / "theirs" / "experiment.json").write_text(json.dumps(said))
    shutil.copytree(place / "theirs", place / "record" / "theirs")
    (place / "record" / "findings.toml").write_text("")
    for name in ("README.md", "numbers.md"):
        (place / "record" / name).write_text(MARK)
    own = EXPERIMENT.replace("NETWORK", "cnn").replace(" }", ", options = { width = 64, strides = [1, 2, 2] } }")
    (place / "own.toml").write_text(own)
    return place


@pytest.fixture(params=["as it was", "without its source", "of a package"])
def theirs(request, made, tmp_path, monkeypatch) -> None:
    """Such a folder in the working folder, whose code says when it is run."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_named", {})
    network = "evil:mine" if request.param == "of a package" else "evil.py:mine"
    for path in tmp_path.rglob("config.toml"):
        lines = path.read_text().replace("evil.py:mine", network).splitlines(keepends=True)
        kept = [line for line in lines if request.param == "as it was" or not line.startswith("source")]
        path.write_text("".join(kept))
    for path in (Path("evil.py"), *tmp_path.rglob("network.py")):
        path.write_text(RAISES)
    Path("evil.toml").write_text(EXPERIMENT.replace("NETWORK", network))


@pytest.mark.parametrize("name", READERS)
def test_a_command_runs_no_code_that_only_a_runs_folder_names(name, theirs):
    arguments, refusal = READERS[name]
    if "search" in name:
        needs("optuna")
    result = invoke(arguments)
    assert not Path("ran").exists()
    assert result.exit_code == (0 if refusal is None else 1 if "--check" in arguments else 2), result.output
    assert refusal is None or refusal in result.stderr
    assert result.exit_code != 2 or result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", READERS)
def test_nor_code_of_a_coupling(name, made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(RAISES)
    for path in tmp_path.rglob("config.toml"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith(("network", "source"))]
        text = "\n".join(lines).replace('coupling = "interpolate"', 'coupling = "evil.py:Mine"')
        path.write_text(f'network = "cnn"\n{text}\n')
        assert "evil.py:Mine" in text
        (path.parent / "coupling.py").write_text(RAISES)
    if "search" in name:
        needs("optuna")
    result = invoke(READERS[name][0])
    assert not Path("ran").exists()
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == 0 or "evil.py:Mine" in result.stderr, result.output


@pytest.mark.parametrize("network", ["evil.py:mine", "evil:mine", 5])
def test_nor_code_that_the_choice_for_a_night_names(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("evil.py").write_text(RAISES)
    Path("theirs").mkdir()
    settings = {"data": "cifar10", "network": network, "epochs": 3}
    choice = {"seeds": 1, "alphas": "0,1e-3..1:4log", "every": None, "settings": settings}
    Path("theirs/overnight.json").write_text(json.dumps(choice))
    result = invoke(["reproduce", "figure2-cnn", "--budget", "overnight", "--out", "theirs"])
    assert not Path("ran").exists()
    assert result.exit_code == 2, result.output
    assert "overnight.json in theirs is none of the choices for a night" in result.stderr


def test_every_command_that_reads_runs_is_tested():
    assert {arguments[0] for arguments, _ in READERS.values()} - {"results"} == {
        *chain(*COMMANDS.values())
    } - READ_NO_RUNS


def test_a_program_runs_no_code_that_only_a_runs_folder_names(theirs):
    for read in (load, parameters):
        with pytest.raises(OutsideError, match="only run if you name it"):
            read("theirs/run")
    assert not Path("ran").exists()


def test_a_configuration_of_the_users_own_may_name_code(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_named", {})
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    Path("own.toml").write_text('network = "evil.py:mine"\n')
    for given in (["--config", "own.toml"], [*CONFIG, "--network", "theirs/run/network.py:mine"]):
        result = CliRunner().invoke(app, ["train", *given, *SMALL, "--estimate"])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["plot", "theirs/run"], "run.png"),
        (["line", "theirs/run", "--network", "evil.py:mine"], "line0.png"),
        (["export", "theirs/run", "--network", "evil.py:mine"], "lane0.safetensors"),
        (["export", "theirs/run", "--lane", "prior", "--network", "evil.py:mine", "--format", "npz"], "prior.npz"),
        (
            ["train", "--network", "evil.py:mine", *SMALL, "--epochs", "3", "--out", "theirs/run", "--resume"],
            "times.jsonl",
        ),
    ],
)
def test_a_command_does_not_write_through_links_of_a_runs_folder(arguments, name, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_named", {})
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    Path("victim").write_text("precious")
    link = Path("theirs/run") / name
    link.unlink(missing_ok=True)
    link.symlink_to(Path("victim").absolute())
    result = CliRunner().invoke(app, [*arguments, *(["--alpha", "0.5", "--no-verify"] if "train" in arguments else [])])
    assert Path("victim").read_text() == "precious"
    assert result.exit_code == 2, result.output
    assert "is a symbolic link, which is not followed" in result.stderr
    if "train" not in arguments:  # what the user names is followed
        result = CliRunner().invoke(app, [*arguments, "--out", str(link), "--force"])
        assert result.exit_code == 0, result.output
        assert Path("victim").read_bytes() != b"precious"


@pytest.mark.parametrize(
    ("command", "name"), [("search", "search.json"), ("reproduce", "experiment.json"), ("reproduce", "overnight.json")]
)
def test_a_study_does_not_write_through_links_of_its_folder(command, name, made, tmp_path, monkeypatch):
    needs("optuna")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (Path("theirs") / name).unlink(missing_ok=True)
    (Path("theirs") / name).symlink_to(tmp_path / "victim")
    result = CliRunner().invoke(app, READERS[command][0])
    assert result.exit_code == 2, result.output
    assert f"theirs/{name} is a symbolic link" in result.stderr
    assert not Path("victim").exists()


@pytest.mark.parametrize("command", ["sweep", "search", "reproduce"])
def test_a_study_does_not_write_into_folders_that_links_stand_for(command, made, tmp_path, monkeypatch):
    """A run's folder in a sweep, the last runs of a search, an arm's folder in an experiment."""
    needs("optuna")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    shutil.rmtree("theirs")
    assert CliRunner().invoke(app, READERS[command][0]).exit_code == 0
    folders = {path.parent.relative_to("theirs").parts[0] for path in Path("theirs").rglob("config.toml")}
    (name,) = {name for name in folders if not name.startswith("batch")}
    shutil.rmtree("theirs")
    for folder in ("theirs", "victim"):
        Path(folder).mkdir()
    (Path("theirs") / name).symlink_to(tmp_path / "victim")
    result = CliRunner().invoke(app, READERS[command][0])
    assert result.exit_code == 2, result.output
    assert f"theirs/{name} is a symbolic link" in result.stderr
    assert list(Path("victim").iterdir()) == []


TAG = "<script src=x>"


def test_no_page_has_a_tag_that_a_run_names(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "theirs" / "run", Path("theirs") / f"run {TAG}")
    (run,) = Path("theirs").iterdir()
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("bars.npz", TAG).replace("evil.py:mine", f"{TAG}.py:mine"))
    for name, keys in {
        "result.json": ("data", "network"),
        "env.json": ("command", "system", "processor", "python"),
    }.items():
        content = json.loads((run / name).read_text())
        content |= dict.fromkeys(keys, f"` {TAG} | [a](javascript:b)\n\n{TAG}")
        if "models" in content:
            content["models"] = [{**model, "name": TAG} for model in content["models"]]
        (run / name).write_text(json.dumps(content))
    commands = [["results", "--collect", "theirs", "--name", f"their {TAG}"], ["report", "theirs"]]
    commands += [["report", str(run), "--out", "page.html"], ["results", "--check"]]
    (run.parent / "unfinished").mkdir()
    for path in [path for path in run.iterdir() if path.is_file() and path.name != "result.json"]:
        shutil.copy(path, run.parent / "unfinished")
    for command in commands:
        result = invoke(command)
        assert result.exit_code == 0, result.output
    for page in ("results/README.md", "report.html", "page.html"):
        text = Path(page).read_text()
        assert "script src=x" in text  # it is told, and is text
        assert TAG not in text
        assert page.endswith(".html") or "](javascript" not in text
