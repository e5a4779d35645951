"""Sweeps: what is run, what is not run again, and the prior that is trained once."""

import dataclasses

import numpy as np
import pytest
import tiny_runs
from conftest import needs
from sweeps import BASE, LANES, sweep

import imlp.reference
from imlp.couplings.schedule import alphas_of
from imlp.errors import AlphaError, ImlpError, RunError
from imlp.study import run_sweep
from imlp.study.scores import arms_of
from imlp.study.tasks import lanes_at_once, plan
from imlp.train.config import Lane
from imlp.train.lane import lanes_of
from imlp.train.loop import Interrupted
from imlp.train.run_folder import locked
from imlp.train.run_reader import find_runs


@pytest.fixture
def steps_of_prior(monkeypatch) -> list[int]:
    """Grows by one with each step that trains a prior."""
    train_step, found = imlp.reference.train_step, []

    def counted(model, *arguments, **options):
        if not model.dense:
            found.append(model.step)
        return train_step(model, *arguments, **options)

    monkeypatch.setattr(imlp.reference, "train_step", counted)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ["0"]),
        ("0, 0.5 ,1", ["0", "0.5", "1"]),
        ("1e-4..1:5log", ["0.0001", "0.001", "0.01", "0.1", "1"]),
        ("0..1:3lin", ["0", "0.5", "1"]),
        ("0.1..0.3:3lin", ["0.1", "0.2", "0.3"]),
        ("1.5e-3..0.15:2log", ["0.0015", "0.15"]),
        ("decay:0.5:1,0.1@step", ["decay:0.5:1", "0.1@step"]),
        ("1e-2..1:3log@step,0", ["0.01@step", "0.1@step", "1@step", "0"]),
    ],
)
def test_alphas_are_lists_and_ranges(text, expected):
    assert alphas_of(text) == expected


def test_alphas_by_layer_are_not_torn_apart():
    assert alphas_of("conv1=0.5,conv2=0.1@step") == ["conv1=0.5,conv2=0.1@step"]
    with pytest.raises(AlphaError, match=r"conv2=0\.1 is for one layer, in a list"):
        alphas_of("0.5,conv2=0.1")


@pytest.mark.parametrize("text", ["0..1:5log", "1..0.1:3log", "1e-4..1:1log", "1e-4..1", "a..b:3log", "0.1..2:3lin"])
def test_a_range_that_makes_no_sense_is_refused(text):
    with pytest.raises(AlphaError, match=r"write FIRST\.\.LAST:Nlog"):
        alphas_of(text)


def test_alpha_0_and_schedules_that_mix_once_have_one_cadence():
    titles = [lane.title for lane in lanes_of("0,end:0.5,1", "epoch,step")]
    assert titles == [
        "S-MLP (alpha 0)",
        "I-MLP alpha end:0.5",
        "I-MLP alpha 1, every epoch",
        "I-MLP alpha 1, every step",
    ]


def test_one_run_a_seed_holds_all_lanes(tmp_path, steps_of_prior):
    outcomes = sweep(tmp_path)
    assert [outcome.task.folder.name for outcome in outcomes] == [
        f"seed{seed}-{dataclasses.replace(BASE, seed=seed, lanes=LANES).identity}" for seed in (0, 1)
    ]
    assert len(steps_of_prior) == 2 * 3 * 4  # seeds, epochs, steps
    (arm,) = arms_of(find_runs([tmp_path]))
    assert [score.lane for score in arm.scores] == [None, *LANES]
    accuracies = [100 * outcome.result["models"][1]["test_accuracy"] for outcome in outcomes]
    assert arm.scores[1].by_seed == dict(enumerate(accuracies))
    assert arm.scores[1].mean == pytest.approx(np.mean(accuracies))
    assert arm.scores[1].std == pytest.approx(np.std(accuracies, ddof=1))


def test_the_same_sweep_again_trains_nothing(tmp_path, steps_of_prior):
    first = sweep(tmp_path)
    done = len(steps_of_prior)
    assert [o.result for o in sweep(tmp_path)] == [o.result for o in first]
    assert len(steps_of_prior) == done


def test_new_alphas_and_seeds_are_added_to_what_is_there(tmp_path):
    sweep(tmp_path, lanes=LANES[:2], seeds=[0])
    tasks = plan(BASE, LANES, [0, 1], tmp_path, at_once=99)
    assert [(task.config.seed, task.config.lanes, task.finished) for task in tasks] == [
        (0, LANES[:2], True),
        (0, LANES[2:], False),
        (1, LANES, False),
    ]


def test_other_settings_share_nothing(tmp_path):
    sweep(tmp_path, seeds=[0])
    (task,) = plan(dataclasses.replace(BASE, epochs=2), LANES, [0], tmp_path, at_once=99)
    assert not task.finished


@pytest.mark.parametrize("at_once", [99, 2])
@pytest.mark.parametrize("stop", [1, 13, 20])
def test_a_sweep_interrupted_and_repeated_gives_the_same_files(tmp_path, at_once, stop):
    whole = sweep(tmp_path / "whole", at_once=at_once)
    with pytest.raises(Interrupted):
        sweep(tmp_path / "broken", at_once=at_once, stop=stop)
    again = sweep(tmp_path / "broken", at_once=at_once)
    names = [outcome.task.folder.name for outcome in whole]
    assert sorted(names) == sorted(outcome.task.folder.name for outcome in again)
    for name in names:
        tiny_runs.assert_same_outcome(tmp_path / "whole" / name, tmp_path / "broken" / name)
        result = (tmp_path / "whole" / name / "result.json").read_text()
        assert (tmp_path / "broken" / name / "result.json").read_text() == result


def test_groups_of_lanes_end_as_all_of_them_together(tmp_path):
    together = sweep(tmp_path / "together", seeds=[0])
    groups = sweep(tmp_path / "groups", seeds=[0], at_once=2)
    assert len(groups) == 3
    prior, *lanes = together[0].result["models"]
    assert all(outcome.result["models"][0] == prior for outcome in groups)
    apart = [row for outcome in groups for row in outcome.result["models"][1:]]
    assert [row["test_accuracy"] for row in apart] == [row["test_accuracy"] for row in lanes]
    for one, other in zip(apart, lanes, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-12)


def test_groups_work_in_accel_too(tmp_path):
    needs("accel")
    base = tiny_runs.config(backend="accel")
    together, groups = (sweep(tmp_path / str(n), base=base, seeds=[0], at_once=n) for n in (99, 2))
    assert [outcome.result["models"][0] for outcome in groups] == 3 * [together[0].result["models"][0]]
    apart = [row for outcome in groups for row in outcome.result["models"][1:]]
    for one, other in zip(apart, together[0].result["models"][1:], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-9)


def test_a_run_that_fails_does_not_take_the_others_down(tmp_path):
    spoiled = plan(BASE, LANES, [0], tmp_path, at_once=99)[0].folder
    spoiled.mkdir(parents=True)
    (spoiled / "config.toml").write_text('network = "mixer"\n')
    (spoiled / "env.json").write_text('{"command": "", "started": ""}')
    failed, good = sweep(tmp_path)
    assert failed.result is None
    assert "holds another run" in failed.error
    assert good.result["epochs"] == 3


def test_lanes_at_once_are_what_memory_allows(monkeypatch):
    from imlp import machine

    need = machine.memory(BASE.make_network((1, 8, 8), 3), lanes=1, batch=20, itemsize=8, images=102)
    for lanes, expected in ((0, 1), (2.5, 2), (99, 5)):
        free = (need.once + lanes * need.lane) / 0.8
        monkeypatch.setattr(machine, "free_memory", lambda device, free=free: free)
        assert lanes_at_once(BASE, tiny_runs.data(), 5) == expected


def test_a_second_sweep_in_a_folder_is_refused_and_touches_nothing(tmp_path):
    options = {"seeds": 1, "data": tiny_runs.data(), "check": False}
    with locked(tmp_path / "swept"):
        with pytest.raises(RunError, match="another process is training in"):
            run_sweep.sweep(BASE, "0", out=tmp_path / "swept", **options)
        assert [path.name for path in (tmp_path / "swept").iterdir()] == [".lock"]
    assert not run_sweep.sweep(BASE, "0", out=tmp_path / "swept", **options).failed


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(ImlpError, match="there is no run in"):
        find_runs([tmp_path])


def test_lanes_that_only_differ_in_alpha_make_one_arm(tmp_path):
    sweep(tmp_path, lanes=[Lane(alpha="0.5")], seeds=[0])
    sweep(tmp_path, lanes=[Lane(alpha="0.25")], seeds=[1])
    (arm,) = arms_of(find_runs([tmp_path]))
    assert [(score.alpha, score.n) for score in arm.scores] == [(None, 2), (0.25, 1), (0.5, 1)]
    assert arm.scores[1].std is None


def test_runs_on_other_data_of_the_same_name_are_refused(tmp_path):
    sweep(tmp_path, lanes=LANES[:1], seeds=[0])
    with pytest.raises(RunError, match="were trained on other data of this name"):
        plan(BASE, LANES, [0], tmp_path, at_once=9, digest=tiny_runs.data(n=60).digest)
    plan(BASE, LANES, [0], tmp_path, at_once=9, digest=tiny_runs.data().digest)


def test_the_order_of_lanes_does_not_depend_on_the_runs_that_hold_them(tmp_path):
    lanes = lanes_of("1,0,0.1,decay:0.5:1", "step,epoch")
    sweep(tmp_path, lanes=lanes, seeds=[0], at_once=1)
    (arm,) = arms_of(find_runs([tmp_path]))
    assert [lane.title for lane in arm.lanes] == [lane.title for lane in lanes_of("0,0.1,1,decay:0.5:1", "epoch,step")]
