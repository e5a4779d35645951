"""The figures as matplotlib draws them, for papers and slides; the page draws the same numbers itself."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from imlp.spec.meter import PARTS
from imlp.study.report.data import ArmData, ModelData, SearchData
from imlp.study.report.weights import Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Sequence[tuple[float, float]]  # alphas and accuracies

MARKERS = "osD^v"
MOST = 8  # curves by epoch that one panel can show
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))


def of_arm(arm: ArmData) -> dict[str, "Figure"]:
    """All figures of an arm by name; those that have nothing to show are left out."""
    import matplotlib

    found: dict[str, Figure] = {}
    with matplotlib.rc_context({"text.parse_math": False}):  # a name may hold dollars
        if any(series.alphas for series in arm.series):
            found["alpha"] = against_alpha(arm)
        known = [model.knobs for model in arm.models if model.knobs and model.mean is not None]
        if len({locality for locality, sharing in known if locality != sharing}) > 1:
            found["knobs"] = knobs(arm)
        if any(model.epochs for model in arm.models):
            found["epochs"] = by_epoch(arm)
        if any(model.layers for model in arm.models):
            found["bias"] = bias(arm)
        if isinstance(arm.weights, Weights):
            found["weights"] = weights(arm.weights)
    return found


def of_search(found: SearchData) -> "Figure":
    """Validation accuracy by alpha, one point per trial."""
    import matplotlib

    from imlp.plot import search_figure

    with matplotlib.rc_context({"text.parse_math": False}):
        return search_figure(found.content)


def written(figure: "Figure") -> dict[str, bytes]:
    """A figure as SVG (its text stays text) and PNG, the same bytes for the same numbers."""
    import matplotlib

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once per format
    found = {}
    for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 144})):
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "imlp"}):
            figure.savefig(buffer, format=suffix, **options)
        found[suffix] = buffer.getvalue()
    return found


def against_alpha(arm: ArmData, *, fits: bool = True, beside: Mapping[str, Curve] | None = None) -> "Figure":
    """Accuracy against alpha, each series with its spread and, with `fits`, its two lines; in grey, curves by name."""
    figure, axes = _figure((8, 5))
    for k, series in enumerate(arm.series):
        colour, errors = f"C{k}", [std or 0 for std in series.stds]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[k % len(MARKERS)], "capsize": 3}
        style["linestyle"] = "-" if series.is_curve else "none"
        axes.errorbar(series.alphas, series.means, errors, label=f"mixed {series.name}", linewidth=1, **style)
        if series.fit and fits:
            ends = [min(a for a in series.alphas if a > 0), series.fit.alpha, max(series.alphas)]
            line = [series.fit(alpha) for alpha in ends]
            fit = f"two lines: {series.fit.left.slope:+.2f} (R² {series.fit.left.r2:.2f}), "
            fit += f"{series.fit.right.slope:+.2f} (R² {series.fit.right.r2:.2f}) points per decade"
            axes.plot(ends, line, color=colour, linestyle="--", linewidth=2, alpha=0.6, label=fit)
    prior = arm.models[0]
    if prior.mean is not None:
        axes.axhline(prior.mean, color="black", linestyle=":", label=arm.prior_name)
        axes.axhspan(prior.mean - (prior.std or 0), prior.mean + (prior.std or 0), color="black", alpha=0.08)
    if arm.paper:
        x, y = [point["alpha"] for point in arm.paper], [point["value"] for point in arm.paper]
        errors = [point["std"] or 0 for point in arm.paper]
        style = {"color": "black", "marker": "D", "markerfacecolor": "none", "linestyle": "none", "capsize": 3}
        axes.errorbar(x, y, errors, label="the paper", **style)
    for name, points in (beside or {}).items():
        style = {"color": "grey", "linestyle": "--", "linewidth": 1, "marker": "s", "markersize": 4}
        axes.plot([alpha for alpha, _ in points], [value for _, value in points], label=name, **style)
    least = min((alpha for alpha in arm.alphas if alpha > 0), default=1.0)
    axes.set_xscale("symlog", linthresh=least, linscale=1)  # linear from 0 to the least alpha, as wide as a decade
    axes.set_xticks(arm.ticks, [f"{tick:g}" for tick in arm.ticks])
    axes.set_xlim(-0.15 * least if arm.alphas[0] == 0 else least / 1.5, 1.5 * arm.alphas[-1] or least)
    axes.set(xlabel="alpha (0, then logarithmic)", ylabel=f"{arm.measure}, %", title=arm.name)
    low, high = axes.get_ylim()
    axes.set_ylim(max(0, low), min(100, high))
    axes.grid(alpha=0.25)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)  # inside it would lie on a curve
    return figure


def knobs(arm: ArmData) -> "Figure":
    """Accuracy by the alphas of locality and of sharing, as a heat map."""
    known = {model.knobs: model for model in arm.models if model.knobs is not None and model.mean is not None}
    grid = {alpha for pair in known if pair[0] != pair[1] for alpha in pair}  # others lie on the diagonal alone
    scores = {pair: model for pair, model in known.items() if grid.issuperset(pair)}
    down, across = (sorted({found[axis] for found in scores}) for axis in (0, 1))
    means = np.full((len(down), len(across)), np.nan)
    figure, axes = _figure((1.5 + 1.5 * len(across), 1.2 + 1.1 * len(down)))
    for (locality, sharing), model in scores.items():
        means[down.index(locality), across.index(sharing)] = model.mean
    image = axes.imshow(means, origin="lower", cmap="viridis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (locality, sharing), model in scores.items():
        text = f"{model.mean:.1f}" + (f"\n± {model.std:.1f}" if model.std is not None else "")
        colour = "black" if (model.mean or 0) > middle else "white"
        axes.text(across.index(sharing), down.index(locality), text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    axes.set_yticks(range(len(down)), [f"{value:g}" for value in down])
    axes.set(xlabel="alpha of sharing", ylabel="alpha of locality", title=arm.name)
    figure.colorbar(image, label=f"{arm.measure}, %")
    return figure


def by_epoch(arm: ArmData) -> "Figure":
    """Accuracy by epoch; of more models than one panel can show, a panel for each series and one for the rest."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = _panels(arm)
    figure = Figure(figsize=(8, 5) if len(panels) == 1 else (4.6 * len(panels), 7), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, models) in zip(row, panels.items(), strict=True):
        faint = min(0.14, 0.5 / len(models))
        for model, style in zip(models, _styles(models, arm), strict=True):
            mean = np.array(model.accuracy)
            spread = np.array([std or 0 for std in model.spread])
            axes.plot(model.epochs, mean, label=model.title, **style)
            low, high = np.clip([mean - spread, mean + spread], 0, 100)
            axes.fill_between(model.epochs, low, high, color=style["color"], alpha=faint, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set(xlabel="epoch", title=title)
        axes.grid(alpha=0.25)
        beside, below = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}, {"loc": "upper center"}
        where = beside if len(panels) == 1 else {**below, "bbox_to_anchor": (0.5, -0.1)}
        axes.legend(fontsize=8, **where)
    figure.axes[0].set_ylabel(f"{arm.measure}, %")
    if len(panels) > 1:
        figure.suptitle(arm.name)
    return figure


def _panels(arm: ArmData) -> dict[str, list[ModelData]]:
    """The models by panel; of many, each panel has the prior and the plain MLP to compare its own with."""
    if len(arm.models) <= MOST:
        return {arm.name: arm.models}
    common = [model for model in arm.models if model.prior or model.alpha == 0]
    rest = [model for model in arm.models if model not in common]
    found = {
        f"mixed {series.name}": [model for model in rest if model.series == k and model.alpha is not None]
        for k, series in enumerate(arm.series)
    }
    known = [model for own in found.values() for model in own]
    found["others"] = [model for model in rest if model not in known]
    several = {title: [*common, *own] for title, own in found.items() if own}
    return several if len(several) > 1 else {arm.name: arm.models}


def _styles(models: Sequence[ModelData], arm: ArmData) -> list[dict[str, Any]]:
    """Colours by alpha, and dashes by series; in one of several panels, colours spread over its own models."""
    from matplotlib import colormaps

    shades = sorted({model.shade or 0 for model in models if not model.prior})
    series = sorted({max(model.series, 0) for model in models if not model.prior and model.alpha != 0})
    whole = len(models) == len(arm.models)

    def style(model: ModelData) -> dict[str, Any]:
        if model.prior:
            return {"color": "black", "linestyle": ":", "linewidth": 2}
        shade = model.shade or 0
        shade = shade if whole else shades.index(shade) / max(1, len(shades) - 1)
        dashes = 0 if model.alpha == 0 else series.index(max(model.series, 0))
        return {"color": colormaps["plasma"](0.85 * shade), "linestyle": DASHES[dashes % len(DASHES)], "linewidth": 1.5}

    return list(map(style, models))


def bias(arm: ArmData) -> "Figure":
    """The three parts of every layer after the last epoch, one panel per lane."""
    from imlp.plot import meter_figure

    def measured(model: ModelData, k: int) -> dict[str, float | None]:
        own = {part: model.parts[part][k][-1] for part in PARTS}
        return {**own, **{f"random_{part}": model.random[part][k] for part in PARTS}}

    models = [model for model in arm.models if model.layers]
    meters = {model.title: {layer: measured(model, k) for k, layer in enumerate(model.layers)} for model in models}
    return meter_figure(meters, arm.name)


def weights(found: Weights) -> "Figure":
    """One line per model: its rows side by side."""
    from matplotlib.figure import Figure

    models, rows = len(found.images), len(found.rows)
    figure = Figure(figsize=(1.1 * rows + 2.6, 1.12 * models + 0.6), layout="constrained")
    for axes, (title, pixels) in zip(np.atleast_1d(figure.subplots(models)), found.images, strict=True):
        framed = np.pad(pixels, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=255)
        axes.imshow(np.concatenate(list(framed), axis=1), interpolation="nearest")
        axes.set(xticks=[], yticks=[], anchor="W")
        axes.spines[:].set_visible(False)
        axes.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(f"{found.layer}: rows {', '.join(map(str, found.rows))}; {found.where}", fontsize=9)
    return figure


def _figure(size: tuple[float, float]) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()
