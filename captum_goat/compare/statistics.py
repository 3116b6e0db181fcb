"""Means with standard errors, and verdicts on paired differences."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

DECISIVE = 2.0  # standard errors
TINY = 0.0005  # what three digits do not show

Verdict = Literal["better", "alike", "worse"]
VERDICTS: tuple[Verdict, ...] = ("better", "alike", "worse")


def mean_and_error(values: Tensor) -> tuple[float, float, int]:
    r"""Return the mean, its standard error :math:`s / \sqrt n` and the number of values, without those that are nan.

    Examples::

        >>> import torch
        >>> from captum_goat.compare.statistics import mean_and_error
        >>> mean_and_error(torch.tensor([1.0, 3.0, torch.nan]))
        (2.0, 1.0, 2)
    """
    values = values[~values.isnan()].double()
    n = len(values)
    if n == 0:
        return math.nan, math.nan, 0
    return float(values.mean()), float(values.std() / math.sqrt(n)) if n > 1 else math.nan, n


def judge(difference: float, error: float) -> Verdict:
    """Say whether something of which more is better is better: by more than two standard errors, and visibly.

    Args:
        difference: The mean of paired differences. One that three digits do not show is none, however sure it is.
        error: Its standard error.

    Returns:
        The verdict.

    Examples::

        >>> from captum_goat.compare.statistics import judge
        >>> judge(0.3, 0.1), judge(-0.3, 0.2), judge(-0.3, 0.1)
        ('better', 'alike', 'worse')
    """
    if abs(difference) <= max(TINY, DECISIVE * error):
        return "alike"
    return "better" if difference > 0 else "worse"
