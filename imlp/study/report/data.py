"""What the page, the figures and the tables all show: plain numbers, gathered from the runs once."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from imlp.errors import RunError
from imlp.study.report.weights import Weights, first_layer
from imlp.study.scores import Arm, constant_alpha
from imlp.study.two_lines import V, fit_v
from imlp.train.callbacks import Row
from imlp.train.config import Lane
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import NUMBER, RUN_AGAIN, Run, read_json


@dataclass(frozen=True)
class Model:
    """The prior or a lane of an arm: its last accuracy over the seeds, and mean and spread at each epoch."""

    title: str
    alpha: float | None  # None: the prior, or an alpha that is not one number
    prior: bool
    setting: str  # the lane's alpha as it was written
    cadence: str
    parameters: int | None
    by_seed: dict[int, float]  # per cent
    mean: float | None
    std: float | None
    seconds: float | None  # of a run that holds it, on average
    remark: str  # what is missing of it, and why
    epochs: list[int]
    accuracy: list[float]  # per cent, by epoch
    spread: list[float | None]  # its standard deviation
    seeds: list[int]  # how many of them
    layers: list[str]  # of the bias meter
    random: list[float]  # share of a random matrix, by layer
    share: list[list[float]]  # by layer and epoch
    distance: list[list[float]]
    shade: float | None  # where its alpha stands among those of the arm, from 0 to 1; None for the prior
    series: int  # which of the arm's series it belongs to, or, for a schedule, has the cadence of; or -1


@dataclass(frozen=True)
class Series:
    """Lanes that differ in alpha alone: accuracy against alpha, and the two lines of figure 2's V."""

    name: str
    alphas: list[float]
    means: list[float]
    stds: list[float | None]
    ns: list[int]
    fit: V | None


@dataclass(frozen=True)
class Seen:
    """One run's folder and how far it has come."""

    folder: str
    seed: int
    lanes: int
    state: str
    finished: bool
    seconds: float | None  # None: it has no times on record
    started: str
    command: str


@dataclass(frozen=True)
class ArmData:
    """All that is shown of an arm."""

    id: str  # names its files and its part of the page
    name: str
    key: str
    measure: str  # test accuracy or validation accuracy
    prior_name: str
    models: list[Model]  # the prior first
    series: list[Series]
    paper: list[dict[str, Any]]  # the paper's points: alpha, value, std
    runs: list[Seen]
    settings: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    weights: Weights | str  # or why there are none
    warnings: list[str]

    @property
    def alphas(self) -> list[float]:
        """All that the alpha figure shows, the paper's too."""
        return sorted({a for s in self.series for a in s.alphas} | {point["alpha"] for point in self.paper})

    @property
    def ticks(self) -> list[float]:
        """0 if it is there, then the decades; the alphas themselves where they span fewer than two."""
        above = [alpha for alpha in self.alphas if alpha > 0]
        decades = [10.0**k for k in range(-300, 1) if above and 0.999 * above[0] <= 10.0**k <= 1.001 * above[-1]]
        return [0.0] * (0.0 in self.alphas) + (decades if len(decades) > 1 else above[:8])


@dataclass(frozen=True)
class SearchData:
    """A search by what its `search.json` holds."""

    id: str  # names its files and its part of the page
    folder: Path
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return f"Search over {self.content['over']}: {self.content['network']} on {self.content['data']}"

    @property
    def finished(self) -> bool:
        return self.content["final"] is not None

    @property
    def layers(self) -> list[str]:
        """Those that have an alpha each; none where one alpha is for all of them."""
        several = [trial["alphas"] for trial in self.content["trials"] if len(trial["alphas"]) > 1]
        return list(dict.fromkeys(name for alphas in several for name in alphas))

    def holds(self, arm: ArmData) -> bool:
        """Whether runs of the arm lie in its folder."""
        return any(Path(run.folder).absolute().is_relative_to(self.folder) for run in arm.runs)


def experiments(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Every `experiment.json` in the folders and below them, each once."""
    remedy = "let reproduce write it again"
    return [read_json(path, EXPERIMENT, remedy) for path in _below(folders, "experiment.json")]


def searches(folders: Iterable[Path]) -> list[SearchData]:
    """Every `search.json` in the folders and below them, each once."""
    found = []
    for n, path in enumerate(_below(folders, "search.json"), start=1):
        content = read_json(path, _search, "give the command of that search again")
        found.append(SearchData(f"search{n}", path.parent, content))
    return found


def _below(folders: Iterable[Path], name: str) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for folder in folders for path in sorted(folder.rglob(name))))


MAYBE = NUMBER | None
EXPERIMENT = {
    **dict.fromkeys(("name", "title", "asks", "budget", "command"), str),
    "arms": [{"name": str, "key": str}],
    "table": [
        {"arm": str, "model": str, "n": int} | dict.fromkeys(("mean", "std", "paper", "paper_std", "difference"), MAYBE)
    ],
    "verdicts": [dict.fromkeys(("claim", "verdict", "because"), str)],
    "paper": [{"arm": str, "model": str, "alpha": MAYBE, "value": MAYBE, "std": MAYBE}],
}
FINAL = {
    "title": str, "lane": dict | None, "validation": MAYBE,
    "test": {"mean": NUMBER, "std": MAYBE, "n": int, "by_seed": {...: NUMBER}},
}  # fmt: skip


def _search(content: dict[str, Any]) -> dict[str, Any]:
    """The shape of `search.json`; before the end it has no last part."""
    return {
        "over": str, "every": str, "network": str, "data": str, "epochs": int, "seed": int,
        "validation": {"share": NUMBER, "images": int, "of": int},
        "prior": NUMBER,
        "trials": [{
            "number": int, "title": str, "lane": {"every": str}, "kind": str, "alphas": {...: NUMBER}, "state": str,
            "values": [NUMBER], "value": MAYBE, "run": list,
        }],
        "importances": {...: NUMBER},
        "chosen": {"number": int, "title": str, "lane": dict, "value": NUMBER, "alpha": {...: str}},
        "final": type(None) if content.get("final") is None else [FINAL],
    }  # fmt: skip


def gather(arms: Sequence[Arm], experiments: Sequence[dict[str, Any]] = ()) -> list[ArmData]:
    """The arms in order, each under the name that an experiment gives it, or one made of its settings."""
    given: dict[str, list[str]] = {}
    for named in (named for experiment in experiments for named in experiment["arms"]):
        names = given.setdefault(named["key"], [])
        names += [named["name"]] if named["name"] not in names else []
    made = _names(arms)
    found: list[ArmData] = []
    order = list(given)  # as the experiments name them; arms that none of them names come last
    pairs = zip(arms, made, strict=True)
    for arm, own in sorted(pairs, key=lambda pair: order.index(pair[0].key) if pair[0].key in order else len(order)):
        name = " / ".join(given.get(arm.key, [own]))
        short = name if arm.key in given else f"{arm.config.network} {Path(arm.config.data).name}"
        points = _paper(arm.key, experiments)
        found.append(_arm(arm, name, _identifier(short, {other.id for other in found}), points))
    return found


def _names(arms: Sequence[Arm]) -> list[str]:
    """Network and data, and whatever else tells the arms apart."""
    configs = [arm.config for arm in arms]
    fields = [f for f in dataclasses.fields(configs[0]) if f.metadata["changes_result"]] if configs else []
    apart = [
        f.name
        for f in fields
        if f.name not in ("network", "data", "seed", "lanes") and len({getattr(c, f.name) for c in configs}) > 1
    ]
    return [
        ", ".join([
            f"{c.network} on {Path(c.data).name}",
            *(f"{name.replace('_', ' ')} {_shown(getattr(c, name))}" for name in apart),
        ])
        for c in configs
    ]  # fmt: skip


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
    runs = [_seen(run) for run in arm.runs]
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
        settings=_settings(arm),
        environment=_environment(arm),
        weights=first_layer(arm),
        warnings=_warnings(arm, runs),
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

    Alpha 0 is the S-MLP however often nothing is mixed, so that every series begins with it.
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
    kinds += dict.fromkeys(lane.alpha for lane, alpha in alphas.items() if alpha is None)
    of = {kind: k / max(1, len(kinds) - 1) for k, kind in enumerate(kinds)}
    return {lane: of[lane.alpha if alpha is None else alpha] for lane, alpha in alphas.items()}


def _cadence(lane: Lane, *, full: bool = False) -> str:
    """How often, and with `full` whatever else is not the default."""
    often = {"epoch": "once an epoch", "step": "every step"}.get(lane.every, f"every {lane.every} steps")
    extras = dataclasses.replace(lane, alpha="1", every="epoch").title.removeprefix("I-MLP alpha 1").lstrip(", ")
    return ", ".join(filter(None, [often, extras if full else ""]))


def _model(arm: Arm, lane: Lane | None, shade: float | None, series: int) -> Model:
    holding = [(run, key) for run in arm.runs if (key := _lane_of(run, lane)) is not None]
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
        what: [[float(np.mean([row["bias"][layer][what] for row in by_epoch[e]])) for e in epochs] for layer in last]
        for what in ("share", "distance")
    }
    results = [run.result for run in arm.runs if run.result]
    return Model(
        title=f"{arm.prior_name} (the prior)" if lane is None else lane.title,
        alpha=None if lane is None else constant_alpha(lane),
        prior=lane is None,
        setting="" if lane is None else lane.alpha,
        cadence="" if lane is None or constant_alpha(lane) == 0 else _cadence(lane),
        parameters=results[0]["parameters"]["dense" if lane else "prior"] if results else None,
        by_seed=dict(sorted(score.by_seed.items())) if score else {},
        mean=score.mean if score else None,
        std=score.std if score else None,
        seconds=_mean([run.seconds for run, _ in finished if run.times]),
        remark="; ".join(filter(None, (_missing(run, key) for run, key in holding))),
        epochs=epochs,
        accuracy=[float(np.mean(own)) for own in values],
        spread=[float(np.std(own, ddof=1)) if len(own) > 1 else None for own in values],
        seeds=[len(own) for own in values],
        layers=list(last),
        random=[found["random"] for found in last.values()],
        share=meter["share"],
        distance=meter["distance"],
        shade=shade,
        series=series,
    )


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _lane_of(run: Run, lane: Lane | None) -> int | str | None:
    """How the rows of a run call a lane (the first of those that are the same), or the prior."""
    if lane is None:
        return "prior"
    return run.config.lanes.index(lane) if lane in run.config.lanes else None


def _missing(run: Run, key: int | str) -> str:
    """Why a run has no last accuracy of a model; nothing if it has one."""
    if run.result is None:
        return f"seed {run.config.seed} is unfinished"
    stop = next((stop for stop in run.result["stopped"] if stop["lane"] == key), None)
    return f"seed {run.config.seed} {stop.get('reason', 'stopped')} in epoch {stop['epoch']}" if stop else ""


def _seen(run: Run) -> Seen:
    done = max((row["epoch"] for row in run.rows), default=0)
    state = f"unfinished: {done} of {run.config.epochs} epochs"
    if run.result is not None:
        stopped = [stop["lane"] for stop in run.result["stopped"]]
        state = f"finished; stopped: lane {', '.join(map(str, stopped))}" if stopped else "finished"
    return Seen(
        folder=_relative(run.folder),
        seed=run.config.seed,
        lanes=len(run.config.lanes),
        state=state,
        finished=run.result is not None,
        seconds=run.seconds if run.times else None,
        started=str(run.env.get("started", "")),
        command=str(run.env.get("command", "")),
    )


def _relative(folder: Path) -> str:
    """As seen from here, if it is below: a page that is passed on need not name a home."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _warnings(arm: Arm, runs: list[Seen]) -> list[str]:
    """What a reader must know before believing a mean."""
    found = [f"{seen.folder} is {seen.state}; it is in no mean." for seen in runs if not seen.finished]
    for run, seen in zip(arm.runs, runs, strict=True):
        for stop in (stop for stop in (run.result or {}).get("stopped", ()) if "reason" not in stop):
            title = run.config.lanes[stop["lane"]].title
            where = f"epoch {stop['epoch']}, step {stop['step']}, from {stop['layer']} on"
            found.append(f"{title} stopped in {seen.folder}: its loss was not finite in {where}.")
    for lane in arm.lanes:
        seeds = [run.config.seed for run in arm.runs if run.result and _lane_of(run, lane) is not None]
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            numbers = ", ".join(map(str, twice))
            found.append(f"{lane.title} was run more than once with seed {numbers}; the last folder counts.")
    return found


def _settings(arm: Arm) -> list[tuple[str, str]]:
    """Every setting but seed and lanes; those of the machine may differ between the runs."""
    names = [f.name for f in dataclasses.fields(arm.config) if f.name not in ("seed", "lanes")]
    rows = [(name, _distinct(_shown(getattr(run.config, name)) for run in arm.runs)) for name in names]
    seeds = ", ".join(map(str, sorted({run.config.seed for run in arm.runs})))
    return [*rows, ("seeds", seeds), ("identity without seed and lanes", arm.key)]


def _environment(arm: Arm) -> list[tuple[str, str]]:
    """What `env.json` says, each value once; command and start are listed with the runs."""
    names = dict.fromkeys(name for run in arm.runs for name in run.env if name not in ("command", "started"))
    return [(name, _distinct(str(run.env.get(name, "")) for run in arm.runs)) for name in names]


def _distinct(values: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(values))


def _shown(value: Any) -> str:
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case ((str(), _), *_):
            return ", ".join(f"{name}={_shown(option)}" for name, option in value)
        case tuple():
            return " ".join(map(_shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
