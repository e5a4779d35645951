"""`sweep` and `reproduce` as a user sees them."""

import json
from pathlib import Path

import pytest
import tiny_runs
from conftest import needs
from tiny_runs import OWN_EXPERIMENT, SMALL
from typer.testing import CliRunner

from imlp.cli import app
from imlp.paper import experiments
from imlp.study import cost
from imlp.study.scores import arms_of
from imlp.train.run_reader import find_runs


@pytest.fixture
def data(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tiny_runs.save_npz(tmp_path / "bars.npz"))


def run(*arguments: str):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_sweep_prints_means_and_fits_and_can_be_given_again(data):
    command = ["sweep", "--data", data, *SMALL, "--alpha", "0,1e-4..1:6log", "--every", "epoch,step", "--seeds", 2]
    first = run(*command)
    assert first.exit_code == 0, first.output
    assert "\nseed 1, alpha 0 to 1: epoch 2/2: prior" in first.stdout
    assert "I-MLP alpha 0.003981" in first.stdout
    assert "every step: two lines meet at alpha" in first.stdout
    assert "python cli.py report" in first.stdout
    second = run(*command)
    assert "seed 0, alpha 0 to 1: done already" in second.stdout
    assert first.stdout[first.stdout.index("cnn on") :] == second.stdout[second.stdout.index("cnn on") :]


def test_a_sweep_as_json(data):
    result = run("sweep", "--data", data, *SMALL, "--alpha", "0,1", "--seeds", 2, "--json", "--out", "here")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (arm,) = arms_of(find_runs([Path("here")]))
    assert [model["mean"] for model in found["models"]] == [score.mean for score in arm.scores]
    assert [model["n"] for model in found["models"]] == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "0..1:3log"], "write FIRST..LAST:Nlog"),
        (["--alpha", "2"], "A and B are numbers from 0"),
        (["--every", "sometimes"], "use epoch, step"),
        (["--alpha", "0.5,conv1=0.1"], "give what is by layer a separate --alpha"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_mistakes_in_a_sweep_are_explained(data, arguments, message):
    result = run("sweep", "--data", data, *SMALL, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


VALLEY = {"valley-position", "valley-annealed", "valley-optimizer", "valley-aligned", "function", "amount"}


def test_all_experiments_are_there():
    names = {"table1-cnn", "table1-mixer", "figure2-cnn", "figure2-mixer", "decay", "first-layer", "augmentation"}
    own = {
        "ways",
        "valley-without-a-prior",
        "locality-or-sharing",
        "relaxation",
        "moments",
        "valley-aligned",
        "function",
    }
    assert {*names, *own, *VALLEY, "injection", "baselines"} == set(experiments.names())


def test_the_paper_s_numbers_are_those_of_the_paper():
    """Tables 1, 4 and 5, transcribed a second time."""
    expected = {
        "table1-cnn": [(None, 62.60), ("0", 58.36), ("0.01", 51.50), ("1", 62.14)],
        "table1-mixer": [(None, 63.42), ("0", 59.35), ("0.01", 52.34), ("1", 63.51)],
        "first-layer": [("0", 56.4), ("0.5", 60.3), ("1", 60.3), ("0", 54.8), ("0.5", 73.7), ("1", 73.7)],
    }
    expected["decay"] = [(None, 62.60), ("0", 58.36), ("0.5", 60.98), ("end:0.5", 48.63)]
    expected["decay"] += [("decay:0.5:1", 48.34), ("decay:0.5:2", 53.88), ("decay:0.5:4", 59.96)]
    for name, values in expected.items():
        found = experiments.read_experiment(name).numbers("cifar10")
        assert [(row.lane.alpha if row.lane else None, row.value) for row in found] == values
    mixer = experiments.read_experiment("table1-mixer").numbers("cifar100")
    assert [(row.value, row.std) for row in mixer] == [(33.71, 0.13), (31.0, 0.21), (23.96, 0.22), (33.89, 0.2)]


@pytest.mark.parametrize("name", experiments.names())
def test_the_paper_s_budget_is_the_paper_s_setting(name):
    for trial in experiments.read_experiment(name).plans("paper"):
        base = trial.base
        assert (base.data, base.epochs, base.batch) == ("cifar10", 100, 128)
        if name not in VALLEY:  # those ask about the learning rate, the optimizer and the number of images
            assert (base.lr, base.train_size) == (1e-4, None)
        assert base.augment == ("none" if trial.name == "none" else "pad")


@pytest.mark.parametrize("name", experiments.names())
def test_a_smoke_run_of_each_experiment(name, tmp_path, monkeypatch):
    """The real networks on a few `shapes`, from the command to the files."""
    needs("accel")
    monkeypatch.chdir(tmp_path)
    few = {"epochs": 2, "train_size": 128, "test_size": 64}
    given = [word for setting, n in few.items() for word in (f"--{setting.replace('_', '-')}", n)]
    result = run("reproduce", name, "--json", "--threads", 1, "--no-verify", "--no-report", *given)
    assert result.exit_code == 0, result.output
    found, experiment = json.loads(result.stdout), experiments.read_experiment(name)
    trials = experiment.plans("smoke", **few)
    assert len(found["table"]) == sum(1 + len(trial.lanes) for trial in trials)
    assert {row["n"] for row in found["table"]} == {experiment.seeds("smoke")}
    assert all(0 <= row["mean"] <= 100 for row in found["table"])
    assert {verdict["verdict"] for verdict in found["verdicts"]} <= {"holds", "fails", "cannot tell"}
    assert len(found["verdicts"]) >= len(experiment.claims)
    assert json.loads((Path(found["folder"]) / "experiment.json").read_text())["table"] == found["table"]
    assert len(find_runs([Path(found["folder"])])) == len(trials) * experiment.seeds("smoke")


def test_an_experiment_of_one_s_own(data):
    Path("mine.toml").write_text(OWN_EXPERIMENT.format(data=data, options="{ width = 64, strides = [1, 2, 2] }"))
    result = run("reproduce", "mine.toml")
    assert result.exit_code == 0, result.output
    assert "alpha 1 is the prior (every step)" in result.stdout
    assert "alpha 1 is the prior (every step)" in Path("runs/mine-smoke-bars.npz/report.html").read_text()
    row = next(line for line in result.stdout.splitlines() if "I-MLP alpha 1" in line)
    assert "50.00 +- 1.50" in row
    json_again = run("reproduce", "mine.toml", "--json")
    ours = json.loads(json_again.stdout)["table"][2]
    assert ours["difference"] == pytest.approx(ours["mean"] - 50)


def test_other_settings_go_to_another_folder(data):
    Path("mine.toml").write_text(OWN_EXPERIMENT.format(data=data, options="{ width = 64, strides = [1, 2, 2] }"))
    for extra in ([], ["--epochs", "1"], ["--seeds", "1"]):
        assert run("reproduce", "mine.toml", "--no-report", *extra).exit_code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "mine-smoke-bars.npz",
        "mine-smoke-bars.npz-epochs=1",
    ]


def test_an_arm_that_fails_does_not_take_the_others_down(data):
    text = OWN_EXPERIMENT.format(data=data, options="{ width = 64, strides = [1, 2, 2] }")
    second = '[[arms]]\nname = "second"\nalphas = "0"\nsmoke = { lr = 1e200 }\n[budgets.smoke]'
    Path("mine.toml").write_text(text.replace("[budgets.smoke]", second))
    result = run("reproduce", "mine.toml", "--json", "--no-report")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [arm["name"] for arm in found["arms"]] == ["mine"]
    assert len(found["failed"]) == 2
    assert "the prior's loss is not finite" in found["failed"][0]["error"]
    alone = run("sweep", "--data", data, *SMALL, "--alpha", "0", "--lr", "1e200", "--seeds", 1, "--json")
    assert alone.exit_code == 1
    assert json.loads(alone.stdout)["models"] == []


def test_help_shows_what_a_command_takes():
    assert "epoch,step" in run("sweep", "--help").stdout
    assert "--alpha " in run("sweep", "--help").stdout
    for command in ("search", "reproduce"):  # what is searched, and what an experiment's file says
        assert "--alpha " not in run(command, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one of amount, augmentation"),
        (["figure2"], "figure2-cnn"),
        (["figure2-cnn", "--budget", "tiny"], "smoke"),
        (["figure2-cnn", "--alpha", "1"], "an experiment has its own networks and lanes"),
        (["figure2-cnn", "--network", "cnn"], "an experiment has its own networks"),
        (["nowhere.toml"], "name a TOML file that exists"),
        (["wrong.toml"], "is not an experiment"),
        (["nameless.toml"], "'arms[0].name' is missing"),
        (["seedless.toml"], "'budgets.smoke.seeds' cannot be 'x'"),
        (["spread.toml"], "'assumed_std' cannot be 'wide'"),
        (["figure2-cnn", "--seeds", "0"], "equal to 1"),
    ],
)
def test_mistakes_are_explained(data, arguments, message):
    Path("wrong.toml").write_text("title = 'x'\n")
    Path("nameless.toml").write_text(OWN_EXPERIMENT.format(data=data, options="{}").replace('name = "mine"', ""))
    Path("seedless.toml").write_text(OWN_EXPERIMENT.format(data=data, options="{}").replace("seeds = 2", 'seeds = "x"'))
    Path("spread.toml").write_text('assumed_std = "wide"\n' + OWN_EXPERIMENT.format(data=data, options="{}"))
    result = run("reproduce", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_the_list_is_one_line_each_and_computes_nothing(monkeypatch):
    monkeypatch.setattr(cost, "_speed", lambda base, data: 1 / 0)
    lines = run("reproduce", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == experiments.names()
    assert experiments.read_experiment("table4") == experiments.read_experiment("figure3")


def test_a_night_has_the_best_figure_2_that_fits(data, monkeypatch):
    def chosen(seconds: float, *more: str) -> str:
        monkeypatch.setattr(cost, "_speed", lambda base, data: (seconds, seconds))
        result = run("reproduce", "figure2-cnn", "--budget", "overnight", *more)
        assert result.exit_code in (0, 2), result.output
        return result.output

    assert "10 alphas, 100 epochs, 2 seeds" in chosen(0.01, "--estimate")
    assert "5 alphas, 50 epochs, 1 seed: 3 h" in chosen(0.13, "--estimate")
    assert "use --budget short" in chosen(100, "--estimate")
    assert "overnight is for figure 2" in run("reproduce", "decay", "--budget", "overnight").stderr
    folder = Path("runs/night")
    few = ["--data", data, "--batch", "20", "--seeds", "1", "--out", folder, "--no-report", "--epochs", "1"]
    few += ["--options", "width=64", "--options", "strides=[1,2,2]", "--backend", "reference"]
    assert "5 alphas, 1 epoch, 1 seed" in chosen(1.0, *few)
    assert "5 alphas, 1 epoch, 1 seed" in chosen(0.0001, *few)  # what was chosen stays


def test_the_list_has_the_cost_if_asked(monkeypatch):
    needs("accel")
    monkeypatch.setattr(cost, "_speed", lambda base, data: (1e-3, 2e-3))  # measured in commands/test_conventions.py
    result = run("reproduce", "--list", "--estimate", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == experiments.names()
    for row in rows:
        seconds = row["seconds"]
        assert 0 < seconds["smoke"] < seconds["short"] < seconds["paper"]
