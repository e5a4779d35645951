"""Results by layer that read as a table."""

from typing import Any


class Table(dict[str, dict[str, Any]]):
    """One row per layer, by its name; printed, the columns are aligned.

    >>> Table({"conv1": {"share": 0.25, "matrix": "8 x 4"}, "conv2": {"share": 1e-9, "matrix": "4 x 4"}})
    layer  share  matrix
    conv1  0.25   8 x 4
    conv2  1e-09  4 x 4
    """

    def __repr__(self) -> str:
        columns = list(dict.fromkeys(name for row in self.values() for name in row))
        lines = [["layer", *columns], *([name, *(_text(row.get(c)) for c in columns)] for name, row in self.items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        joined = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in joined)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
