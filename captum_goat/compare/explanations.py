"""Explanations of graphs by one explainer, and the time they take."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers import EdgeExplainer, Explainer, ExplainerSkippedError
from captum_goat.compare.questions import Questions
from captum_goat.compare.time_limit import TimeLimitError, time_limit
from captum_goat.metrics.counted_edges import check_scores
from captum_goat.metrics.reduced_graphs import output_of

TIMED_ALONE = 10  # graphs that batched explainers also explain one by one, to be timed
LARGEST_BATCH = 64
ALONE_SHARE = 0.25  # of the budget, for the graphs that are only timed
LONGEST = 3  # times the budget for a single graph

Advance = Callable[[int], object]


class ExplainerTooSlowError(ExplainerSkippedError):
    """An explainer took too long for the first graph."""


@dataclass(frozen=True)
class Explanation:
    """The scores of the first graphs.

    Attributes:
        count: How many graphs were explained.
        scores: The scores of their edges, one graph after the other, ``[E]``.
        alone: The seconds that single graphs took, ``[M]``.
        batched: The seconds per graph in batches of graphs; nan if the explainer takes graphs one by one.
        fitting: The seconds that learning took before.
        completeness_error: How far each graph's scores are from adding up, ``[G]``; nan for explainers that do not
            claim it.
    """

    count: int
    scores: Tensor
    alone: Tensor
    batched: float
    fitting: float
    completeness_error: Tensor


def clock() -> float:
    """Return seconds: of processor time with one thread, which other programs do not disturb, else of the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def make_explainer(factory: Callable[..., Explainer], seed: int) -> Explainer:
    """Make an explainer of a class, with the seed if it takes one."""
    return factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()


def explain(
    explainer: EdgeExplainer,
    questions: Questions,
    limit: int,
    budget: float = float("inf"),
    advance: Advance = lambda _: None,
) -> Explanation:
    """Explain the classes that are asked for, of the first graphs.

    Args:
        explainer: The explainer. It is given batches if it has an attribute ``batched`` that is true, else one graph
            after the other.
        questions: The model, the graphs and their classes.
        limit: How many graphs, at most.
        budget: The seconds after which no further graphs are taken up. One is explained in any case, unless it takes
            several times as long.
        advance: Told the number of graphs whenever some are explained.

    Returns:
        The scores and times.

    Raises:
        ExplainerSkippedError: If the explainer does not apply to the model.
        ValueError: If its scores are not one finite number per edge.
    """
    start = clock()
    explainer.fit(questions.model, questions.training_graphs)
    fitting = clock() - start
    limit = min(limit, len(questions.graphs))
    if getattr(explainer, "batched", False):
        _, alone = _one_by_one(explainer, questions, min(limit, TIMED_ALONE), ALONE_SHARE * budget, lambda _: None)
        size = max(1, int(min(LARGEST_BATCH, (1 - ALONE_SHARE) * budget / max(median(alone), 1e-6))))
        scores, seconds = _in_batches(explainer, questions, limit, size, (1 - ALONE_SHARE) * budget, advance)
        batched = sum(seconds) / sum(map(len, scores))
        found = [graph for batch in scores for graph in batch]
    else:
        found, alone = _one_by_one(explainer, questions, limit, budget, advance)
        batched = float("nan")
    joined = torch.cat(found)
    error = completeness_error(explainer, questions, joined, len(found))
    return Explanation(len(found), joined, torch.tensor(alone), batched, fitting, error)


def _one_by_one(
    explainer: EdgeExplainer, questions: Questions, limit: int, budget: float, advance: Advance
) -> tuple[list[Tensor], list[float]]:
    scores: list[Tensor] = []
    seconds: list[float] = []
    for graph, target in zip(questions.graphs[:limit], questions.target, strict=False):
        if seconds and sum(seconds) >= budget:
            break
        start, longest = clock(), LONGEST * budget
        try:
            with time_limit(longest):
                found = explainer(questions.model, graph, target.view(1))
        except TimeLimitError as error:
            if seconds:
                break
            raise ExplainerTooSlowError(f"one graph with {graph.num_edges} edges took over {longest:.0f} s") from error
        seconds.append(clock() - start)
        scores.append(_checked(found, graph))
        advance(1)
    return scores, seconds


def _in_batches(
    explainer: EdgeExplainer, questions: Questions, limit: int, size: int, budget: float, advance: Advance
) -> tuple[list[list[Tensor]], list[float]]:
    scores: list[list[Tensor]] = []
    seconds: list[float] = []
    for first in range(0, limit, size):
        if seconds and sum(seconds) >= budget:
            break
        graphs = questions.graphs[first : min(first + size, limit)]
        batch = Batch.from_data_list(graphs)
        start = clock()
        found = explainer(questions.model, batch, questions.target[first : first + len(graphs)])
        seconds.append(clock() - start)
        scores.append(list(_checked(found, batch).split([graph.num_edges for graph in graphs])))
        advance(len(graphs))
    return scores, seconds


def _checked(scores: Tensor, data: Data | Batch) -> Tensor:
    """Return scores as numbers like the node features; those that are not one finite number per edge are refused."""
    return check_scores(check_scores(scores, data).to(data.x), data)  # what is finite may be too large for fewer bits


def completeness_error(explainer: EdgeExplainer, questions: Questions, scores: Tensor, count: int) -> Tensor:
    r"""Return how far scores are from adding up, for explainers that claim it.

    .. math:: \left|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)\right|

    The graph without edges is one whose messages are masked, or whose edges are removed, whatever the explainer says
    by its attribute ``baseline``; masked if it has none.

    Args:
        explainer: The explainer.
        questions: The model, the graphs and their classes.
        scores: The scores of the first graphs.
        count: How many graphs.

    Returns:
        One number per graph, ``[count]``; nan if the explainer does not claim that its scores add up.
    """
    if not explainer.complete:
        return scores.new_full((count,), torch.nan)
    removed = getattr(explainer, "baseline", None) == "removed"
    sizes = torch.tensor([graph.num_edges for graph in questions.graphs[:count]], device=scores.device)
    graph_of_edge = torch.arange(count, device=scores.device).repeat_interleave(sizes)
    total = scores.new_zeros(count).index_add_(0, graph_of_edge, scores)
    parts = [slice(first, min(first + LARGEST_BATCH, count)) for first in range(0, count, LARGEST_BATCH)]
    return (total - torch.cat([_lost(questions, part, removed) for part in parts])).abs()


def _lost(questions: Questions, part: slice, removed: bool) -> Tensor:
    """Return by how much the logits of some graphs are larger than those without edges."""
    batch = Batch.from_data_list(questions.graphs[part])
    difference = output_of(questions.model, batch) - _without_edges(questions.model, batch, removed)
    return difference.gather(1, questions.target[part].unsqueeze(1)).squeeze(1)


@torch.no_grad()
def _without_edges(model: Module, batch: Batch, removed: bool) -> Tensor:
    if removed:
        return output_of(model, batch, torch.zeros_like(batch.edge_index[0], dtype=torch.bool))
    mask = batch.x.new_zeros(batch.num_edges)
    output: Tensor = EdgeMaskedModel(model)(mask, batch.x, batch.edge_index, batch.batch)
    return output
