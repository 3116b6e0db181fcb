"""Bars: how much the most frequent explanations cover, and how long explainers take."""

from __future__ import annotations

from pathlib import Path

from captum_goat.benchmark.paper.figures.canvas import new_figure, save
from captum_goat.benchmark.paper.measurements import PAPER_SPARSITY
from captum_goat.benchmark.paper.results import ALL, REFERENCE
from captum_goat.benchmark.paper.study import Results
from captum_goat.benchmark.paper.tables import GNN_TITLES, title


def draw_coverage(results: Results, datasets: list[str], gnn: str, path: Path) -> Path:
    """Draw the coverage of the most frequent explanation and of the three most frequent, with the searched prefix.

    Args:
        results: The table of results.
        datasets: The data sets, one column for each of their classes.
        gnn: The model.
        path: Where to write.

    Returns:
        The path.
    """
    panels = [(dataset, label) for dataset in datasets for label in _labels(results, dataset, gnn)]
    figure, axes = new_figure(1, len(panels), 2.6, 4.6)
    names = results.values("explainer")[::-1]
    for column, (dataset, label) in enumerate(panels):
        axis = axes[0][column]
        for top, colour in ((3, "lightsteelblue"), (1, "steelblue")):
            rows = [
                results.get(
                    dataset, gnn, name, f"top{top}_coverage", protocol="correct", nodes="leave", selection="search",
                    sparsity=str(PAPER_SPARSITY), label=label,
                )
                for name in names
            ]  # fmt: skip
            axis.barh(names, [0.0 if row is None else row.value for row in rows], color=colour, label=f"top {top}")
        axis.set_title(f"{title(dataset, gnn)}\nclass {label}", fontsize=9)
        axis.set_xlabel("share of the class", fontsize=8)
        axis.tick_params(labelsize=8)
        if column:
            axis.set_yticklabels([])
    axes[0][0].legend(fontsize=8, loc="lower right")
    return save(figure, path)


def _labels(results: Results, dataset: str, gnn: str) -> list[str]:
    found = {
        row.label
        for row in results.rows
        if (row.dataset, row.gnn) == (dataset, gnn) and row.metric == "top1_coverage" and row.label != ALL
    }
    return sorted(found)


def draw_times(results: Results, path: Path) -> Path:
    """Draw the median seconds per graph, alone, of all explainers; one panel per model.

    Args:
        results: The table of results.
        path: Where to write.

    Returns:
        The path.
    """
    gnns, names = results.values("gnn"), results.values("explainer")[::-1]
    figure, axes = new_figure(1, len(gnns), 3.6, 4.6)
    for column, gnn in enumerate(gnns):
        axis = axes[0][column]
        for dataset in (each for each, other in results.tasks() if other == gnn):
            rows = [(name, results.get(dataset, gnn, name, "seconds_alone")) for name in names]
            points = [(row.value, name) for name, row in rows if row is not None]
            if points:
                axis.plot(*zip(*points, strict=True), "o", markersize=4, label=title(dataset))
        axis.set_yticks(range(len(names)), names if not column else [""] * len(names), fontsize=8)
        axis.get_yticklabels()[names.index(REFERENCE)].set_fontweight("bold") if REFERENCE in names else None
        axis.set_xscale("log")
        axis.set_xlabel("seconds per graph", fontsize=8)
        axis.set_title(GNN_TITLES[gnn], fontsize=9)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    return save(figure, path)
