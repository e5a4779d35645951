"""The figures, each defined once: the page shows them as SVG, and `report --files` writes them as files."""

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from imlp.look.plot import draw_meters, meter_figure, meter_height
from imlp.report.gather import ArmData, ModelData, cadence, gather, series_name
from imlp.study.scores import arms_of, constant_alpha
from imlp.train.config import Lane
from imlp.train.run_reader import Run

Curve = Sequence[tuple[float, float]]  # alphas and accuracies

SIZE = (5.6, 4.6)  # inches: a phone shows it without making its letters small
MARKERS = "osD^v"
MOST_CURVES = 8  # curves by epoch that one panel can show
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
DIGITS = re.compile(r"(\.\d\d)\d+")


def _style() -> AbstractContextManager[None]:
    """A name may hold dollars; text stays text; the same numbers give the same bytes."""
    return matplotlib.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "imlp"})


def of_arm(arm: ArmData) -> dict[str, Figure]:
    """All figures of an arm by name, the one to show first first; those that have nothing to show are left out."""
    with _style():
        drawn = {"epochs": by_epoch(arm)} if any(model.epochs for model in arm.models) else {}
        if any(series.scores for series in arm.series):
            alpha = {"alpha": against_alpha(arm)}
            drawn = alpha | drawn if arm.has_curve else drawn | alpha
        known = [knobs_of(model.lane) for model in arm.models if model.score]
        if len({pair[0] for pair in known if pair and pair[0] != pair[1]}) > 1:
            drawn = {"knobs": knobs(arm)} | drawn
        if meters := {model.title: model.meter for model in arm.models if model.meter}:
            drawn["bias"] = meter_figure(meters, arm.name)
    return drawn


def svg(figure: Figure) -> bytes:
    """A figure as SVG, its coordinates to a hundredth of a point and without the spaces between its elements."""
    drawn = " ".join(_saved(figure, "svg", metadata={"Date": None}).decode().split())
    return re.sub(r' d="[^"]*"', lambda path: DIGITS.sub(r"\1", path[0]), drawn).encode()


def written(figure: Figure) -> dict[str, bytes]:
    """A figure as SVG and PNG."""
    return {"svg": svg(figure), "png": _saved(figure, "png", dpi=144)}


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with _style():
        if figure.get_layout_engine() is not None:
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, not once per format
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def against_alpha(
    arm: ArmData, *, fits: bool = True, beside: Mapping[str, Curve] | None = None, size: tuple[float, float] = SIZE
) -> Figure:
    """Accuracy against alpha, each series with its spread and, with `fits`, its two lines; in grey, curves by name."""
    figure, axes = _figure(arm, size)
    for k, series in enumerate(arm.series):
        colour, errors = f"C{k}", [score.std or 0 for score in series.scores]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[k % len(MARKERS)], "capsize": 3}
        style["linestyle"] = "-" if series.is_curve else "none"
        means = [score.mean for score in series.scores]
        axes.errorbar(series.alphas, means, errors, label=f"mixed {series.name}", linewidth=1, **style)
        if series.fit and fits:
            ends = [min(a for a in series.alphas if a > 0), series.fit.alpha, max(series.alphas)]
            line = [series.fit(alpha) for alpha in ends]
            axes.plot(ends, line, color=colour, linestyle="--", linewidth=2, alpha=0.6, label="its two lines")
    prior = arm.models[0].score
    if prior is not None:
        axes.axhline(prior.mean, color="black", linestyle=":", label=arm.models[0].title)
        axes.axhspan(prior.mean - (prior.std or 0), prior.mean + (prior.std or 0), color="black", alpha=0.08)
    if arm.points:
        x, y = [point.alpha for point in arm.points], [point.value for point in arm.points]
        errors = [point.std or 0 for point in arm.points]
        style = {"color": "black", "marker": "D", "markerfacecolor": "none", "linestyle": "none", "capsize": 3}
        axes.errorbar(x, y, errors, label="the paper", **style)
    for name, points in (beside or {}).items():
        style = {"color": "grey", "linestyle": "--", "linewidth": 1, "marker": "s", "markersize": 4}
        axes.plot([alpha for alpha, _ in points], [value for _, value in points], label=name, **style)
    least = min((alpha for alpha in arm.alphas if alpha > 0), default=1.0)
    axes.set_xscale("symlog", linthresh=least, linscale=1)  # linear from 0 to the least alpha, as wide as a decade
    axes.set_xticks(ticks(arm.alphas), [f"{tick:g}" for tick in ticks(arm.alphas)])
    axes.set_xlim(-0.15 * least if arm.alphas[0] == 0 else least / 1.5, 1.5 * arm.alphas[-1] or least)
    axes.set(xlabel="alpha (0, then logarithmic)", ylabel=f"{arm.arm.config.measure}, %")
    low, high = axes.get_ylim()
    axes.set_ylim(max(0, low), min(100, high))
    axes.grid(alpha=0.25)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)  # inside it would lie on a curve
    return figure


def ticks(alphas: Sequence[float]) -> list[float]:
    """0 if it is there, then the decades; the alphas themselves where they span fewer than two.

    >>> ticks([0, 0.003, 0.02, 1]), ticks([0.2, 0.5])
    ([0.0, 0.01, 0.1, 1.0], [0.2, 0.5])
    """
    above = [alpha for alpha in alphas if alpha > 0]
    decades = [float(f"1e{k}") for k in range(-300, 1) if above and 0.999 * above[0] <= 10.0**k <= 1.001 * above[-1]]
    return [0.0] * (0 in alphas) + (decades if len(decades) > 1 else above[:8])


def knobs_of(lane: Lane | None) -> tuple[float, float] | None:
    """The alphas of locality and sharing of a lane with the coupling self, where both are numbers; 0 and 0: the MLP."""
    if lane is not None and lane.is_plain:
        return 0.0, 0.0
    if lane is None or len(lane.knobs) < 2:
        return None
    locality, sharing = (constant_alpha(Lane(alpha=knob)) for knob in lane.knobs)
    return None if locality is None or sharing is None else (locality, sharing)


def knobs(arm: ArmData) -> Figure:
    """Accuracy by the alphas of locality and of sharing, as a heat map."""
    known = {pair: model.score for model in arm.models if model.score and (pair := knobs_of(model.lane))}
    grid = {alpha for pair in known if pair[0] != pair[1] for alpha in pair}  # others lie on the diagonal alone
    scores = {pair: score for pair, score in known.items() if grid.issuperset(pair)}
    down, across = (sorted({place[axis] for place in scores}) for axis in (0, 1))
    means = np.full((len(down), len(across)), np.nan)
    for (locality, sharing), score in scores.items():
        means[down.index(locality), across.index(sharing)] = score.mean
    figure, axes = _figure(arm, SIZE)
    image = axes.imshow(means, origin="lower", cmap="viridis", aspect="auto")
    for (locality, sharing), score in scores.items():
        text = f"{score.mean:.1f}" + (f"\n± {score.std:.1f}" if score.std is not None else "")
        colour = "black" if 2 * score.mean > np.nanmin(means) + np.nanmax(means) else "white"
        axes.text(across.index(sharing), down.index(locality), text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    axes.set_yticks(range(len(down)), [f"{value:g}" for value in down])
    axes.set(xlabel="alpha of sharing", ylabel="alpha of locality")
    figure.colorbar(image, label=f"{arm.arm.config.measure}, %")
    return figure


def by_epoch(arm: ArmData) -> Figure:
    """Accuracy by epoch; of more models than one panel can show, a panel for each series and one for the rest."""
    panels = _panels(arm)
    figure = Figure(figsize=SIZE if len(panels) == 1 else (4.6 * len(panels), 7), layout="constrained")
    _draw_epochs(figure, arm, panels)
    return figure


def of_run(run: Run) -> Figure:
    """One run: accuracy by epoch and, beside it, what each layer of each lane holds at the end."""
    (arm,) = gather(arms_of([run]))
    meters = {model.title: model.meter for model in arm.models if model.meter}
    with _style():
        figure = Figure(figsize=(13 if meters else 7, meter_height(meters, 5.0)), layout="constrained")
        left: Any = figure
        if meters:
            left, right = figure.subfigures(1, 2, width_ratios=(1, 1.15))  # type: ignore[misc]
            draw_meters(right, meters)
        _draw_epochs(left, arm, {"accuracy after mixing": [model for model in arm.models if model.epochs]})
        figure.suptitle(run.folder.resolve().name)
    return figure


def _draw_epochs(figure: Any, arm: ArmData, panels: Mapping[str, list[ModelData]]) -> None:
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, models) in zip(row, panels.items(), strict=True):
        for model, style in zip(models, styles(models), strict=True):
            epochs, means = [e.epoch for e in model.epochs], np.array([e.accuracy for e in model.epochs])
            axes.plot(epochs, means, label=model.title, **style)
            if any(spread := [e.spread or 0 for e in model.epochs]):
                low, high = np.clip([means - spread, means + spread], 0, 100)
                faint = min(0.14, 0.5 / len(models))
                axes.fill_between(epochs, low, high, color=style["color"], alpha=faint, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set(xlabel="epoch")
        axes.set_title(textwrap.fill(title, 60), fontsize=10)
        axes.grid(alpha=0.25)
        if len(panels) > 1:
            axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    figure.axes[0].set_ylabel(f"{arm.arm.config.measure}, %")
    if len(panels) == 1:
        figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    else:
        figure.suptitle(arm.name)


def _panels(arm: ArmData) -> dict[str, list[ModelData]]:
    """The models by panel; of many, each panel has the prior and the plain MLP to compare its own with."""
    models = [model for model in arm.models if model.epochs]
    if len(models) <= MOST_CURVES:
        return {arm.name: models}
    common = [model for model in models if model.lane is None or model.lane.is_plain]
    bases = {lane: base for base, lanes in arm.arm.series.items() for lane in lanes}
    panels: dict[str, list[ModelData]] = {f"mixed {series_name(base)}": [] for base in arm.arm.series}
    for lane, model in ((model.lane, model) for model in models if model not in common):
        panels.setdefault(f"mixed {series_name(bases[lane])}" if lane in bases else "others", []).append(model)
    several = {title: [*common, *others] for title, others in panels.items() if others}
    return several if len(several) > 1 else {arm.name: models}


def styles(models: Sequence[ModelData]) -> list[dict[str, Any]]:
    """Colours by alpha, plain numbers by their size before schedules; dashes by cadence; the prior is dotted."""

    def setting(lane: Lane) -> tuple[bool, float, str]:
        alpha = constant_alpha(lane)
        return (True, 0.0, lane.short_title) if alpha is None else (False, alpha, "")

    lanes = [model.lane for model in models if model.lane is not None]
    settings = sorted(set(map(setting, lanes)))
    cadences = list(dict.fromkeys((cadence(lane), *lane.extras) for lane in lanes if not lane.is_plain))

    def style(lane: Lane | None) -> dict[str, Any]:
        if lane is None:
            return {"color": "black", "linestyle": ":", "linewidth": 2}
        shade = settings.index(setting(lane)) / max(1, len(settings) - 1)
        dashes = 0 if lane.is_plain else cadences.index((cadence(lane), *lane.extras))
        return {"color": colormaps["plasma"](0.85 * shade), "linestyle": DASHES[dashes % len(DASHES)], "linewidth": 1.5}

    return [style(model.lane) for model in models]


def _figure(arm: ArmData, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_title(textwrap.fill(arm.name, 60), fontsize=10)
    return figure, axes
