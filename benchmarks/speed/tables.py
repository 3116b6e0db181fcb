"""Markdown tables with aligned columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from captum_goat.compare.comparison import EMPTY, seconds

__all__ = ["EMPTY", "megabytes", "seconds", "size", "table", "times"]


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is aligned to the left and the others to the right.

    Examples::

        >>> from benchmarks.speed.tables import table
        >>> print(table(["method", "10 edges"], [["GOAt", "1.5 ms"], ["Saliency", "-"]]))
        | method   | 10 edges |
        |:---------|---------:|
        | GOAt     |   1.5 ms |
        | Saliency |        - |
    """
    columns = list(zip(header, *lines, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    rule = "|".join(
        ":" + "-" * (width + 1) if not number else "-" * (width + 1) + ":" for number, width in enumerate(widths)
    )
    written = [_line(cells, widths) for cells in (header, *lines)]
    return "\n".join([written[0], f"|{rule}|", *written[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def size(edges: int) -> str:
    """Return a number of edges.

    Examples::

        >>> from benchmarks.speed.tables import size
        >>> size(300), size(10_000), size(2_500_000)
        ('300', '10k', '2.5M')
    """
    for least, letter in ((1_000_000, "M"), (1_000, "k")):
        if edges >= least:
            return f"{edges / least:.4g}{letter}"
    return str(edges)


def megabytes(value: float | None) -> str:
    """Return an amount of memory, or a dash."""
    return (
        EMPTY
        if value is None or math.isnan(value)
        else f"{value / 1e6:.3g} MB"
        if value < 1e9
        else f"{value / 1e9:.3g} GB"
    )


def times(value: float | None) -> str:
    """Return a factor, or a dash."""
    return EMPTY if value is None or math.isnan(value) else f"{value:.3g}"
