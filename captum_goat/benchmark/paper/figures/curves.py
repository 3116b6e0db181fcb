"""Curves over sparsities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captum_goat.benchmark.paper.figures.canvas import line_style, new_figure, save
from captum_goat.benchmark.paper.measurements import SPARSITIES
from captum_goat.benchmark.paper.study import Results
from captum_goat.benchmark.paper.tables import title


def draw_fidelity(results: Results, dataset: str, nodes: str, path: Path) -> Path:
    """Draw fid+ and fid- at fixed k, one column per model; if nodes leave, for correctly predicted graphs as the paper.

    Args:
        results: The table of results.
        dataset: The data set.
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
    _legend(figure, axes[0][0])
    return save(figure, path)


def draw_discriminability(results: Results, dataset: str, nodes: str, path: Path) -> Path:
    """Draw the distances of the classes' mean embeddings at fixed k, for correctly predicted graphs.

    Args:
        results: The table of results.
        dataset: The data set.
        nodes: What becomes of nodes without edges.
        path: Where to write.

    Returns:
        The path.
    """
    gnns = [gnn for _, gnn in results.tasks(dataset)]
    figure, axes = new_figure(1, len(gnns), 4.2, 3.2)
    for column, gnn in enumerate(gnns):
        where = {"nodes": nodes, "selection": "fixed", "protocol": "correct"}
        _draw(axes[0][column], results, dataset, gnn, "discriminability", where)
        axes[0][column].set_title(f"{title(dataset, gnn)}: discriminability", fontsize=9)
    _legend(figure, axes[0][0])
    return save(figure, path)


def _draw(axis: Any, results: Results, dataset: str, gnn: str, metric: str, where: dict[str, str]) -> None:
    names = results.values("explainer")
    for name in names:
        rows = [results.get(dataset, gnn, name, metric, sparsity=str(each), **where) for each in SPARSITIES]
        points = [(each, row.value) for each, row in zip(SPARSITIES, rows, strict=True) if row is not None]
        if points:
            axis.plot(*zip(*points, strict=True), label=name, **line_style(name, names))
    axis.set_xticks(SPARSITIES)
    axis.set_xlabel("sparsity", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
