"""Whether valleys at several learning rates and cadences are one curve, and of which combination of the three."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

DEGREE = 4  # of the common curve
LARGEST = 5  # an exponent: without a bound, a fit may follow the cadence alone to infinity


class Point(NamedTuple):
    alpha: float
    steps: int  # n: from one interpolation to the next
    lr: float
    loss: float  # accuracy below that of alpha 0 at the same learning rate, in points


class Collapse(NamedTuple):
    """`loss = lr^depth f(log alpha - cadence log n - rate log lr)`, with `f` a polynomial."""

    cadence: float
    rate: float
    depth: float
    error: float  # the root mean square of what the fit leaves, in points of accuracy
    apart: float  # the same with one curve over alpha alone

    def __str__(self) -> str:
        x, y = f"alpha / (n^{self.cadence:.2f} lr^{self.rate:.2f})", f"loss / lr^{self.depth:.2f}"
        return f"{y} over {x}: {self.error:.2f} points apart, {self.apart:.2f} over alpha alone"


def collapse(points: Sequence[Point]) -> Collapse:
    """The exponents for which one polynomial of degree 4 fits all points best.

    >>> points = [Point(a, n, lr, 30 * lr**0.5 * np.log10(a / n)) for a in (0.01, 0.03, 0.1, 0.3, 1)
    ...           for n in (1, 10, 100) for lr in (1e-3, 1e-4)]
    >>> found = collapse(points)
    >>> [round(float(number), 2) for number in (found.cadence, found.depth, found.error)]
    [1.0, 0.5, 0.0]
    """
    from scipy.optimize import minimize

    alpha, steps, lr, loss = (np.array(column, float) for column in zip(*points, strict=True))
    lr = lr / lr.max()

    def error(exponents: Any) -> float:
        cadence, rate, depth = exponents
        x = np.log10(alpha) - cadence * np.log10(steps) - rate * np.log10(lr)
        terms = np.vander((x - x.mean()) / x.std(), DEGREE + 1) * lr[:, None] ** depth
        rest = loss - terms @ np.linalg.lstsq(terms, loss, rcond=None)[0]
        return float(np.sqrt((rest**2).mean()))

    starts = ([1, 0, 0], [1, 1, 0.5], [0.5, 2, 0.3])
    bounds = [(-LARGEST, LARGEST)] * 3
    fits = [minimize(error, start, method="Nelder-Mead", bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    cadence, rate, depth = map(float, best.x)
    return Collapse(cadence, rate, depth, error(best.x), error([0, 0, 0]))
