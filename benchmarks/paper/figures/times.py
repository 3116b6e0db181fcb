"""How long explainers take."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figure_style import legend_below, new_figure, save
from benchmarks.paper.explainer_order import OTHERS
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.study import Results
from benchmarks.paper.tables import GNN_TITLES, title


def draw_times(results: Results, path: Path) -> Path:
    """Draw the median seconds per graph, alone, of all explainers; one panel per model.

    Args:
        results: The table of results.
        path: Where to write.

    Returns:
        The path.
    """
    gnns, names = results.values("gnn"), results.values("explainer")[::-1]
    figure, axes = new_figure(1, len(gnns), 3.6, max(4.6, 1.0 + 0.17 * len(names)))
    for column, gnn in enumerate(gnns):
        axis = axes[0][column]
        for dataset in [dataset for dataset, task_gnn in results.tasks() if task_gnn == gnn]:
            rows = [results.get(dataset, gnn, name, "seconds_alone") for name in names]
            points = [(row.value, place) for place, row in enumerate(rows) if row is not None]
            if points:
                axis.plot(*zip(*points, strict=True), "o", markersize=4, label=title(dataset))
        axis.set_yticks(range(len(names)), names if not column else [""] * len(names), fontsize=8)
        axis.get_yticklabels()[names.index(REFERENCE)].set_fontweight("bold") if REFERENCE in names else None
        axis.set_ylim(-0.7, len(names) - 0.3)
        axis.set_xscale("log")
        axis.set_xlabel("seconds per graph", fontsize=8)
        axis.set_title(GNN_TITLES[gnn], fontsize=9)
        axis.grid(alpha=0.3)
    legend_below(figure, axes, last=OTHERS)
    return save(figure, path)
