"""Pictures of matrices: the whole of one, and one row of it folded back into the shape of the input."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from scipy import sparse

from imlp.files import write_whole
from imlp.look.explain import axis_names, in_shape, out_shape
from imlp.model.line import ALL, Line
from imlp.spec import Shape, Spec
from imlp.spec.base import PARTS

Meters = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by model, layer and part

SMALL = 64  # up to this many rows and columns every entry is drawn
NUMBERED = 16  # and up to this many its number is written into it
LEFT = 2e-5  # where alpha 0 stands on a logarithmic axis
CELLS = 384  # a larger matrix is counted into at most this many cells per side
PART_COLORS = {"shared": "#2b6cb0", "local": "#90cdf4", "outside": "#e2e8f0"}  # of the bias meter


def matrix_figure(matrix: sparse.csr_array, spec: Spec, title: str) -> Figure:
    """Left the matrix, right the row of one output: which input numbers it reads, and with which weights."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    m_out, m_in = matrix.shape
    figure.suptitle(f"{title}      ({m_out:,} x {m_in:,}, {matrix.nnz:,} non-zeros)", fontsize=14)
    if max(m_out, m_in) <= SMALL:
        _entries(left, matrix.toarray())
        left.set_title("every entry")
    else:
        _density(left, matrix)
    left.set_xlabel(f"input j = 0 .. {m_in - 1}, {_order(in_shape(spec))}")
    left.set_ylabel(f"output i = 0 .. {m_out - 1}\n{_order(out_shape(spec))}")
    _row(right, matrix, spec)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure in the format that its suffix names, whole or not at all."""
    with write_whole(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=144)


def _order(shape: Shape) -> str:
    return f"({', '.join(axis_names(shape))}) of {' x '.join(map(str, shape))}"


def _entries(axes: Axes, values: np.ndarray) -> None:
    """Every entry as a coloured cell, blue positive and red negative, zeros left white."""
    largest = np.abs(values).max() or 1.0
    image = axes.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, shrink=0.75)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    if max(values.shape) <= NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            if value:
                shade = "white" if abs(value) > 0.6 * largest else "black"
                axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=7, color=shade)


def _density(axes: Axes, matrix: sparse.csr_array) -> None:
    """The share of non-zeros in each cell, counted from the coordinates: the full matrix is never made."""
    cells = [min(CELLS, size) for size in matrix.shape]
    edges = [np.linspace(0, size, n + 1).astype(int) for size, n in zip(matrix.shape, cells, strict=True)]
    entries = matrix.tocoo()
    counts, _, _ = np.histogram2d(entries.row, entries.col, bins=edges)
    share = counts / np.outer(np.diff(edges[0]), np.diff(edges[1]))
    extent = (0, matrix.shape[1], matrix.shape[0], 0)
    image = axes.imshow(share, cmap="Blues", vmin=0, extent=extent, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, shrink=0.75)
    axes.set_title(f"share of non-zeros in each of {cells[0]} x {cells[1]} cells")


def _row(axes: Axes, matrix: sparse.csr_array, spec: Spec) -> None:
    """The row of the output in the middle, folded into the input's shape (an image's channels side by side)."""
    shape = out_shape(spec)
    middle = tuple(size // 2 for size in shape)
    i = int(np.ravel_multi_index(middle, shape))
    row = matrix[[i]].toarray().reshape(in_shape(spec))
    row = row if row.ndim in (2, 3) else row.reshape(-1, row.shape[-1])  # neither a matrix nor an image
    folded = np.concatenate(list(row), axis=1) if row.ndim == 3 else row
    _entries(axes, folded)
    if row.ndim == 3:
        for channel in range(1, row.shape[0]):
            axes.axvline(channel * row.shape[2] - 0.5, color="black", linewidth=0.8)
    where = ", ".join(map(str, middle))
    axes.set_title(f"row {i}: output ({where}) reads these inputs")
    axes.set_xlabel(f"column, {row.shape[0]} channels side by side" if row.ndim == 3 else "column")
    axes.set_ylabel("row")
    axes.set_aspect("auto" if folded.shape[1] > 3 * folded.shape[0] else "equal")


def line_figure(line: Line, title: str) -> Figure:
    """Accuracy and loss on the way from a lane to its prior, all layers together and each alone."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, points in line.items():
        style = {"color": "black", "linewidth": 2.5} if name == ALL else {"linewidth": 1}
        ts = [point.t for point in points]
        left.plot(ts, [100 * point.accuracy for point in points], label=name, **style)
        right.plot(ts, [point.loss for point in points], **style)
    for axes, what in ((left, "test accuracy, %"), (right, "test loss")):
        axes.set(xlabel="t, from the lane (0) to the prior's trunk (1)", ylabel=what)
        axes.grid(alpha=0.3)
    left.legend()
    figure.suptitle(f"(1 - t) W + t W_P: {title}", parse_math=False)
    return figure


def meter_figure(meters: Meters, title: str) -> Figure:
    """The bias meter of each model after its last epoch, by layer."""
    columns = 2 if len(meters) < 6 else 3
    figure = Figure(figsize=(2.8 * columns, meter_height(meters, 2.0, columns)), layout="constrained")
    draw_meters(figure, meters, columns=columns)
    figure.suptitle("\n".join(wrap(title, 25 * columns)), fontsize=10)
    return figure


def draw_meters(figure: Figure | SubFigure, meters: Meters, *, columns: int = 3) -> None:
    """Stacked bars: a panel for a random matrix and each model, a bar for each layer, its parts from left to right."""
    first = next(iter(meters.values()))
    random = {layer: {part: shares.get(f"random_{part}") for part in PARTS} for layer, shares in first.items()}
    panels = {"random matrix": random, **meters}
    rows = -(-len(panels) // columns)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    for axes, (title, layers) in zip(grid, panels.items(), strict=False):
        places, left = range(len(layers)), np.zeros(len(layers))
        for part, colour in PART_COLORS.items():
            shares = np.array([own.get(part) or 0 for own in layers.values()])
            axes.barh(places, shares, left=left, color=colour, label=part)
            left += shares
        axes.set_yticks(places, layers, fontsize=8)
        axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), ylim=(len(layers) - 0.5, -0.5))
        axes.set_title(title, fontsize=8)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True, labelsize=8)
        axes.set_xlabel("share of |W|²", fontsize=8)
    handles = {text: handle for axes in grid for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=9)


def meter_height(meters: Meters, least: float, columns: int = 3) -> float:
    layers = max((len(meter) for meter in meters.values()), default=0)
    return max(least, 1.2 + -(-(1 + len(meters)) // columns) * (0.5 + 0.22 * layers))


def search_figure(outcome: Any) -> Figure:
    """A search, from its `SearchOutcome`: validation accuracy by alpha, one point per trial and one panel per layer."""
    trials = [trial for trial in outcome.trials if trial.values]
    several = (trial.alphas for trial in trials if len(trial.alphas) > 1)
    panels = list(dict.fromkeys(name for alphas in several for name in alphas)) or ["all layers"]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(8.0, 4.2 * columns), 1 + 3.8 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        _trials(axes, trials, panel, outcome)
        axes.set(xlabel="alpha" if len(panels) == 1 else f"alpha of {panel}")
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes in grid[::columns]:
        axes.set_ylabel("validation accuracy, %")
    handles = {text: handle for handle, text in zip(*grid[0].get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    about = f"{outcome.network} on {outcome.data}, {outcome.epochs} epochs"
    figure.suptitle(f"search over {outcome.over}: {about}", parse_math=False)
    return figure


def _trials(axes: Axes, trials: list[Any], panel: str, outcome: Any) -> None:
    colors = {group: f"C{k}" for k, group in enumerate(dict.fromkeys(trial.lane["every"] for trial in trials))}
    for trial in trials:
        every = trial.lane["every"]
        name = f"every {every}" + " steps" * every.isdecimal()
        alpha = trial.alphas.get(panel, trial.alphas.get("all layers"))
        whole, chosen = trial.state == "complete", trial.number == outcome.chosen.number
        x, y = alpha or LEFT, trial.values[-1]
        label = name if whole else f"{name}, {trial.state} early"
        face = colors[every] if whole else "none"
        axes.plot(x, y, "o" if whole else "X", color=colors[every], markerfacecolor=face, label=label, alpha=0.8)
        if chosen:
            axes.plot(x, y, "*", color="black", markersize=15, label="chosen", zorder=3)
    if outcome.prior is not None:
        axes.axhline(outcome.prior, color="black", linestyle="--", label="prior")
    axes.grid(alpha=0.3)
    axes.set_xscale("log")
    axes.set_xlim(LEFT / 1.6, 1.6)
    ticks = [LEFT, *(10.0**power for power in range(-4, 1))]
    axes.set_xticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:])])
    axes.set_xticks([], minor=True)
    axes.axvline(LEFT * 1.8, color="grey", linewidth=0.8, linestyle=":")
