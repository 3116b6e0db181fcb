"""The metrics of a comparison: values for every graph, their means, and verdicts on paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch

from captum_goat import metrics
from captum_goat.compare.subject import Subject, chunks
from captum_goat.tracking import UnsupportedModelError

INFIDELITY_SAMPLES = 20
DECISIVE = 2.0  # standard errors
TINY = 0.0005  # smaller than what three digits show
SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9)

# A metric and a sparsity, which is empty for metrics that have none and for means over all sparsities.
Key: TypeAlias = tuple[str, str]
Verdict: TypeAlias = Literal["better", "alike", "worse"]

# Of all other metrics, more is better.
LESS_IS_BETTER = {
    "fidelity_minus",
    "area_minus",
    "robust_fidelity_minus",
    "infidelity",
    "completeness_error",
    "largest_completeness_error",
    "seconds_alone",
    "seconds_in_batch",
    "seconds_to_fit",
}


class Conditions(NamedTuple):
    """How explanations are measured, the same for every explainer."""

    sparsities: tuple[float, ...] = SPARSITIES  # shares of edges that are not selected, in ascending order
    node_policy: metrics.NodePolicy = "stay"
    seed: int = 0  # of robust fidelities and infidelity

    def check(self) -> None:
        """Raise ValueError if the sparsities or the node policy are invalid."""
        values = self.sparsities
        if len(values) < 2 or sorted(set(values)) != list(values) or not 0.0 <= values[0] <= values[-1] <= 1.0:
            raise ValueError(f"Expected two or more sparsities from 0 to 1 in ascending order (got {values}).")
        if self.node_policy not in ("stay", "leave"):
            raise ValueError(f"Expected node_policy to be 'stay' or 'leave' (got {self.node_policy!r}).")


def measure(subject: Subject, scores: Sequence[Tensor], conditions: Conditions) -> dict[Key, Tensor]:
    """Return all metrics of the first graphs by metric and sparsity, ``[G]`` each; nan where one does not apply."""
    measured: dict[Key, list[Tensor]] = {}
    for part in chunks(subject.graphs):
        if part.start >= len(scores):
            break
        graphs = subject.graphs[part]
        # Graphs without scores get zeros, so that random numbers do not depend on how many graphs have scores.
        missing = [graph.x.new_zeros(graph.num_edges) for graph in graphs[len(scores[part]) :]]
        joined = torch.cat([*scores[part], *missing])
        for key, values in _measure(subject, Batch.from_data_list(graphs), joined, part, conditions).items():
            measured.setdefault(key, []).append(values)
    return {key: torch.cat(values)[: len(scores)] for key, values in measured.items()}


def _measure(subject: Subject, batch: Batch, scores: Tensor, part: slice, conditions: Conditions) -> dict[Key, Tensor]:
    model, target, (sparsities, node_policy, seed) = subject.model, subject.target[part], conditions
    curve = metrics.fidelity_curve(model, batch, scores, sparsities, target, node_policy)
    values: dict[Key, Tensor] = {}
    for sparsity, plus, minus in zip(sparsities, curve.plus, curve.minus, strict=True):
        values["fidelity_plus", str(sparsity)], values["fidelity_minus", str(sparsity)] = plus, minus
    curves = {
        "area_plus": curve.plus,
        "area_minus": curve.minus,
        "area_gain": curve.plus - curve.minus,
        "characterization_score": metrics.characterization_score(curve.plus, curve.minus),
    }
    for metric, heights in curves.items():
        values[metric, ""] = metrics.area_under_curve(heights, curve.sparsities, normalize=True)
    # Every explainer gets the same random numbers: they are seeded anew for each part.
    middle, random = sparsities[len(sparsities) // 2], Generator().manual_seed(seed + part.start)
    selected = metrics.select_edges(batch, scores, middle)
    robust = metrics.robust_fidelity(model, batch, selected, target, node_policy, generator=random)
    values["robust_fidelity_plus", ""], values["robust_fidelity_minus", ""] = robust.plus, robust.minus
    values["robust_gain", ""] = robust.delta
    if "edge_label" in batch:
        values["ground_truth_auc", ""] = metrics.ground_truth_auc(batch, scores)
    random.manual_seed(seed + part.start)
    try:  # scaled by the factor that fits best, so that scores of any unit compare
        infidelity = metrics.graph_infidelity(
            model, batch, scores, target, samples=INFIDELITY_SAMPLES, normalize=True, generator=random
        )
    except UnsupportedModelError:  # the model has no messages that could be masked
        infidelity = torch.full_like(robust.plus, torch.nan)
    values["infidelity", ""] = infidelity
    return values


def mean_and_error(values: Tensor) -> tuple[float, float, int]:
    r"""Return the mean, its standard error :math:`s / \sqrt n` and the number of values, ignoring nan."""
    values = values[~values.isnan()].double()
    n = len(values)
    if n == 0:
        return math.nan, math.nan, 0
    return float(values.mean()), float(values.std() / math.sqrt(n)) if n > 1 else math.nan, n


def verdict(metric: str, difference: float, error: float) -> Verdict | Literal[""]:
    """Return whether a paired difference to the reference exceeds two standard errors and shows in three digits."""
    if math.isnan(difference) or math.isnan(error):
        return ""
    if abs(difference) <= max(TINY, DECISIVE * error):
        return "alike"
    return "better" if (difference > 0) != (metric in LESS_IS_BETTER) else "worse"
