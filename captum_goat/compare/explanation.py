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
from torch_geometric.data import Batch

from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers import EdgeExplainer, Explainer, ExplainerSkippedError
from captum_goat.compare.subject import Subject, chunks
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
    """The edge scores of the first graphs, and the time they took."""

    scores: list[Tensor]  # of each graph, [E]
    seconds_alone: Tensor  # for single graphs, [M]
    seconds_in_batch: float  # per graph; nan if the explainer takes one graph at a time
    seconds_to_fit: float
    completeness_error: Tensor  # of each graph, [G]; nan for explainers that are not complete


def clock() -> float:
    """Return the processor time with one thread, which other programs do not disturb; else the wall-clock time."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError, by a signal, in what takes too much processor time, if this is the main thread.

    The timer follows the wall clock: with a timer of processor time, Linux may count that time in coarse ticks only.
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
    explainer: EdgeExplainer, subject: Subject, budget: float = float("inf"), advance: Advance = lambda _: None
) -> TimedScores:
    """Explain the target classes of the graphs, or of the first ones if the budget, in seconds, is not enough for all.

    One graph is explained in any case, unless it takes several times the budget.
    """
    start = clock()
    explainer.fit(subject.model, subject.training_graphs)
    seconds_to_fit, seconds_in_batch = clock() - start, float("nan")
    if getattr(explainer, "batched", False):
        _, seconds_alone = _timed(explainer, subject, TIMED_ALONE, 1, ALONE_SHARE * budget)
        budget *= 1 - ALONE_SHARE
        size = max(1, int(min(LARGEST_BATCH, budget / max(median(seconds_alone), 1e-6))))
        scores, seconds = _timed(explainer, subject, len(subject.graphs), size, budget, advance)
        seconds_in_batch = sum(seconds) / len(scores)
    else:
        scores, seconds_alone = _timed(explainer, subject, len(subject.graphs), 1, budget, advance)
    error = completeness_error(explainer, subject, scores)
    return TimedScores(scores, torch.tensor(seconds_alone), seconds_in_batch, seconds_to_fit, error)


def _timed(
    explainer: EdgeExplainer, subject: Subject, count: int, size: int, budget: float, advance: Advance = lambda _: None
) -> tuple[list[Tensor], list[float]]:
    """Return the scores of the first ``count`` graphs, and the seconds of each call with ``size`` graphs."""
    scores: list[Tensor] = []
    seconds: list[float] = []
    longest = LONGEST * budget if size == 1 else float("inf")
    for first in range(0, min(count, len(subject.graphs)), size):
        if seconds and sum(seconds) >= budget:
            break
        graphs = subject.graphs[first : min(first + size, count)]
        data = graphs[0] if size == 1 else Batch.from_data_list(graphs)
        target = subject.target[first : first + len(graphs)]
        start = clock()
        try:
            with time_limit(longest):
                new_scores = explainer(subject.model, data, target)
        except TimeLimitError as error:
            if seconds:
                break
            raise ExplainerTooSlowError(f"one graph with {data.num_edges} edges took over {longest:.0f} s") from error
        seconds.append(clock() - start)
        # Checked twice: a finite number may overflow in another dtype.
        checked = check_scores(check_scores(new_scores, data).to(data.x), data)
        scores += checked.split([graph.num_edges for graph in graphs])
        advance(len(graphs))
    return scores, seconds


def completeness_error(explainer: EdgeExplainer, subject: Subject, scores: list[Tensor]) -> Tensor:
    r"""Return :math:`|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)|` of the first graphs; nan if not ``complete``."""
    totals = torch.stack([graph_scores.sum() for graph_scores in scores])
    if not explainer.complete:
        return torch.full_like(totals, torch.nan)
    removed = getattr(explainer, "baseline", None) == "removed"
    contributions = [_contribution_of_edges(subject, part, removed) for part in chunks(subject.graphs[: len(scores)])]
    return (totals - torch.cat(contributions)).abs()


@torch.no_grad()
def _contribution_of_edges(subject: Subject, part: slice, removed: bool) -> Tensor:
    """Return the logits of some of the graphs minus those without edges."""
    model, batch = subject.model, Batch.from_data_list(subject.graphs[part])
    if removed:
        without = output_of(model, batch, torch.zeros_like(batch.edge_index[0], dtype=torch.bool))
    else:
        without = EdgeMaskedModel(model)(batch.x.new_zeros(batch.num_edges), batch.x, batch.edge_index, batch.batch)
    return (output_of(model, batch) - without).gather(1, subject.target[part].unsqueeze(1)).squeeze(1)
