"""The paper's claims, each stated so that it can fail.

A claim looks at the scores of an experiment's arms and returns a verdict with its reason. One accuracy is above another
if the difference of the means exceeds the spread, the root of the sum of the two variances over seeds; with one seed
there is no spread, and the reason says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np

from imlp.errors import ConfigError, known
from imlp.study.scores import Arm, Score
from imlp.study.two_lines import fit_v
from imlp.train.config import Lane

HOLDS, FAILS, UNKNOWN = "holds", "fails", "cannot tell"
R2 = 0.8  # of each side, for it to count as logarithmic

Arms = Mapping[str, Arm]


@dataclass(frozen=True)
class Verdict:
    """What came of a claim, and why."""

    claim: str
    verdict: str
    because: str


class _Missing(Exception):
    """A score that the claim needs is not there."""


def judge(claims: Sequence[Mapping[str, Any]], arms: Arms) -> list[Verdict]:
    """The verdict on each claim; a claim about a curve over alpha gets one for each cadence that was run."""
    found = []
    for claim in claims:
        settings = dict(claim)
        text, kind = settings.pop("claim"), known(settings.pop("kind"), CLAIMS, "kind of claim")
        for every in _cadences(arms) if kind in CURVES else ("",):
            extra = {"every": every} if every else {}
            title = f"{text} (every {every})" if every else text
            try:
                verdict, because = CLAIMS[kind](arms, **settings, **extra)
            except _Missing as missing:
                verdict, because = UNKNOWN, f"{missing} was not run"
            except TypeError as error:
                raise ConfigError(
                    f"the claim {text!r} cannot be read: {error}", "see the experiments' TOML files"
                ) from error
            found.append(Verdict(title, verdict, because))
    return found


def dip(arms: Arms, *, arm: str, between: Sequence[float], every: str) -> tuple[str, str]:
    """The lowest accuracy lies at an alpha in between, below that of the smallest and of the largest alpha."""
    scores = _series(arms, arm, every)
    ends = scores[0], scores[-1]
    if not ((ends[0].alpha or 0) < between[0] and (ends[1].alpha or 0) > between[1]):
        return UNKNOWN, f"the alphas do not reach from below {between[0]:g} to above {between[1]:g}"
    lowest = min(scores, key=lambda score: score.mean)
    inside = between[0] <= (lowest.alpha or 0) <= between[1]
    below = all(_above(end, lowest) for end in ends)
    sides = " and ".join(f"{end} at {end.alpha:g}" for end in ends)
    because = f"lowest at alpha {lowest.alpha:g}: {lowest}, against {sides}{_one_seed(lowest, *ends)}"
    return HOLDS if inside and below else FAILS, because


def logarithmic(arms: Arms, *, arm: str, every: str) -> tuple[str, str]:
    """Accuracy falls and then rises in straight lines over log10(alpha), each with at least three alphas."""
    scores = _series(arms, arm, every)
    v = fit_v([score.alpha or 0 for score in scores], [score.mean for score in scores])
    if v is None:
        return UNKNOWN, "there are fewer than five alphas"
    enough, steep = min(v.left.n, v.right.n) >= 3, v.left.slope < 0 < v.right.slope
    good = enough and steep and min(v.left.r2, v.right.r2) >= R2
    sides = (("left", v.left), ("right", v.right))
    texts = [f"{name} {side.slope:+.2f} % a decade, R^2 {side.r2:.2f}, {side.n} alphas" for name, side in sides]
    needed = f"needed: down and up, R^2 {R2}, 3 alphas"
    return HOLDS if good else FAILS, f"lines meet at alpha {v.alpha:.2g}; {'; '.join(texts)} ({needed})"


def one_is_prior(arms: Arms, *, arm: str, every: str) -> tuple[str, str]:
    """Alpha 1 has the prior's accuracy within the spread."""
    scores, prior = _series(arms, arm, every), _score(arms, arm, None)
    one = next((score for score in scores if score.alpha == 1), None)
    if one is None:
        raise _Missing("alpha 1")
    difference, spread = one.mean - prior.mean, _spread(one, prior)
    because = f"alpha 1 {one}, prior {prior}, difference {difference:+.2f}"
    if spread is None:
        return UNKNOWN, f"{because}, one seed: no spread to compare it with"
    return HOLDS if abs(difference) <= spread else FAILS, f"{because}, spread {spread:.2f}"


def above(arms: Arms, *, higher: Mapping[str, Any], lower: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """One model is more accurate than each of the others."""
    top, others = _named(arms, higher), [_named(arms, one) for one in lower]
    texts = [f"{_title(arms, one)} {score}" for one, score in zip((higher, *lower), (top, *others), strict=True)]
    holds = all(_above(top, other) for other in others)
    return HOLDS if holds else FAILS, f"{texts[0]}, against {', '.join(texts[1:])}{_one_seed(top, *others)}"


def below(arms: Arms, *, lower: Mapping[str, Any], higher: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """One model is less accurate than each of the others."""
    bottom, others = _named(arms, lower), [_named(arms, one) for one in higher]
    texts = [f"{_title(arms, one)} {score}" for one, score in zip((lower, *higher), (bottom, *others), strict=True)]
    holds = all(_above(other, bottom) for other in others)
    return HOLDS if holds else FAILS, f"{texts[0]}, against {', '.join(texts[1:])}{_one_seed(bottom, *others)}"


def larger_gain(arms: Arms, *, larger: str, smaller: str, alpha: str, every: str) -> tuple[str, str]:
    """From alpha 0 to this alpha, one arm gains more than the other."""
    gains = []
    for arm in (larger, smaller):
        base, mixed = (_score(arms, arm, lane) for lane in (Lane(alpha="0"), Lane(alpha=alpha, every=every)))
        gains.append((mixed.mean - base.mean, _spread(base, mixed)))
    (big, one), (small, two) = gains
    spread = hypot(one, two) if one is not None and two is not None else None
    text = f"{larger} gains {big:+.2f}, {smaller} {small:+.2f}"
    text += f", spread {spread:.2f}" if spread is not None else ", one seed: no spread known"
    return HOLDS if big - small > (spread or 0) else FAILS, text


def overfits(arms: Arms, *, arm: str, alphas: Sequence[str]) -> tuple[str, str]:
    """The test loss of the prior and of these lanes ends above its lowest, which comes before the last tenth."""
    texts, holds = [], True
    for lane in (None, *(Lane(alpha=alpha) for alpha in alphas)):
        curve = np.mean(_curves(arms, arm, lane, "test_loss"), axis=0)
        lowest = int(curve.argmin())
        holds &= lowest + 1 <= 0.9 * len(curve) and curve[-1] > curve[lowest]
        name = lane.title if lane else "prior"
        texts.append(f"{name} lowest {curve[lowest]:.2f} in epoch {lowest + 1}, last {curve[-1]:.2f}")
    return HOLDS if holds else FAILS, "; ".join(texts)


CLAIMS: dict[str, Callable[..., tuple[str, str]]] = {
    "dip": dip, "logarithmic": logarithmic, "one-is-prior": one_is_prior,
    "above": above, "below": below, "larger-gain": larger_gain, "overfits": overfits,
}  # fmt: skip
CURVES = ("dip", "logarithmic", "one-is-prior")  # judged for each cadence


def _cadences(arms: Arms) -> list[str]:
    lanes = [score.lane for arm in arms.values() for score in arm.scores if score.lane and score.alpha]
    return list(dict.fromkeys(lane.every for lane in lanes))


def _series(arms: Arms, arm: str, every: str) -> list[Score]:
    """The scores of constant alphas above 0 of one cadence, by alpha."""
    of = _arm(arms, arm)
    own = of.scores_of(of.series.get(Lane(alpha="0", every=every), []))
    if not own:
        raise _Missing(f"any alpha every {every}")
    return own


def _arm(arms: Arms, name: str) -> Arm:
    if name not in arms:
        raise _Missing(name)
    return arms[name]


def _score(arms: Arms, arm: str, lane: Lane | None) -> Score:
    found = _arm(arms, arm).score(lane)
    if found is None:
        raise _Missing(f"{lane.title if lane else 'the prior'} of {arm}")
    return found


def _named(arms: Arms, name: Mapping[str, Any]) -> Score:
    """The score that `{arm, ...}` with the settings of a lane names; without them, the prior's."""
    settings = {key: value for key, value in name.items() if key != "arm"}
    return _score(arms, name["arm"], Lane(**settings) if settings else None)


def _title(arms: Arms, name: Mapping[str, Any]) -> str:
    settings = {key: value for key, value in name.items() if key != "arm"}
    title = Lane(**settings).title if settings else _arm(arms, name["arm"]).prior_name
    return f"{title} ({name['arm']})" if len(arms) > 1 else title


def _curves(arms: Arms, arm: str, lane: Lane | None, key: str) -> list[list[float]]:
    found = []
    for run in _arm(arms, arm).runs:
        if lane is None or lane in run.config.lanes:
            rows = run.of("prior" if lane is None else run.config.lanes.index(lane))
            if len(rows) == run.config.epochs:  # a lane that has stopped has no curve to judge
                found.append([row[key] for row in rows])
    if not found:
        raise _Missing(f"{lane.title if lane else 'the prior'} of {arm}")
    return found


def _spread(one: Score, other: Score) -> float | None:
    return None if one.std is None or other.std is None else hypot(one.std, other.std)


def _above(one: Score, other: Score) -> bool:
    return one.mean - other.mean > (_spread(one, other) or 0)


def _one_seed(*scores: Score) -> str:
    return " (one seed: no spread known)" if any(score.n == 1 for score in scores) else ""
