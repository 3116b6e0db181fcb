"""One run of the benchmark: train or load, explain, measure, report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from benchmarks.explainers import EXPLAINERS, SLOW, ExplainerSkippedError
from benchmarks.paper.explaining import Explanations, TimeLimitError, explain_task, time_limit
from benchmarks.paper.measurements import Measurements, measure
from benchmarks.paper.options import Options, parse
from benchmarks.paper.progress import bar
from benchmarks.paper.published import STABLE_EXAMPLE
from benchmarks.paper.report import write_report
from benchmarks.paper.result_cache import Cell, Store
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.study import Study
from benchmarks.paper.tasks import Task, load_task
from captum_goat.compare.explainers import make_explainer

SECONDS_TO_ASK = 0.5  # an explainer whether it applies


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = parse(arguments)
    print(f"The report is in {run(options)}.")


def run(options: Options) -> Path:
    """Run the benchmark; what is finished already is taken from the cache.

    Args:
        options: What to run.

    Returns:
        The path of the report.
    """
    studies = []
    for dataset, gnn in product(options.datasets, options.gnns):
        studies.append(run_task(load_task(options, dataset, gnn), options, options.explainers_of(gnn)))
        if options.whole and (dataset, gnn) == STABLE_EXAMPLE[:2]:
            whole = load_task(options, dataset, gnn, held_out=False)
            studies.append(run_task(whole, options, [name for name in options.explainers if _is_quick(name)]))
    return write_report(options, studies)


def _is_quick(name: str) -> bool:
    """Return whether an explainer can explain a whole dataset in reasonable time."""
    return EXPLAINERS[name].batched or name == "random"


def run_task(task: Task, options: Options, explainers: Sequence[str]) -> Study:
    """Explain and measure one task with several explainers.

    Args:
        task: The model and the graphs.
        options: What to run.
        explainers: The names of the explainers.

    Returns:
        What the explainers did.
    """
    store = Store(task, options)
    with bar(f"{task.dataset} {task.gnn}", len(explainers), "explainer", options.progress) as progress:
        cells = []
        for name in explainers:
            cells.append(run_cell(task, name, store, options))
            progress.update(1)
    return Study(task, cells)


def run_cell(task: Task, name: str, store: Store, options: Options) -> Cell:
    """Explain and measure one task with one explainer, or read the results from the cache.

    Args:
        task: The model and the graphs.
        name: The explainer.
        store: Where finished cells are.
        options: What to run.

    Returns:
        What the explainer did. One that does not apply, or is not installed, is tried again next time. So is one that
        fails: it raises its error, or with ``keep_going`` is reported. One that took too long is not tried again,
        unless it is given more time.
    """
    if (reason := store.read_given_up(name)) is not None:
        return Cell(name, None, Measurements(), reason)
    try:
        wanted = min(len(task.graphs), options.slow_limit) if name in SLOW else len(task.graphs)
        explanation = store.read_explanation(name, wanted)
        if explanation is None and options.only_report:
            begun = store.read_explanation(REFERENCE, len(task.graphs)) is not None
            return Cell(name, None, Measurements(), why_missing(task, name) if begun else "not run")
        if explanation is None:
            explanation = _explained(task, name, wanted, options)
            store.write_explanation(name, explanation, wanted)
        scores = torch.cat(explanation.scores)
        measurements = store.read_measurements(name, scores)
        if measurements is None:
            measurements = measure(task, scores, len(explanation.scores), options.seed)
            store.write_measurements(name, measurements, scores)
        return Cell(name, explanation, measurements)
    except (ExplainerSkippedError, TimeLimitError) as error:
        if isinstance(error, TimeLimitError):
            store.write_given_up(name, str(error))
        return Cell(name, None, Measurements(), str(error))
    except Exception as error:
        if not options.keep_going:
            raise
        message = " ".join(str(error).split())[:300]
        return Cell(name, None, Measurements(), f"failed: {type(error).__name__}: {message}")


def why_missing(task: Task, name: str) -> str:
    """Return why an explainer has no results, which takes one graph at most: it does not apply, or was not run."""
    explainer = EXPLAINERS[name]()
    if not explainer.trained:
        with suppress(TimeLimitError), time_limit(SECONDS_TO_ASK):
            explainer(task.model, task.graphs[0], task.predicted[:1].to(task.device))
    return "not run"


def _explained(task: Task, name: str, wanted: int, options: Options) -> Explanations:
    with bar(f"{task.dataset} {task.gnn} {name}", wanted, "graph", options.progress) as progress:
        explainer = make_explainer(EXPLAINERS[name], options.seed)
        timed = explain_task(explainer, task, wanted, options.budget, progress.update)
    scores, error = [score.cpu() for score in timed.scores], timed.completeness_error.cpu()
    return replace(timed, scores=scores, completeness_error=error)
