"""The table of a comparison: means with standard errors, and paired differences against one of the explainers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from captum_goat.compare.explanations import Explanation
from captum_goat.compare.measures import BETTER, Key
from captum_goat.compare.statistics import judge, mean_and_error

Verdict = Literal["better", "alike", "worse", ""]


@dataclass(frozen=True)
class ComparisonRow:
    """A number of a comparison, and what it is.

    Attributes:
        explainer: The explainer.
        metric: What is measured.
        sparsity: The share of edges that is left out; empty if that is of no account, or for the mean height of a curve
            over all sparsities.
        value: The mean over graphs; the median for ``seconds_alone``.
        error: The mean's standard error; nan for numbers of all graphs together.
        n: The number of graphs that count.
        difference: The mean of the differences to the reference's values on the same graphs; nan if there are none.
        difference_error: Its standard error.
        verdict: What the explainer is beside the reference: ``"better"`` or ``"worse"`` if the difference is more than
            two standard errors away from 0, else ``"alike"``; empty if there is no standard error.

    Examples::

        >>> from captum_goat.compare import ComparisonRow
        >>> row = ComparisonRow("occlusion", "area_gain", "", value=0.5, error=0.1, n=9)
        >>> row.value, row.verdict
        (0.5, '')
    """

    explainer: str
    metric: str
    sparsity: str
    value: float
    error: float = math.nan
    n: int = 0
    difference: float = math.nan
    difference_error: float = math.nan
    verdict: Verdict = ""


def verdict(metric: str, difference: float, error: float) -> Verdict:
    """Say whether an explainer is better than the reference, from the difference of the two.

    Args:
        metric: Of what it is the difference.
        difference: The mean of paired differences.
        error: Its standard error.

    Returns:
        The verdict; empty if there is no error.

    Examples::

        >>> from captum_goat.compare.rows import verdict
        >>> verdict("area_plus", 0.3, 0.1), verdict("area_minus", 0.3, 0.1), verdict("area_minus", 0.3, 0.2)
        ('better', 'worse', 'alike')
    """
    if math.isnan(difference) or math.isnan(error):
        return ""
    return judge(difference if BETTER[metric] == "more" else -difference, error)


def rows_of(
    name: str, explanation: Explanation, values: Mapping[Key, Tensor], reference: Mapping[Key, Tensor] | None
) -> Iterator[ComparisonRow]:
    """Return all rows of an explainer.

    Args:
        name: Its name.
        explanation: Its times.
        values: What was measured of it, a number per graph.
        reference: The same of the reference; ``None`` if this is the reference, or if there is none. Differences are
            those on the first graphs, which both have explained.
    """
    for (metric, sparsity), numbers in values.items():
        value, error, n = mean_and_error(numbers)
        if n:
            others = None if reference is None else reference.get((metric, sparsity))
            difference = difference_error = math.nan
            if others is not None:
                both = min(len(numbers), len(others))
                difference, difference_error, _ = mean_and_error(numbers[:both] - others[:both])
            what = verdict(metric, difference, difference_error)
            yield ComparisonRow(name, metric, sparsity, value, error, n, difference, difference_error, what)
    errors = values.get(("completeness_error", ""))
    if errors is not None:
        yield ComparisonRow(name, "largest_completeness_error", "", float(errors.max()), n=len(errors))
    _, error, n = mean_and_error(explanation.alone)
    yield ComparisonRow(name, "seconds_alone", "", float(explanation.alone.median()), error, n)
    if not math.isnan(explanation.batched):
        yield ComparisonRow(name, "seconds_in_batch", "", explanation.batched, n=explanation.count)
    yield ComparisonRow(name, "seconds_to_fit", "", explanation.fitting)
