"""Duels: guided Shapley values and the search for edge sets, each against others on the same graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy.stats import t as student
from torch import Tensor

from benchmarks.paper.measurements import Key
from benchmarks.paper.recipes import MINUS, NODES, PLUS, areas_of_graphs
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.study import Study
from benchmarks.paper.verdicts import SIGNIFICANT, TINY, Verdict, holm
from captum_goat.compare.comparison import DECISIVE, mean_and_error

GAIN, ROBUST = "area_gain", "robust_fidelity"
# Who is compared with whom, by what.
PLAN: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "guided_shapley_64",
        ("occlusion", "occlusion_adjacency", "integrated_gradients", "gradient_shap", "cf_gnn_explainer", "goat"),
        (GAIN,),
    ),
    ("guided_shapley_256", ("shapley_value_sampling",), (GAIN,)),
    (
        "edge_set_search",
        ("random_swaps", "shapley_value_sampling", "guided_shapley_64", "occlusion"),
        (PLUS, MINUS, GAIN, ROBUST),
    ),
)


@dataclass(frozen=True)
class Duel:
    """Two explainers on one task, by one measure.

    Attributes:
        dataset: The dataset.
        gnn: The model.
        explainer: The one.
        other: The other.
        metric: ``"area_gain"``, ``"fidelity_plus"`` and ``"fidelity_minus"`` (areas under curves over sparsities), or
            ``"robust_fidelity"`` (robust fid+ minus robust fid- at the paper's sparsity).
        value: The mean of the one, on the graphs that both explained.
        other_value: The mean of the other.
        difference: The mean of the paired differences.
        difference_error: Its standard error.
        n: The number of graphs.

    Examples::

        >>> from benchmarks.paper.duels import Duel
        >>> what = ("nci1", "gin", "edge_set_search", "occlusion", "fidelity_minus")
        >>> Duel(*what, value=0.1, other_value=0.4, difference=-0.3, difference_error=0.1, n=20).verdict
        'better'
    """

    dataset: str
    gnn: str
    explainer: str
    other: str
    metric: str
    value: float
    other_value: float
    difference: float
    difference_error: float
    n: int

    @property
    def advantage(self) -> float:
        """The difference, with the sign turned where less is better."""
        return -self.difference if self.metric == MINUS else self.difference

    @property
    def verdict(self) -> Verdict:
        """Whether the one is better by more than two standard errors and by more than 0.0005, worse, or neither."""
        error = 0.0 if math.isnan(self.difference_error) else self.difference_error
        return self.judged(abs(self.difference) > DECISIVE * error)

    @property
    def p_value(self) -> float:
        """The p-value of the paired difference, by Student's t-test on both sides."""
        if self.n < 2 or not self.difference_error > 0:
            return 0.0 if self.n > 1 and self.difference else 1.0
        return float(2.0 * student.sf(abs(self.difference / self.difference_error), self.n - 1))

    def judged(self, decided: bool) -> Verdict:
        """Return the verdict if the difference is one, or not."""
        if not decided or abs(self.difference) <= TINY:
            return "alike"
        return "better" if self.advantage > 0 else "worse"


def corrected(duels: Sequence[Duel]) -> list[Verdict]:
    """Return the verdicts after Holm's correction for as many comparisons as there are duels."""
    p_values = holm([duel.p_value for duel in duels])
    return [duel.judged(p_value < SIGNIFICANT) for duel, p_value in zip(duels, p_values, strict=True)]


def all_duels(studies: Sequence[Study]) -> list[Duel]:
    """Return the duels of :data:`PLAN` on all tasks of held-out graphs, as far as both were run."""
    return [
        duel
        for own, others, metrics in PLAN
        for metric in metrics
        for other in others
        for study in studies
        if study.task.held_out
        for duel in _duel(study, own, other, metric)
    ]


def _duel(study: Study, own: str, other: str, metric: str) -> Iterator[Duel]:
    cells = study.cell(own), study.cell(other)
    if cells[0] is None or cells[1] is None:
        return
    one, two = (_values(cell, metric) for cell in cells if cell is not None)
    both = min(len(one), len(two))
    difference, error, n = mean_and_error(one[:both] - two[:both])
    mean, other_mean = (float(values[:both].double().nanmean()) for values in (one, two))
    what = (study.task.dataset, study.task.gnn, own, other, metric)
    yield Duel(*what, mean, other_mean, difference, error, n)


def _values(cell: Cell, metric: str) -> Tensor:
    values = cell.measurements.values
    if metric == ROBUST:
        key = next(key for key in values if key.metric == f"{ROBUST}_plus")
        return values[key] - values[key._replace(metric=f"{ROBUST}_minus")]
    return values[Key(GAIN, NODES, "fixed")] if metric == GAIN else areas_of_graphs(cell, metric)
