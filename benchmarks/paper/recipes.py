"""Recipes: combinations of the library's parts, judged by paired areas under fidelity curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.explainers import EXPLAINERS
from benchmarks.paper.measurements import Key
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.results import NOTHING, REFERENCE
from benchmarks.paper.study import Study
from captum_goat.compare.comparison import DECISIVE, mean_and_error
from captum_goat.compare.graphs import SPARSITIES
from captum_goat.metrics import area_under_curve

RECIPES = (
    REFERENCE,
    "goat_adjacency",
    "goat_adjacency_proportional",
    "goat_peeled",
    "goat_adjacency_peeled",
    "ig_half_peeled_both",
    "ig_half_adjacency_peeled_both",
    "ig_half_peeled_2_1",
    "ig_half_adjacency_peeled_2_1",
)
CONTROL, UNPEELED_CONTROL = "random_peeled", "random"
OCCLUSIONS = ("occlusion_adjacency", "occlusion")  # edges deleted, which is what is measured; or messages masked
COMPARED = (*RECIPES, *OCCLUSIONS, CONTROL, UNPEELED_CONTROL)
PLUS, MINUS = "fidelity_plus", "fidelity_minus"
NODES = "stay"
ROUNDING = 1e-6  # of probabilities in single precision: a smaller difference is none


@dataclass(frozen=True)
class Area:
    """The area under one curve of one explainer on one task, and how far it is from another explainer's.

    Attributes:
        dataset: The dataset.
        gnn: The model.
        explainer: The explainer.
        attributions: How many attributions it takes, whatever the size of a graph; 0 for explainers that are none.
        metric: ``"fidelity_plus"``, of which more is better, or ``"fidelity_minus"``, of which less is.
        value: The mean over graphs of the area, divided by the width of the curve.
        error: Its standard error.
        n: The number of graphs.
        reference: The explainer that it is compared with: occlusion for fid+ (by deletion, if that was run), GOAt for
            fid-.
        difference: The mean of paired differences, this explainer's minus the reference's.
        difference_error: Its standard error.
    """

    dataset: str
    gnn: str
    explainer: str
    attributions: int
    metric: str
    value: float
    error: float
    n: int
    reference: str
    difference: float = NOTHING
    difference_error: float = NOTHING

    def is_met(self, errors: float) -> bool:
        """Return whether it is no worse than the reference, up to some standard errors of the difference."""
        if self.explainer == self.reference:
            return True
        slack = ROUNDING + errors * (0.0 if math.isnan(self.difference_error) else self.difference_error)
        return self.shortfall <= slack

    @property
    def shortfall(self) -> float:
        """By how much it is worse than the reference; below 0 if it is better."""
        if self.explainer == self.reference:
            return 0.0
        return -self.difference if self.metric == PLUS else self.difference


@dataclass(frozen=True)
class Trial:
    """What one explainer's two areas are on one task, and whether they meet both conditions.

    Attributes:
        plus: The area under fid+, compared with occlusion's.
        minus: The area under fid-, compared with GOAt's.

    Examples::

        >>> from benchmarks.paper.recipes import Area, Trial
        >>> what = ("nci1", "gin", "goat_peeled", 5)
        >>> plus = Area(*what, "fidelity_plus", 0.4, 0.02, 200, "occlusion", difference=0.05, difference_error=0.01)
        >>> minus = Area(*what, "fidelity_minus", 0.2, 0.02, 200, "goat", difference=0.01, difference_error=0.01)
        >>> Trial(plus, minus).verdict
        'within two errors'
    """

    plus: Area
    minus: Area

    @property
    def explainer(self) -> str:
        """The explainer's name."""
        return self.plus.explainer

    @property
    def task(self) -> tuple[str, str]:
        """The dataset and the model."""
        return self.plus.dataset, self.plus.gnn

    def meets(self, errors: float = 0.0) -> bool:
        """Return whether both areas are no worse than their references, up to some standard errors."""
        return self.plus.is_met(errors) and self.minus.is_met(errors)

    @property
    def verdict(self) -> str:
        """Whether both conditions are met: ``"by the mean"``, ``"within two errors"`` or ``"no"``."""
        return "by the mean" if self.meets() else "within two errors" if self.meets(DECISIVE) else "no"

    @property
    def gain(self) -> float:
        """The area under fid+ minus that under fid-."""
        return self.plus.value - self.minus.value


def areas_of_graphs(cell: Cell, metric: str) -> Tensor:
    """Return the area under a curve at fixed k of every graph ``[G]``, divided by the curve's width."""
    values = [cell.measurements.values[Key(metric, NODES, "fixed", str(sparsity))] for sparsity in SPARSITIES]
    return area_under_curve(torch.stack(values).double(), torch.tensor(SPARSITIES), normalize=True)


def trials_of(study: Study) -> Iterator[Trial]:
    """Return the trials of a task.

    Args:
        study: What the explainers did on it. Without occlusion and GOAt there is nothing to compare with.
    """
    occlusion = next((cell for name in OCCLUSIONS if (cell := study.cell(name)) is not None), None)
    goat = study.cell(REFERENCE)
    if occlusion is None or goat is None or not study.task.held_out:
        return
    for name in COMPARED:
        cell = study.cell(name)
        if cell is not None:
            yield Trial(_area(study, cell, PLUS, occlusion), _area(study, cell, MINUS, goat))


def _area(study: Study, cell: Cell, metric: str, reference: Cell) -> Area:
    own = areas_of_graphs(cell, metric)
    what = (study.task.dataset, study.task.gnn, cell.explainer, attributions_of(cell.explainer), metric)
    is_reference = cell.explainer == reference.explainer
    difference = (NOTHING, NOTHING) if is_reference else paired(own, areas_of_graphs(reference, metric))
    return Area(*what, *mean_and_error(own), reference.explainer, *difference)


def paired(own: Tensor, others: Tensor) -> tuple[float, float]:
    """Return the mean difference on the graphs that both have, the first ones, and its standard error."""
    both = min(len(own), len(others))
    return mean_and_error(own[:both] - others[:both])[:2]


def attributions_of(name: str) -> int:
    """Return how many attributions an explainer takes; 0 for those that are none: occlusion and random numbers."""
    if name in (*OCCLUSIONS, CONTROL, UNPEELED_CONTROL):
        return 0
    return int(getattr(EXPLAINERS[name](), "rounds", 1))


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the best of one task's trials: of those that meet most, the one with most fid+ minus fid-.

    Args:
        trials: The trials; of equal ones the first is the best.
    """
    return max(trials, key=lambda trial: (trial.meets(), trial.meets(DECISIVE), round(trial.gain, 6)))
