"""The straight line from one network to another, `(1 - t) W + t W_P`: what is measured along it, and its barrier."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from imlp.errors import ArrayError

ALL = "all layers"


class Point(NamedTuple):
    """A network on the line: `t` is 0 at the beginning and 1 at the other end."""

    t: float
    accuracy: float
    loss: float


class Line(dict[str, list[Point]]):
    """The points of all layers together, under `ALL`, and of each layer alone, by its name.

    >>> found = Line({ALL: [Point(0.0, 0.5, 1.0), Point(0.5, 0.25, 3.0), Point(1.0, 0.75, 2.0)]})
    >>> found.barrier()
    (0.375, 1.5)
    """

    def barrier(self, layers: str = ALL) -> tuple[float, float]:
        """How far accuracy and loss are, at worst, from the straight line between their values at the two ends."""
        points = self[layers]
        (_, *first), (_, *last) = points[0], points[-1]
        between = [[(1 - p.t) * a + p.t * b for a, b in zip(first, last, strict=True)] for p in points]
        worst = [(accuracy - p.accuracy, p.loss - loss) for p, (accuracy, loss) in zip(points, between, strict=True)]
        return max(fallen for fallen, _ in worst), max(risen for _, risen in worst)

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        parts: dict[str, Any] = {}
        for part, points in self.items():
            parts[part] = {name: [getattr(point, name) for point in points] for name in Point._fields}
            parts[part]["barrier"] = dict(zip(("accuracy", "loss"), self.barrier(part), strict=True))
        return parts


def measured(
    layers: Sequence[str],
    points: int,
    move: Callable[[Sequence[str], float], None],
    score: Callable[[], tuple[float, float]],
    progress: Callable[[str, int, int | None], None],
) -> Line:
    """Accuracy and loss at `points` values of t, where `move` puts some layers at t and all others at 0."""
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= 1001:
        raise ArrayError(f"points is {points!r}", "give a whole number from 2 to 1001")
    parts = {ALL: list(layers), **({name: [name] for name in layers} if len(layers) > 1 else {})}
    done, total = 0, 1 + len(parts) * (points - 1)
    move(layers, 0.0)
    start, line = Point(0.0, *score()), Line()
    for name, moved in parts.items():
        line[name] = [start]
        for n in range(1, points):
            done += 1
            progress("measuring the line", done, total)
            t = n / (points - 1)
            move(moved, t)
            line[name].append(Point(t, *score()))
    return line
