"""Fits and verdicts: right on made-up data that agree with a claim, and failing on data that contradict it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from hypothesis import given
from hypothesis import strategies as st

from imlp.paper import experiments
from imlp.paper.claims import judge
from imlp.paper.experiments import decided, implied, shortfall
from imlp.study.scores import Arm, Score
from imlp.study.two_lines import fit_v
from imlp.train.config import Config, Lane, from_mapping
from imlp.train.run_reader import Run

ALPHAS = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1]


@given(
    at=st.floats(-3.2, -0.8),
    lowest=st.floats(20, 60),
    left=st.floats(-20, -0.5),
    right=st.floats(0.5, 20),
)
def test_the_fit_recovers_a_known_v(at, lowest, left, right):
    x = np.log10(ALPHAS)
    y = lowest + np.where(x < at, left, right) * (x - at)
    v = fit_v(ALPHAS, list(y))
    assert np.log10(v.alpha) == pytest.approx(at, abs=2e-3)
    assert v.left.slope == pytest.approx(left, abs=0.05)
    assert v.right.slope == pytest.approx(right, abs=0.05)
    assert min(v.left.r2, v.right.r2) > 0.999
    assert [v(alpha) for alpha in ALPHAS] == pytest.approx(list(y), abs=0.1)


def test_the_fit_agrees_with_straight_lines_on_noisy_data():
    """With the breakpoint on a measured alpha, each side alone gives nearly the same slope by numpy.polyfit."""
    rng = np.random.default_rng(0)
    x = np.linspace(-4, 0, 201)
    y = 50 + np.where(x < -2, -4, 6) * (x + 2) + rng.normal(0, 0.3, x.size)
    v = fit_v(list(10**x), list(y))
    assert v.left.slope == pytest.approx(np.polyfit(x[x < -2], y[x < -2], 1)[0], abs=0.2)
    assert v.right.slope == pytest.approx(np.polyfit(x[x > -2], y[x > -2], 1)[0], abs=0.2)
    assert 0.9 < v.left.r2 < 1


def test_noise_is_no_v():
    y = [50, 60, 51, 58, 49, 61, 52, 57, 50]
    v = fit_v(ALPHAS, y)
    assert min(v.left.r2, v.right.r2) < 0.8


def test_few_alphas_and_alpha_0_are_not_fitted():
    assert fit_v([0, 0.1, 0.2, 0.3, 1], [1, 2, 3, 4, 5]) is None


def arm(prior: list[float], lanes: dict[Lane, list[float]], **curves: list[float]) -> Arm:
    """Finished runs with these accuracies in per cent, one a seed."""
    runs = []
    for seed, accuracy in enumerate(prior):
        chosen = [lane for lane, values in lanes.items() if seed < len(values)]
        models = [{"lane": "prior", "test_accuracy": accuracy / 100}]
        models += [{"lane": k, "test_accuracy": lanes[lane][seed] / 100} for k, lane in enumerate(chosen)]
        loss = curves.get("test_loss", [1.0])
        slope = curves.get("slope", [0.0])[0]  # of what the meters say, from lane to lane
        meters = [{"shift_logits": 0.9 - slope * k, "bias": {}} for k in range(len(models))]
        for k, meter in enumerate(meters) if "shared" in curves else ():
            meter["bias"] = {"conv1": {"shared": curves["shared"][0] + slope * k}}
        rows = [
            {**model, "epoch": e + 1, "test_loss": value, **meter}
            for e, value in enumerate(loss)
            for model, meter in zip(models, meters, strict=True)
        ]
        config = tiny_runs.config(seed=seed, epochs=len(loss), lanes=chosen or [Lane()])
        runs.append(Run(Path(f"seed{seed}"), config, rows, [], {}, {"models": models}))
    return Arm(tuple(runs))


def spread(mean: float, std: float = 0.5) -> list[float]:
    return [mean - std, mean, mean + std]


def curve(values: list[float], every: str = "step") -> dict[Lane, list[float]]:
    return {Lane(alpha=f"{a:g}", every=every): spread(v) for a, v in zip(ALPHAS, values, strict=True)}


V = [58, 56, 54, 52, 50, 53, 56, 59, 62]


def verdict(claim: dict, **arms: Arm) -> tuple[str, str]:
    (found,) = judge([{"claim": "so it is", **claim}], {name.replace("_", " "): own for name, own in arms.items()})
    return found.verdict, found.because


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (V, "holds"),
        (V[::-1], "holds"),
        (sorted(V), "fails"),  # rises all the way: the lowest is at 1e-4
        ([50, 51, 52, 53, 54, 55, 56, 57, 49], "fails"),  # falls at alpha 1
        ([58, 50, 54, 55, 56, 57, 58, 59, 60], "fails"),  # lowest at 3e-4
        ([50.2, 50.2, 50.1, 50.1, 50, 50.1, 50.1, 50.2, 50.2], "cannot tell"),  # within the spread
        ([58, 49.9, 54, 52, 50, 53, 56, 59, 62], "cannot tell"),  # lowest outside, but not by more than the spread
        ([58, 56, 54, 52, 50, 53, 56, 59, 50.3], "cannot tell"),  # does not clearly rise again
    ],
)
def test_dip(values, expected):
    claim = {"kind": "dip", "arm": "a", "between": [1e-3, 1e-1]}
    assert verdict(claim, a=arm(spread(62), curve(values)))[0] == expected


def test_the_plain_mlp_is_the_left_end_of_the_valley():
    lanes = {Lane(alpha=alpha): spread(value) for alpha, value in (("0.005", 50), ("0.01", 48), ("1", 62))}
    claim = {"kind": "dip", "arm": "a", "between": [1e-3, 1e-1]}
    assert verdict(claim, a=arm(spread(62), lanes))[0] == "cannot tell"
    for zero, expected in ((58, "holds"), (48.2, "cannot tell"), (40, "fails")):
        assert verdict(claim, a=arm(spread(62), {Lane(alpha="0"): spread(zero), **lanes}))[0] == expected


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ([50, 64], "holds"),
        ([50, 58], "fails"),
        ([50, 61.8], "cannot tell"),
        ([50, 62.3], "cannot tell"),
        ([], "cannot tell"),
    ],
)
def test_peak(inside, expected):
    """Higher than both ends, not than one of them; clearly lower than one is a failure."""
    values = dict(zip(("0", "0.01", "0.1"), [58, *inside], strict=False)) | {"1": 62}
    made = arm(spread(62), {Lane(alpha=alpha): spread(value) for alpha, value in values.items()})
    assert verdict({"kind": "peak", "arm": "a"}, a=made)[0] == expected


@pytest.mark.parametrize(
    ("second", "third", "expected"), [(50.3, 49.6, "holds"), (50.3, 52, "fails"), (48, 50, "fails")]
)
def test_equal(second, third, expected):
    models = [{"alpha": alpha, "every": every} for alpha, every in (("0.1", "10"), ("0.01", "step"), ("0.02", "step"))]
    lanes = {Lane(**model): spread(value) for model, value in zip(models, (50, second, third), strict=True)}
    claim = {"kind": "equal", "models": [{"arm": "a", **model} for model in models]}
    assert verdict(claim, a=arm(spread(62), lanes))[0] == expected
    one_seed = arm([62], {lane: [accuracy] for lane, (accuracy, *_) in lanes.items()})
    assert verdict(claim, a=one_seed)[0] == "cannot tell"


@pytest.mark.parametrize("alphas", [["0.01"], ["0.1", "1"], ["0.0001", "0.01"]])
def test_no_dip_without_alphas_on_both_sides(alphas):
    lanes = {Lane(alpha=alpha): spread(50 + 10 * n) for n, alpha in enumerate(alphas)}
    claim = {"kind": "dip", "arm": "a", "between": [1e-3, 1e-1]}
    assert verdict(claim, a=arm(spread(62), lanes))[0] == "cannot tell"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (V, "holds"),
        (sorted(V), "fails"),
        ([50, 60, 51, 58, 49, 61, 52, 57, 50], "fails"),
        ([62, 59, 56, 53, 50, 50, 50, 50, 49], "fails"),  # falls, and stays down
        ([50.2, 50.1, 50, 50.1, 50, 50.1, 50, 50.1, 50.2], "cannot tell"),  # all within the spread
    ],
)
def test_logarithmic_on_both_sides(values, expected):
    found, because = verdict({"kind": "logarithmic", "arm": "a"}, a=arm(spread(62), curve(values)))
    assert found == expected
    assert "R^2" in because


def test_a_v_with_two_alphas_on_one_side_decides_nothing():
    values = {0.001: 56, 0.005: 52, 0.01: 50, 1: 62}
    few = {Lane(alpha=f"{alpha:g}"): spread(value) for alpha, value in {**values, 1e-4: 60}.items()}
    found, because = verdict({"kind": "logarithmic", "arm": "a"}, a=arm(spread(62), few))
    assert found == "cannot tell"
    assert because.startswith("too few alphas on one side")


def test_logarithmic_needs_three_alphas_a_side():
    few = arm(spread(62), {Lane(alpha=str(a), every="step"): spread(5) for a in (0.01, 0.1, 1)})
    assert verdict({"kind": "logarithmic", "arm": "a"}, a=few)[0] == "cannot tell"


@pytest.mark.parametrize(("one", "expected"), [(62.0, "holds"), (62.6, "holds"), (61.0, "fails"), (64.0, "fails")])
def test_alpha_1_is_the_prior(one, expected):
    made = arm(spread(62), {Lane(alpha="1", every="step"): spread(one)})
    assert verdict({"kind": "one-is-prior", "arm": "a"}, a=made)[0] == expected


def test_alpha_1_of_one_seed_cannot_be_told_from_the_prior():
    made = arm([62], {Lane(alpha="1"): [62]})
    assert verdict({"kind": "one-is-prior", "arm": "a"}, a=made)[0] == "cannot tell"
    assert verdict({"kind": "one-is-prior", "arm": "a"}, a=arm([62], {Lane(alpha="0.5"): [62]})) == (
        "cannot tell",
        "alpha 1 was not run",
    )


def test_each_cadence_gets_its_own_verdict():
    lanes = curve(V, "step") | curve(sorted(V), "epoch")
    found = judge(
        [{"claim": "dips", "kind": "dip", "arm": "a", "between": [1e-3, 1e-1]}], {"a": arm(spread(62), lanes)}
    )
    assert {one.claim: one.verdict for one in found} == {"dips (every step)": "holds", "dips (every epoch)": "fails"}


def test_a_claim_that_leaves_the_cadence_open_is_judged_for_each_that_was_run():
    lanes = {Lane(alpha="0"): spread(58), Lane(alpha="1"): spread(50), Lane(alpha="1", every="epoch"): spread(60)}
    lower, higher = {"arm": "a", "alpha": "1"}, [{"arm": "a", "alpha": "0"}]
    below = {"claim": "costs", "kind": "below", "lower": lower, "higher": higher}
    made = {"a": arm(spread(62), lanes)}
    assert {one.claim: one.verdict for one in judge([below], made)} == {
        "costs (every step)": "holds",
        "costs (every epoch)": "fails",
    }
    named = {**below, "lower": {**lower, "every": "epoch"}}
    assert [(one.claim, one.verdict) for one in judge([named], made)] == [("costs", "fails")]
    none = {"a": arm(spread(62), {Lane(alpha="0"): spread(58)})}
    assert [(one.claim, one.verdict) for one in judge([below], none)] == [("costs", "cannot tell")]


@pytest.mark.parametrize(("end", "expected"), [(40, "holds"), (60, "fails"), (54.9, "cannot tell")])
def test_below(end, expected):
    """The last one is lower, but not by more than the spread."""
    lanes = {Lane(alpha="end:0.5"): spread(end), Lane(alpha="0.5"): spread(55), Lane(alpha="0"): spread(58)}
    claim = {"kind": "below", "lower": {"arm": "a", "alpha": "end:0.5"}, "higher": [{"arm": "a", "alpha": "0.5"}]}
    assert verdict(claim, a=arm(spread(62), lanes))[0] == expected
    claim = {"kind": "below", "lower": {"arm": "a", "alpha": "decay:0.5:1"}, "higher": [{"arm": "a"}]}
    found = verdict(claim, a=arm(spread(62), lanes))
    assert found == ("cannot tell", "I-MLP alpha decay:0.5:1, every step of a was not run")


@pytest.mark.parametrize(("prior", "expected"), [(62, "holds"), (58.1, "cannot tell"), (50, "fails")])
def test_above(prior, expected):
    claim = {"kind": "above", "higher": {"arm": "a"}, "lower": [{"arm": "a", "alpha": "0"}]}
    assert verdict(claim, a=arm(spread(prior), {Lane(alpha="0"): spread(58)}))[0] == expected


@pytest.mark.parametrize(("second", "expected"), [(74, "holds"), (60.8, "cannot tell"), (57, "fails"), (50, "fails")])
def test_larger_gain(second, expected):
    one = arm(spread(62), {Lane(alpha="0"): spread(56), Lane(alpha="0.5"): spread(60)})
    two = arm(spread(70), {Lane(alpha="0"): spread(56), Lane(alpha="0.5"): spread(second)})
    claim = {"kind": "larger-gain", "larger": "b", "smaller": "a", "alpha": "0.5"}
    assert verdict(claim, a=one, b=two)[0] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([58, 50, 51], "holds"),
        ([50, 51, 58], "fails"),
        ([50, 58, 51], "fails"),  # it stays
        ([58, 57.9, 50], "cannot tell"),  # either of two may be the best
    ],
)
def test_best_falls(values, expected):
    """Alpha 0.5 is best in the first arm, with alpha 0, 0.5 and 1 in the last."""
    first, last = (
        arm(spread(50), {Lane(alpha=alpha): spread(value) for alpha, value in zip(("0", "0.5", "1"), own, strict=True)})
        for own in ([50, 58, 51], values)
    )
    claim = {"kind": "best-falls", "arms": ["a", "b"]}
    found = verdict(claim, a=first, b=last)
    assert found[0] == expected
    assert found[1].startswith("a: 58.00 +- 0.50 at 0.5, level from 0.5 to 0.5; b: 58.00 +- 0.50 at ")


@pytest.mark.parametrize(
    ("loss", "expected"), [([2, 1.5, 1.2, 1.4, 1.6], "holds"), ([2, 1.5, 1.2, 1.1, 1.0], "fails"), ([1.0] * 5, "fails")]
)
def test_overfits(loss, expected):
    made = arm([62], {Lane(alpha="0"): [58]}, test_loss=loss)
    assert verdict({"kind": "overfits", "arm": "a", "alphas": ["0"]}, a=made)[0] == expected


def test_a_lane_that_has_stopped_does_not_spoil_the_verdict():
    made = arm([62, 62], {Lane(alpha="0"): [58, 58]}, test_loss=[2, 1, 3])
    short = [row for row in made.runs[1].rows if row["epoch"] == 1 or row["lane"] == "prior"]
    runs = made.runs[0], dataclasses.replace(made.runs[1], rows=short)
    claim = {"kind": "overfits", "arm": "a", "alphas": ["0"]}
    assert verdict(claim, a=Arm(runs))[0] == "holds"
    gone = tuple(dataclasses.replace(run, rows=[row for row in run.rows if row["lane"] == "prior"]) for run in runs)
    assert verdict(claim, a=Arm(gone))[0] == "cannot tell"


def test_to_lose_less_is_not_to_gain():
    one = arm(spread(62), {Lane(alpha="0"): spread(56), Lane(alpha="0.5"): spread(40)})
    two = arm(spread(70), {Lane(alpha="0"): spread(56), Lane(alpha="0.5"): spread(50)})
    claim = {"kind": "larger-gain", "larger": "b", "smaller": "a", "alpha": "0.5"}
    assert verdict(claim, a=one, b=two)[0] == "fails"


ABOVE = {"kind": "above", "higher": {"arm": "a"}, "lower": [{"arm": "a", "alpha": "0"}]}


def test_one_seed_alone_decides_nothing():
    """Unless somebody else's spread is known: the paper's."""
    one = {"a": arm([62], {Lane(alpha="0"): [58]})}
    (found,) = judge([{"claim": "so it is", **ABOVE}], one)
    assert (found.verdict, "fewer than three seeds" in found.because) == ("cannot tell", True)
    for assumed, expected in ((1.2, "holds"), (3.0, "cannot tell")):
        (found,) = judge([{"claim": "so it is", **ABOVE}], one, assumed=assumed)
        assert found.verdict == expected
        assert f"(fewer than three seeds: standard deviations of at least {assumed} assumed)" in found.because


@pytest.mark.parametrize(
    ("plain", "expected"),
    [([61.9, 61.9], "cannot tell"), ([58, 58], "holds"), ([55, 62], "cannot tell")],
)
def test_two_seeds_that_agree_by_chance_decide_no_small_difference(plain, expected):
    """Their own deviation counts if it is larger than the paper's."""
    two = {"a": arm([62, 62], {Lane(alpha="0"): plain})}
    (found,) = judge([{"claim": "so it is", **ABOVE}], two, assumed=1.2)
    assert found.verdict == expected
    (found,) = judge([{"claim": "so it is", **ABOVE}], two)
    assert found.verdict == "cannot tell"


def test_runs_that_are_not_what_a_claim_needs_decide_nothing():
    arms = {"a": arm(spread(62), {Lane(alpha="0"): spread(58)})}
    claim = {"claim": "so it is", "needs": "paper", **ABOVE}
    (found,) = judge([claim], arms, shortfall={"paper": "790 of 39,100 steps"}.get)
    assert found.verdict == "cannot tell"
    assert found.because.startswith("790 of 39,100 steps; so far: S-CNN 62.00")
    assert judge([claim], arms, shortfall={"paper": ""}.get)[0].verdict == "holds"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ""),
        ({"augment": "resized", "crop_area": "0.4,1", "inputs": "unit", "seed": 7, "threads": 2}, ""),
        ({"validation": 5000}, ""),  # fewer steps, as the paper's text allows
        ({"options": {"activated": [1, 5]}}, ""),
        ({"train_size": 10_000, "epochs": 10}, "790 of 39,100 steps"),
        ({"epochs": 200}, "78,200 steps instead of 39,100"),
        ({"epochs": 99, "validation": 5000}, "34,848 of 35,200 steps"),
        ({"data": "shapes"}, "run on shapes, not on cifar10"),
        ({"lr": 1e-3}, "lr 0.001 instead of 0.0001"),
        ({"test_size": 5000}, "test size 5000 instead of all"),
        ({"options": {"width": 256}}, "options width=256 instead of none"),
    ],
)
def test_what_a_run_lacks_of_the_paper_s_setting(settings, expected):
    assert shortfall(from_mapping(Config, {"data": "cifar10", **settings}), Config(data="cifar10")) == expected
    assert shortfall(Config(optimizer="sgd", nesterov=True), Config(optimizer="sgd")) == "nesterov yes instead of no"


def test_the_interval_is_that_of_student_s_t():
    from scipy import stats

    values = [58.1, 59.7, 60.2, 58.8]
    score = Score(None, dict(enumerate(values)))
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert score.interval == pytest.approx(expected)
    assert Score(None, {0: 1.0, 1: 2.0}).interval is None


def test_a_difference_to_the_paper_needs_the_paper_s_setting():
    experiment = experiments.read_experiment("table1-cnn")
    (run,) = arm([62], {Lane(alpha="0"): [58]}).runs
    for settings, far in (({}, ""), ({"train_size": 10_000, "epochs": 10}, "790 of 39,100 steps")):
        config = from_mapping(Config, {"data": "cifar10", "lanes": run.config.lanes, **settings})
        made = Arm((dataclasses.replace(run, config=config),))
        outcome = experiment.outcome({"CNN pair": made}, budget="short", command="")
        assert outcome.shortfall == far
        prior = outcome.table[0]
        assert (prior.paper, prior.difference) == (62.60, None if far else pytest.approx(62 - 62.60))
        assert {v.verdict for v in outcome.verdicts} == ({"cannot tell"} if far else {"holds", "cannot tell"})


@pytest.mark.parametrize(("mixed", "expected"), [(70, "holds"), (56, "cannot tell"), (40, "fails")])
def test_one_run_of_mlp_2_is_judged_by_what_table_5_says_of_it(mixed, expected):
    """Without MLP-1, and with one seed: the paper gives no deviations there, so the file names the one to assume."""
    alpha = Lane(alpha="1", every="step")
    (run,) = arm([60], {Lane(alpha="0"): [55], alpha: [mixed]}).runs
    config = Config(network="mlp2", data="cifar10", lanes=run.config.lanes)
    (outcome,) = implied(Arm((dataclasses.replace(run, config=config),)))
    beside = dataclasses.replace(config, network="mlp1", lanes=(Lane(alpha="0"), Lane(alpha="0.5")))
    (of_mlp_1,) = implied(Arm((dataclasses.replace(run, config=beside),)))  # alpha 1 was not run there
    (found,) = decided([outcome, of_mlp_1])
    assert (found.verdict, found.claim) == (
        expected,
        "alpha 1 in the wide first layer is above the plain MLP-2 (every step)",
    )
    assert "at least 2.31 assumed" in found.because
    assert [row.paper for row in outcome.table] == [None, 54.8, 73.7]


def test_structure_that_stays_is_judged_lane_by_lane():
    lanes = {Lane(alpha="0.5", every="step"): [50], Lane(alpha="1", every="step"): [60]}
    claim = {"kind": "stays-near", "arm": "a", "lanes": [{"alpha": "0.5"}, {"alpha": "1"}], "shared": 0.9}
    both = arm([60], lanes, shared=[0.95])
    assert verdict(claim, a=both)[0] == "holds"
    found, because = verdict(claim, a=arm([60], dict(list(lanes.items())[:1]), shared=[0.95]))
    assert (found, because) == ("cannot tell", "I-MLP alpha 1, every step of a was not run")


@pytest.mark.parametrize(
    ("slope", "falls", "expected"),
    [(0.1, True, "holds"), (-0.1, True, "fails"), (0, True, "cannot tell"), (-0.1, False, "holds")],
)
def test_a_number_that_follows_alpha(slope, falls, expected):
    lanes = {Lane(alpha=alpha): spread(50) for alpha in ("0", "0.01", "1")}
    claim = {"kind": "follows", "arm": "a", "number": "shift_logits", "falls": falls}
    found, because = verdict(claim, a=arm(spread(50), lanes, slope=[slope]))
    assert found == expected
    assert "shift_logits" in because
    assert verdict({**claim, "number": "shared"}, a=arm(spread(50), lanes))[0] == "cannot tell"  # not measured
    few = {lane: values[:2] for lane, values in lanes.items()}
    assert verdict(claim, a=arm([50, 50], few, slope=[slope]))[0] == "cannot tell"


def of_one_curve(lr: float, exponent: float, noise: float = 0.0) -> Arm:
    """A valley over `alpha / (n lr^exponent)`."""
    rng, lanes = np.random.default_rng(0), {Lane(alpha="0"): spread(50)}
    for alpha in (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3):
        for n in (1, 10):
            x = np.log10(alpha / n) - exponent * np.log10(lr / 1e-3)
            lanes[Lane(alpha=f"{alpha:g}", every=str(n) if n > 1 else "step")] = spread(
                40 + 3 * (x + 1) ** 2 + noise * rng.standard_normal()
            )
    made = arm(spread(50), lanes)
    return Arm(tuple(dataclasses.replace(run, config=dataclasses.replace(run.config, lr=lr)) for run in made.runs))


@pytest.mark.parametrize(("noise", "expected"), [(0.0, "holds"), (3.0, "fails")])
def test_valleys_that_are_one_curve(noise, expected):
    claim = {"kind": "collapses", "arms": ["a", "b"]}
    found, because = verdict(claim, a=of_one_curve(1e-3, 0.5), b=of_one_curve(3e-4, 0.5, noise))
    assert found == expected, because
    if not noise:
        assert because.startswith(("loss / lr^0.0", "loss / lr^-0.0"))
        assert "n^1.0" in because
        assert "lr^0.5" in because
    assert verdict(claim, a=arm(spread(50), {Lane(alpha="0"): spread(50)}), b=of_one_curve(1e-3, 0))[0] == "cannot tell"


def test_a_plain_mlp_that_a_claim_names_by_its_coupling_is_the_s_mlp():
    claim = {"kind": "above", "higher": {"arm": "a"}, "lower": [{"arm": "a", "alpha": "0", "coupling": "self"}]}
    assert verdict(claim, a=arm(spread(60), {Lane(alpha="0", coupling="self"): spread(50)}))[0] == "holds"
    assert verdict(claim, a=arm(spread(60), {Lane(alpha="0"): spread(50)}))[0] == "holds"


@pytest.mark.parametrize("name", experiments.names())
def test_every_claim_of_an_experiment_can_hold_and_can_fail(name):
    """Scores of what each claim needs, made so that accuracy rises, or falls, with the order of the lanes."""
    experiment = experiments.read_experiment(name)
    seen: dict[str, set[str]] = {}
    rng = np.random.default_rng(0)
    for _ in range(60):
        arms = {}
        for trial in experiment.plans("paper", epochs=11):
            means = rng.permutation(np.linspace(30, 70, len(trial.lanes)))
            if rng.random() < 0.5:  # a V over the log of alpha per step, with all other lanes in any order
                plain = [float(lane.alpha) if lane.alpha[0] in "01" else 10 for lane in trial.lanes]
                per_step = [alpha / (lane.steps or 1) for alpha, lane in zip(plain, trial.lanes, strict=True)]
                x = np.log10(np.maximum(per_step, 1e-9))
                zero = rng.choice([58, 60])  # as alpha 1 has it, or above
                means = np.where(np.isin(x, [-9]), zero, 50 + 4 * np.abs(x + 2)) + rng.integers(0, 2) * 1e-3
            if rng.random() < 0.1:  # all of them level
                means = np.full(len(means), 50.0)
            prior = rng.choice([30, *means, 75])
            loss = list(rng.permutation([3, 2, 1, 2, 3, 4, 3, 4, 3, 4, 5]))
            scores = dict(zip(trial.lanes, map(spread, means), strict=True))
            meters = {"shared": [rng.choice([0.5, 0.95])], "slope": [rng.choice([-1e-3, 0, 1e-3])]}
            arms[trial.name] = arm(spread(prior), scores, test_loss=loss, **meters)
        for found in judge(experiment.claims, arms):
            seen.setdefault(found.claim, set()).add(found.verdict)
    for claim, verdicts in seen.items():
        assert verdicts >= {"holds", "fails"}, (claim, verdicts)
    for claim in experiment.claims:  # what can be said of less than the paper's length says so
        assert claim["needs"] == "paper" or "(short runs)" in claim["claim"]
