"""The points of integrals over the scale of all variables, and which of them run as replicas."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import legendre

EXACT_POINTS = 16  # with more points, for recurrent networks, they are doubled until the shares add up


class Point(NamedTuple):
    """One point of an integral."""

    t: float  # the scale of edges, features and gates
    frozen: float | None  # the scale of frozen factors that are not gates, if they are the variables; else ``None``
    weight: float  # the point's weight


def quadrature(degree: int, frozen: int, smooth: int | None = None, most: int = EXACT_POINTS) -> list[Point]:
    """Return the points for an output whose products have up to ``degree`` variables, or ``frozen`` factors alone.

    There are ``smooth`` of them if it is not a polynomial of its variables, else as many as are exact, or ``most``.
    """
    pairs = gauss_legendre(min(degree, 2 * most)) if smooth is None else squares(smooth)
    of_variables = [Point(t, None, weight) for t, weight in pairs]
    return of_variables + [Point(0.0, s, weight) for s, weight in gauss_legendre(min(max(frozen, 0), 2 * most))]


@cache
def gauss_legendre(degree: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] that are exact for the derivative of a polynomial of this degree."""
    if degree == 0:
        return []
    points, weights = legendre.leggauss((degree + 1) // 2)
    return [(float(t), float(w)) for t, w in zip((points + 1) / 2, weights / 2, strict=True)]


@cache
def squares(count: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] for smooth functions that change fast near 0, such as 1 / (1 + t * degree).

    The variable of integration is the square root of t, in which such a function changes more slowly.
    """
    return [(t * t, 2 * t * weight) for t, weight in gauss_legendre(2 * count)]


@cache
def gauss_radau(degree: int) -> list[tuple[float, float]]:
    """Return points and weights that are exact for the same; the last point is 1.

    Besides this one they are as many as those of :func:`gauss_legendre`, or one less. They are the roots of the
    difference of two Legendre polynomials (Abramowitz and Stegun, Handbook of Mathematical Functions, 25.4.31).
    """
    if degree == 0:
        return []
    count = (degree + 2) // 2
    below = legendre.Legendre.basis(count - 1)
    difference = below - legendre.Legendre.basis(count)
    x: Any = np.sort(difference.roots())[:-1]
    x = x - difference(x) / difference.deriv()(x)  # one step of Newton's method, for the last digits
    weights = [*(1 + x) / (count * below(x)) ** 2, 2 / count**2]
    return [(float(t), float(w)) for t, w in zip((np.append(x, 1.0) + 1) / 2, np.divide(weights, 2), strict=True)]


@cache
def replicas_of(degree: int, gates: int, frozen: int) -> tuple[tuple[int, Point], ...]:
    """Return the replicas for an output, each with the number of its pattern: 0 with edges, 1 without.

    The first two are the model itself and the model without edges, which are points of the integrals, too.
    """
    of_gates = [[Point(t, None, weight) for t, weight in gauss_radau(count)] for count in (degree, gates)]
    first = [points.pop() if points else Point(1.0, None, 0.0) for points in of_gates]
    points = [[*of_variables, *quadrature(0, frozen)] for of_variables in of_gates]
    return (*enumerate(first), *((number, point) for number in (0, 1) for point in points[number]))
