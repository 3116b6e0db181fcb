"""Nodes and lines: the picture of a graph that everybody knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from captum_goat.plot.drawn_edges import DrawnEdges
from captum_goat.plot.edge_paths import edge_lines, point_on
from captum_goat.plot.figures import add_dotted_handle
from captum_goat.plot.palette import HALO, INK, NEUTRAL, ColourScale, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MIN_WIDTH, MAX_WIDTH, HALO_WIDTH = 1.0, 6.0, 6.0  # points; a halo is that much wider than its edge
DOT, DOT_GAP, DOTS_WIDTH = 1.4, 2.2, 9.0  # points: length of dots, between them, and how much wider than an edge
NODE_SIZE, LABELLED_NODE_SIZE, HYDROGEN = 30.0, 260.0, 0.55  # square points; hydrogen's share of it
FONT_SIZE = 9.0  # points
ROOMY = 60  # nodes; if there are more, all is drawn smaller
HEAD_AT, HEAD_SIZE, HEAD_GROWTH = 0.6, 6.0, 2.0  # arrowheads: share of the line, points, points per point of width
HEAD = np.array([[0.6, 0.0], [-0.4, 0.45], [-0.4, -0.45]])  # a triangle that points to the right


class DrawnNodes(NamedTuple):
    """The nodes of a picture."""

    points: NDArray[Any]  # [N, 2]
    faces: NDArray[Any]  # [N, 4]
    labels: Sequence[str] | None
    sizes: NDArray[Any]  # [N], square points


def node_sizes(labels: Sequence[str] | None, atoms: Sequence[str] | None, count: int) -> NDArray[Any]:
    """Return the nodes' sizes in square points: room for labels, hydrogen smaller, all smaller in a crowd."""
    sizes = np.full(count, NODE_SIZE if labels is None else LABELLED_NODE_SIZE)
    if atoms is not None:
        sizes[np.array(atoms) == "H"] *= HYDROGEN
    smaller: NDArray[Any] = sizes * crowding(count) ** 2
    return smaller


def crowding(count: int) -> float:
    """Return how much smaller lines and nodes are than in a small graph."""
    return float(min(1.0, np.sqrt(ROOMY / max(count, 1))))


def draw_node_link(ax: Axes, drawn: DrawnEdges, nodes: DrawnNodes, scale: ColourScale, *, directed: bool) -> None:
    """Draw the graph, edges below nodes."""
    shrink = crowding(len(nodes.points))
    widths = shrink * (MIN_WIDTH + (MAX_WIDTH - MIN_WIDTH) * scale.shares(drawn.scores))
    lines = edge_lines(drawn.edges, nodes.points, arrows=directed)
    _draw_marks(ax, drawn, lines, widths, shrink)
    _draw_edges(ax, drawn, lines, widths, scale, directed)
    _draw_nodes(ax, nodes, FONT_SIZE * shrink)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
    ax.margins(0.08)


def _add_lines(ax: Axes, lines: list[NDArray[Any]], chosen: NDArray[Any], widths: Any, **options: Any) -> None:
    from matplotlib.collections import LineCollection

    segments = [lines[index] for index in chosen]
    ax.add_collection(LineCollection(segments, linewidths=widths, **{"capstyle": "round"} | options))


def _draw_marks(ax: Axes, drawn: DrawnEdges, lines: list[NDArray[Any]], widths: NDArray[Any], shrink: float) -> None:
    """Draw what lies below the edges: dotted outlines of the ground truth, and halos inside of them."""
    dotted, halo = np.flatnonzero(drawn.dotted), np.flatnonzero(drawn.halo)
    if len(dotted):
        wide = widths[dotted] + shrink * DOTS_WIDTH
        dashes = [(0, (DOT / width, DOT_GAP / width)) for width in wide]  # matplotlib counts in widths
        _add_lines(ax, lines, dotted, wide, colors=INK, linestyles=dashes, capstyle="butt", zorder=0.8)
        inside = wide - 2 * shrink * DOT  # painted over, so that only a rim of dots stays
        _add_lines(ax, lines, dotted, inside, colors=[ax.get_facecolor()], zorder=0.9)
        add_dotted_handle(ax)
    if len(halo):
        label = "marked" if len(dotted) else "ground truth"
        _add_lines(ax, lines, halo, widths[halo] + shrink * HALO_WIDTH, colors=HALO, zorder=1, label=label)


def _draw_edges(
    ax: Axes, drawn: DrawnEdges, lines: list[NDArray[Any]], widths: NDArray[Any], scale: ColourScale, directed: bool
) -> None:
    """Draw, from below: the plain graph in grey, the coloured edges, the strongest last."""
    order = np.argsort(np.abs(drawn.scores), kind="stable")
    order = order[drawn.coloured[order]]
    plain = min(MIN_WIDTH, widths.min(initial=MIN_WIDTH))
    colours: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "alpha": scale.alpha}
    colours["array"] = drawn.scores[order]
    _add_lines(ax, lines, np.arange(len(lines)), plain, colors=NEUTRAL, zorder=1.5)
    _add_lines(ax, lines, order, widths[order], zorder=2, **colours)
    if directed:
        grey = np.flatnonzero(~drawn.coloured)
        _draw_heads(ax, [lines[index] for index in grey], plain, facecolors=NEUTRAL, zorder=1.5)
        _draw_heads(ax, [lines[index] for index in order], widths[order], zorder=2.5, **colours)


def _draw_heads(ax: Axes, lines: list[NDArray[Any]], widths: Any, **options: Any) -> None:
    """Draw arrowheads past the middle of the lines, where no node hides them; angles are right as the aspect is 1."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path
    from matplotlib.transforms import IdentityTransform

    places = [point_on(line, HEAD_AT) for line in lines]
    turns = [np.array([step, [-step[1], step[0]]]) / (np.linalg.norm(step) or 1.0) for _, step in places]
    heads = PathCollection(
        [Path(HEAD @ turn, closed=False) for turn in turns],
        sizes=np.broadcast_to((HEAD_SIZE + HEAD_GROWTH * np.asarray(widths)) ** 2, len(lines)),
        offsets=np.array([point for point, _ in places]).reshape(-1, 2),
        offset_transform=ax.transData,
        linewidths=0,
        **options,
    )
    heads.set_transform(IdentityTransform())  # sizes are in points
    ax.add_collection(heads)


def _draw_nodes(ax: Axes, nodes: DrawnNodes, font_size: float) -> None:
    x, y = nodes.points.T
    rims = min(1.0, font_size / FONT_SIZE)
    ax.scatter(x, y, s=nodes.sizes, facecolors=nodes.faces, edgecolors=INK, linewidths=rims, zorder=3)
    if nodes.labels is None:
        return
    for across, up, face, label in zip(x, y, nodes.faces, nodes.labels, strict=True):
        ax.text(
            across, up, label, ha="center", va="center", fontsize=font_size, color=ink_on(face), zorder=4, clip_on=True
        )
