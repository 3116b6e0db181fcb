"""Explanations of a task's graphs by one explainer, and the time they take."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch

from captum_goat import EdgeMaskedModel
from captum_goat.benchmark.explainers import EXPLAINERS, Explainer, ExplainerSkippedError
from captum_goat.benchmark.paper.tasks import Task
from captum_goat.benchmark.paper.time_limit import TimeLimitError, time_limit
from captum_goat.metrics.counted_edges import CountedEdges
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
    """The scores of the first graphs of a task.

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


def make_explainer(name: str, seed: int) -> Explainer:
    """Make an explainer by its name, with the seed if it takes one."""
    factory: Callable[..., Explainer] = EXPLAINERS[name]
    return factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()


def explain(
    explainer: Explainer, task: Task, limit: int, budget: float = float("inf"), advance: Advance = lambda _: None
) -> Explanation:
    """Explain the predicted classes of the first graphs of a task.

    Args:
        explainer: The explainer.
        task: The model and the graphs.
        limit: How many graphs, at most.
        budget: The seconds after which no further graphs are taken up. One is explained in any case, unless it takes
            several times as long.
        advance: Told the number of graphs whenever some are explained.

    Returns:
        The scores and times.

    Raises:
        ExplainerSkippedError: If the explainer does not apply to the model.
    """
    start = clock()
    explainer.fit(task.model, task.training_graphs)
    fitting = clock() - start
    limit = min(limit, len(task.graphs))
    if explainer.batched:
        _, alone = _one_by_one(explainer, task, min(limit, TIMED_ALONE), ALONE_SHARE * budget, lambda _: None)
        size = max(1, int(min(LARGEST_BATCH, (1 - ALONE_SHARE) * budget / max(median(alone), 1e-6))))
        scores, seconds = _in_batches(explainer, task, limit, size, (1 - ALONE_SHARE) * budget, advance)
        batched = sum(seconds) / sum(map(len, scores))
        found = [graph for batch in scores for graph in batch]
    else:
        found, alone = _one_by_one(explainer, task, limit, budget, advance)
        batched = float("nan")
    joined = torch.cat(found)
    error = completeness_error(explainer, task, joined, len(found))
    return Explanation(len(found), joined, torch.tensor(alone), batched, fitting, error)


def _one_by_one(
    explainer: Explainer, task: Task, limit: int, budget: float, advance: Advance
) -> tuple[list[Tensor], list[float]]:
    scores: list[Tensor] = []
    seconds: list[float] = []
    for graph, target in zip(task.graphs[:limit], task.predicted, strict=False):
        if seconds and sum(seconds) >= budget:
            break
        start, longest = clock(), LONGEST * budget
        try:
            with time_limit(longest):
                scores.append(explainer(task.model, graph, target.view(1)))
        except TimeLimitError as error:
            if seconds:
                break
            raise ExplainerTooSlowError(f"one graph with {graph.num_edges} edges took over {longest:.0f} s") from error
        seconds.append(clock() - start)
        advance(1)
    return scores, seconds


def _in_batches(
    explainer: Explainer, task: Task, limit: int, size: int, budget: float, advance: Advance
) -> tuple[list[list[Tensor]], list[float]]:
    scores: list[list[Tensor]] = []
    seconds: list[float] = []
    for first in range(0, limit, size):
        if seconds and sum(seconds) >= budget:
            break
        graphs = task.graphs[first : min(first + size, limit)]
        batch = Batch.from_data_list(graphs)
        start = clock()
        found = explainer(task.model, batch, task.predicted[first : first + len(graphs)])
        seconds.append(clock() - start)
        scores.append(list(found.split([graph.num_edges for graph in graphs])))
        advance(len(graphs))
    return scores, seconds


def completeness_error(explainer: Explainer, task: Task, scores: Tensor, count: int) -> Tensor:
    r"""Return how far scores are from adding up, for explainers that claim it.

    .. math:: \left|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)\right|

    The graph without edges is one whose messages are masked, or whose edges are removed, whatever the explainer says.

    Args:
        explainer: The explainer.
        task: The model and the graphs.
        scores: The scores of the first graphs.
        count: How many graphs.

    Returns:
        One number per graph, ``[count]``; nan if the explainer does not claim that its scores add up.
    """
    if not explainer.complete:
        return torch.full((count,), torch.nan)
    batch = Batch.from_data_list(task.graphs[:count])
    edges = CountedEdges.of(batch)
    whole = output_of(task.model, batch)
    difference = whole - _without_edges(task.model, batch, removed=explainer.baseline == "removed")
    expected = difference.gather(1, task.predicted[:count].unsqueeze(1)).squeeze(1)
    total = torch.zeros(count, dtype=scores.dtype).index_add_(0, edges.columns_graph, scores)
    return (total - expected).abs()


@torch.no_grad()
def _without_edges(model: Module, batch: Batch, removed: bool) -> Tensor:
    if removed:
        return output_of(model, batch, torch.zeros(batch.num_edges, dtype=torch.bool))
    output: Tensor = EdgeMaskedModel(model)(torch.zeros(batch.num_edges), batch.x, batch.edge_index, batch.batch)
    return output
