"""`train` and `plot` as a user sees them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.spec.base import PARTS

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import tiny_runs

ROOT = Path(__file__).parents[2]
SMALL = [
    "--options",
    "width=64",
    "--options",
    "strides=[1,2,2]",
    "--batch",
    "20",
    "--epochs",
    "2",
    "--lr",
    "0.003",
    "--backend",
    "reference",
]


@pytest.fixture
def data(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tiny_runs.save_npz(tmp_path / "bars.npz"))


def run(*arguments: str):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_a_run_prints_lines_then_a_table_then_where_the_files_are(data):
    result = run("--data", data, *SMALL, "--alpha", "0", "--alpha", "0.5@step")
    assert result.exit_code == 0, result.output
    assert "epoch 1/2: prior" in result.stdout
    assert "after 2 epochs; guessing gets" in result.stdout
    assert "S-MLP (alpha 0)" in result.stdout
    assert "S-CNN (prior)" in result.stdout
    assert "I-MLP alpha 0.5, every step" in result.stdout
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("cnn-bars.npz-")
    assert f"python cli.py report {folder}" in result.stdout
    without = run("--resume", "--out", str(folder)).stdout  # its settings are taken from the folder
    assert "done already" in without
    assert f"name one of {folder}" in CliRunner().invoke(app, ["plot", "runs"]).stderr
    drawn = CliRunner().invoke(app, ["plot", str(folder)])
    assert drawn.exit_code == 0, drawn.output
    assert (folder / "run.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_command_again_shows_the_result_and_trains_nothing(data):
    first = run("--data", data, *SMALL, "--json")
    again = run("--data", data, *SMALL, "--json")
    assert json.loads(first.stdout) == json.loads(again.stdout)
    (folder,) = Path("runs").iterdir()
    before = (folder / "result.json").stat().st_mtime_ns
    assert "done already" in run("--data", data, *SMALL).stdout
    assert (folder / "result.json").stat().st_mtime_ns == before
    assert run("--data", data, *SMALL, "--again", "--quiet").exit_code == 0
    assert (folder / "result.json").stat().st_mtime_ns > before


def test_quiet_prints_the_result_alone(data):
    result = run("--data", data, *SMALL, "--quiet")
    assert "epoch 1/2" not in result.output
    assert "S-CNN (prior)" in result.stdout


def test_an_estimate_writes_nothing(data):
    result = run("--data", data, *SMALL, "--estimate", "--json")
    found = json.loads(result.stdout)
    assert found["prior_parameters"] == 837
    assert found["parameters_a_lane"] == 12_675
    assert found["steps"] == 8
    assert 0 < found["seconds_a_step"] < found["seconds"]
    assert not Path("runs").exists()
    assert "parameters each" in run("--data", data, *SMALL, "--estimate").stdout


def test_settings_from_a_file(data):
    Path("c.toml").write_text(
        f'data = "{data}"\nbackend = "reference"\nepochs = 1\n[options]\nwidth = 64\nstrides = [1, 2, 2]\n'
    )
    result = run("--config", "c.toml", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["epochs"] == 1


def test_accel_checks_itself_first(data):
    needs("accel")
    result = run("--data", data, *SMALL[:-2])
    assert result.exit_code == 0, result.output
    assert "checked against the reference: 3 layers" in result.stderr


def test_a_network_that_differs_from_the_reference_is_not_trained(data, monkeypatch):
    needs("accel")
    from imlp.accel import convolution, verbs
    from imlp.spec import Conv

    monkeypatch.setitem(verbs.APPLY, Conv, lambda *arguments: convolution.apply(*arguments) * 1.01)
    result = run("--data", data, *SMALL[:-2])
    assert result.exit_code == 2
    assert "accel differs from the reference" in result.stderr
    assert not Path("runs").exists()


def test_tensorboard(data):
    needs("accel")
    needs("tensorboard")
    result = run("--data", data, *SMALL, "--tensorboard", "--out", "run")
    assert result.exit_code == 0, result.output
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator("run/tensorboard")
    events.Reload()
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    found = [event.value for event in events.Scalars("test_accuracy/prior")]
    assert found == pytest.approx([row["test_accuracy"] for row in rows if row["lane"] == "prior"])
    lane = [row for row in rows if row["lane"] == 0]
    for part in PARTS:
        found = [event.value for event in events.Scalars(f"bias {part} conv1/0 {lane[0]['name']}")]
        assert found == pytest.approx([row["bias"]["conv1"][part] for row in lane])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--alpha 2", "from 0"),
        ("--alpha conv9=1", "the known ones are conv, conv1"),
        ("--network cnm", "did you mean 'cnn'"),
        ("--options wide=3", "unknown option of cnn"),
        ("--options wide", "write NAME=VALUE"),
        ("--options width=63", "conv1: the dense layer has 63 outputs"),
        ("--device nowhere", "does not work|computes on the cpu"),
        ("--epochs 0", "epochs is 0; give at least 1"),
        ("--every sometimes", "use epoch, step"),
        ("--data nothing.npz", "nothing.npz"),
        ("--config missing.toml", "cannot read missing.toml"),
        ("--train-size 100000", "--train-size is 100000"),
        ("--options image=5", "give .channels, height, width."),
        ("--options classes=2", "cnn has 2 outputs, but the data have 3 classes"),
        ("--options strides=[]", "cannot be made with|strides"),
        ("--options strides=2", "cannot be made with|strides"),
        ("--options kernel=a", "cannot be made with|kernel"),
        ("--alpha end:0.5@step", "mixes once, but every is 'step'"),
        ("--layers conv --layers 7", "unknown layer of cnn with a prior: 'conv'"),
    ],
)
def test_bad_input_gives_one_line_with_the_remedy(arguments, message, data):
    result = run("--data", data, *SMALL, *arguments.split())
    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_again_deletes_runs_only(data, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("mine")
    result = run("--data", data, *SMALL, "--out", "precious", "--again")
    assert result.exit_code == 2
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "mine"


def test_the_command_of_the_readme(tmp_path):
    """`python cli.py train --backend accel`, on a few images of the embedded data set."""
    needs("accel")
    command = [sys.executable, "cli.py", "train", "--backend", "accel", "--train-size", "128", "--test-size", "64"]
    command += ["--epochs", "1", "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={"IMLP_DATA": str(tmp_path)}
    )
    result = json.loads(done.stdout)
    assert result["parameters"] == {"prior": 757_982, "dense": 8_405_002}


def test_plot_of_what_is_no_run(tmp_path):
    result = CliRunner().invoke(app, ["plot", str(tmp_path)])
    assert result.exit_code == 2
    assert "name the folder of a run" in result.stderr


def test_again_does_not_delete_a_run_under_way(data, tmp_path):
    """Another process holds the folder's lock: its files stay as they are."""
    from filelock import FileLock

    assert run("--data", data, *SMALL, "--out", "run", "--quiet").exit_code == 0
    before = sorted(path.name for path in Path("run").iterdir())
    with FileLock("run/.lock"):
        result = run("--data", data, *SMALL, "--out", "run", "--again")
    assert result.exit_code == 2
    assert "another process is training in run" in result.stderr
    assert sorted(path.name for path in Path("run").iterdir()) == before


def test_again_keeps_what_is_not_the_runs(data):
    assert run("--data", data, *SMALL, "--out", "run", "--quiet").exit_code == 0
    Path("run/notes.txt").write_text("mine")
    assert run("--data", data, *SMALL, "--out", "run", "--again", "--quiet").exit_code == 0
    assert Path("run/notes.txt").read_text() == "mine"


def test_again_does_not_take_any_config_toml_for_a_run(data):
    Path("other").mkdir()
    Path("other/config.toml").write_text('title = "x"')
    Path("other/metrics.jsonl").write_text("mine")
    result = run("--data", data, *SMALL, "--out", "other", "--again")
    assert result.exit_code == 2
    assert Path("other/metrics.jsonl").read_text() == "mine"


def test_again_with_tensorboard(data):
    needs("accel")
    needs("tensorboard")
    for _ in range(2):
        result = run("--data", data, *SMALL, "--out", "run", "--again", "--tensorboard", "--quiet")
        assert result.exit_code == 0, result.output
    assert list(Path("run/tensorboard").iterdir())


def test_a_result_on_other_data_or_a_damaged_one_is_not_taken_for_this_run(data, tmp_path):
    assert run("--data", data, *SMALL, "--out", "run", "--quiet").exit_code == 0
    tiny_runs.save_npz(tmp_path / "bars.npz", n=70)
    assert "not those that run was trained on" in run("--data", data, *SMALL, "--out", "run", "--resume").stderr
    tiny_runs.save_npz(tmp_path / "bars.npz")
    Path("run/result.json").write_text("")
    assert run("--data", data, *SMALL, "--out", "run", "--resume", "--quiet").exit_code == 0
    assert json.loads(Path("run/result.json").read_text())["epochs"] == 2


def test_an_estimate_of_a_run_that_is_done(data):
    assert run("--data", data, *SMALL, "--quiet").exit_code == 0
    assert "seconds_a_step" in run("--data", data, *SMALL, "--estimate", "--json").stdout


def test_a_folder_of_another_run_is_not_recommended_for_resuming(data):
    assert run("--data", data, *SMALL, "--out", "run", "--quiet").exit_code == 0
    result = run("--data", data, *SMALL, "--out", "run", "--alpha", "0.3")
    assert (
        "holds another run (lanes: I-MLP alpha 0.5, every step there, I-MLP alpha 0.3, every step here)"
        in result.stderr
    )


def test_options_win_over_the_settings_of_a_run_that_is_resumed(data):
    assert run("--data", data, *SMALL, "--out", "run", "--keep-moments", "--quiet").exit_code == 0
    result = run("--resume", "--out", "run", "--epochs", "3", "--quiet")
    assert "after 3 epochs" in result.stdout, result.stderr
    assert "(lr: 0.003 there, 0.1 here)" in run("--resume", "--out", "run", "--lr", "0.1").stderr


@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json", "network.py"])
def test_files_of_others_are_not_replaced(data, name):
    Path("made.py").write_text("from imlp.networks import cnn\n")
    Path("mine").mkdir()
    Path("mine", name).write_text("kept")
    own = ["--network", "made.py:cnn", "--options", "image=[1,8,8]"]
    assert f"mine/{name} already exists" in run("--data", data, *SMALL, *own, "--out", "mine").stderr
    assert [(path.name, path.read_text()) for path in Path("mine").glob("[!.]*")] == [(name, "kept")]


def test_names_with_brackets_are_printed_as_they_are(data):
    result = run("--data", data, *SMALL, "--out", "x[bold]y[/]", "--quiet")
    assert result.exit_code == 0, result.output
    assert "x[bold]y[/]" in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "options = 3",
        "lanes = 3",
        '[[lanes]]\nlayers = "conv1"',
        "[[lanes]]\nlayers = 3",
        "options = ['a']",
        "epochs = 'x'",
    ],
)
def test_a_file_with_odd_settings_is_refused(text, data):
    Path("c.toml").write_text(text)
    result = run("--config", "c.toml", "--data", data, "--backend", "reference")
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1


def test_one_table_of_lanes_is_a_lane(data):
    Path("c.toml").write_text("[lanes]\nalpha = {conv1 = 0.5, conv2 = 'decay:0.5:1'}\n")
    result = run("--config", "c.toml", "--data", data, *SMALL, "--every", "step", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["models"][1]["name"] == "I-MLP alpha conv1=0.5,conv2=decay:0.5:1, every step"


OWN = """
title = "Diverges"
asks = "Does it?"
settings = { train_size = 60, epochs = 1, lr = 1e300, options = { width = 64, strides = [1, 2, 2] } }
[[arms]]
name = "both"
alphas = []
more = [{ coupling = "pathway" }]
[budgets.smoke]
seeds = 1
"""
DIVERGES = ["--coupling", "pathway", "--lr", "1e300", "--no-verify"]  # and has no prior


def test_a_run_whose_only_lane_diverged_fails_and_says_where(data):
    for command in ("--quiet", "--json"):  # the second time it is done already
        result = run("--data", data, *SMALL, *DIVERGES, "--out", "run", command)
        assert result.exit_code == 1, result.output
        assert "every lane has stopped: lane 0 in epoch 1, step 2" in result.stderr
        assert "cli.py plot" not in result.stdout
    assert json.loads(result.stdout)["models"] == []
    drawn = CliRunner().invoke(app, ["plot", "run"])
    assert drawn.exit_code == 2
    assert "stopped in its first epoch" in drawn.stderr
    swept = CliRunner().invoke(
        app, ["sweep", "--data", data, *SMALL, *DIVERGES, "--seeds", "1", "--quiet", "--out", "swept"]
    )
    assert swept.exit_code == 1, swept.output
    assert "every lane of every run has stopped" in swept.stderr
    Path("own.toml").write_text(OWN)
    made = CliRunner().invoke(app, ["reproduce", "own.toml", "--data", data, "--out", "made", "--no-verify"])
    assert made.exit_code == 1, made.output
    assert "every lane of both has stopped" in made.stderr


def test_alpha_none_trains_the_prior_alone(data):
    result = run("--data", data, *SMALL, "--alpha", "none", "--out", "alone")
    assert result.exit_code == 0, result.output
    assert [model["lane"] for model in json.loads(Path("alone/result.json").read_text())["models"]] == ["prior"]
    again = CliRunner().invoke(app, ["train", "--config", "alone/config.toml", "--out", "again", "--json"])
    assert json.loads(again.stdout)["models"] == json.loads(Path("alone/result.json").read_text())["models"]
    for command in (["plot", "alone"], ["report", "alone", "--quiet"], ["export", "alone", "--lane", "prior"]):
        assert CliRunner().invoke(app, command).exit_code == 0, command
    refused = run("--data", data, "--alpha", "none", "--coupling", "add")
    assert refused.exit_code == 2
    assert "coupling is for lanes" in refused.stderr
