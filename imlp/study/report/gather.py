"""Gathers the numbers of the runs, searches and experiments in folders into the data that a report shows."""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from imlp.couplings.moves import MIXING
from imlp.errors import RunError
from imlp.spec.meter import PARTS
from imlp.study import archive, schemas
from imlp.study.report.data import ArmData, ModelData, SearchData, Series
from imlp.study.report.provenance import environment, run_data, settings, shown, warnings, why_missing
from imlp.study.report.weights import first_layer
from imlp.study.scores import Arm, constant_alpha, sample_deviation
from imlp.study.two_lines import fit_v
from imlp.train.callbacks import Row
from imlp.train.config import Config, Lane
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import RUN_AGAIN, read_json

NOT_TOLD = ("network", "data", "seed", "lanes", "products")  # a name says it anyway, or runs of an arm differ in it


def experiments(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Every `experiment.json` in the folders and below them, each once."""
    remedy = "let reproduce write it again"
    return [read_json(path, schemas.EXPERIMENT, remedy) for path in _below(folders, "experiment.json")]


def searches(folders: Iterable[Path]) -> list[SearchData]:
    """Every `search.json` in the folders and below them, each once."""
    found = []
    for n, path in enumerate(_below(folders, "search.json"), start=1):
        content = read_json(path, schemas.search, "run the command of that search again")
        found.append(SearchData(f"search{n}", path.parent, content))
    return found


def _below(folders: Iterable[Path], name: str) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for folder in folders for path in sorted(folder.rglob(name))))


def gather(arms: Sequence[Arm], experiments: Sequence[dict[str, Any]] = ()) -> list[ArmData]:
    """The arms in order, each under the name that an experiment gives it, or one made of its settings."""
    given: dict[str, list[str]] = {}
    for named in (named for experiment in experiments for named in experiment["arms"]):
        names = given.setdefault(named["key"], [])
        names += [named["name"]] if named["name"] not in names else []
    others = [arm for arm in arms if arm.key not in given]
    made = dict(zip((arm.key for arm in others), _names(others), strict=True))
    found: list[ArmData] = []
    order = list(given)  # as the experiments name them; arms that none of them names come last
    for arm in sorted(arms, key=lambda arm: order.index(arm.key) if arm.key in order else len(order)):
        name = " / ".join(given[arm.key]) if arm.key in given else made[arm.key]
        short = name if arm.key in given else f"{arm.config.network_name} {Path(arm.config.data).name}"
        implied = [] if arm.key in given else archive.implied(arm)
        points = _paper(arm.key, experiments) if arm.key in given else _implied_points(implied)
        gathered = _arm(arm, name, _identifier(short, {other.id for other in found}), points)
        found.append(dataclasses.replace(gathered, verdicts=archive.decided(implied)))
    return found


def _implied_points(outcomes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's points beside runs at its setting."""
    points: list[dict[str, Any]] = []
    for row in (row for outcome in outcomes if not outcome["lacking"] for row in outcome["paper"]):
        point = {name: row[name] for name in ("model", "alpha", "value", "std")}
        points += [point] if point["alpha"] is not None and point not in points else []
    return sorted(points, key=lambda point: point["alpha"])


def _names(arms: Sequence[Arm]) -> list[str]:
    """Network and data, and whatever else tells the arms apart; where that is much, only what is not the default."""
    configs = [arm.config for arm in arms]
    fields = [f for f in dataclasses.fields(Config) if f.metadata["changes_result"] and f.name not in NOT_TOLD]
    apart = [f for f in fields if len({getattr(c, f.name) for c in configs}) > 1]

    def told(config: Config) -> list[str]:
        own = [f for f in apart if len(apart) == 1 or getattr(config, f.name) != f.default]
        return [f"{f.name.replace('_', ' ')} {shown(getattr(config, f.name))}" for f in own]

    return [", ".join([f"{c.network_name} on {Path(c.data).name}", *told(c)]) for c in configs]


def _identifier(name: str, taken: set[str]) -> str:
    """A name for files: letters and digits of ASCII with dashes between, none of them taken."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split()
    base = "-".join(words)[:48].strip("-") or "arm"
    return next(c for n in count(1) if (c := base if n == 1 else f"{base}-{n}") not in taken)


def _paper(key: str, experiments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    points = []
    for experiment in experiments:
        names = {arm["name"] for arm in experiment["arms"] if arm["key"] == key}
        for row in experiment["paper"]:
            point = {name: row[name] for name in ("model", "alpha", "value", "std")}
            if row["arm"] in names and row["alpha"] is not None and row["value"] is not None and point not in points:
                points.append(point)
    return sorted(points, key=lambda point: point["alpha"])


def _arm(arm: Arm, name: str, identifier: str, paper: list[dict[str, Any]]) -> ArmData:
    _check_layers(arm)
    series, of = _series(arm)
    shades = _shades(arm.lanes)
    models = [_model(arm, None, None, -1), *(_model(arm, lane, shades[lane], of[lane]) for lane in arm.lanes)]
    runs = [run_data(run) for run in arm.runs]
    return ArmData(
        id=identifier,
        name=name,
        key=arm.key,
        measure=arm.measure,
        prior_name=arm.prior_name,
        models=models,
        series=series,
        paper=paper,
        runs=runs,
        settings=settings(arm),
        environment=environment(arm),
        weights=first_layer(arm),
        warnings=warnings(arm, runs),
        verdicts=[],
    )


def _check_layers(arm: Arm) -> None:
    """The bias meter measures the same layers in all runs of an arm, and after every epoch."""
    layers = dict.fromkeys(
        layer for run in arm.runs for row in run.rows if row["lane"] != "prior" for layer in row["bias"]
    )
    for run in arm.runs:
        for row in (row for row in run.rows if row["lane"] != "prior"):
            if missing := [layer for layer in layers if layer not in row["bias"]]:
                where = f"{RunFolder(run.folder).metrics}: epoch {row['epoch']}, lane {row['lane']}"
                raise RunError(f"cannot read {where}: the bias of {missing[0]!r} is missing", RUN_AGAIN)


def _series(arm: Arm) -> tuple[list[Series], dict[Lane, int]]:
    """The series of the alpha figure, and which of them each lane is in, or has its cadence from.

    Alpha 0 is the S-MLP however often nothing is mixed, so every series begins with it.
    """
    groups = arm.series
    zeros = [lane for lane in arm.lanes if constant_alpha(lane) == 0]
    if zeros and not groups:
        groups[zeros[0]] = []
    series: list[Series] = []
    of = dict.fromkeys(arm.lanes, -1)
    for base, lanes in groups.items():
        zero = [base] if base in zeros else zeros[:1]
        own = [*zero, *lanes]
        for lane in own:
            of[lane] = len(series) if of[lane] < 0 else of[lane]
        scores = arm.scores_of(own)
        alphas, means = [score.alpha or 0.0 for score in scores], [score.mean for score in scores]
        stds, ns = [score.std for score in scores], [score.n for score in scores]
        series.append(Series(_cadence(base, full=True), alphas, means, stds, ns, fit_v(alphas, means)))
    for lane in (lane for lane in arm.lanes if constant_alpha(lane) is None):  # not in the figure, but drawn alike
        base = dataclasses.replace(lane, alpha="0")
        of[lane] = list(groups).index(base) if base in groups else -1
    return series, of


def _shades(lanes: Sequence[Lane]) -> dict[Lane, float]:
    """The same shade for the same alpha at any cadence: plain numbers by their size, then schedules."""
    alphas = {lane: constant_alpha(lane) for lane in lanes}
    kinds: list[Any] = sorted({alpha for alpha in alphas.values() if alpha is not None})
    kinds += dict.fromkeys(lane.what for lane, alpha in alphas.items() if alpha is None)
    of = {kind: k / max(1, len(kinds) - 1) for k, kind in enumerate(kinds)}
    return {lane: of[lane.what if alpha is None else alpha] for lane, alpha in alphas.items()}


def _cadence(lane: Lane, *, full: bool = False) -> str:
    """How often, and with `full` whatever else is not the default."""
    if lane.coupling not in MIXING:
        return "once" if lane.coupling == "relax" else "in every pass"
    often = {"epoch": "once per epoch", "step": "every step"}.get(lane.every, f"every {lane.every} steps")
    return ", ".join([often, *(lane.extras if full else [])])


def _knobs(lane: Lane | None) -> tuple[float, float] | None:
    """The alphas of locality and sharing of a lane with the coupling self, where both are numbers; 0 and 0: the MLP."""
    if lane is not None and lane.is_plain:
        return 0.0, 0.0
    if lane is None or lane.coupling != "self":
        return None
    found = [constant_alpha(Lane(alpha=knob)) for knob in lane.knobs]
    return None if None in found else (found[0] or 0.0, found[1] or 0.0)


def _model(arm: Arm, lane: Lane | None, shade: float | None, series: int) -> ModelData:
    holding = [(run, key) for run in arm.runs if (key := run.key_of(lane)) is not None]
    finished = [(run, key) for run, key in holding if run.result] or holding
    rows = {run.config.seed: run.of(key) for run, key in finished}  # as the scores: the last run of a seed counts
    score = arm.score(lane)
    by_epoch: dict[int, list[Row]] = {}
    for row in (row for own in rows.values() for row in own):
        by_epoch.setdefault(row["epoch"], []).append(row)
    epochs = sorted(by_epoch)
    values = [[100 * row["test_accuracy"] for row in by_epoch[epoch]] for epoch in epochs]
    last = by_epoch[epochs[-1]][0].get("bias", {}) if epochs else {}
    meter = {
        what: [[_mean_if_all([row["bias"][layer].get(what) for row in by_epoch[e]]) for e in epochs] for layer in last]
        for what in (*PARTS, "distance")
    }
    results = [run.result for run in arm.runs if run.result]
    remarks = [why_missing(run, key) for run, key in holding] or ["not trained: no lane needs it"]
    return ModelData(
        title=f"{arm.prior_name} (the prior)" if lane is None else lane.title,
        alpha=None if lane is None else constant_alpha(lane),
        prior=lane is None,
        setting="" if lane is None else " / ".join(dict.fromkeys(lane.knobs)) if lane.coupling in MIXING else lane.what,
        knobs=_knobs(lane),
        cadence="" if lane is None or constant_alpha(lane) == 0 else _cadence(lane),
        parameters=results[0]["parameters"]["dense" if lane else "prior"] if results else None,
        by_seed=dict(sorted(score.by_seed.items())) if score else {},
        mean=score.mean if score else None,
        std=score.std if score else None,
        seconds=_mean([run.seconds for run, _ in finished if run.times]),
        remark="; ".join(filter(None, remarks)),
        epochs=epochs,
        accuracy=[float(np.mean(own)) for own in values],
        spread=[sample_deviation(own) for own in values],
        seeds=[len(own) for own in values],
        layers=list(last),
        random={part: [found.get(f"random_{part}") for found in last.values()] for part in PARTS},
        parts={part: meter[part] for part in PARTS},
        distance=meter["distance"],
        shade=shade,
        series=series,
    )


def _mean_if_all(values: list[float | None]) -> float | None:
    """The mean, unless one of the values is not known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
