"""Run one explainer on the graphs of a subject within a time budget, and time it."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers import EdgeExplainer, Explainer, ExplainerSkippedError
from captum_goat.compare.subject import Subject
from captum_goat.metrics.counted_edges import check_scores
from captum_goat.metrics.reduced_graphs import output_of

TIMED_ALONE = 10  # graphs that batched explainers also explain one by one, to be timed
LARGEST_BATCH = 64
ALONE_SHARE = 0.25  # of the budget, for the graphs that are only timed
LONGEST = 3  # times the budget for a single graph
SHORTEST = 0.001  # seconds between two checks of the processor time

Advance = Callable[[int], object]


class TimeLimitError(Exception):
    """A call exceeded its time limit."""


class ExplainerTooSlowError(ExplainerSkippedError):
    """An explainer exceeded the time limit on its first graph."""


@dataclass(frozen=True)
class TimedScores:
    """The edge scores of the first graphs, and the time they took.

    Attributes:
        count: The number of explained graphs.
        scores: The scores of their edges, one graph after the other, ``[E]``.
        seconds_alone: The seconds for single graphs, ``[M]``.
        seconds_in_batch: The seconds per graph in batches; nan if the explainer takes one graph at a time.
        seconds_to_fit: The seconds for learning.
        completeness_error: How far each graph's scores are from adding up, ``[G]``; nan for explainers that are not
            complete.
    """

    count: int
    scores: Tensor
    seconds_alone: Tensor
    seconds_in_batch: float
    seconds_to_fit: float
    completeness_error: Tensor


def clock() -> float:
    """Return the processor time with one thread, which other programs do not disturb; else the wall-clock time."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes too long, by a signal; without effect in other threads and where there are no signals.

    The timer follows the wall clock and checks the processor time when it ends. While a timer of processor time runs,
    Linux may count that in ticks of some milliseconds only, too coarse to time short calls.

    Args:
        seconds: The processor time allowed; infinity for no limit.

    Raises:
        TimeLimitError: If the limit is exceeded.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or seconds == float("inf"):
        yield
        return
    end = time.process_time() + seconds

    def stop(number: int, frame: Any) -> None:
        left = end - time.process_time()
        if left <= 0.0:
            raise TimeLimitError
        signal.setitimer(signal.ITIMER_REAL, max(left, SHORTEST))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def make_explainer(factory: Callable[..., Explainer], seed: int) -> Explainer:
    """Create an explainer, with the seed if its class takes one."""
    return factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()


def explain(
    explainer: EdgeExplainer,
    subject: Subject,
    limit: int,
    budget: float = float("inf"),
    advance: Advance = lambda _: None,
) -> TimedScores:
    """Explain the target classes of the first graphs.

    Args:
        explainer: The explainer. It gets batches if it has a true attribute ``batched``, else one graph at a time.
        subject: The model, the graphs and their classes.
        limit: The largest number of graphs.
        budget: The seconds after which no further graphs are started. One graph is explained in any case, unless it
            takes several times as long.
        advance: Called with the number of graphs whenever some are explained.

    Returns:
        The scores and times.

    Raises:
        ExplainerSkippedError: If the explainer does not apply to the model, or is too slow.
        ValueError: If its scores are not one finite number per edge.
    """
    start = clock()
    explainer.fit(subject.model, subject.training_graphs)
    fitting = clock() - start
    limit = min(limit, len(subject.graphs))
    if getattr(explainer, "batched", False):
        _, alone = _one_by_one(explainer, subject, min(limit, TIMED_ALONE), ALONE_SHARE * budget, lambda _: None)
        size = max(1, int(min(LARGEST_BATCH, (1 - ALONE_SHARE) * budget / max(median(alone), 1e-6))))
        scores, seconds = _in_batches(explainer, subject, limit, size, (1 - ALONE_SHARE) * budget, advance)
        in_batch = seconds / len(scores)
    else:
        scores, alone = _one_by_one(explainer, subject, limit, budget, advance)
        in_batch = float("nan")
    joined = torch.cat(scores)
    error = completeness_error(explainer, subject, joined, len(scores))
    return TimedScores(len(scores), joined, torch.tensor(alone), in_batch, fitting, error)


def _one_by_one(
    explainer: EdgeExplainer, subject: Subject, limit: int, budget: float, advance: Advance
) -> tuple[list[Tensor], list[float]]:
    """Return the scores of the first graphs, and the seconds for each."""
    scores: list[Tensor] = []
    seconds: list[float] = []
    for graph, target in zip(subject.graphs[:limit], subject.target, strict=False):
        if seconds and sum(seconds) >= budget:
            break
        start, longest = clock(), LONGEST * budget
        try:
            with time_limit(longest):
                graph_scores = explainer(subject.model, graph, target.view(1))
        except TimeLimitError as error:
            if seconds:
                break
            raise ExplainerTooSlowError(f"one graph with {graph.num_edges} edges took over {longest:.0f} s") from error
        seconds.append(clock() - start)
        scores.append(_checked(graph_scores, graph))
        advance(1)
    return scores, seconds


def _in_batches(
    explainer: EdgeExplainer, subject: Subject, limit: int, size: int, budget: float, advance: Advance
) -> tuple[list[Tensor], float]:
    """Return the scores of the first graphs, and the seconds for all of them."""
    scores: list[Tensor] = []
    seconds = 0.0
    for first in range(0, limit, size):
        if scores and seconds >= budget:
            break
        graphs = subject.graphs[first : min(first + size, limit)]
        batch = Batch.from_data_list(list(graphs))
        start = clock()
        batch_scores = explainer(subject.model, batch, subject.target[first : first + len(graphs)])
        seconds += clock() - start
        scores += _checked(batch_scores, batch).split([graph.num_edges for graph in graphs])
        advance(len(graphs))
    return scores, seconds


def _checked(scores: Tensor, data: Data | Batch) -> Tensor:
    """Return scores in the dtype of the node features; raise ValueError unless they are one finite number per edge."""
    return check_scores(check_scores(scores, data).to(data.x), data)  # a finite number may overflow in another dtype


def completeness_error(explainer: EdgeExplainer, subject: Subject, scores: Tensor, count: int) -> Tensor:
    r"""Return how far the scores of a complete explainer are from adding up.

    .. math:: \left|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)\right|

    The explainer's attribute ``baseline`` decides whether "no edges" means masked messages or removed edges; masked if
    it has none.

    Args:
        explainer: The explainer.
        subject: The model, the graphs and their classes.
        scores: The scores of the first graphs.
        count: The number of these graphs.

    Returns:
        One number per graph, ``[count]``; nan if the explainer is not complete.
    """
    if not explainer.complete:
        return scores.new_full((count,), torch.nan)
    removed = getattr(explainer, "baseline", None) == "removed"
    sizes = torch.tensor([graph.num_edges for graph in subject.graphs[:count]], device=scores.device)
    graph_of_edge = torch.arange(count, device=scores.device).repeat_interleave(sizes)
    total = scores.new_zeros(count).index_add_(0, graph_of_edge, scores)
    parts = [slice(first, min(first + LARGEST_BATCH, count)) for first in range(0, count, LARGEST_BATCH)]
    return (total - torch.cat([_contribution_of_edges(subject, part, removed) for part in parts])).abs()


def _contribution_of_edges(subject: Subject, part: slice, removed: bool) -> Tensor:
    """Return the logits of graphs minus those without edges."""
    batch = Batch.from_data_list(list(subject.graphs[part]))
    difference = output_of(subject.model, batch) - _without_edges(subject.model, batch, removed)
    return difference.gather(1, subject.target[part].unsqueeze(1)).squeeze(1)


@torch.no_grad()
def _without_edges(model: Module, batch: Batch, removed: bool) -> Tensor:
    if removed:
        return output_of(model, batch, torch.zeros_like(batch.edge_index[0], dtype=torch.bool))
    mask = batch.x.new_zeros(batch.num_edges)
    output: Tensor = EdgeMaskedModel(model)(mask, batch.x, batch.edge_index, batch.batch)
    return output
