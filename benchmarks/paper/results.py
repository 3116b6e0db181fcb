"""The table of results: means with standard errors, and paired differences against GOAt."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.paper.csv_files import open_text
from benchmarks.paper.measurements import Key, original_embeddings
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.tasks import Task
from benchmarks.paper_metrics import discriminability, stability
from captum_goat.compare.comparison import mean_and_error

REFERENCE = "goat"
PER_CLASS = ("area_gain",)  # of which the table has a row for each class, too
PREDICTED_ONLY = ("ground_truth_auc", "precision_at_k", "robust_fidelity_plus", "robust_fidelity_minus")
TOPS = (1, 2, 3)
ALL = "all"
ORIGINAL = "discriminability_of_originals"  # the distance of classes with all edges, for comparison
NOTHING = math.nan


@dataclass(frozen=True)
class Row:
    """One number of the table, with its dataset, model, explainer and metric.

    Attributes:
        dataset: The dataset.
        gnn: The model.
        explainer: The explainer; empty for numbers of the model itself.
        protocol: ``"predicted"``: all graphs, the predicted class. ``"correct"``: correctly predicted graphs only, as
            in the paper. ``"whole"``: correctly predicted graphs of the whole dataset, with those of the training set.
        label: The predicted class of the graphs that count, or ``"all"``.
        nodes: What becomes of nodes without edges: ``"stay"`` or ``"leave"``.
        selection: ``"fixed"``: the same number of edges for every method. ``"search"``: the best prefix.
        sparsity: The share of edges that is left out; the least share with ``"search"``.
        metric: What is measured.
        value: The mean over graphs, or the number of all graphs together.
        error: Its standard error; nan for numbers of all graphs together.
        n: The number of graphs.
        difference: The value minus GOAt's on the same graphs.
        difference_error: The standard error of the mean of paired differences.
    """

    dataset: str
    gnn: str
    explainer: str
    protocol: str
    label: str
    nodes: str
    selection: str
    sparsity: str
    metric: str
    value: float
    error: float = NOTHING
    n: int = 0
    difference: float = NOTHING
    difference_error: float = NOTHING


def rows_of(task: Task, cells: Sequence[Cell]) -> Iterator[Row]:
    """Return all rows of a task.

    Args:
        task: The model and the graphs.
        cells: What the explainers did on it; GOAt among them, if differences are wanted.
    """
    if task.held_out:
        for part in ("train", "validation", "test"):
            value = getattr(task.training, f"{part}_accuracy")
            yield Row(task.dataset, task.gnn, "", "", ALL, "", "", "", f"{part}_accuracy", value)
        originals = _mean_distance(original_embeddings(task)[task.correct], task.predicted[task.correct])
        if not math.isnan(originals):
            count = int(task.correct.sum())
            yield Row(task.dataset, task.gnn, "", "correct", ALL, "", "", "", ORIGINAL, originals, n=count)
    reference = next((cell for cell in cells if cell.explainer == REFERENCE and cell.explanation), None)
    for cell in cells:
        if cell.explanation is not None:
            if task.held_out:
                yield from _rows_of_times(task, cell)
            yield from _rows_of_values(task, cell, reference)
            yield from _rows_of_sets(task, cell, reference)


def _rows_of_times(task: Task, cell: Cell) -> Iterator[Row]:
    explanation = cell.explanation
    assert explanation is not None
    start = (task.dataset, task.gnn, cell.explainer, "predicted", ALL, "", "", "")
    _, error, n = mean_and_error(explanation.seconds_alone)
    yield Row(*start, "seconds_alone", float(explanation.seconds_alone.median()), error, n)
    if not math.isnan(explanation.seconds_in_batch):
        yield Row(*start, "seconds_in_batch", explanation.seconds_in_batch, n=len(explanation.scores))
    yield Row(*start, "seconds_to_fit", explanation.seconds_to_fit)
    error_of_graphs = explanation.completeness_error
    if not bool(error_of_graphs.isnan().all()):
        yield Row(*start, "completeness_error", *mean_and_error(error_of_graphs))
        yield Row(*start, "largest_completeness_error", float(error_of_graphs.max()), n=len(error_of_graphs))


def _rows_of_values(task: Task, cell: Cell, reference: Cell | None) -> Iterator[Row]:
    for key, values in cell.measurements.values.items():
        others = _others(None if reference is None else reference.measurements.values.get(key), len(values))
        for protocol, label, chosen in _subsets(task, len(values), key.metric in PER_CLASS):
            mean = mean_and_error(values[chosen])
            if mean[2] == 0 or not _is_kept(task, key, protocol, label):
                continue
            start = (task.dataset, task.gnn, cell.explainer, protocol, label, *key[1:], key.metric)
            difference = (NOTHING, NOTHING)
            if others is not None and cell is not reference:
                difference = mean_and_error((values - others)[chosen])[:2]
            yield Row(*start, *mean, *difference)


def _is_kept(task: Task, key: Key, protocol: str, label: str) -> bool:
    """Return whether a row goes into the table, which would be several times as long with all combinations.

    All graphs go with nodes that stay, and the paper's variant, correctly predicted graphs, with the node policy of the
    authors' code. Only the mean height of curves has all combinations.
    """
    as_paper = key.nodes == task.policies[-1]
    if protocol == "correct":
        return as_paper and label == ALL and key.metric not in PREDICTED_ONLY
    return key.nodes != "leave" or key.metric in PER_CLASS


def _rows_of_sets(task: Task, cell: Cell, reference: Cell | None) -> Iterator[Row]:
    """Return the rows of metrics over all graphs together, for correctly predicted graphs as in the paper."""
    for key, embeddings in cell.measurements.embeddings.items():
        others = _others(None if reference is None else reference.measurements.embeddings.get(key), len(embeddings))
        for protocol, label, chosen in _subsets(task, len(embeddings), False):
            if protocol != "predicted" and key.nodes == task.policies[-1]:
                classes = task.predicted[: len(embeddings)][chosen]
                value = _mean_distance(embeddings[chosen], classes)
                other = NOTHING if others is None else _mean_distance(others[chosen], classes)
                start = (task.dataset, task.gnn, cell.explainer, protocol, label, *key[1:], key.metric)
                if not math.isnan(value):
                    yield Row(*start, value, n=int(chosen.sum()), difference=value - other)
    for key, groups in cell.measurements.groups.items():
        others = _others(None if reference is None else reference.measurements.groups.get(key), len(groups))
        for protocol, label, chosen in _subsets(task, len(groups), True):
            if protocol != "predicted" and label != ALL and key.nodes == "leave" and bool(chosen.any()):
                for top in TOPS:
                    value = _coverage(groups[chosen], top)
                    other = NOTHING if others is None else _coverage(others[chosen], top)
                    metric = f"top{top}_{key.metric}"
                    start = (task.dataset, task.gnn, cell.explainer, protocol, label, *key[1:], metric)
                    yield Row(*start, value, n=int(chosen.sum()), difference=value - other)


def _others(of_reference: Tensor | None, count: int) -> Tensor | None:
    """Return GOAt's values for the first graphs; ``None`` if it has explained fewer."""
    return None if of_reference is None or len(of_reference) < count else of_reference[:count]


def _subsets(task: Task, count: int, per_class: bool) -> Iterator[tuple[str, str, Tensor]]:
    """Return masks of the first graphs, by protocol and predicted class."""
    predicted = task.predicted[:count]
    protocols = {"predicted": torch.ones(count, dtype=torch.bool), "correct": task.correct[:count]}
    for protocol, allowed in (protocols if task.held_out else {"whole": task.correct[:count]}).items():
        yield protocol, ALL, allowed
        if per_class:
            for label in sorted(set(predicted.tolist())):
                yield protocol, str(label), allowed & (predicted == label)


def _mean_distance(embeddings: Tensor, classes: Tensor) -> float:
    """Return the mean distance of two classes' means; nan if there are no two classes."""
    present = classes.unique()
    if len(present) < 2:
        return NOTHING
    distances = discriminability(embeddings, torch.searchsorted(present, classes))
    pairs = torch.triu_indices(len(present), len(present), offset=1)
    return float(distances[pairs[0], pairs[1]].mean())


def _coverage(groups: Tensor, top: int) -> float:
    return float(stability(groups, k=top)[0])


def read_rows(path: Path) -> list[Row]:
    """Read the table that :func:`write_rows` wrote."""
    kinds = {column.name: column.type for column in fields(Row)}
    with open_text(path, "r") as file:
        lines = [{name: _value(text, str(kinds[name])) for name, text in line.items()} for line in csv.DictReader(file)]
    return [Row(**line) for line in lines]  # type: ignore[arg-type]


def _value(text: str, kind: str) -> str | float | int:
    if kind == "float":
        return float(text) if text else NOTHING
    return int(text) if kind == "int" else text
