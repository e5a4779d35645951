"""Figure 2's shape: accuracy falls and then rises linearly in log10(alpha)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Side:
    """One straight line in log10(alpha): per cent per decade, and the share of the variance that it explains."""

    slope: float
    r2: float
    n: int


@dataclass(frozen=True)
class TwoLines:
    """Two lines that meet at `alpha`, where both predict `accuracy`."""

    alpha: float
    accuracy: float
    left: Side
    right: Side

    def __call__(self, alpha: float) -> float:
        """The accuracy that the fit predicts for an alpha above 0."""
        x = np.log10(alpha / self.alpha)
        return float(self.accuracy + (self.left.slope if x < 0 else self.right.slope) * x)


def fit_v(alphas: Sequence[float], accuracies: Sequence[float]) -> TwoLines | None:
    """The two lines nearest in least squares, each through at least two alphas; None for fewer than five alphas.

    Alphas of 0 have no logarithm and are left out.

    >>> v = fit_v([1e-4, 1e-3, 1e-2, 1e-1, 1], [60, 55, 50, 56, 62])
    >>> round(v.alpha, 4), round(v.accuracy, 1), round(v.left.slope, 2), round(v.right.slope, 2)
    (0.01, 50.0, -5.0, 6.0)
    """
    from scipy.optimize import minimize_scalar  # a quarter of a second that only a fit needs

    pairs = sorted((np.log10(alpha), accuracy) for alpha, accuracy in zip(alphas, accuracies, strict=True) if alpha > 0)
    if len({x for x, _ in pairs}) < 5:
        return None
    x, y = np.array(pairs).T
    distinct = np.unique(x)

    def solve(at: float) -> tuple[float, np.ndarray]:
        columns = np.stack([np.ones_like(x), np.minimum(x - at, 0), np.maximum(x - at, 0)], axis=1)
        coefficients = np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(((columns @ coefficients - y) ** 2).sum()), coefficients

    inside = distinct[1:-1]  # between two of them the error is smooth in the breakpoint
    lowest = (minimize_scalar(lambda at: solve(at)[0], bounds=pair, method="bounded").x for pair in pairwise(inside))
    at = min((*inside, *lowest), key=lambda at: solve(at)[0])
    accuracy, *slopes = solve(at)[1]
    sides = []
    for slope, chosen in zip(slopes, (x <= at, x >= at), strict=True):
        measured = y[chosen]
        left_over = ((accuracy + slope * (x[chosen] - at) - measured) ** 2).sum()
        total = ((measured - measured.mean()) ** 2).sum()
        sides.append(Side(float(slope), float(1 - left_over / total) if total else 0.0, int(chosen.sum())))
    return TwoLines(float(10**at), float(accuracy), *sides)
