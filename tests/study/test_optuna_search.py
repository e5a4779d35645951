"""The search: what it tries, what it sees, that it goes on where it was, and what it does to the lanes of a run."""

import dataclasses
import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from typer.testing import CliRunner

from imlp.cli import app
from imlp.errors import ConfigError, FileError, ImlpError, RunError
from imlp.look import plot
from imlp.report.gather import gather
from imlp.study.optuna_search import Search, import_optuna
from imlp.study.outcomes import SearchOutcome, typed
from imlp.study.scores import arms_of
from imlp.study.tasks import run_task
from imlp.train.callbacks import Callback
from imlp.train.config import Lane, from_mapping
from imlp.train.loop import Interrupted, Trainer
from imlp.train.run_reader import find_runs

needs("optuna")
ROOT = Path(__file__).parents[2]
DATA = tiny_runs.data(n=200)  # a problem whose best alpha lies between 0 and 1
SETTINGS = {"validation": 0.25, "trials": 14, "at_once": 7}


def search(folder, data=DATA, runner=None, *, epochs=4, **settings):
    going = Search(tiny_runs.config(epochs=epochs), data, folder, **{**SETTINGS, **settings})
    return dataclasses.asdict(going.run(runner or here))


def here(tasks, data, *callbacks):
    return [run_task(task, data, callbacks) for task in tasks]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that nothing has disturbed, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return search(folder), folder


def values_of(data, folder, lanes, epochs=4):
    """Accuracy by epoch of lanes trained together, with no search about."""
    trainer = Trainer(tiny_runs.config(epochs=epochs, lanes=lanes), data, folder)
    trainer.run()
    rows = [[row for row in trainer.state.rows if row["lane"] == k] for k in range(len(lanes))]
    return [[100 * row["test_accuracy"] for row in own] for own in rows]


# What it finds, and what it sees


def test_the_choice_is_the_best_of_all_by_brute_force(whole, tmp_path):
    content, _ = whole
    trials = content["trials"]
    assert [trial["title"] for trial in trials[:2]] == ["S-MLP (alpha 0)", "I-MLP alpha 1, every step"]
    lanes = [from_mapping(Lane, trial["lane"]) for trial in trials]
    assert len(set(lanes)) == len(lanes) == 14
    values = values_of(DATA.hold_out(0.25, seed=0), tmp_path, lanes)
    for trial, own in zip(trials, values, strict=True):
        assert trial["values"] == own[: len(trial["values"])]  # beside other lanes, and bit for bit
        assert trial["value"] == trial["values"][-1]
        assert (trial["state"] == "complete") == (len(trial["values"]) == 4)
    best = max(own[-1] for trial, own in zip(trials, values, strict=True) if trial["state"] == "complete")
    assert content["chosen"]["value"] == best
    assert best > max(values[0][-1], values[1][-1])
    alpha = trials[content["chosen"]["number"]]["alphas"]["all layers"]
    assert 0 < alpha < 1
    assert content["chosen"]["alpha"] == dict.fromkeys(("conv1", "conv2", "conv3"), f"{alpha:.3g}")


def test_the_end_is_a_run_on_all_training_images_for_each_seed(whole, tmp_path):
    content, _ = whole
    again = search(tmp_path, seeds=2, trials=2)
    titles = [row["title"] for row in content["final"]]
    assert titles[:2] == ["S-CNN (prior)", "S-MLP (alpha 0)"]
    assert content["chosen"]["title"] in titles
    zero = next(row for row in again["final"] if row["title"] == "S-MLP (alpha 0)")
    assert zero["test"]["n"] == 2
    assert set(zero["test"]["by_seed"]) == {"0", "1"}
    (expected,) = values_of(DATA, tmp_path / "alone", tiny_runs.lanes(0))
    assert zero["test"]["by_seed"]["0"] == expected[-1]
    assert zero["validation"] == content["trials"][0]["value"]


def test_the_test_set_is_not_looked_at_before_the_end(whole, tmp_path):
    """Other test images and labels, more of them: the same trials and the same choice, and another end."""
    rng = np.random.default_rng(1)
    x_test = rng.integers(0, 256, (50, 1, 8, 8), dtype=np.uint8)
    content = search(tmp_path, dataclasses.replace(DATA, x_test=x_test, y_test=rng.integers(0, 3, 50)))
    assert {**content, "final": None} == {**whole[0], "final": None}
    assert content["final"] != whole[0]["final"]


def test_a_picture_of_a_batch_says_that_it_was_judged_by_images_held_out(whole):
    from imlp.report.figures import of_run

    judged = {run.config.measure: run for run in find_runs([whole[1]])}
    assert set(judged) == {"validation accuracy", "test accuracy"}
    for measure, run in judged.items():
        assert f"{measure}, %" in [axes.get_ylabel() for axes in of_run(run).axes]


def test_the_validation_split_is_stratified_and_drawn_by_seed():
    one, two = (DATA.hold_out(0.25, seed=seed) for seed in (0, 1))
    for label, n in enumerate(np.bincount(DATA.y)):
        assert (one.y_test == label).sum() == round(0.25 * n)
        assert (one.y == label).sum() == n - round(0.25 * n)
    assert one.digest == DATA.hold_out(0.25, seed=0).digest != two.digest
    both = np.concatenate([one.x, one.x_test]).reshape(200, -1)
    assert sorted(map(bytes, both)) == sorted(map(bytes, DATA.x.reshape(200, -1)))


# It goes on


@pytest.mark.bits
@pytest.mark.parametrize("steps", [16, 50, 70])
def test_an_interrupted_search_goes_on_to_the_same_trials(steps, whole, tmp_path):
    """At the end of an epoch of the first batch, of the second after lanes were pruned, and in the end."""
    stop = tiny_runs.StopAt(steps)
    with pytest.raises(Interrupted):
        search(tmp_path, runner=lambda tasks, data: here(tasks, data, stop))
    before = json.loads((tmp_path / "batches.json").read_text())
    pending = [name for batch in before for name in batch if not (tmp_path / name / "result.json").exists()]
    assert bool(pending) == (steps < 64)

    def same(tasks, data):
        if pending and not ran:
            assert [task.folder.name for task in tasks] == pending
        ran.append(tasks)
        return here(tasks, data)

    ran = []
    assert search(tmp_path, runner=same) == whole[0]
    assert json.loads((tmp_path / "batches.json").read_text())[: len(before)] == before


def test_a_finished_search_trains_nothing_and_more_trials_are_added(whole, tmp_path):
    first = search(tmp_path, trials=7)

    def refuse(tasks, data):
        assert all(task.finished for task in tasks)
        return here(tasks, data)

    before = (tmp_path / "search.json").stat().st_mtime_ns
    assert search(tmp_path, trials=7, runner=refuse) == first
    assert (tmp_path / "search.json").stat().st_mtime_ns == before
    assert search(tmp_path) == whole[0]
    assert not list(tmp_path.glob("batch-*/checkpoint"))


def test_a_picture_of_others_is_not_replaced(tmp_path):
    (tmp_path / "search.png").write_text("kept")
    with pytest.raises(FileError, match=r"search.png already exists"):
        search(tmp_path)
    assert (tmp_path / "search.png").read_text() == "kept"


def test_a_folder_with_another_search_is_refused(whole):
    with pytest.raises(
        RunError, match=r"holds another search \(over: alpha there, alpha-per-layer here\); choose another"
    ):
        search(whole[1], over="alpha-per-layer")
    with pytest.raises(RunError, match="images: "):
        search(whole[1], tiny_runs.data(n=199))


def test_several_runs_can_be_asked_for_at_once(tmp_path):
    asked = []

    def runner(tasks, data):
        asked.append([len(task.config.lanes) for task in tasks])
        return here(tasks, data)

    content = search(tmp_path, trials=7, at_once=2, runs_at_once=2, epochs=1, runner=runner)
    assert asked[:2] == [[2, 2], [2, 1]]
    assert [trial["run"] for trial in content["trials"]][3:6] == [["batch-001", 1], ["batch-002", 0], ["batch-002", 1]]


# Lanes that are taken out of a run

LANES = tiny_runs.lanes(0, ("0.3", {"every": "3"}), "decay:0.5:2", (1, {"coupling": "add", "head": True}))


class Retire(Callback):
    """Takes lanes out after the first epoch, as a pruner does: whenever it is asked."""

    def __init__(self, *lanes: int):
        self.lanes = lanes

    def started(self, trainer: Trainer) -> None:
        self._retire(trainer)

    def epoch_ended(self, trainer: Trainer, rows, seconds) -> None:
        self._retire(trainer)

    def _retire(self, trainer: Trainer) -> None:
        for lane in self.lanes if trainer.state.epoch == 1 else ():
            if lane in trainer.state.active:
                trainer.retire(lane, "pruned")


@pytest.mark.bits
@pytest.mark.parametrize("backend", ["reference", "accel"])
def test_a_retired_lane_leaves_the_bits_of_the_others(backend, tmp_path):
    if backend == "accel":
        needs("accel")
    settings = {"backend": backend, "lanes": LANES}
    all_of_them = tiny_runs.run(tmp_path / "all", **settings)
    some = tiny_runs.run(tmp_path / "some", Retire(1, 3), **settings)
    assert some.state.active == [0, 2]
    for lane in (0, 2):
        for name, array in tiny_runs.weights(some, lane).items():
            assert array.tobytes() == tiny_runs.weights(all_of_them, lane)[name].tobytes(), name
    result = json.loads((tmp_path / "some" / "result.json").read_text())
    stops = [{"lane": lane, "epoch": 1, "step": 4, "reason": "pruned"} for lane in (1, 3)]
    assert result["stopped"] == stops
    assert [row["lane"] for row in result["models"]] == ["prior", 0, 2]
    rows = (tmp_path / "some" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows if json.loads(row)["lane"] == 1] == [1]
    for steps in (4, 6):
        with pytest.raises(Interrupted):
            tiny_runs.run(tmp_path / f"{steps}", tiny_runs.StopAt(steps), Retire(1, 3), **settings)
        tiny_runs.run(tmp_path / f"{steps}", Retire(1, 3), resume=True, **settings)
        assert (tmp_path / f"{steps}" / "metrics.jsonl").read_text().splitlines() == rows
        assert json.loads((tmp_path / f"{steps}" / "result.json").read_text())["stopped"] == stops


def test_a_run_ends_with_its_last_lane(tmp_path):
    trainer = tiny_runs.run(tmp_path, Retire(0, 1), lanes=tiny_runs.lanes(0, 1))
    assert trainer.state.epoch == 1
    assert [row["lane"] for row in json.loads((tmp_path / "result.json").read_text())["models"]] == ["prior"]


@pytest.mark.bits
def test_lanes_below_the_median_are_pruned_and_the_others_are_as_without(whole, tmp_path):
    content, _ = whole
    pruned = [trial for trial in content["trials"] if trial["state"] == "pruned"]
    assert pruned
    assert all(1 < len(trial["values"]) < 4 for trial in pruned)  # not in the first quarter of the epochs
    complete = [t["values"] for t in content["trials"][:7]]
    for trial in pruned:
        at = len(trial["values"])
        assert trial["run"][0] == "batch-001"
        assert max(trial["values"]) < np.median([values[at - 1] for values in complete])
    unpruned = search(tmp_path, prune=False)
    assert all(trial["state"] == "complete" for trial in unpruned["trials"])
    assert [trial["lane"] for trial in unpruned["trials"]] == [trial["lane"] for trial in content["trials"]]


def test_a_report_keeps_the_trials_apart_from_the_runs_with_the_test_set(whole):
    content, folder = whole
    trials, final = gather(arms_of(find_runs([folder])))
    assert (trials.name, final.name) == ("CNN pair on bars (validation 0.25)", "CNN pair on bars")
    remarks = {model.title: model.remark for model in trials.models}
    for trial in content["trials"]:
        expected = f"seed 0 pruned in epoch {len(trial['values'])}" if trial["state"] == "pruned" else ""
        assert remarks[trial["title"]] == expected
    assert not trials.warnings


def test_what_a_run_needs_can_be_sent_to_another_machine(whole, tmp_path):
    far = search(tmp_path, runner=lambda tasks, data: here(pickle.loads(pickle.dumps(list(tasks))), data))
    assert far == whole[0]


# What is searched


def test_one_alpha_for_each_layer(tmp_path):
    import optuna

    layers = {"layers": ("conv1", "conv2")}
    going = Search(tiny_runs.config(), DATA, tmp_path, over="alpha-per-layer", every="both", common=layers)
    drawn = optuna.trial.FixedTrial({"alpha conv1": 0.01234, "alpha conv2": 5e-5, "every": "step"})
    assert going.suggested(drawn) == Lane("conv1=0.0123,conv2=0", "step", layers=("conv1", "conv2"))
    known = [going.suggested(optuna.trial.FixedTrial(parameters)) for parameters in going.known]
    assert [(lane.alpha, lane.every) for lane in known] == [("0", "epoch"), ("1", "epoch"), ("1", "step")]


def test_a_search_by_layer_and_one_of_both_cadences(tmp_path):
    layers = {"layers": ("conv1", "conv3")}
    by_layer = search(tmp_path / "a", over="alpha-per-layer", epochs=2, common=layers, prune=False)
    assert list(by_layer["chosen"]["alpha"]) == ["conv1", "conv3"]
    assert {tuple(trial["alphas"]) for trial in by_layer["trials"][2:]} == {("conv1", "conv3")}
    both = search(tmp_path / "b", every="both", epochs=2, trials=10, at_once=5)
    assert {trial["lane"]["every"] for trial in both["trials"]} == {"epoch", "step"}
    for content, n in ((by_layer, 2), (both, 3)):
        assert content["chosen"]["value"] >= max(trial["value"] for trial in content["trials"][:n])
    drawn = plot.search_figure(typed(SearchOutcome, both)).axes[0]
    assert {"every epoch", "every step", "chosen"} <= {*drawn.get_legend_handles_labels()[1]}


def test_the_plain_mlp_is_tested_whichever_coupling_is_searched(tmp_path):
    content = search(tmp_path, epochs=1, trials=3, common={"coupling": "self"})
    (plain,) = (row for row in content["final"] if row["title"] == "S-MLP (alpha 0)")
    assert plain["lane"] == content["trials"][0]["lane"]
    assert plain["lane"]["coupling"] == "self"
    assert plain["validation"] == content["trials"][0]["value"]


def test_a_coupling_without_an_alpha_cannot_be_searched(tmp_path):
    with pytest.raises(ConfigError, match="'relax', which has no alpha to search; leave --coupling out"):
        search(tmp_path, common={"coupling": "relax"})


def test_it_ends_where_there_is_nothing_left_to_try(tmp_path, monkeypatch):
    """Of a space with three lanes in it, all are tried once."""
    monkeypatch.setattr(Search, "_alpha", lambda search, trial, name: f"{trial.suggest_int(name, 0, 2) / 2:g}")
    monkeypatch.setattr(Search, "known", [{"alpha": 0}, {"alpha": 2}])
    content = search(tmp_path, epochs=1)
    expected = ["S-MLP (alpha 0)", "I-MLP alpha 1, every step", "I-MLP alpha 0.5, every step"]
    assert [trial["title"] for trial in content["trials"]] == expected


# As a user meets it

SMALL = "--options width=64 --options strides=[1,2,2] --batch 20 --lr 0.003 --backend reference --dtype float64"


@pytest.fixture
def bars(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tiny_runs.save_npz(tmp_path / "bars.npz", n=200))


def command(data: str, *more: str) -> list[str]:
    settings = ["--epochs", "4", "--validation", "0.25", "--trials", "14", "--lanes-at-once", "7"]
    return ["search", "--data", data, *SMALL.split(), *settings, *more]


def test_the_command_shows_tables_and_draws_a_picture(bars):
    result = CliRunner().invoke(app, command(bars))
    assert result.exit_code == 0, result.output
    assert "the best of 14 trials" in result.stdout
    assert "(chosen)" in result.stdout
    assert "S-CNN (prior)" in result.stdout
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("search-cnn-bars.npz-")
    assert (folder / "search.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((folder / "search.json").read_text())
    again = CliRunner().invoke(app, command(bars, "--json"))
    assert json.loads(again.stdout) == {"folder": str(folder), **written}
    assert "epoch" not in CliRunner().invoke(app, command(bars)).stdout.partition("the best of")[0]


def start(data: str, until: str) -> subprocess.Popen:
    """The command in a process of its own, when it has written that file."""
    arguments = [sys.executable, str(ROOT / "cli.py"), *command(data, "--out", "run", "--quiet")]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not Path(until).exists():
        assert process.poll() is None
        time.sleep(0.005)
    return process


def test_kill_9_and_the_same_search_in_the_end(bars, whole):
    process = start(bars, "run/batch-001/metrics.jsonl")
    process.kill()
    process.communicate()
    assert not Path("run/final").exists()
    found = json.loads(CliRunner().invoke(app, command(bars, "--out", "run", "--json")).stdout)
    assert {**found, "folder": None} == {**whole[0], "folder": None}


def test_a_signal_saves_and_says_how_to_go_on(bars):
    process = start(bars, "run/batch-000/metrics.jsonl")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors.startswith("stopped by SIGTERM in epoch")
    assert errors.endswith("nothing is lost: run the same command again\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--trials", "0"], "--trials is 0; give at least 2: alpha 0 and alpha 1 come first"),
        (["--trials", "2", "--every", "both"], "--trials is 2; give at least 3"),
        (["--validation", "0"], "--validation is 0; give a share"),
        (["--validation", "1"], "--validation is 1; give a share"),
        (["--validation", "0.001"], "is none of them"),
        (["--seeds", "0"], "seeds is 0; give 1 to 10,000"),
        (["--lanes-at-once", "0"], "--lanes-at-once is 0; give at least 1"),
        (["--over", "beta"], "--over is 'beta'; use alpha or alpha-per-layer"),
        (["--every", "often"], "every is 'often'; use epoch, step"),
        (["--layers", "conv9"], "conv9"),
        (["--alpha", "0.5"], "--alpha is for one lane"),
        (["--engine", "cloud"], "engine is 'cloud'; use local or ray"),
    ],
)
def test_bad_input_is_one_line(given, message, bars):
    result = CliRunner().invoke(app, command(bars, *given))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("given", [["--device", "nonsense"], ["--device", "cuda:99"]])
def test_what_is_refused_leaves_no_files(given, bars, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, command(bars, *given))
    assert result.exit_code == 2, result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_without_optuna_it_says_what_to_install(bars, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImlpError, match=r"pip install optuna$"):
        import_optuna()
    assert CliRunner().invoke(app, command(bars)).exit_code == 2


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        ({"../../victim": [{"alpha": 0.5}]}, "names folders that are none of a search: ../../victim"),
        ({"final": [{"alpha": 0.5}]}, "names folders that are none of a search: final"),
        ({"batch-000": []}, "names folders that are none of a search: batch-000"),
        ({"batch-000": 5}, r"'\[0\].batch-000' cannot be 5"),
        ({"batch-000": [5]}, r"'\[0\].batch-000\[0\]' cannot be 5"),
        ({"batch-000": [{}]}, "The value of the parameter 'alpha' is not found"),
        ({"batch-000": [{"alpha": "x"}]}, "'x' is not a valid type"),
    ],
    ids=str,
)
def test_a_batch_that_no_search_has_asked_for(batch, match, tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "batches.json").write_text(json.dumps([batch]))
    with pytest.raises(RunError, match=match):
        search(tmp_path / "search", runner=lambda tasks, data: pytest.fail("it was run"))


@pytest.mark.parametrize("text", ["no list\nat all\n", '[{"batch-000": 5}]'])
def test_damaged_batches_are_one_line(text, tmp_path):
    search(tmp_path, trials=2, epochs=1)
    (tmp_path / "batches.json").write_text(text)
    with pytest.raises(RunError, match=r"cannot read .*batches\.json: .*; choose another folder with --out"):
        search(tmp_path, trials=2, epochs=1)
