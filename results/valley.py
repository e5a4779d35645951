"""What makes the valley: accuracy against alpha while the learning rate stays, falls, and falls with alpha.

Beside it the deviation from the prior that steps and pull leave standing, as `deviation.csv` beside the runs has it.
"""

import csv
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from imlp.couplings.schedule import Alpha
from imlp.errors import ConfigError
from imlp.study.scores import Arm, Score, arms_of, base_identity
from imlp.train.config import Config, Lane
from imlp.train.run_reader import Run, find_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORDS = ("valley-annealed", "valley-position")
AT_FULL_LENGTH = "cnn-paper"  # whose deviation is drawn too
COLOURS = {(True, False): "tab:red", (False, False): "tab:orange", (False, True): "tab:green"}  # by what is constant


class Curve(NamedTuple):
    """What the lanes of a curve have in common."""

    setting: str  # the identity of everything else
    schedule: str
    lr: float
    epochs: int
    steps: int  # from one interpolation to the next
    follows: bool  # whether alpha falls with the learning rate

    def label(self, main: Config) -> str:
        """Its name, with what is not as in `main`."""
        moves = "learning rate and alpha fall" if self.follows else "learning rate falls"
        name = "learning rate constant" if self.schedule == "constant" else f"{moves} ({self.schedule})"
        often = f", every {self.steps} steps" if self.steps > 1 else ""
        length = f", {self.epochs} epochs" if self.epochs != main.epochs else ""
        return name + (f" at {self.lr:g}" if self.lr != main.lr else "") + often + length

    def style(self, main: Config) -> dict[str, Any]:
        colour = "grey" if self.lr != main.lr else COLOURS[self.schedule == "constant", self.follows]
        dashed = self.schedule.startswith("linear")
        line = "none" if self.steps > 1 else "--" if dashed else "-"
        filled = "white" if dashed or self.steps > 1 else colour
        return {"color": colour, "linestyle": line, "marker": "s" if self.steps > 1 else "o", "markerfacecolor": filled}


class Deviation(NamedTuple):
    """The root mean square of the entries of W - W_P in a layer, and that of W_P if it is on record."""

    measured: float
    predicted: float
    prior: float | None


def placed(config: Config, lane: Lane | None) -> tuple[Curve, float] | None:
    """The curve that a lane is on, and its alpha at the start, per step; None if it is on none."""
    if lane is None or lane.steps is None or lane != Lane(alpha=lane.alpha, every=lane.every):
        return None
    match Alpha(lane.alpha).schedules:
        case (("", schedule),) if schedule.kind in ("constant", "rate"):
            follows = schedule.kind == "rate" and config.schedule != "constant"
            curve = Curve(_setting(config), config.schedule, config.lr, config.epochs, lane.steps, follows)
            return curve, (schedule.at(0, config.epochs, config.lr * lane.steps) or 0) / lane.steps
    return None


def _setting(config: Config) -> str:
    return base_identity(dataclasses.replace(config, lr=1.0, schedule="constant", warmup=0))


def best_arms(runs: Iterable[Run]) -> list[Arm]:
    """Of the runs, those of the setting with most results; none if no curve has any."""
    found: dict[str, list[Arm]] = {}
    for arm in arms_of(runs):
        found.setdefault(_setting(arm.config), []).append(arm)

    def results(arms: Iterable[Arm]) -> int:
        return sum(score.n for points in curves(arms).values() for score in points.values())

    best = max(found.values(), key=results, default=[])
    return best if curves(best) else []


def curves(arms: Iterable[Arm]) -> dict[Curve, dict[float, Score]]:
    """By alpha the scores of each curve; alpha 0 and 1, where nothing could fall, are its ends after every step."""
    found: dict[Curve, dict[float, Score]] = {}
    for arm in arms:
        ends = {alpha: score for alpha in (0.0, 1.0) if (score := arm.score(Lane(alpha=f"{alpha:g}")))}
        for score in arm.scores:
            if place := placed(arm.config, score.lane):
                found.setdefault(place[0], dict(ends) if place[0].steps == 1 else {})[place[1]] = score
    return {curve: dict(sorted(points.items())) for curve, points in sorted(found.items(), key=_order)}


def _order(item: tuple[Curve, Any]) -> tuple[Any, ...]:
    curve = item[0]
    return curve.schedule != "constant", curve.follows, curve.schedule, curve.steps, -curve.lr


def deviations(folder: Path, arms: Iterable[Arm]) -> dict[Curve, dict[float, list[Deviation]]]:
    """By curve and alpha what `NAME/deviation.csv` has of these arms, and of the paper's length."""
    wanted, found = {_setting(arm.config) for arm in arms}, dict[Curve, dict[float, list[Deviation]]]()
    for name in (*RECORDS, AT_FULL_LENGTH):
        path = folder / name / "deviation.csv"
        runs = find_runs([path.parent]) if path.exists() else []
        for row in csv.DictReader(path.read_text().splitlines()) if path.exists() else ():
            configs = [run.config for run in runs if run.folder.name == row["run"]]
            lanes = [(config, lane) for config in configs for lane in config.lanes if lane.title == row["model"]]
            if len(lanes) != 1:
                problem = f"{path}: there are {len(lanes)} of {row['model']} in runs called {row['run']}"
                raise ConfigError(problem, "make it again from these runs")
            place, prior = placed(*lanes[0]), float(row["prior"]) if "prior" in row else None
            one = Deviation(float(row["measured"]), float(row["predicted"]), prior)
            if place and one.predicted and (name == AT_FULL_LENGTH or place[0].setting in wanted):
                found.setdefault(place[0], {}).setdefault(place[1], []).append(one)
    return {curve: dict(sorted(points.items())) for curve, points in sorted(found.items(), key=_order)}


def figure(arms: list[Arm], standing: Mapping[Curve, Mapping[float, list[Deviation]]]) -> "Figure":
    """Left: accuracy against alpha. Right, if it was measured: the size of the deviation, and of the prior's matrix."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(12 if standing else 8, 5.2), layout="constrained")
    left, *rest = made.subplots(1, 2 if standing else 1, squeeze=False, width_ratios=(4, 3) if standing else None)[0]
    drawn, main = curves(arms), max((arm.config for arm in arms), key=lambda config: config.lr)
    for curve, points in drawn.items():
        means, errors = ([of(score) for score in points.values()] for of in (lambda s: s.mean, lambda s: s.std or 0))
        left.errorbar([*points], means, errors, capsize=3, label=curve.label(main), **curve.style(main))
    least = min((alpha for points in drawn.values() for alpha in points if alpha > 0), default=1.0)
    left.set_xscale("symlog", linthresh=least, linscale=1)
    left.set_xticks([0, *(10.0**n for n in range(-6, 1) if 10.0**n >= least)])
    left.set(xlabel="alpha per step, at the start (0, then logarithmic)", ylabel=f"{main.measure}, %")
    for axes in rest:
        _draw_deviations(axes, standing, main)
    for axes in (left, *rest):
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_formatter("{x:g}")
    made.legend(*left.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    counts = sorted({score.n for points in drawn.values() for score in points.values()})
    seeds = " to ".join(map(str, counts if len(counts) < 2 else (counts[0], counts[-1])))
    images = f" of {main.train_size:,} images" if main.train_size else ""
    length = f"{main.epochs} epochs{images}, {seeds} {'seed' if seeds == '1' else 'seeds'}"
    made.suptitle(f"{main.data}, {main.network} prior, learning rate {main.lr:g}: {length}", fontsize=11)
    return made


def _draw_deviations(axes: Any, standing: Mapping[Curve, Mapping[float, list[Deviation]]], main: Config) -> None:
    for curve, points in standing.items():
        measured = [[one.measured for one in layers] for layers in points.values()]
        means = np.array([np.mean(layers) for layers in measured])
        span = [means - [min(layers) for layers in measured], [max(layers) for layers in measured] - means]
        style = curve.style(main)
        label = curve.label(main) if curve.lr != main.lr else None
        axes.errorbar([*points], means, span, capsize=3, label=label, **style | {"linestyle": "none"})
        predicted = [np.mean([one.predicted for one in layers]) for layers in points.values()]
        axes.plot([*points], predicted, color=style["color"], linestyle=style["linestyle"], marker="_", markersize=16)
    axes.errorbar([], [], [], color="black", marker="o", capsize=3, linestyle="none", label="measured, range of layers")
    axes.plot([], [], color="black", marker="_", markersize=16, label="predicted, nothing fitted")
    every = [one for points in standing.values() for layers in points.values() for one in layers]
    if priors := [one.prior for one in every if one.prior]:
        axes.axhspan(min(priors), max(priors), color="black", alpha=0.15, label="W_P, range of layers")
    axes.set(xscale="log", yscale="log", xlabel="alpha per step, at the start")
    axes.set_ylabel("entries of W - W_P, root mean square")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize=8)
