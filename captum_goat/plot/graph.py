"""A graph as nodes and lines, its edges coloured by attribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from captum_goat.plot.edge_scores import as_tensor, is_directed, node_count
from captum_goat.plot.layouts import ARROW, LayoutName, Positions, arrow_places, edge_lines, node_positions
from captum_goat.plot.style import (
    INK,
    NEUTRAL,
    ColourScale,
    DrawnEdges,
    PictureOptions,
    add_lines,
    check_methods,
    checked,
    draw_ground_truth,
    draw_pictures,
    drawn_edges,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

FIGURE_SIZE, PANEL_SIZE = (6.0, 6.0), (4.2, 4.2)  # inches
MIN_WIDTH, MAX_WIDTH = 1.0, 6.0  # of edges, in points
NODE_SIZE, LABELLED_NODE_SIZE = 30.0, 260.0  # square points
FONT_SIZE, LABEL_DISTANCE = 9.0, 4.0  # points
WEAK_PUSH = 0.02  # how much an edge without attribution counts beside the strongest, for the side of labels
MAX_INSIDE = 3  # letters; longer labels are beside the nodes
MANY_NODES = 60  # if there are more, everything is drawn smaller, and the figure is larger
MAX_GROWTH = 1.6
CONTEXT = "#a0a0a0"  # nodes around those with labels
HEAD_SIZE, HEAD_GROWTH = 6.0, 2.0  # arrowheads: points, points per point of width


class GraphOptions(PictureOptions, total=False):
    """The options of :func:`visualize_graph_attr`."""

    directed: bool | None
    only_top: bool
    layout: LayoutName | Positions | None
    node_labels: Sequence[object] | Tensor | None
    node_colors: Any


def visualize_graph_attr(
    attributions: Tensor, edge_index: Tensor | Data, **options: Unpack[GraphOptions]
) -> tuple[Figure, Axes]:
    """Draw a graph with its edges coloured by attribution: blue supports the target, red opposes it.

    Colours are centred on zero and widths grow with the magnitude. In an undirected graph the two directions of an edge
    are drawn as one line, which stands for their sum. Returns the figure and the axes.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``, or a PyG ``Data`` with edges and, optionally, positions ``pos`` ``[N, 2]``.
        **options: ``sign``, ``top_k``, ``ground_truth``, ``title`` and others, see :class:`PictureOptions`, and those
            below.

    - ``directed``: Whether to draw the directions of an edge separately, as arrows; by default, if one has no reverse.
    - ``only_top``: Whether to draw only the ``top_k`` edges and, in grey, the other edges of their nodes.
    - ``layout``: Where to place the nodes: ``"kamada_kawai"``, which keeps motifs in shape; ``"spring"``, for large
      graphs; or the positions themselves, ``[N, 2]`` or a networkx dictionary. ``None`` for the ``pos`` of the
      ``Data``, or else for one of the two, depending on the size.
    - ``node_labels``: What to write on the nodes, or beside them if there is no room, one entry per node. Only nodes of
      coloured edges have labels with ``only_top``, where the default is their indices, and with ``top_k`` in graphs of
      more than 60 nodes.
    - ``node_colors``: One matplotlib colour, or one per node.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> attributions = torch.tensor([2.0, 1.0, -4.0, 0.0])
        >>> fig, ax = visualize_graph_attr(attributions, edge_index, node_labels=["C", "N", "O"], use_pyplot=False)
        >>> [text.get_text() for text in ax.texts]
        ['C', 'N', 'O']
    """
    settings: GraphOptions = checked(options, GraphOptions)
    pictures = _graph_pictures({"": attributions}, edge_index, settings)
    growth = min(MAX_GROWTH, 1 / _crowding(len(pictures[""].points)))
    fig, (ax,) = draw_pictures(pictures, settings, (FIGURE_SIZE[0] * growth, FIGURE_SIZE[1] * growth))
    return fig, ax


def visualize_graph_attr_multiple(
    attributions: Mapping[str, Tensor],
    edge_index: Tensor | Data,
    *,
    shared_scale: bool = True,
    **options: Unpack[GraphOptions],
) -> tuple[Figure, list[Axes]]:
    """Draw one graph as several methods explain it, in panels with the same layout and, by default, one scale.

    ``attributions`` has one number per edge, ``[E]``, of every method, by title; the options are those of
    :func:`visualize_graph_attr`. Turn ``shared_scale`` off for methods whose numbers cannot be compared, such as masks
    from 0 to 1 beside attributions that add up to the output: then every panel has its own scale and colour bar.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr_multiple
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> methods = {"GOAt": torch.tensor([2.0, 1.0, -4.0, 0.0]), "gradients": torch.ones(4)}
        >>> fig, axes = visualize_graph_attr_multiple(methods, edge_index, use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    check_methods(attributions)
    settings: GraphOptions = checked({"show_colorbar": True} | options, GraphOptions)
    pictures = _graph_pictures(attributions, edge_index, settings)
    return draw_pictures(pictures, settings, PANEL_SIZE, shared_scale=shared_scale)


def _graph_pictures(
    attributions: Mapping[str, Tensor], graph: Tensor | Data, settings: GraphOptions
) -> dict[str, GraphPicture]:
    only_top, layout, node_labels = settings["only_top"], settings["layout"], settings["node_labels"]
    if only_top and settings["top_k"] is None:
        raise ValueError("Expected top_k, the number of edges to draw, with only_top=True (got None).")
    if isinstance(graph, BaseData) and not isinstance(graph, Data):
        got = type(graph).__name__
        raise ValueError(f"Expected a tensor [2, E] or a Data (got {got}). Draw edge types one by one.")
    if isinstance(graph, Data) and graph.edge_index is None:
        raise ValueError("Expected a Data with edge_index (got one without).")
    edge_index = graph.edge_index if isinstance(graph, Data) else as_tensor(graph, "edge_index")
    num_nodes = graph.num_nodes if isinstance(graph, Data) else None
    directed = is_directed(edge_index) if settings["directed"] is None else settings["directed"]
    methods = {title: drawn_edges(settings, values, edge_index, directed) for title, values in attributions.items()}
    edges = next(iter(methods.values())).edges
    if isinstance(graph, Data) and layout is None and graph.pos is not None and graph.pos.shape[1:] == (2,):
        layout = graph.pos
    known: Any = None if isinstance(layout, str) else layout
    count = node_count(edges, num_nodes, layout=known, node_labels=node_labels)
    top_nodes = np.unique(edges[np.any([method.coloured for method in methods.values()], axis=0)])
    shown_edges, shown_nodes = np.arange(len(edges)), np.arange(count)
    if only_top:
        shown_edges = np.flatnonzero(np.isin(edges, top_nodes).any(axis=1))
        shown_nodes = np.unique(edges[shown_edges])
    edges = np.searchsorted(shown_nodes, edges[shown_edges])
    points = node_positions(edges, len(shown_nodes), layout) if known is None else node_positions(edges, count, known)
    labels = [""] * count
    if node_labels is not None or only_top:
        texts: Any = range(count) if node_labels is None else node_labels
        few = only_top or (settings["top_k"] is not None and count > MANY_NODES)
        for node in top_nodes if few else range(count):
            labels[node] = str(texts[node].item() if isinstance(texts, Tensor) else texts[node])
    faces = None if settings["node_colors"] is None else _node_faces(settings["node_colors"], count)[shown_nodes]
    points = points if known is None else points[shown_nodes]
    shown_labels = [labels[node] for node in shown_nodes]
    return {
        title: GraphPicture(
            points, shown_labels, faces, DrawnEdges(edges, *(values[shown_edges] for values in method[1:])), directed
        )
        for title, method in methods.items()
    }


class GraphPicture(NamedTuple):
    """A graph as it is drawn, without its colours."""

    points: NDArray[Any]  # of nodes, [N, 2]
    labels: list[str]  # of nodes, "" for none
    faces: NDArray[Any] | None  # colours of nodes, [N, 4]
    drawn: DrawnEdges
    directed: bool
    alpha: float = 1.0

    @property
    def scores(self) -> NDArray[Any]:
        """All numbers that are coloured."""
        return self.drawn.scores

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Draw, from below: the ground truth, the plain graph, the coloured edges (strongest last), the nodes."""
        drawn, shares, shrink = self.drawn, scale.shares(self.scores), _crowding(len(self.points))
        widths = shrink * MIN_WIDTH + shrink**0.5 * (MAX_WIDTH - MIN_WIDTH) * shares
        lines = edge_lines(drawn.edges, self.points)
        marked, grey = np.flatnonzero(drawn.marked), np.flatnonzero(~drawn.coloured)
        order = np.argsort(np.abs(drawn.scores), kind="stable")
        order = order[drawn.coloured[order]]
        plain = min(MIN_WIDTH, widths.min(initial=MIN_WIDTH))
        # Weak edges are faint in large graphs: many of them must not be a blot.
        colours: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "array": drawn.scores[order]}
        colours["alpha"] = np.minimum(1.0, shrink + 2 * shares[order]) if shrink < 1 else None
        draw_ground_truth(ax, [lines[edge] for edge in marked], widths[marked], shrink)
        add_lines(ax, lines, plain, colors=NEUTRAL, alpha=shrink, zorder=1.5)
        add_lines(ax, [lines[edge] for edge in order], widths[order], zorder=2, **colours)
        if self.directed:
            heads = [lines[edge] for edge in grey]
            _draw_heads(ax, heads, plain, shrink, facecolors=NEUTRAL, alpha=shrink, zorder=1.5)
            _draw_heads(ax, [lines[edge] for edge in order], widths[order], shrink, zorder=2.5, **colours)
        _draw_nodes(ax, self, shares * drawn.coloured)
        ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
        ax.margins(0.04)


def _node_faces(colours: Any, count: int) -> NDArray[Any]:
    from matplotlib.colors import to_rgba_array

    try:
        faces = to_rgba_array(colours)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected node_colors as matplotlib colours, one or one per node (got {colours!r})."
        ) from error
    if len(faces) not in (1, count):
        raise ValueError(f"Expected node_colors to be one colour, or one for each of {count} nodes (got {len(faces)}).")
    return np.broadcast_to(faces, (count, 4))


def _crowding(count: int) -> float:
    """Return the factor by which lines and nodes are smaller than in a small graph."""
    return float(min(1.0, np.sqrt(MANY_NODES / max(count, 1))))


def _draw_heads(ax: Axes, lines: list[NDArray[Any]], widths: Any, shrink: float, **options: Any) -> None:
    """Draw arrowheads on lines; their angles are right as the aspect is 1."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path
    from matplotlib.transforms import IdentityTransform

    places = arrow_places(lines)
    heads = PathCollection(
        [Path(ARROW @ turn, closed=False) for _, turn in places],
        sizes=np.broadcast_to((HEAD_SIZE * shrink + HEAD_GROWTH * np.asarray(widths)) ** 2, len(lines)),
        offsets=np.array([point for point, _ in places]).reshape(-1, 2),
        offset_transform=ax.transData,
        linewidths=0,
        **options,
    )
    heads.set_transform(IdentityTransform())  # sizes are in points
    ax.add_collection(heads)


def _draw_nodes(ax: Axes, picture: GraphPicture, strengths: NDArray[Any]) -> None:
    """Draw the nodes with their labels: on them or, with a white rim, on the side away from their strong edges."""
    from matplotlib.patheffects import withStroke

    points, labels, edges = picture.points, picture.labels, picture.drawn.edges
    shrink, has_label = _crowding(len(points)), np.array([bool(label) for label in labels], dtype=bool)
    inside = len(points) <= MANY_NODES and max(map(len, labels), default=0) <= MAX_INSIDE
    circles = has_label & inside
    faces = picture.faces
    if faces is None:  # nodes without a label are grey beside others that have one
        dots = np.where(has_label | ~has_label.any(), INK, CONTEXT)
        faces = _node_faces(np.where(circles, "white", dots).tolist(), len(points))
    sizes = np.where(circles, LABELLED_NODE_SIZE, NODE_SIZE) * shrink**2
    ax.scatter(*points.T, s=sizes, facecolors=faces, edgecolors=INK, linewidths=shrink, zorder=3)  # type: ignore[misc]
    pushes = (points[edges[:, 0]] - points[edges[:, 1]]) * (WEAK_PUSH + strengths[:, None])
    free_side = np.zeros_like(points)
    np.add.at(free_side, edges, np.stack([pushes, -pushes], axis=1))
    for node in np.flatnonzero(has_label):
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": FONT_SIZE, "color": INK}
        offset = np.zeros(2)
        if inside:
            is_bright = faces[node, :3] @ [0.299, 0.587, 0.114] > 0.5
            style["color"] = INK if is_bright else "white"
        else:
            offset = free_side[node] / (np.linalg.norm(free_side[node]) or 1.0) * LABEL_DISTANCE
            style |= {"ha": "left" if offset[0] >= 0 else "right", "va": "bottom" if offset[1] >= 0 else "top"}
            style |= {"fontsize": FONT_SIZE * max(shrink, 0.75)}
            style["path_effects"] = [withStroke(linewidth=2, foreground="white")]
        ax.annotate(labels[node], points[node], (*offset,), textcoords="offset points", zorder=4, **style)
