"""The paper's claims, each stated so that it can fail.

A claim looks at the scores of an experiment's arms and returns a verdict with its reason. One accuracy is above another
if the difference of the means exceeds the spread, the root of the sum of the two variances over seeds. A difference
within the spread decides nothing, and neither do runs that are not what the claim says that it needs: `cannot tell`.
One seed has no deviation, and that of two says little: for fewer than three, the largest that the paper reports for
these models stands in, unless their own is larger, and the reason says so.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from math import hypot
from typing import Any, get_type_hints

import numpy as np

from imlp.errors import ConfigError, known
from imlp.paper.collapse import DEGREE, Point, collapse
from imlp.study.outcomes import FAILS, HOLDS, UNKNOWN, Verdict, typed
from imlp.study.scores import Arm, Score, sample_deviation
from imlp.study.two_lines import fit_v
from imlp.train.callbacks import Row
from imlp.train.config import Lane, from_mapping
from imlp.train.lane import lanes_of, with_epochs

R2 = 0.8  # of each side, for it to count as logarithmic
SEEDS = 3  # fewer say too little about their own spread
NO_SPREAD = "fewer than three seeds: no spread to compare it with"

ModelTable = dict[str, Any]  # an arm by its name, and the settings of a lane; without them the prior


class _Missing(Exception):
    """A score that the claim needs is not there."""


@dataclass(frozen=True)
class Evidence:
    """The arms by name, and the standard deviation to assume for one or two seeds, if one is known."""

    arms: Mapping[str, Arm]
    assumed: float | None = None

    def arm(self, name: str) -> Arm:
        if name in self.arms:
            return self.arms[name]
        raise _Missing(name)

    def score(self, arm: str, lane: Lane | None) -> Score:
        if score := self.arm(arm).score(lane):
            return score
        raise _Missing(f"{lane.title if lane else 'the prior'} of {arm}")

    def lane(self, model: ModelTable) -> Lane | None:
        """The lane of a model; its `relax_after` may be a share of the epochs."""
        settings = _lane_of(model)
        lane: Lane = from_mapping(Lane, with_epochs(settings, self.arm(model["arm"]).config.epochs))
        return lane if settings else None

    def named(self, model: ModelTable) -> tuple[str, Score]:
        """What a verdict calls the model, and its score."""
        arm, lane = model["arm"], self.lane(model)
        title = lane.title if lane is not None else self.arm(arm).prior_name
        return f"{title} ({arm})" if len(self.arms) > 1 else title, self.score(arm, lane)

    def series(self, arm: str, every: str, coupling: str = "interpolate") -> list[Score]:
        """The scores of constant alphas above 0 of one cadence and coupling, by alpha."""
        lanes = self.arm(arm).series.get(Lane(alpha="0", every=every, coupling=coupling), [])
        if scores := self.arm(arm).scores_of(lanes):
            return scores
        raise _Missing(f"any alpha every {every}")

    def complete(self, arm: str, lane: Lane | None) -> list[list[Row]]:
        """The rows of a lane from every run in which it has come to its end."""
        runs = [(run.config.epochs, run.rows_of(lane)) for run in self.arm(arm).runs]
        if whole := [rows for epochs, rows in runs if rows and rows[-1]["epoch"] == epochs]:
            return whole
        raise _Missing(f"{lane.title if lane else 'the prior'} of {arm}")

    def spread(self, *scores: Score) -> float | None:
        """The root of the sum of their variances; None if one of them is unknown."""
        if self.assumed is None and any(score.n < SEEDS for score in scores):
            return None
        return hypot(*(max(score.std or 0, (self.assumed or 0) * (score.n < SEEDS)) for score in scores))

    def above(self, one: Score, other: Score) -> int:
        """1: the first is above the second by more than the spread; -1: it is below; 0: neither."""
        difference, spread = one.mean - other.mean, self.spread(one, other)
        return 0 if spread is None or abs(difference) <= spread else 1 if difference > 0 else -1

    def remark(self, *scores: Score) -> str:
        """What a reader must know of the spread."""
        if all(score.n >= SEEDS for score in scores):
            return ""
        known = f"fewer than three seeds: standard deviations of at least {self.assumed} assumed"
        return f" ({NO_SPREAD if self.assumed is None else known})"


def _lane_of(model: ModelTable) -> ModelTable:
    return {key: value for key, value in model.items() if key != "arm"}


def judge(
    claims: Sequence[Mapping[str, Any]],
    arms: Mapping[str, Arm],
    *,
    shortfall: Callable[[str], str] = lambda budget: "",
    assumed: float | None = None,
) -> list[Verdict]:
    """The verdict on each claim; one about lanes whose cadence it leaves open gets one for each that was run.

    - `shortfall`: what the runs lack of the budget that a claim needs ("790 of 39,100 steps"), or nothing
    - `assumed`: the least standard deviation over seeds to assume where there are fewer than three
    """
    verdicts, evidence = [], Evidence(arms, assumed)
    lanes = [score.lane for arm in arms.values() for score in arm.scores if score.lane]
    cadences = list(dict.fromkeys(lane.every for lane in lanes if lane.is_mixed_repeatedly))
    for claim in claims:
        settings = dict(claim)
        text, kind, budget = settings.pop("claim"), settings.pop("kind"), settings.pop("needs", "")
        lack = shortfall(budget)
        versions = {every: _at_cadence(kind, settings, every) for every in cadences}
        if not versions or settings in versions.values():  # nothing is mixed again and again, or it says how often
            versions = {"": _at_cadence(kind, settings, "")}
        for every, version in versions.items():
            inside = text[:-1] + ", " if text.endswith(")") else text + " ("
            title = f"{inside}every {every})" if every else text
            try:
                verdict, because = CLAIMS[kind](evidence, **version)
                if lack:
                    verdict, because = UNKNOWN, f"{lack}; so far: {because}"
                verdicts.append(Verdict(title, verdict, because))
            except _Missing as missing:
                verdicts.append(Verdict(title, UNKNOWN, f"{missing} was not run", missing=True))
    return verdicts


def _at_cadence(kind: str, settings: Mapping[str, Any], every: str) -> dict[str, Any]:
    """The settings of a claim with the cadence wherever they leave open how often a lane is mixed."""

    def fixed(model: ModelTable) -> ModelTable:
        lane = {key: value for key, value in model.items() if key not in ("arm", "relax_after")}
        is_open = every and lane and "every" not in lane and from_mapping(Lane, lane).every == "step"
        return {**model, "every": every} if is_open else model

    version = dict(settings)
    for name in version.keys() & set(NAMING):
        models = version[name]
        version[name] = list(map(fixed, models)) if isinstance(models, list) else fixed(models)
    asks_cadence = "every" in inspect.signature(CLAIMS[kind]).parameters
    return {"every": every or "step", **version} if asks_cadence else version


def _all(signs: Sequence[int]) -> str:
    """Of comparisons that must all come out above: one clear contradiction fails, one open question leaves it open."""
    return FAILS if min(signs) < 0 else HOLDS if min(signs) > 0 else UNKNOWN


def dip(
    evidence: Evidence, *, arm: str, between: list[float], every: str, coupling: str = "interpolate"
) -> tuple[str, str]:
    """The lowest accuracy lies at an alpha in between, below that of the smallest and of the largest alpha.

    Alpha 0, the S-MLP, is one of them if it was run.
    """
    plain = evidence.arm(arm).score(Lane(alpha="0"))
    scores = [*([plain] if plain else []), *evidence.series(arm, every, coupling)]
    ends = scores[0], scores[-1]
    inside = [score for score in scores if between[0] <= (score.alpha or 0) <= between[1]]
    if not ((ends[0].alpha or 0) < between[0] and (ends[1].alpha or 0) > between[1] and inside):
        raise _Missing(f"a series of alphas from below {between[0]:g} to above {between[1]:g}")
    lowest, valley = (min(group, key=lambda score: score.mean) for group in (scores, inside))
    outside = [score for score in scores if score not in inside]
    verdict = _all([evidence.above(end, valley) for end in ends])
    if any(evidence.above(valley, score) > 0 for score in outside):
        verdict = FAILS
    elif lowest is not valley:
        verdict = UNKNOWN
    sides = " and ".join(f"{end} at {end.alpha:g}" for end in ends)
    return verdict, f"lowest at alpha {lowest.alpha:g}: {lowest}, against {sides}{evidence.remark(lowest, *ends)}"


@wraps(dip)
def no_dip(evidence: Evidence, **settings: Any) -> tuple[str, str]:
    """There is no such alpha: what `dip` calls a failure."""
    verdict, because = dip(evidence, **settings)
    return {HOLDS: FAILS, FAILS: HOLDS, UNKNOWN: UNKNOWN}[verdict], because


def peak(evidence: Evidence, *, arm: str, every: str) -> tuple[str, str]:
    """Some alpha between 0 and the largest is more accurate than both."""
    scores = [evidence.score(arm, Lane(alpha="0")), *evidence.series(arm, every)]
    ends, inside = (scores[0], scores[-1]), scores[1:-1]
    if not inside:
        raise _Missing("an alpha in between")
    signs = [min(evidence.above(score, end) for end in ends) for score in inside]
    best = max(inside, key=lambda score: score.mean)
    verdict = HOLDS if max(signs) > 0 else FAILS if max(signs) < 0 else UNKNOWN
    sides = " and ".join(f"{end} at {end.alpha:g}" for end in ends)
    return verdict, f"best in between at alpha {best.alpha:g}: {best}, against {sides}{evidence.remark(best, *ends)}"


def equal(evidence: Evidence, *, models: list[ModelTable]) -> tuple[str, str]:
    """The first model has the accuracy of each of the others within the spread."""
    named = [evidence.named(model) for model in models]
    scores, because = [score for _, score in named], ", ".join(f"{title} {score}" for title, score in named)
    if evidence.spread(*scores) is None:
        return UNKNOWN, f"{because}, {NO_SPREAD}"
    apart = any(evidence.above(scores[0], other) for other in scores[1:])
    return FAILS if apart else HOLDS, because + evidence.remark(*scores)


def logarithmic(evidence: Evidence, *, arm: str, every: str) -> tuple[str, str]:
    """Accuracy falls and then rises in straight lines over log10(alpha), each with at least three alphas."""
    scores = evidence.series(arm, every)
    v = fit_v([score.alpha or 0 for score in scores], [score.mean for score in scores])
    if v is None:
        raise _Missing("a series of five alphas")
    enough, steep = min(v.left.n, v.right.n) >= 3, v.left.slope < 0 < v.right.slope
    good = enough and steep and min(v.left.r2, v.right.r2) >= R2
    sides = (("left", v.left), ("right", v.right))
    texts = [f"{name} {side.slope:+.2f} % per decade, R^2 {side.r2:.2f}, {side.n} alphas" for name, side in sides]
    because = f"lines meet at alpha {v.alpha:.2g}; {'; '.join(texts)} (needed: down and up, R^2 {R2}, 3 alphas)"
    high, low = (choose(scores, key=lambda score: score.mean) for choose in (max, min))
    if evidence.above(high, low) <= 0:
        return UNKNOWN, f"{because}; highest and lowest are within the spread{evidence.remark(high, low)}"
    if steep and not enough:
        return UNKNOWN, f"too few alphas on one side: {because}{evidence.remark(*scores)}"
    return HOLDS if good else FAILS, because + evidence.remark(*scores)


def one_is_prior(evidence: Evidence, *, arm: str, every: str) -> tuple[str, str]:
    """Alpha 1 has the prior's accuracy within the spread."""
    scores, prior = evidence.series(arm, every), evidence.score(arm, None)
    one = next((score for score in scores if score.alpha == 1), None)
    if one is None:
        raise _Missing("alpha 1")
    difference, spread = one.mean - prior.mean, evidence.spread(one, prior)
    because = f"alpha 1 {one}, prior {prior}, difference {difference:+.2f}"
    if spread is None:
        return UNKNOWN, f"{because}, {NO_SPREAD}"
    verdict = HOLDS if abs(difference) <= spread else FAILS
    return verdict, f"{because}, spread {spread:.2f}{evidence.remark(one, prior)}"


def above(evidence: Evidence, *, higher: ModelTable, lower: list[ModelTable]) -> tuple[str, str]:
    """One model is more accurate than each of the others."""
    return _order(evidence, higher, lower, 1)


def below(evidence: Evidence, *, lower: ModelTable, higher: list[ModelTable]) -> tuple[str, str]:
    """One model is less accurate than each of the others."""
    return _order(evidence, lower, higher, -1)


def _order(evidence: Evidence, name: ModelTable, others: list[ModelTable], sign: int) -> tuple[str, str]:
    (title, one), rest = evidence.named(name), dict(map(evidence.named, others))
    signs = {other: sign * evidence.above(one, score) for other, score in rest.items()}
    verdict = _all([*signs.values()])
    because = f"{title} {one}, against {', '.join(f'{other} {score}' for other, score in rest.items())}"
    close = [other for other, difference in signs.items() if difference == 0]
    if verdict == UNKNOWN and close and evidence.spread(one, *rest.values()) is not None:
        because += f": within the spread of {' and '.join(close)}"
    return verdict, because + evidence.remark(one, *rest.values())


def any_above(evidence: Evidence, *, higher: list[ModelTable], lower: ModelTable) -> tuple[str, str]:
    """At least one of some models is more accurate than another one."""
    rest, (against, other) = [evidence.named(name) for name in higher], evidence.named(lower)
    title, best = max(rest, key=lambda named: named[1].mean)
    sign = max(evidence.above(score, other) for _, score in rest)
    verdict = HOLDS if sign > 0 else FAILS if sign < 0 else UNKNOWN
    return verdict, f"best {title} {best}, against {against} {other}{evidence.remark(best, other)}"


def stays_near(evidence: Evidence, *, arm: str, lanes: list[ModelTable], shared: float) -> tuple[str, str]:
    """In every layer of these lanes at least a share of `|W|^2` is still that of a prior layer after the last epoch."""
    texts, lowest = [], []
    for model in lanes:
        lane = evidence.lane({"arm": arm, **model})
        ends = [rows[-1].get("bias", {}) for rows in evidence.complete(arm, lane)]
        low, layer = min((parts["shared"], layer) for meter in ends for layer, parts in meter.items())
        texts.append(f"{lane.title if lane else 'prior'}: at least {low:.3f} ({layer})")
        lowest.append(low)
    return HOLDS if min(lowest) >= shared else FAILS, f"{'; '.join(texts)} (needed: {shared:g})"


def larger_gain(evidence: Evidence, *, larger: str, smaller: str, alpha: str, every: str) -> tuple[str, str]:
    """From alpha 0 to this alpha one arm gains, and more than the other; to lose less is not to gain."""
    pairs = [
        (evidence.score(arm, Lane(alpha="0")), evidence.score(arm, Lane(alpha=alpha, every=every)))
        for arm in (larger, smaller)
    ]
    (one, two), (big, small) = pairs, (mixed.mean - base.mean for base, mixed in pairs)
    spread, text = evidence.spread(*one, *two), f"{larger} gains {big:+.2f}, {smaller} {small:+.2f}"
    if spread is None:
        return UNKNOWN, f"{text}, {NO_SPREAD}"
    more = 0 if abs(big - small) <= spread else 1 if big > small else -1
    return _all([more, evidence.above(one[1], one[0])]), f"{text}, spread {spread:.2f}{evidence.remark(*one, *two)}"


def best_falls(evidence: Evidence, *, arms: list[str], every: str) -> tuple[str, str]:
    """The best alpha of the first arm is larger than that of the last, whichever of those that tie is the best."""
    ranges, texts = [], []
    for arm in arms:
        scores = [evidence.score(arm, Lane(alpha="0")), *evidence.series(arm, every)]
        best = max(scores, key=lambda score: score.mean)
        level = [score.alpha or 0 for score in scores if evidence.above(best, score) <= 0]
        ranges.append((min(level), max(level)))
        texts.append(f"{arm}: {best} at {best.alpha:g}, level from {min(level):g} to {max(level):g}")
    first, last = ranges[0], ranges[-1]
    verdict = HOLDS if first[0] > last[1] else FAILS if first[1] <= last[0] else UNKNOWN
    return verdict, "; ".join(texts) + evidence.remark(*scores)


def collapses(evidence: Evidence, *, arms: list[str]) -> tuple[str, str]:
    """The valleys of arms with other learning rates, at all cadences, are one curve within the spread over seeds.

    It holds if what the best fit leaves is at most the spread of a difference, as a root mean square over all points.
    """
    points: list[Point] = []
    variances: list[float | None] = []
    for arm in arms:
        plain, lr, before = evidence.score(arm, Lane(alpha="0")), evidence.arm(arm).config.lr, len(points)
        for score in evidence.arm(arm).scores:
            alpha, lane = score.alpha, score.lane
            if not (alpha and lane and lane.steps and lane == Lane(alpha=lane.alpha, every=lane.every)):
                continue
            if alpha < lane.steps:  # after every step alpha 1 leaves nothing of W
                points.append(Point(alpha, lane.steps, lr, plain.mean - score.mean))
                spread = evidence.spread(plain, score)
                variances.append(None if spread is None else spread**2)
        if len(points) <= before + DEGREE:
            raise _Missing(f"a series of {DEGREE + 1} alphas of {arm}")
    fit, known = collapse(points), [variance for variance in variances if variance is not None]
    if len(known) < len(points):
        return UNKNOWN, f"{fit}, {NO_SPREAD}"
    spread = float(np.sqrt(np.mean(known)))
    return HOLDS if fit.error <= spread else FAILS, f"{fit}; spread {spread:.2f}"


def follows(evidence: Evidence, *, arm: str, number: str, falls: bool, every: str) -> tuple[str, str]:
    """A number of the last epoch, or a part of the bias meter on average over layers, falls or rises with alpha.

    It must do so from the smallest alpha to the largest, and may never turn back, by more than the spread over seeds.
    """
    series = [evidence.score(arm, Lane(alpha="0")), *evidence.series(arm, every)]
    means, deviations = [], []
    for score in series:
        last = [rows[-1] for rows in evidence.complete(arm, score.lane)]
        values = [_number(row, number) for row in last]
        means.append(float(np.mean(values)))
        deviations.append(sample_deviation(values))
    text = ", ".join(f"{mean:.3f} at {score.alpha:g}" for mean, score in zip(means, series, strict=True))
    if any(score.n < SEEDS for score in series):
        return UNKNOWN, f"{number} {text}, {NO_SPREAD}"
    sign = -1 if falls else 1

    def change(one: int, other: int) -> int:
        moved, spread = sign * (means[other] - means[one]), hypot(deviations[one] or 0, deviations[other] or 0)
        return 0 if abs(moved) <= spread else 1 if moved > 0 else -1

    turns = [change(n, n + 1) for n in range(len(means) - 1)]
    verdict = FAILS if min(turns) < 0 else _all([change(0, len(means) - 1)])
    return verdict, f"{number} {text}"


def overfits(evidence: Evidence, *, arm: str, alphas: list[str], every: str) -> tuple[str, str]:
    """The test loss of the prior and of these lanes ends above its lowest, which comes before the last tenth."""
    texts, signs = [], []
    for lane in (None, *(lane for alpha in alphas for lane in lanes_of(alpha, every))):
        rows = evidence.complete(arm, lane)
        curves = np.array([[row["test_loss"] for row in seed] for seed in rows])  # (seeds, epochs)
        lows, epochs = curves.argmin(axis=1), curves.shape[1]
        rises = (lows + 1 <= 0.9 * epochs) & (curves[:, -1] > curves.min(axis=1))
        signs.append(1 if rises.all() else 0 if rises.any() else -1)  # seeds that disagree decide nothing
        curve, name = curves.mean(axis=0), lane.title if lane else "prior"
        texts.append(f"{name} lowest {curve.min():.2f} in epoch {curve.argmin() + 1}, last {curve[-1]:.2f}")
    return _all(signs), "; ".join(texts)


def _number(row: Row, name: str) -> float:
    if name in row:
        return float(row[name])
    parts = [layer[name] for layer in row.get("bias", {}).values() if name in layer]
    if not parts:
        raise _Missing(f"a run that measures {name}")
    return float(np.mean(parts))


CLAIMS: dict[str, Callable[..., tuple[str, str]]] = {
    "dip": dip, "logarithmic": logarithmic, "one-is-prior": one_is_prior,
    "above": above, "below": below, "any-above": any_above, "larger-gain": larger_gain, "overfits": overfits,
    "no-dip": no_dip, "stays-near": stays_near, "peak": peak, "equal": equal,
    "collapses": collapses, "follows": follows, "best-falls": best_falls,
}  # fmt: skip
NAMING = ("higher", "lower", "lanes", "models")  # settings of claims that name lanes


def check_claim(claim: Mapping[str, Any], arms: Collection[str], budgets: Collection[str]) -> None:
    """Refuse a claim that could only fail later: its settings are the parameters of the function that judges it."""
    settings = dict(claim)
    text, kind = typed(str, settings.pop("claim", None), "claim"), known(settings.pop("kind", ""), CLAIMS, "kind")
    if "needs" in settings:
        known(settings.pop("needs"), budgets, "budget")
    hints, (_, *parameters) = get_type_hints(CLAIMS[kind]), inspect.signature(CLAIMS[kind]).parameters.values()
    names = [parameter.name for parameter in parameters]
    for name, value in settings.items():
        typed(hints[known(name, names, f"setting of the claim {kind}")], value, name)
        if value == []:
            raise ConfigError(f"{name} of the claim {text!r:.60} is empty", "name at least one")
        if name == "shared" and not 0 <= value <= 1:
            raise ConfigError(f"shared is {value!r:.60}", "give a share from 0 to 1")
        if name in ("arm", "larger", "smaller", "arms"):
            for arm in value if name == "arms" else [value]:
                known(arm, arms, "arm")
        elif name in NAMING:
            for model in value if isinstance(value, list) else [value]:
                from_mapping(Lane, with_epochs(_lane_of(model), 100))
                known(model.get("arm", "" if name != "lanes" else settings.get("arm")), arms, "arm")
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in ("every", *settings):
            raise ConfigError(f"the claim {text!r:.60} has no {parameter.name}", f"{kind} needs it")
    lanes_of(settings.get("alphas", [settings.get("alpha", "0")]), settings.get("every"))
    Lane(coupling=settings.get("coupling", "interpolate"))
    between = settings.get("between", [0, 1])
    if len(between) != 2 or not 0 <= between[0] <= between[1] <= 1:
        raise ConfigError(f"between is {between!r:.60}", "give two alphas in order")
