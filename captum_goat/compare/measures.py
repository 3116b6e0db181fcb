"""One explainer on the graphs of a subject: its scores within a time budget, and the metrics of these."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch

from captum_goat import EdgeMaskedModel, metrics
from captum_goat.compare.subject import Subject, batches
from captum_goat.metrics.counted_edges import check_scores
from captum_goat.metrics.reduced_graphs import model_arguments, output_of, signed_logits
from captum_goat.tracking import UnsupportedModelError

INFIDELITY_SAMPLES = 20
TIMED_ALONE = 10  # graphs that batched explainers also explain one by one, to be timed
LARGEST_BATCH = 64
ALONE_SHARE = 0.25  # of the budget, for the graphs that are only timed

# A metric and a sparsity, which is empty for metrics that have none and for means over all sparsities.
Key: TypeAlias = tuple[str, str]
# A function of (model, data, target), such as an Explainer, which may have the attributes of one.
EdgeExplainer: TypeAlias = Callable[..., Tensor]
Advance: TypeAlias = Callable[[int], object]


@dataclass(frozen=True)
class TimedScores:
    """The edge scores of the first graphs, and the time they took."""

    scores: list[Tensor]  # of each graph, [E]
    seconds_alone: Tensor  # for single graphs, [M]
    seconds_in_batch: float  # per graph; nan if the explainer takes one graph at a time
    completeness_error: Tensor  # of each graph, [G]; nan for explainers that are not complete


def clock() -> float:
    """Return the processor time with one thread, which other programs do not disturb; else the wall-clock time."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def explain(
    explainer: EdgeExplainer, subject: Subject, budget: float = float("inf"), advance: Advance = lambda _: None
) -> TimedScores:
    """Explain the target classes of the graphs, or of the first ones if the budget, in seconds, is not enough for all.

    One graph is explained in any case.
    """
    seconds_in_batch = float("nan")
    if getattr(explainer, "batched", False):
        _, seconds_alone = _timed(explainer, subject, TIMED_ALONE, 1, ALONE_SHARE * budget)
        budget *= 1 - ALONE_SHARE
        size = max(1, int(min(LARGEST_BATCH, budget / max(median(seconds_alone), 1e-6))))
        scores, seconds = _timed(explainer, subject, len(subject.graphs), size, budget, advance)
        seconds_in_batch = sum(seconds) / len(scores)
    else:
        scores, seconds_alone = _timed(explainer, subject, len(subject.graphs), 1, budget, advance)
    error = completeness_error(explainer, subject, scores)
    return TimedScores(scores, torch.tensor(seconds_alone), seconds_in_batch, error)


def _timed(
    explainer: EdgeExplainer, subject: Subject, count: int, size: int, budget: float, advance: Advance = lambda _: None
) -> tuple[list[Tensor], list[float]]:
    """Return the scores of the first ``count`` graphs, and the seconds of each call with ``size`` graphs."""
    scores: list[Tensor] = []
    seconds: list[float] = []
    for first in range(0, min(count, len(subject.graphs)), size):
        if seconds and sum(seconds) >= budget:
            break
        graphs = subject.graphs[first : min(first + size, count)]
        data = graphs[0] if size == 1 else Batch.from_data_list(graphs)
        target = subject.target[first : first + len(graphs)]
        start = clock()
        try:
            new_scores = explainer(subject.model, data, target)
        except TimeoutError:  # of an explainer with a time limit of its own
            if not seconds:
                raise
            break
        seconds.append(clock() - start)
        # Checked twice: a finite number may overflow in another dtype.
        checked = check_scores(check_scores(new_scores, data).to(data.x), data)
        scores += checked.split([graph.num_edges for graph in graphs])
        advance(len(graphs))
    return scores, seconds


@torch.no_grad()
def completeness_error(explainer: EdgeExplainer, subject: Subject, scores: list[Tensor]) -> Tensor:
    r"""Return :math:`|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)|` of the first graphs; nan if not ``complete``."""
    totals = torch.stack([graph_scores.sum() for graph_scores in scores])
    if not getattr(explainer, "complete", False):
        return torch.full_like(totals, torch.nan)
    model, lost = subject.model, []
    for _, batch in batches(subject.graphs[: len(scores)]):
        no_edges = torch.zeros_like(batch.edge_index[0], dtype=torch.bool)
        if getattr(explainer, "baseline", None) == "removed":
            without = output_of(model, batch, no_edges)
        else:
            without = EdgeMaskedModel(model)(no_edges.to(batch.x), *model_arguments(model, batch))
        lost.append(signed_logits(output_of(model, batch)) - signed_logits(without.view(batch.num_graphs, -1)))
    contributions = torch.cat(lost).gather(1, subject.target[: len(scores)].unsqueeze(1)).squeeze(1)
    return (totals - contributions).abs()


def measure(subject: Subject, scores: Sequence[Tensor]) -> dict[Key, Tensor]:
    """Return all metrics of the first graphs by metric and sparsity, ``[G]`` each; nan where one does not apply."""
    measured: dict[Key, list[Tensor]] = {}
    for part, batch in batches(subject.graphs):
        if part.start >= len(scores):
            break
        # Graphs without scores get zeros, so that random numbers do not depend on how many graphs have scores.
        missing = [graph.x.new_zeros(graph.num_edges) for graph in subject.graphs[part][len(scores[part]) :]]
        for key, values in _measure(subject, batch, torch.cat([*scores[part], *missing]), part).items():
            measured.setdefault(key, []).append(values)
    return {key: torch.cat(values)[: len(scores)] for key, values in measured.items()}


def _measure(subject: Subject, batch: Batch, scores: Tensor, part: slice) -> dict[Key, Tensor]:
    model, target, sparsities = subject.model, subject.target[part], subject.sparsities
    curve = metrics.fidelity_curve(model, batch, scores, sparsities, target, subject.node_policy)
    values: dict[Key, Tensor] = {}
    for sparsity, plus, minus in zip(sparsities, curve.plus, curve.minus, strict=True):
        values["fidelity_plus", str(sparsity)], values["fidelity_minus", str(sparsity)] = plus, minus
    curves = {"area_plus": curve.plus, "area_minus": curve.minus, "area_gain": curve.plus - curve.minus}
    for metric, heights in curves.items():
        values[metric, ""] = metrics.area_under_curve(heights, curve.sparsities, normalize=True)
    # Every explainer gets the same random numbers: they are seeded anew for each part.
    middle, random = sparsities[len(sparsities) // 2], Generator().manual_seed(subject.seed + part.start)
    selected = metrics.select_edges(batch, scores, middle)
    robust = metrics.robust_fidelity(model, batch, selected, target, subject.node_policy, generator=random)
    values["robust_fidelity_plus", ""], values["robust_fidelity_minus", ""] = robust.plus, robust.minus
    values["robust_gain", ""] = robust.delta
    if "edge_label" in batch:
        values["ground_truth_auc", ""] = metrics.ground_truth_auc(batch, scores)
    random.manual_seed(subject.seed + part.start)
    options: dict[str, Any] = {"samples": INFIDELITY_SAMPLES, "normalize": True, "generator": random}
    try:  # scaled by the factor that fits best, so that scores of any unit compare
        values["infidelity", ""] = metrics.graph_infidelity(model, batch, scores, target, **options)
    except UnsupportedModelError:  # the model has no messages that could be masked
        values["infidelity", ""] = torch.full_like(robust.plus, torch.nan)
    return values
