"""The adjacency matrix of attributions, which suits dense graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from captum_goat.plot.drawn_edges import DrawnEdges
from captum_goat.plot.palette import HALO, INK, NEUTRAL, ColourScale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

CELL = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]])  # the outline of a matrix entry


def draw_matrix(
    ax: Axes, drawn: DrawnEdges, count: int, labels: Sequence[str] | None, scale: ColourScale, *, directed: bool
) -> None:
    """Draw the adjacency matrix: the plain graph in grey, and the attributions over it."""
    from matplotlib.colors import ListedColormap

    if not count:
        ax.set_axis_off()
        return
    plain, scores = np.full((2, count, count), np.nan)  # not drawn
    sources, targets = drawn.edges.T
    both = ((sources, targets),) if directed else ((sources, targets), (targets, sources))
    for rows, columns in both:
        plain[rows, columns] = 0.0
        scores[rows[drawn.coloured], columns[drawn.coloured]] = drawn.scores[drawn.coloured]
    for chosen, look in (
        (drawn.halo, {"colors": HALO, "linewidths": 3, "label": "marked" if drawn.dotted.any() else "ground truth"}),
        (drawn.dotted, {"colors": INK, "linewidths": 1.5, "linestyles": ":", "label": "ground truth"}),
    ):
        _outline(ax, both, chosen, **look)
    ax.imshow(plain, cmap=ListedColormap([NEUTRAL]))
    ax.imshow(scores, cmap=scale.cmap, norm=scale.norm, alpha=scale.alpha)
    label_nodes(ax, count, labels)


def _outline(ax: Axes, both: Sequence[tuple[NDArray[Any], NDArray[Any]]], chosen: NDArray[Any], **look: Any) -> None:
    from matplotlib.collections import LineCollection

    if chosen.any():
        cells = [CELL + cell for rows, columns in both for cell in zip(columns[chosen], rows[chosen], strict=True)]
        ax.add_collection(LineCollection(cells, zorder=3, **look))


def label_nodes(ax: Axes, count: int, labels: Sequence[object] | None) -> None:
    """Write the nodes' labels, or some of their numbers, on the sides of a matrix: sources left, targets on top."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axis, name in ((ax.xaxis, "target"), (ax.yaxis, "source")):
        axis.set_label_text(name)
        if labels is None:
            axis.set_major_locator(MaxNLocator(integer=True))
            axis.set_major_formatter(ScalarFormatter())  # Captum takes the numbers away
        else:
            axis.set_ticks(range(count), labels=[str(label) for label in labels])
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
