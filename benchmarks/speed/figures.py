"""Curves of time and memory against the number of edges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure_style import cycled_style, new_figure, save
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.tables import GNN_TITLES
from benchmarks.speed.graphs import FAMILY_TITLES
from benchmarks.speed.methods import METHODS
from benchmarks.speed.results import Row

LABELS = {"seconds": "seconds of one call", "peak_bytes": "bytes of memory of one call, at most"}


def draw_curves(rows: Sequence[Row], metric: str, path: Path) -> Path:
    """Draw one metric against the number of edges, both logarithmic: a row per kind of graphs, a column per model.

    Args:
        rows: The numbers.
        metric: A key of :data:`LABELS`.
        path: Where to write.

    Returns:
        The path.
    """
    rows = [row for row in rows if row.metric == metric and row.value > 0]
    families, gnns = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("graphs", "gnn"))
    figure, axes = new_figure(max(len(families), 1), max(len(gnns), 1), 4.2, 3.4)
    for down, family in enumerate(families):
        for across, gnn in enumerate(gnns):
            axis = axes[down][across]
            _draw(axis, [row for row in rows if (row.graphs, row.gnn) == (family, gnn)])
            axis.set_title(f"{GNN_TITLES[gnn]}, graphs {FAMILY_TITLES[family]}", fontsize=9)
            axis.set_ylabel(LABELS[metric] if across == 0 else "", fontsize=8)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    return save(figure, path)


def _draw(axis: Any, rows: Sequence[Row]) -> None:
    for place, name in enumerate(METHODS):
        points = sorted((row.edges, row.value) for row in rows if row.method == name)
        if points:
            thick = {"color": "black", "linewidth": 2.5, "zorder": 5} if name == REFERENCE else {}
            axis.plot(*zip(*points, strict=True), label=METHODS[name].title, **cycled_style(place) | thick)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("edges", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
