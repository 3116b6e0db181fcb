"""Pictures of attributed graphs, with the parameter names of :mod:`captum.attr.visualization`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from torch import Tensor

from captum_goat.edge_scores import Sign, edge_scores, magnitude_scale, node_count, strongest, with_sign
from captum_goat.graph_layout import edge_lines, node_positions, point_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Method = Literal["edges", "heat_map"]

# Red and blue are told apart with any kind of colour vision. The middle is grey, not white: an edge without
# attribution is still an edge of the graph and must not vanish.
NEGATIVE, NEUTRAL, POSITIVE, MAGNITUDE = "#ca0020", "#d0d0d0", "#0571b0", "#5e3c99"
CMAP_COLORS: dict[Sign, list[str]] = {
    "all": [NEGATIVE, NEUTRAL, POSITIVE],
    "positive": [NEUTRAL, POSITIVE],
    "negative": [NEGATIVE, NEUTRAL],
    "absolute_value": [NEUTRAL, MAGNITUDE],
}
HALO, INK = "#ffdf80", "#404040"
MIN_WIDTH, MAX_WIDTH, HALO_WIDTH = 1.0, 6.0, 6.0  # points; a halo is that much wider than its edge
NODE_SIZE, LABELLED_NODE_SIZE = 30.0, 260.0  # square points
HEAD_AT, HEAD_SIZE, HEAD_GROWTH = 0.6, 6.0, 2.0  # arrowheads: share of the line, points, points per point of width
HEAD = np.array([[0.6, 0.0], [-0.4, 0.45], [-0.4, -0.45]])  # a triangle that points to the right
CELL = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]])  # the outline of a matrix entry


class _Drawn(NamedTuple):
    """The edges of a picture and how each is drawn."""

    edges: NDArray[Any]  # [M, 2]
    scores: NDArray[Any]  # [M], of the chosen sign
    marked: NDArray[Any]  # bool [M], with a halo
    coloured: NDArray[Any]  # bool [M], the others are grey
    widths: NDArray[Any]  # [M], points
    colours: dict[str, Any]  # cmap, norm and alpha of the attributions


def visualize_graph_attr(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    method: Method = "edges",
    sign: Sign = "all",
    top_k: int | None = None,
    directed: bool = False,
    edge_label: Tensor | None = None,
    node_labels: Sequence[object] | None = None,
    node_colors: Any = None,
    num_nodes: int | None = None,
    pos: Mapping[int, Sequence[float]] | Tensor | NDArray[Any] | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 1.0,
    show_colorbar: bool = False,
    title: str | None = None,
    fig_size: tuple[float, float] = (6, 6),
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Axes] | None = None,
) -> tuple[Figure, Axes]:
    """Draw one graph with its edges coloured by attribution: blue speaks for the target, red against it.

    Colours are centred on zero and widths grow with the magnitude. The two directions of an edge are drawn as one
    line, which stands for their sum, unless the graph is ``directed``.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        method: ``"edges"`` draws nodes and lines, ``"heat_map"`` the adjacency matrix with a row per source and a
            column per target, which suits dense graphs. Pairs of nodes without an edge stay white.
        sign: Which attributions to show: ``"all"``, only ``"positive"``, only ``"negative"`` (the others count as
            zero), or the ``"absolute_value"``.
        top_k: How many edges to colour, those of largest magnitude after ``sign``; the rest is grey. The scale is that
            of all edges.
        directed: Whether the directions of an edge are drawn apart, as arrows.
        edge_label: The edges to mark with a halo, bool ``[E]``, for example the ground truth. The halos have the label
            "ground truth" for ``ax.legend()``.
        node_labels: What to write on the nodes, one entry per node.
        node_colors: One colour of matplotlib, or one per node.
        num_nodes: The number of nodes; needed if the last nodes have no edges.
        pos: Where to draw the nodes: ``[N, 2]``, or a layout of networkx; ``None`` for the layout of Kamada and Kawai.
        vmax: The magnitude that has the full colour and width, so that several pictures can share one scale; ``None``
            to find it in these attributions.
        outlier_perc: If ``vmax`` is not given, the share (in percent) of the summed magnitudes that may be cut off.
        cmap: A colour map of matplotlib. The default is red, grey, blue, or the half of it that ``sign`` needs.
        alpha_overlay: How opaque the attributions lie over the plain grey graph.
        show_colorbar: Whether to draw a colour bar.
        title: The title.
        fig_size: The size of a new figure in inches.
        use_pyplot: Whether pyplot makes and shows the figure. Given axes are left for their owner to show.
        plt_fig_axis: A figure and axes to draw in, instead of a new figure.

    Returns:
        The figure and the axes.

    Raises:
        ImportError: If matplotlib or networkx is missing.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.visualization import visualize_graph_attr
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> fig, ax = visualize_graph_attr(
        ...     torch.tensor([2.0, 1.0, -4.0, 0.0]), edge_index, node_labels=["C", "N", "O"], use_pyplot=False
        ... )
        >>> [text.get_text() for text in ax.texts]
        ['C', 'N', 'O']
    """
    _check(method, vmax, alpha_overlay)
    edges, scores, marked = edge_scores(attributions, edge_index, edge_label, directed=directed)
    scores = with_sign(scores, sign)
    coloured = strongest(scores, top_k)
    scale = (magnitude_scale(scores, outlier_perc) if vmax is None else vmax) or 1.0
    widths = MIN_WIDTH + (MAX_WIDTH - MIN_WIDTH) * (np.abs(scores) / scale).clip(max=1)
    count = node_count(edges, num_nodes, pos=pos, node_labels=node_labels)
    faces = _node_faces(node_colors, count, "white" if node_labels is not None else INK)
    points = node_positions(edges, pos, count) if method == "edges" else None
    fig, ax = plt_fig_axis or new_figure(fig_size, use_pyplot)
    colours = _colours(sign, scale, cmap, alpha_overlay)
    drawn = _Drawn(edges, scores, marked, coloured, widths, colours)
    if points is None:
        mappable = _draw_matrix(ax, drawn, count, node_labels, directed)
    else:
        mappable = _draw_edges(ax, drawn, edge_lines(edges, points, arrows=directed), directed)
        _draw_nodes(ax, points, faces, node_labels)
    if show_colorbar:
        fig.colorbar(mappable, ax=ax, label="attribution", shrink=0.8)
    if title is not None:
        ax.set_title(title)
    if plt_fig_axis is None and use_pyplot:
        show()
    return fig, ax


def _check(method: str, vmax: float | None, alpha_overlay: float) -> None:
    if method not in get_args(Method):
        raise ValueError(f"Expected method to be one of {', '.join(map(repr, get_args(Method)))} (got {method!r}).")
    if vmax is not None and not 0 <= vmax < np.inf:
        raise ValueError(f"Expected vmax to be a magnitude, finite and at least 0 (got {vmax}).")
    if not 0 <= alpha_overlay <= 1:
        raise ValueError(f"Expected alpha_overlay between 0 and 1 (got {alpha_overlay}).")


def _colours(sign: Sign, scale: float, cmap: str | Colormap | None, alpha: float) -> dict[str, Any]:
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    norm = Normalize(-scale if sign in ("all", "negative") else 0, scale if sign != "negative" else 0)
    default = LinearSegmentedColormap.from_list(f"goat_{sign}", CMAP_COLORS[sign])
    return {"cmap": default if cmap is None else cmap, "norm": norm, "alpha": alpha}


def _draw_edges(ax: Axes, drawn: _Drawn, lines: list[NDArray[Any]], directed: bool) -> ScalarMappable:
    """Draw, from below: halos, the plain graph in grey, the coloured edges, the strongest last."""
    from matplotlib.collections import LineCollection

    def lines_of(chosen: NDArray[Any], widths: Any, **options: Any) -> LineCollection:
        segments = [lines[index] for index in chosen]
        collection = LineCollection(segments, linewidths=widths, capstyle="round", **options)
        ax.add_collection(collection)
        return collection

    marked, grey = np.flatnonzero(drawn.marked), np.flatnonzero(~drawn.coloured)
    order = np.argsort(np.abs(drawn.scores), kind="stable")
    order = order[drawn.coloured[order]]
    if len(marked):
        lines_of(marked, drawn.widths[marked] + HALO_WIDTH, colors=HALO, zorder=1, label="ground truth")
    lines_of(np.arange(len(lines)), MIN_WIDTH, colors=NEUTRAL, zorder=1.5)
    coloured = lines_of(order, drawn.widths[order], array=drawn.scores[order], zorder=2, **drawn.colours)
    if directed:
        _draw_heads(ax, [lines[index] for index in grey], MIN_WIDTH, facecolors=NEUTRAL, zorder=1.5)
        heads = [lines[index] for index in order]
        _draw_heads(ax, heads, drawn.widths[order], array=drawn.scores[order], zorder=2.5, **drawn.colours)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
    ax.margins(0.08)
    return coloured


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


def _draw_nodes(ax: Axes, points: NDArray[Any], faces: NDArray[Any], node_labels: Sequence[object] | None) -> None:
    x, y = points.T
    size = NODE_SIZE if node_labels is None else LABELLED_NODE_SIZE
    ax.scatter(x, y, s=size, facecolors=faces, edgecolors=INK, zorder=3)
    for across, up, face, label in zip(x, y, faces, node_labels or (), strict=node_labels is not None):
        ink = INK if face[:3] @ [0.299, 0.587, 0.114] > 0.5 else "white"  # by the brightness of the face
        ax.text(across, up, str(label), ha="center", va="center", fontsize=9, color=ink, zorder=4)


def _node_faces(node_colors: Any, count: int, default: str) -> NDArray[Any]:
    """Return the nodes' colours, ``[N, 4]``."""
    try:
        from matplotlib.colors import to_rgba_array
    except ImportError as error:
        raise _missing_matplotlib() from error

    try:
        faces = to_rgba_array(default if node_colors is None else node_colors)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected node_colors to be colours of matplotlib (got {node_colors!r}).") from error
    if len(faces) not in (1, count):
        raise ValueError(f"Expected node_colors to be one colour, or one for each of {count} nodes (got {len(faces)}).")
    return np.broadcast_to(faces, (count, 4))


def _draw_matrix(
    ax: Axes, drawn: _Drawn, count: int, node_labels: Sequence[object] | None, directed: bool
) -> ScalarMappable:
    """Draw the adjacency matrix: the plain graph in grey, and the attributions over it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap

    if not count:
        ax.set_axis_off()
        return ScalarMappable(drawn.colours["norm"], drawn.colours["cmap"])
    plain, scores = np.full((2, count, count), np.nan)  # not drawn
    sources, targets = drawn.edges.T
    marked, coloured = drawn.marked, drawn.coloured
    outlines = []
    for rows, columns in ((sources, targets),) if directed else ((sources, targets), (targets, sources)):
        plain[rows, columns] = 0.0
        scores[rows[coloured], columns[coloured]] = drawn.scores[coloured]
        outlines += [CELL + cell for cell in zip(columns[marked], rows[marked], strict=True)]
    if outlines:
        ax.add_collection(LineCollection(outlines, colors=HALO, linewidths=3, zorder=3, label="ground truth"))
    ax.imshow(plain, cmap=ListedColormap([NEUTRAL]))
    label_nodes(ax, count, node_labels)
    return ax.imshow(scores, **drawn.colours)


def label_nodes(ax: Axes, count: int, node_labels: Sequence[object] | None) -> None:
    """Write the nodes' labels, or some of their numbers, on the sides of a matrix: sources left, targets on top."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axis, name in ((ax.xaxis, "target"), (ax.yaxis, "source")):
        axis.set_label_text(name)
        if node_labels is None:
            axis.set_major_locator(MaxNLocator(integer=True))
            axis.set_major_formatter(ScalarFormatter())  # Captum takes the numbers away
        else:
            axis.set_ticks(range(count), labels=[str(label) for label in node_labels])
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")


def new_figure(fig_size: tuple[float, float], use_pyplot: bool, **options: Any) -> tuple[Figure, Any]:
    """Return a new figure and its axes; ``options`` go to ``Figure.subplots``."""
    try:
        from matplotlib import pyplot
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing_matplotlib() from error
    fig = pyplot.figure(figsize=fig_size) if use_pyplot else Figure(figsize=fig_size)
    return fig, fig.subplots(**options)


def show() -> None:
    """Show the figures of pyplot."""
    from matplotlib import pyplot

    pyplot.show()


def _missing_matplotlib() -> ImportError:
    return ImportError("matplotlib is needed to draw the graph: pip install captum-goat[plot]")
