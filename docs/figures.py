"""The pictures of these pages, drawn whenever the pages are built: `python docs/figures.py FOLDER`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from imlp import init, kinds, networks, reference
from imlp.accel import kernels
from imlp.accel.chain import diagonals
from imlp.couplings.schedule import parse
from imlp.look import plot
from imlp.look.plot import PART_COLORS
from imlp.plugins import received
from imlp.spec import Chain, Conv, Local, Patchify, Shared, Spec, Transpose
from imlp.spec.base import PARTS

CONV = Conv((1, 4, 4), 1, kernel=3, padding=1)
KERNEL = np.arange(1.0, 10).reshape(1, 1, 3, 3)
SHARED, SMALL = Shared(4, 3, 3), np.arange(1.0, 10).reshape(3, 3)
TOKENS = Chain(Transpose(3, 4), SHARED)  # 3 patches of 4 channels
TOKENS_BACK = Chain(SHARED, Transpose(4, 3))
BLUE, ORANGE, GREY = "#2b6cb0", "#dd6b20", "#e2e8f0"


def hero() -> Figure:
    """W turns into W_P: the whole matrix above, one of its rows as an image below."""
    spec = Conv((1, 6, 6), 1, kernel=3, padding=1)
    kernel = np.array([[1, 2, 1], [0, 0.5, 0], [-1, -2, -1]])
    rng = np.random.default_rng(3)
    dense = rng.uniform(-1.6, 1.6, spec.matrix_shape)
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    alphas = (0, 0.25, 0.5, 0.75, 1)
    above, below = figure.subplots(2, len(alphas), height_ratios=(2.2, 1))
    for alpha, top, bottom in zip(alphas, above, below, strict=True):
        mixed = reference.interpolate(dense, spec, kernel[None, None], alpha)
        for axes, values in ((top, mixed), (bottom, mixed[14].reshape(6, 6))):
            axes.imshow(values, cmap="RdBu", vmin=-2, vmax=2, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        names = {0: "alpha 0: a plain MLP", 1: "alpha 1: a convolution"}
        top.set_title(names.get(alpha, f"alpha {alpha:g}"), fontsize=13)
    above[0].set_ylabel("(1 - alpha) W + alpha W_P", fontsize=11)
    below[0].set_ylabel("one row,\nas an image", fontsize=11)
    return figure


def convolution() -> Figure:
    return plot.matrix_figure(reference.matrix(CONV, KERNEL), CONV, "W_F of the kernel 1 .. 9")


def patchify() -> Figure:
    spec = Patchify(1, 4, 4, patch=2)
    return plot.matrix_figure(reference.matrix(spec), spec, "P, patches of 2 x 2")


def transpose() -> Figure:
    spec = Transpose(2, 3)
    return plot.matrix_figure(reference.matrix(spec), spec, "T of a matrix of 2 x 3")


def shared() -> Figure:
    return plot.matrix_figure(reference.matrix(SHARED, SMALL), SHARED, "W~, the same w for each of 4 rows")


def ring() -> Figure:
    """The noun of your-own-prior.md, from the file that the page shows."""
    page = Path(__file__).with_name("your-own-prior.md").read_text()
    received("ring.py", "Ring", page.partition("```python\n")[2].partition("```")[0])
    spec = kinds.make("ring.py:Ring")
    return plot.matrix_figure(reference.matrix(spec, [[[1.0, 2.0, 3.0]]]), spec, "a kernel that wraps around")


def basis_images() -> Figure:
    """Three pixels of a 3 x 3 image, each convolved, are three columns of `W_F`."""
    spec = Conv((1, 3, 3), 1, kernel=3, padding=1)
    figure, axes = _row(4, 3.4)
    for one, pixel in zip(axes, (0, 4, 5), strict=False):
        column = reference.matrix(spec, KERNEL).toarray()[:, pixel].reshape(3, 3)
        _numbers(one, column)
        one.add_patch(Rectangle((pixel % 3 - 0.5, pixel // 3 - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=3))
        one.set_title(f"one at pixel {pixel}:\ncolumn {pixel} of W_F", fontsize=10)
    _numbers(axes[3], reference.matrix(spec, KERNEL).toarray(), size=6)
    axes[3].set_title("all columns: W_F", fontsize=10)
    return figure


def products() -> Figure:
    """The two products of token mixing, as pictures of their factors."""
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    rows = figure.subplots(2, 3)
    w_tilde = reference.matrix(SHARED, SMALL).toarray()
    for axes, spec, name in zip(rows, (TOKENS, TOKENS_BACK), ("W~ T", "T W~"), strict=True):
        permutation = next(part for part in spec.parts if isinstance(part, Transpose))
        factors = {"W~": w_tilde, "T": reference.matrix(permutation).toarray()}
        for one, factor in zip(axes, name.split(), strict=False):
            _numbers(one, factors[factor], size=6)
            one.set_title(factor)
        _numbers(axes[2], reference.matrix(spec, SMALL).toarray(), size=6)
        axes[2].set_title(f"W_P = {name}")
    return figure


def interpolation() -> Figure:
    """`(1 - alpha) W + alpha W_P` for a few alphas."""
    figure, axes = _row(4, 3.2)
    dense = init.uniform(CONV.matrix_shape, CONV.matrix_shape[1], rng=np.random.default_rng(0))
    kernel = init.prior_weight(CONV, rng=np.random.default_rng(1))
    for one, alpha in zip(axes, (0, 0.2, 0.5, 1), strict=True):
        one.imshow(reference.interpolate(dense, CONV, kernel, alpha), cmap="RdBu", vmin=-0.35, vmax=0.35)
        shared = reference.measure(reference.interpolate(dense, CONV, kernel, alpha), CONV)["shared"]
        one.set_title(f"alpha {alpha:g}\nshared {shared:.2f}", fontsize=10)
        one.set(xticks=[], yticks=[])
    return figure


def meter() -> Figure:
    """The three parts of a random matrix that is mixed once with a convolution, and once with a `Local` layer."""
    figure, grid = _row(2, 3.6, width=10)
    alphas, size = np.linspace(0, 1, 41), 8
    conv = Conv((1, size, size), 1, kernel=3, padding=1)
    towards = {"a convolution": conv, "a locally connected layer": Local(conv.in_shape, 1, kernel=3, padding=1)}
    for axes, (title, spec) in zip(grid, towards.items(), strict=True):
        dense = init.uniform(spec.matrix_shape, spec.matrix_shape[1], rng=np.random.default_rng(0))
        small = init.prior_weight(spec, rng=np.random.default_rng(1))
        found = reference.measure([reference.interpolate(dense, spec, small, a) for a in alphas], conv)
        axes.stackplot(alphas, *(found[part] for part in PARTS), labels=PARTS, colors=PART_COLORS.values())
        axes.set(xlabel="alpha, mixed once", ylabel="share of |W|²", ylim=(0, 1), xlim=(0, 1), title=f"towards {title}")
    grid[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    return figure


def decay() -> Figure:
    """Appendix G's schedules over ten epochs, and how much of each epoch's prior is left at the end."""
    figure, (left, right) = _row(2, 3.6, width=10)
    epochs = np.arange(10)
    for k in (0, 1, 2, 4):
        alphas = np.array([parse(f"decay:0.5:{k}").at(t, 10) for t in epochs])
        kept = np.append(np.cumprod(1 - alphas[:0:-1])[::-1], 1.0)  # what later mixings leave of each
        left.plot(epochs, alphas, marker="o", markersize=3, label=f"k = {k}")
        right.plot(epochs, alphas * kept, marker="o", markersize=3, label=f"k = {k}")
    left.set(xlabel="epoch t", ylabel="alpha[t]", title="alpha[t] = 0.5 (1 - t / 10)^k")
    right.set(xlabel="epoch t", ylabel="share of epoch t's W_P in the last W")
    right.set_title("what is left after the last mixing")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def taps() -> Figure:
    """Each tap of the kernel in its own colour in `W`, and one tap alone with its steps."""
    figure, (left, right) = _row(2, 5.2, width=10)
    found = diagonals(CONV)
    _diagonal_colours(left, CONV, found)
    left.set_title(f"{len(found)} taps, {len(found)} diagonals: one colour each")
    middle = found[4]
    _diagonal_colours(right, CONV, (middle,), first=4)
    steps = ", ".join(f"{axis.size} steps of ({axis.row}, {axis.column})" for axis in middle.axes)
    right.set_title(f"the middle tap alone:\n{steps}", fontsize=10)
    return figure


def token_diagonal() -> Figure:
    """`W~ T` is one diagonal: each number of the small weight has its own colour."""
    figure, (left, right) = _row(2, 5.2, width=10)
    for axes, spec, name in ((left, SHARED, "W~"), (right, TOKENS, "W~ T")):
        (one,) = diagonals(spec)
        colours = np.zeros(spec.matrix_shape)
        for number, row, column in _entries(one):
            colours[row, column] = number + 1
        _cells(axes, colours)
        axis = one.axes[0]
        axes.set_title(f"{name}: the next copy of w is ({axis.row}, {axis.column}) away", fontsize=10)
    return figure


def work() -> Figure:
    """How many entries of each dense layer of the CNN pair are filled by the prior."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    layers = networks.cnn().layers
    names = [layer.name for layer in layers]
    axes.bar(names, [layer.spec.matrix_shape[0] * layer.spec.matrix_shape[1] for layer in layers], color=GREY)
    axes.bar(names, [layer.spec.nnz for layer in layers], color=BLUE)
    for n, layer in enumerate(layers):
        share = 100 * layer.spec.nnz / (layer.spec.matrix_shape[0] * layer.spec.matrix_shape[1])
        shown = f"{share:.2f}" if share < 1 else f"{share:.0f}"
        axes.text(n, layer.spec.nnz * 1.25, f"{layer.spec.nnz:,}\n{shown} %", ha="center", fontsize=8)
    axes.set(
        yscale="log", ylim=(None, 1e7), ylabel="entries", title="entries of W (grey) and those that W_P fills (blue)"
    )
    return figure


def lanes() -> Figure:
    """One prior, and three lanes as slices of every dense parameter."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 3.6), xticks=[], yticks=[], frame_on=False)
    _box(axes, 0.1, 1.3, 1.3, 0.9, GREY, "one batch x\n(N, M_in)")
    _box(axes, 2.2, 2.75, 2.2, 0.7, "#fbd38d", "prior: small weight w")
    for n, alpha in enumerate(("0", "0.01", "1")):
        y = 1.75 - 0.75 * n
        _box(axes, 2.2, y, 2.2, 0.65, "#90cdf4", f"lane {n}: W[{n}], alpha {alpha}")
        _box(axes, 6.9, y, 2.9, 0.65, "#90cdf4", f"x[{n}] @ W[{n}].T")
    axes.annotate("", (2.1, 1.75), (1.5, 1.75), arrowprops={"arrowstyle": "->"})
    axes.annotate("", (6.8, 1.35), (4.5, 1.35), arrowprops={"arrowstyle": "->"})
    axes.text(5.65, 1.5, "each lane is computed\nas if it were alone", ha="center", fontsize=8)
    axes.text(8.35, 2.75, "one product per layer\nand lane", ha="center", fontsize=9)
    for n in range(3):
        begin = (3.3 + 0.5 * (n - 1), 2.72)
        axes.annotate("", (begin[0], 2.42), begin, arrowprops={"arrowstyle": "->", "color": ORANGE})
    axes.text(4.5, 2.52, "is mixed into each lane with the lane's own alpha", color=ORANGE, fontsize=8)
    return figure


def kernel() -> Figure:
    """Which block of threads visits which entry of `W`, for blocks of 4 threads; and what each thread adds."""
    figure, (left, right) = _row(2, 4.6, width=10)
    m_out, m_in = CONV.matrix_shape
    visited = np.tile(np.arange(m_in) // 4 + 1, (m_out, 1))
    _cells(left, visited)
    threads = f"(4 threads per block here, {kernels.THREADS} in kernels.cu)"
    left.set_title(f"blockIdx.x by colour; blockIdx.y is the row\n{threads}", fontsize=10)
    _cells(right, reference.matrix(CONV, KERNEL).toarray())
    finds = "what each thread finds: the tap whose number it adds,\nor none (white): it only scales"
    right.set_title(finds, fontsize=10)
    for axes in (left, right):
        axes.set(xlabel="column", ylabel="row")
    return figure


def _row(n: int, height: float, width: float = 11) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, n)


def _numbers(axes: Axes, values: np.ndarray, size: int = 9) -> None:
    """Entries as blue cells with their numbers; zeros white."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.6 * values.max())
    for (row, column), value in np.ndenumerate(values):
        if value:
            axes.text(column, row, f"{value:g}", ha="center", va="center", fontsize=size)
    axes.set(xticks=[], yticks=[])


def _cells(axes: Axes, numbers: np.ndarray) -> None:
    """Whole numbers 1 .. 9 as colours and 0 as white, with thin lines between the cells."""
    shown = np.ma.masked_equal(numbers, 0)
    axes.imshow(shown, cmap="tab10", vmin=1, vmax=10, alpha=0.75)
    rows, columns = numbers.shape
    axes.set_xticks(np.arange(-0.5, columns), minor=True)
    axes.set_yticks(np.arange(-0.5, rows), minor=True)
    axes.grid(which="minor", color="lightgrey", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


def _entries(diagonal: Any) -> list[tuple[int, int, int]]:
    """The weight's number, the row and the column of every entry of a diagonal, from its axes alone."""
    found = []
    for position in np.ndindex(*(axis.size for axis in diagonal.axes)):
        steps = list(zip(position, diagonal.axes, strict=True))
        number = diagonal.weight + sum(p * axis.weight for p, axis in steps)
        row = diagonal.row + sum(p * axis.row for p, axis in steps)
        found.append((number, row, diagonal.column + sum(p * axis.column for p, axis in steps)))
    return found


def _diagonal_colours(axes: Axes, spec: Spec, found: Any, first: int = 0) -> None:
    colours = np.zeros(spec.matrix_shape)
    for n, diagonal in enumerate(found, start=first):
        for _, row, column in _entries(diagonal):
            colours[row, column] = n + 1
    _cells(axes, colours)
    axes.set(xlabel="column of W", ylabel="row of W")


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, text: str) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="black"))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


FIGURES: dict[str, Callable[[], Figure]] = {
    figure.__name__: figure
    for figure in (
        hero, convolution, basis_images, ring, patchify, transpose, shared, products, interpolation, meter, decay,
        taps, token_diagonal, work, lanes, kernel,
    )
}  # fmt: skip


def draw(folder: Path) -> None:
    """Write all figures into `folder` as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        plot.save(figure(), folder / f"{name}.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
