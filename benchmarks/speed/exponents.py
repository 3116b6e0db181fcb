"""How time and memory grow with the number of edges."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

FROM = 1_000  # edges; in smaller graphs, what does not depend on the size decides


def exponent(values: Mapping[int, float], at_least: int = FROM) -> float:
    r"""Fit :math:`value = c \cdot size^p` and return p: the slope in a picture whose axes are logarithmic.

    Args:
        values: By size.
        at_least: Smaller sizes do not count.

    Returns:
        The exponent, ``nan`` if fewer than two sizes count.

    Examples::

        >>> from benchmarks.speed.exponents import exponent
        >>> round(exponent({10: 7.0, 1_000: 1.0, 10_000: 100.0}), 6)
        2.0
    """
    kept = sorted((size, value) for size, value in values.items() if size >= at_least and value > 0)
    if len(kept) < 2:
        return math.nan
    sizes, numbers = np.log(np.array(kept)).T
    return float(np.polyfit(sizes, numbers, 1)[0])


def last_exponent(values: Mapping[int, float]) -> float:
    """Return the exponent between the two largest sizes, where what does not grow weighs least."""
    largest = sorted(values)[-2:]
    return exponent({size: values[size] for size in largest}, at_least=0)
