"""Tables of results in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.datasets import DATASETS
from benchmarks.markdown_tables import markdown
from benchmarks.paper.published import PAPER_SECONDS
from benchmarks.paper.results import REFERENCE, Row
from benchmarks.paper.study import Results
from captum_goat.compare.comparison import EMPTY, number, seconds, signed

GNN_TITLES = {"gcn": "GCN", "sage": "GraphSAGE", "gin": "GIN", "gcn_textbook": "GCN (textbook)"}


def title(dataset: str, gnn: str | None = None) -> str:
    """Return the name of a dataset, and of a model, in tables."""
    name = DATASETS[dataset].title
    return name if gnn is None else f"{name}, {GNN_TITLES[gnn]}"


def with_difference(row: Row | None) -> str:
    """Return a mean, and how far it is from GOAt's, with the standard error of the difference."""
    if row is None:
        return EMPTY
    if row.explainer == REFERENCE or math.isnan(row.difference):
        return number(row.value)
    return f"{row.value:.3f} ({signed(row.difference, row.difference_error)})"


def fidelity_table(results: Results, dataset: str, nodes: str) -> str:
    """Return the mean heights of fid+ minus fid- at fixed k, and paired differences, one column per model."""
    gnns = [gnn for _, gnn in results.tasks(dataset)]
    lines = []
    for name in results.values("explainer"):
        rows = [results.get(dataset, gnn, name, "area_gain", nodes=nodes, selection="fixed") for gnn in gnns]
        if any(rows):
            counts = sorted({row.n for row in rows if row is not None})
            lines.append([f"`{name}`", *(with_difference(row) for row in rows), "/".join(map(str, counts))])
    return markdown(["explainer", *(GNN_TITLES[gnn] for gnn in gnns), "graphs"], lines)


def model_table(results: Results, gnn: str, nodes: str) -> str:
    """Return the mean heights of fid+ minus fid- of one model, and paired differences, one column per dataset."""
    datasets = [dataset for dataset, task_gnn in results.tasks() if task_gnn == gnn]
    lines = []
    for name in results.values("explainer"):
        rows = [results.get(dataset, gnn, name, "area_gain", nodes=nodes, selection="fixed") for dataset in datasets]
        if any(rows):
            lines.append([f"`{name}`", *(with_difference(row) for row in rows)])
    return markdown([f"explainer ({GNN_TITLES[gnn]})", *(title(dataset) for dataset in datasets)], lines)


def point_table(results: Results, dataset: str, **where: str) -> str:
    """Return fid+ and fid- at one sparsity, with fixed k and with the searched prefix, two columns per model."""
    gnns = [gnn for _, gnn in results.tasks(dataset)]
    header, lines = ["explainer"], []
    header += [f"{GNN_TITLES[gnn]}, {selection}" for gnn in gnns for selection in ("fixed k", "search")]
    for name in results.values("explainer"):
        cells = [
            _pair(results, dataset, gnn, name, "fidelity", **where, selection=selection)
            for gnn in gnns
            for selection in ("fixed", "search")
        ]
        if any(cell != EMPTY for cell in cells):
            lines.append([f"`{name}`", *cells])
    return markdown(header, lines)


def _pair(results: Results, dataset: str, gnn: str, name: str, metric: str, **where: str) -> str:
    plus, minus = (results.get(dataset, gnn, name, f"{metric}_{side}", **where) for side in ("plus", "minus"))
    return EMPTY if plus is None or minus is None else f"{plus.value:.3f} / {minus.value:.3f}"


def robust_table(results: Results, dataset: str, **where: str) -> str:
    """Return robust fid+ and fid-, one column per model; empty if they were not measured."""
    gnns, lines = [gnn for _, gnn in results.tasks(dataset)], []
    for name in results.values("explainer"):
        cells = [_pair(results, dataset, gnn, name, "robust_fidelity", **where) for gnn in gnns]
        if any(cell != EMPTY for cell in cells):
            lines.append([f"`{name}`", *cells])
    return markdown(["explainer", *(GNN_TITLES[gnn] for gnn in gnns)], lines) if lines else ""


def metric_table(results: Results, metric: str, datasets: Sequence[str], last: Sequence[str] = (), **where: str) -> str:
    """Return one metric, one column per dataset and model, and perhaps a last line."""
    tasks = [task for dataset in datasets for task in results.tasks(dataset)]
    lines = []
    for name in results.values("explainer"):
        rows = [results.get(*task, name, metric, **where) for task in tasks]
        if any(rows):
            lines.append([f"`{name}`", *(number(None if row is None else row.value) for row in rows)])
    if last:
        lines.append(list(last))
    return markdown(["explainer", *(title(*task) for task in tasks)], lines)


def time_table(results: Results, gnn: str) -> str:
    """Return the seconds per graph of one model: alone / in batches. The paper's own come last."""
    datasets = [dataset for dataset, task_gnn in results.tasks() if task_gnn == gnn]
    lines = []
    for name in results.values("explainer"):
        cells = []
        for dataset in datasets:
            alone, batched = (
                results.get(dataset, gnn, name, metric) for metric in ("seconds_alone", "seconds_in_batch")
            )
            parts = [seconds(row.value) for row in (alone, batched) if row is not None]
            cells.append(" / ".join(parts) or EMPTY)
        if any(cell != EMPTY for cell in cells):
            lines.append([f"`{name}`", *cells])
    if gnn == "gcn":
        quoted = [seconds(PAPER_SECONDS.get(dataset)) for dataset in datasets]
        lines.append(["*GOAt in the paper (quoted; RTX 3090)*", *(f"*{time}*" for time in quoted)])
    return markdown([f"explainer ({GNN_TITLES[gnn]})", *(title(dataset) for dataset in datasets)], lines)


def completeness_table(results: Results, gnn: str) -> str:
    """Return one model's largest completeness errors of the methods that claim completeness."""
    datasets = [dataset for dataset, task_gnn in results.tasks() if task_gnn == gnn]
    lines = []
    for name in results.values("explainer"):
        rows = [results.get(dataset, gnn, name, "largest_completeness_error") for dataset in datasets]
        if any(rows):
            lines.append([f"`{name}`", *(EMPTY if row is None else f"{row.value:.1e}" for row in rows)])
    return markdown([f"explainer ({GNN_TITLES[gnn]})", *(title(dataset) for dataset in datasets)], lines)
