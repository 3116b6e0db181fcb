"""The points at which a gated replay is run, and their weights."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from captum_goat.tracking import Rows


class Point(NamedTuple):
    """One point of an integral.

    Attributes:
        t: The scale of edges, features and gates.
        frozen: The scale of frozen factors that are no gates, which are the variables then; ``None`` for 1.
        weight: The point's weight.
    """

    t: float
    frozen: float | None
    weight: float


def points(rows: Rows, *, inputs: bool, smooth: int | None = None) -> list[Point]:
    """Return the points that are needed for an output.

    Args:
        rows: The rows of the output, which know its degree as a polynomial.
        inputs: ``False`` if only gates are variables.
        smooth: For an output that is no polynomial the number of points of the variables' integral.
    """
    found = gauss_legendre(rows.degree if inputs else rows.gates) if smooth is None else squares(smooth)
    of_variables = [Point(t, None, weight) for t, weight in found]
    return of_variables + [Point(0.0, s, weight) for s, weight in gauss_legendre(max(rows.frozen, 0))]


@cache
def gauss_legendre(degree: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] that are exact for the derivative of a polynomial of this degree."""
    if degree == 0:
        return []
    points, weights = np.polynomial.legendre.leggauss((degree + 1) // 2)
    return [(float(t), float(w)) for t, w in zip((points + 1) / 2, weights / 2, strict=True)]


@cache
def squares(count: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] for functions that are smooth, but change fast near 0.

    A weight such as 1 / (1 + t * degree) does. With t the square of what is integrated over it changes more slowly.
    """
    return [(t * t, 2 * t * weight) for t, weight in gauss_legendre(2 * count)]
