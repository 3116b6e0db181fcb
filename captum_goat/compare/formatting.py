"""Numbers and tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from captum_goat.compare.statistics import TINY

EMPTY = "-"


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table; columns of numbers are aligned to the right.

    Examples::

        >>> from captum_goat.compare.formatting import markdown
        >>> print(markdown(["explainer", "n"], [["`goat`", "3"]]))
        | explainer | n |
        |---|--:|
        | `goat` | 3 |
    """
    lines = list(lines)
    rule = "|" + "".join("--:|" if _are_numbers(column) else "---|" for column in zip(*lines, strict=True))
    return "\n".join([_line(header), rule if lines else "|" + "---|" * len(header), *(_line(each) for each in lines)])


def _are_numbers(column: Sequence[str]) -> bool:
    return all(each.strip("*")[:1] in "+-0123456789" for each in column)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a fixed number of digits, or a dash."""
    return EMPTY if value is None or math.isnan(value) else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Return a time in a readable unit.

    Examples::

        >>> from captum_goat.compare.formatting import seconds
        >>> seconds(0.00123), seconds(2.5)
        ('1.23 ms', '2.50 s')
    """
    if value is None or math.isnan(value):
        return EMPTY
    return f"{value:.3g} s" if value >= 10 else f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def signed(difference: float, error: float) -> str:
    """Return a difference with its standard error; a dash where there is none.

    Examples::

        >>> from captum_goat.compare.formatting import signed
        >>> signed(0.25, 0.1), signed(-0.00002, 0.00001)
        ('+0.250 ± 0.100', '-2e-05 ± 1e-05')
    """
    if math.isnan(difference):
        return EMPTY
    digits = ".0e" if 0 < abs(difference) < TINY else ".3f"
    return f"{difference:+{digits}}" + ("" if math.isnan(error) else f" ± {error:{digits}}")
