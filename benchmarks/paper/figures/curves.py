"""Curves over sparsities, and over the number of explanations that are counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure_style import legend_below, new_figure, save
from benchmarks.paper.explainer_order import OTHERS, line_style
from benchmarks.paper.measurements import PAPER_SPARSITY, Key
from benchmarks.paper.results import ORIGINAL
from benchmarks.paper.study import Results, Study
from benchmarks.paper.tables import title
from benchmarks.paper_metrics import top_explanations
from captum_goat.compare.graphs import SPARSITIES

MOST_COUNTED = 30  # explanations, in curves of coverage
LEAST_DRAWN = 0.1  # of the graphs that others have: of fewer a curve is noise


def draw_fidelity(results: Results, dataset: str, nodes: str, path: Path) -> Path:
    """Draw fid+ and fid- at fixed k, one column per model; if nodes leave, for correctly predicted graphs as the paper.

    Args:
        results: The table of results.
        dataset: The dataset.
        nodes: What becomes of nodes without edges.
        path: Where to write.

    Returns:
        The path.
    """
    gnns = [gnn for _, gnn in results.tasks(dataset)]
    figure, axes = new_figure(2, len(gnns), 4.2, 2.9)
    for row, (metric, name) in enumerate(
        (("fidelity_plus", "fid+ (more is better)"), ("fidelity_minus", "fid- (less is better)"))
    ):
        for column, gnn in enumerate(gnns):
            protocol = "predicted" if nodes == "stay" else "correct"
            where = {"nodes": nodes, "selection": "fixed", "protocol": protocol}
            _draw(axes[row][column], results, dataset, gnn, metric, where)
            axes[row][column].set_title(f"{title(dataset, gnn)}: {name}", fontsize=9)
    legend_below(figure, axes, last=OTHERS)
    return save(figure, path)


def draw_discriminability(results: Results, dataset: str, nodes: str, path: Path) -> Path:
    """Draw the distances of the classes' mean embeddings at fixed k, for correctly predicted graphs; and of originals.

    Args:
        results: The table of results.
        dataset: The dataset.
        nodes: What becomes of nodes without edges.
        path: Where to write.

    Returns:
        The path.
    """
    gnns = [gnn for _, gnn in results.tasks(dataset)]
    figure, axes = new_figure(1, len(gnns), 4.2, 3.4)
    for column, gnn in enumerate(gnns):
        axis, where = axes[0][column], {"nodes": nodes, "selection": "fixed", "protocol": "correct"}
        _draw(axis, results, dataset, gnn, "discriminability", where)
        original = results.get(dataset, gnn, "", ORIGINAL, protocol="correct")
        if original is not None:
            axis.axhline(original.value, color="grey", linestyle="--", linewidth=1.5, label="original graphs")
        axis.set_title(f"{title(dataset, gnn)}: discriminability", fontsize=9)
    legend_below(figure, axes, last=OTHERS)
    return save(figure, path)


def _draw(axis: Any, results: Results, dataset: str, gnn: str, metric: str, where: dict[str, str]) -> None:
    rows_by_name = {
        name: [results.get(dataset, gnn, name, metric, sparsity=str(sparsity), **where) for sparsity in SPARSITIES]
        for name in results.values("explainer")
    }
    most = max((row.n for rows in rows_by_name.values() for row in rows if row is not None), default=0)
    for name, rows in rows_by_name.items():
        pairs = zip(SPARSITIES, rows, strict=True)
        _plot(
            axis,
            name,
            [(sparsity, row.value) for sparsity, row in pairs if row is not None and row.n >= LEAST_DRAWN * most],
        )
    axis.set_xticks(SPARSITIES)
    axis.set_xlabel("sparsity", fontsize=8)
    _tidy(axis)


def draw_coverage(study: Study, names: Sequence[str], path: Path) -> Path:
    """Draw the share of each class that its most frequent explanations cover, over how many of these are counted.

    Explanations are those with the searched prefix of correctly predicted graphs. Explainers that were given fewer
    graphs are left out: of few graphs any share is large.

    Args:
        study: What the explainers did on a task of graphs.
        names: The explainers to draw.
        path: Where to write.

    Returns:
        The path.
    """
    task, key = study.task, Key("coverage", "leave", "search", str(PAPER_SPARSITY))
    labels = task.predicted[task.correct].unique().tolist()
    figure, axes = new_figure(1, max(1, len(labels)), 4.2, 3.4)
    for axis, label in zip(axes[0], labels, strict=False):
        for name in names:
            cell = study.cell(name)
            groups = None if cell is None else cell.measurements.groups.get(key)
            if groups is not None and len(groups) == len(task.graphs):
                chosen = groups[task.correct & (task.predicted == label)]
                shares = top_explanations(chosen, k=MOST_COUNTED).coverage[0].cumsum(0)
                _plot(axis, name, enumerate(shares.tolist(), start=1))
        axis.set_title(f"{title(task.dataset, task.gnn)}, class {label}: coverage", fontsize=9)
        axis.set_xlabel("number of most frequent explanations", fontsize=8)
        axis.set_xscale("log")
        axis.set_xticks([1, 2, 3, 5, 10, 20, 30], ["1", "2", "3", "5", "10", "20", "30"])
        axis.minorticks_off()
        axis.set_ylim(0, 1.04)
        _tidy(axis)
    legend_below(figure, axes, last=OTHERS)
    return save(figure, path)


def _plot(axis: Any, name: str, points: Iterable[tuple[float, float]]) -> None:
    pairs = list(points)
    if pairs:
        axis.plot(*zip(*pairs, strict=True), **line_style(name))


def _tidy(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
