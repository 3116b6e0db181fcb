"""Explain the graphs of a task: fit first, give up a graph that takes too long, and take the times of both."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from benchmarks.paper.tasks import Task
from captum_goat.compare.comparison import TimedScores
from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
from captum_goat.compare.run import clock, explain

LONGEST = 3  # times the budget for a single graph
SHORTEST = 0.001  # seconds between two checks of the processor time


@dataclass(frozen=True)
class Explanations(TimedScores):
    """The edge scores of the first graphs, and the times of explaining and of fitting."""

    seconds_to_fit: float = 0.0


class TimeLimitError(TimeoutError):
    """A call exceeded its time limit."""


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


def explain_task(
    explainer: Explainer,
    task: Task,
    count: int,
    budget: float = float("inf"),
    advance: Callable[[int], object] = lambda _: None,
) -> Explanations:
    """Fit an explainer and explain the first graphs of a task, or fewer of them if the budget is not enough.

    Args:
        explainer: The explainer.
        task: The model and the graphs.
        count: How many graphs to explain.
        budget: The seconds after which no further graph is begun; a single one is given up after three times that.
        advance: Called with the number of graphs that are done.

    Returns:
        The scores and the times.

    Raises:
        TimeLimitError: If the first graph takes too long.
        ExplainerSkippedError: If the explainer has to learn and there are no graphs to learn from.
    """
    if explainer.trained and not task.training_graphs:
        raise ExplainerSkippedError("It has to learn first (got no graphs to learn from).")
    subject = task.subject(count).copied()
    start = clock()
    explainer.fit(subject.model, [graph.clone() for graph in task.training_graphs])
    seconds = clock() - start
    timed = explain(_Limited(explainer, LONGEST * budget), subject, budget, advance)
    return Explanations(**vars(timed), seconds_to_fit=seconds)


class _Limited:
    """An explainer whose single graphs have a time limit."""

    def __init__(self, explainer: Explainer, seconds: float) -> None:
        self.explainer, self.seconds = explainer, seconds
        self.batched, self.complete, self.baseline = explainer.batched, explainer.complete, explainer.baseline

    def __call__(self, model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        try:
            with time_limit(float("inf") if isinstance(data, Batch) else self.seconds):
                scores = self.explainer(model, data, target)
                if scores.is_cuda:  # times are those of the work
                    torch.cuda.synchronize(scores.device)
                return scores
        except TimeLimitError as error:
            message = f"one graph with {data.num_edges} edges took over {self.seconds:.0f} s"
            raise TimeLimitError(message) from error
