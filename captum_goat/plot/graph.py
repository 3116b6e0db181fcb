"""A graph with its edges coloured by attribution: as nodes and lines, or as an adjacency matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import check_edges, edge_scores, node_count, plain_edges, strongest, with_sign
from captum_goat.plot.layouts import LayoutName, Positions, edge_lines, node_positions, point_on
from captum_goat.plot.molecule_graph import element_colours, element_symbols
from captum_goat.plot.style import (
    INK,
    NEUTRAL,
    ColourScale,
    PictureOptions,
    PictureSettings,
    add_dotted_handle,
    check_methods,
    draw_panels,
    draw_picture,
    ink_on,
    missing_matplotlib,
    panel_settings,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Method = Literal["edges", "heat_map"]

FIGURE_SIZE, PANEL_SIZE = (6.0, 6.0), (4.2, 4.2)  # inches
MIN_WIDTH, MAX_WIDTH = 1.0, 6.0  # of edges, in points
DOT, DOT_GAP, DOTS_WIDTH = 1.4, 2.2, 9.0  # points: length of dots, between them, and how much wider than an edge
NODE_SIZE, LABELLED_NODE_SIZE, HYDROGEN = 30.0, 260.0, 0.55  # square points; hydrogen's share of it
FONT_SIZE = 9.0  # points
MANY_NODES = 60  # if there are more, everything is drawn smaller
HEAD_AT, HEAD_SIZE, HEAD_GROWTH = 0.6, 6.0, 2.0  # arrowheads: share of the line, points, points per point of width
HEAD = np.array([[0.6, 0.0], [-0.4, 0.45], [-0.4, -0.45]])  # a triangle that points to the right
CELL = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]])  # the outline of a matrix entry


def visualize_graph_attr(
    attributions: Tensor,
    edge_index: Tensor | Data,
    *,
    method: Method = "edges",
    directed: bool = False,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    layout: LayoutName | Positions | None = None,
    node_labels: Sequence[object] | Tensor | None = None,
    node_colors: Any = None,
    **options: Unpack[PictureOptions],
) -> tuple[Figure, Axes]:
    """Draw a graph with its edges coloured by attribution: blue supports the target, red opposes it.

    Colours are centred on zero and widths grow with the magnitude. The two directions of an edge are drawn as one
    line, which stands for their sum, unless the graph is ``directed``.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``, or a PyG ``Data`` with edges, the number of nodes and, optionally, their
            positions ``pos`` ``[N, 2]``.
        method: ``"edges"`` draws nodes and lines. ``"heat_map"`` draws the adjacency matrix with a row per source and
            a column per target, which suits dense graphs; pairs of nodes without an edge stay white.
        directed: Whether to draw the two directions of an edge separately, as arrows.
        feature_mask: The ``feature_mask`` that the attributions were computed with, if any, ``[E]``, such as
            :func:`~captum_goat.undirected_feature_mask`. All edges of a feature have its sum: it is shared equally
            among them, so that nothing counts twice.
        ground_truth: The edges that a good explanation finds, bool ``[E]``: they have a dotted outline.
        layout: Where to place the nodes: ``"kamada_kawai"``, which keeps motifs in shape; ``"spring"``, for large
            graphs; ``"spectral"``; ``"circular"``; ``"molecule"``, for RDKit's coordinates; or the positions
            themselves, ``[N, 2]`` or a networkx dictionary. ``None`` for the ``pos`` of the ``Data``, or else for one
            of the first two, depending on the size.
        node_labels: What to write on the nodes, one entry per node.
        node_colors: One matplotlib colour, or one per node; or ``"element"`` if ``node_labels`` are chemical elements,
            symbols or atomic numbers, to draw them in the colours that chemists know them by.
        **options: ``sign``, ``top_k``, ``vmax``, ``outlier_perc``, ``cmap``, ``show_colorbar``, ``title``,
            ``fig_size``, ``use_pyplot`` and ``plt_fig_axis``; see :class:`PictureOptions`.

    Returns:
        The figure and the axes.

    Raises:
        ImportError: If matplotlib or networkx is missing, or RDKit for ``layout="molecule"``.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> attributions = torch.tensor([2.0, 1.0, -4.0, 0.0])
        >>> options = {"node_labels": ["C", "N", "O"], "node_colors": "element", "use_pyplot": False}
        >>> fig, ax = visualize_graph_attr(attributions, edge_index, **options)
        >>> [text.get_text() for text in ax.texts]
        ['C', 'N', 'O']
    """
    settings = PictureSettings(**options)
    (picture,) = _graph_pictures(
        {"": attributions},
        edge_index,
        settings,
        method=method,
        directed=directed,
        feature_mask=feature_mask,
        ground_truth=ground_truth,
        layout=layout,
        node_labels=node_labels,
        node_colors=node_colors,
    ).values()
    return draw_picture(picture, settings, FIGURE_SIZE)


def visualize_graph_attr_multiple(
    attributions: Mapping[str, Tensor], edge_index: Tensor | Data, *, shared_scale: bool = True, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Draw one graph as several methods explain it, in panels with the same layout and, by default, one scale.

    Args:
        attributions: One number per edge, ``[E]``, of every method, by title.
        edge_index: The edges, ``[2, E]``, or a PyG ``Data``.
        shared_scale: Whether a colour and a width mean the same attribution in every panel. Turn it off for methods
            whose numbers cannot be compared, such as masks from 0 to 1 beside attributions that add up to the output:
            then every panel has its own scale and colour bar.
        **options: The options of :func:`visualize_graph_attr`.

    Returns:
        The figure and the axes, one per method.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr_multiple
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> methods = {"GOAt": torch.tensor([2.0, 1.0, -4.0, 0.0]), "gradients": torch.ones(4)}
        >>> fig, axes = visualize_graph_attr_multiple(methods, edge_index, use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    check_methods(attributions)
    settings, graph_options = panel_settings(options)
    pictures = _graph_pictures(attributions, edge_index, settings, **graph_options)
    return draw_panels(pictures, settings, shared_scale, PANEL_SIZE)


class DrawnEdges(NamedTuple):
    """Merged edges, their attributions of the chosen sign, and their marks."""

    edges: NDArray[Any]  # [M, 2]
    scores: NDArray[Any]  # [M]
    coloured: NDArray[Any]  # bool [M], the others are grey
    ground_truth: NDArray[Any]  # bool [M]


class DrawnNodes(NamedTuple):
    """The nodes of a picture."""

    number: int
    labels: Sequence[str] | None
    positions: NDArray[Any] | None  # [N, 2]; None for a matrix
    faces: NDArray[Any]  # [N, 4]
    sizes: NDArray[Any]  # [N], square points


class GraphPicture(NamedTuple):
    """A graph as it is drawn, without its colours."""

    drawn: DrawnEdges
    nodes: DrawnNodes
    directed: bool

    @property
    def alpha(self) -> float:
        """How opaque the colours are."""
        return 1.0

    @property
    def scores(self) -> NDArray[Any]:
        """All numbers that are coloured."""
        return self.drawn.scores

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Draw the graph."""
        (_draw_matrix if self.nodes.positions is None else _draw_node_link)(ax, self, scale)


def _graph_pictures(
    attributions: Mapping[str, Tensor],
    graph: Tensor | Data,
    settings: PictureSettings,
    *,
    method: Method = "edges",
    directed: bool = False,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    layout: LayoutName | Positions | None = None,
    node_labels: Sequence[object] | Tensor | None = None,
    node_colors: Any = None,
) -> dict[str, GraphPicture]:
    """Return the pictures of one graph by title; see :func:`visualize_graph_attr`."""
    if method not in get_args(Method):
        raise ValueError(f"Expected method to be one of {', '.join(map(repr, get_args(Method)))} (got {method!r}).")
    edge_index = graph if isinstance(graph, Tensor) else _edges_of(graph)
    check_edges(torch.zeros(edge_index.shape[1:]), edge_index)
    edges = {
        title: _drawn_edges(values, edge_index, settings, directed, feature_mask, ground_truth)
        for title, values in attributions.items()
    }
    if isinstance(graph, Data) and layout is None and graph.pos is not None and graph.pos.shape[1:] == (2,):
        layout = graph.pos
    nodes = _drawn_nodes(
        plain_edges(edge_index).t().numpy(),
        graph.num_nodes if isinstance(graph, Data) else None,
        layout,
        node_labels,
        node_colors,
        placed=method == "edges",
    )
    return {title: GraphPicture(drawn, nodes, directed) for title, drawn in edges.items()}


def _edges_of(graph: Any) -> Tensor:
    if not isinstance(graph, Data):
        raise ValueError(
            f"Expected edge_index as a tensor [2, E], or a Data that has it (got {type(graph).__name__}). "
            "Draw the edge types of a heterogeneous graph one at a time."
        )
    if graph.edge_index is None:
        raise ValueError("Expected a Data with edge_index (got one without).")
    edge_index: Tensor = graph.edge_index
    return edge_index


def _drawn_edges(
    attributions: Tensor,
    edge_index: Tensor,
    settings: PictureSettings,
    directed: bool,
    feature_mask: Tensor | None,
    ground_truth: Tensor | None,
) -> DrawnEdges:
    """Merge repeated edges, and both directions of an edge unless ``directed``; choose which are coloured."""
    edges, scores, marked = edge_scores(
        attributions, edge_index, ground_truth, directed=directed, feature_mask=feature_mask
    )
    scores = with_sign(scores, settings.sign)
    return DrawnEdges(edges, scores, strongest(scores, settings.top_k), marked)


def _drawn_nodes(
    edges: NDArray[Any],
    num_nodes: int | None,
    layout: LayoutName | Positions | None,
    node_labels: Sequence[object] | Tensor | None,
    node_colors: Any,
    *,
    placed: bool,
) -> DrawnNodes:
    """Place, label and colour the nodes."""
    known: Any = None if isinstance(layout, str) else layout
    count = node_count(edges, num_nodes, layout=known, node_labels=node_labels)
    labels = None if node_labels is None else [_text(label) for label in node_labels]
    atoms, faces = None, node_colors
    if isinstance(node_colors, str) and node_colors == "element":
        if node_labels is None:
            raise ValueError("Expected node_labels, the elements of the nodes, for node_colors='element' (got None).")
        elements: Any = node_labels
        labels = atoms = element_symbols(elements)
        faces = element_colours(atoms)
    elif node_colors is None:
        faces = INK if labels is None else "white"
    sizes = np.full(count, NODE_SIZE if labels is None else LABELLED_NODE_SIZE)
    if atoms is not None:
        sizes[np.array(atoms) == "H"] *= HYDROGEN
    positions = node_positions(edges, count, layout, atoms) if placed else None
    return DrawnNodes(count, labels, positions, _node_faces(faces, count), sizes * _crowding(count) ** 2)


def _text(label: object) -> str:
    return str(label.item() if isinstance(label, Tensor) and label.numel() == 1 else label)


def _node_faces(colours: Any, count: int) -> NDArray[Any]:
    """Return the nodes' colours, ``[N, 4]``, from one for all of them, or one for each."""
    try:
        from matplotlib.colors import to_rgba_array
    except ImportError as error:
        raise missing_matplotlib() from error

    try:
        faces = to_rgba_array(colours)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected node_colors to be 'element', or matplotlib colours, one or one per node (got {colours!r})."
        ) from error
    if len(faces) not in (1, count):
        raise ValueError(f"Expected node_colors to be one colour, or one for each of {count} nodes (got {len(faces)}).")
    return np.broadcast_to(faces, (count, 4))


def _crowding(count: int) -> float:
    """Return the factor by which lines and nodes are smaller than in a small graph."""
    return float(min(1.0, np.sqrt(MANY_NODES / max(count, 1))))


def _draw_node_link(ax: Axes, picture: GraphPicture, scale: ColourScale) -> None:
    """Draw the graph as nodes and lines, edges below nodes."""
    drawn, nodes, shrink = picture.drawn, picture.nodes, _crowding(picture.nodes.number)
    assert nodes.positions is not None
    widths = shrink * (MIN_WIDTH + (MAX_WIDTH - MIN_WIDTH) * scale.shares(drawn.scores))
    lines = edge_lines(drawn.edges, nodes.positions, arrows=picture.directed)
    _draw_ground_truth(ax, np.flatnonzero(drawn.ground_truth), lines, widths, shrink)
    _draw_edges(ax, drawn, lines, widths, scale, picture.directed)
    _draw_nodes(ax, nodes, FONT_SIZE * shrink)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
    ax.margins(0.08)


def _add_lines(ax: Axes, lines: list[NDArray[Any]], chosen: NDArray[Any], widths: Any, **options: Any) -> None:
    from matplotlib.collections import LineCollection

    segments = [lines[index] for index in chosen]
    ax.add_collection(LineCollection(segments, linewidths=widths, **{"capstyle": "round"} | options))


def _draw_ground_truth(
    ax: Axes, marked: NDArray[Any], lines: list[NDArray[Any]], widths: NDArray[Any], shrink: float
) -> None:
    """Draw dotted outlines below the edges of the ground truth."""
    if not len(marked):
        return
    wide = widths[marked] + shrink * DOTS_WIDTH
    dashes = [(0, (DOT / width, DOT_GAP / width)) for width in wide]  # matplotlib counts in widths
    _add_lines(ax, lines, marked, wide, colors=INK, linestyles=dashes, capstyle="butt", zorder=0.8)
    inside = wide - 2 * shrink * DOT  # painted over, so that only a rim of dots stays
    _add_lines(ax, lines, marked, inside, colors=[ax.get_facecolor()], zorder=0.9)
    add_dotted_handle(ax)


def _draw_edges(
    ax: Axes, drawn: DrawnEdges, lines: list[NDArray[Any]], widths: NDArray[Any], scale: ColourScale, directed: bool
) -> None:
    """Draw, from below: the plain graph in grey, the coloured edges, the strongest last."""
    order = np.argsort(np.abs(drawn.scores), kind="stable")
    order = order[drawn.coloured[order]]
    plain = min(MIN_WIDTH, widths.min(initial=MIN_WIDTH))
    colours: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "array": drawn.scores[order]}
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

    points = [point_on(line, HEAD_AT) for line in lines]
    turns = [np.array([step, [-step[1], step[0]]]) / (np.linalg.norm(step) or 1.0) for _, step in points]
    heads = PathCollection(
        [Path(HEAD @ turn, closed=False) for turn in turns],
        sizes=np.broadcast_to((HEAD_SIZE + HEAD_GROWTH * np.asarray(widths)) ** 2, len(lines)),
        offsets=np.array([point for point, _ in points]).reshape(-1, 2),
        offset_transform=ax.transData,
        linewidths=0,
        **options,
    )
    heads.set_transform(IdentityTransform())  # sizes are in points
    ax.add_collection(heads)


def _draw_nodes(ax: Axes, nodes: DrawnNodes, font_size: float) -> None:
    assert nodes.positions is not None
    x, y = nodes.positions.T
    rims = min(1.0, font_size / FONT_SIZE)
    ax.scatter(x, y, s=nodes.sizes, facecolors=nodes.faces, edgecolors=INK, linewidths=rims, zorder=3)
    if nodes.labels is None:
        return
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font_size, "zorder": 4, "clip_on": True}
    for across, up, face, label in zip(x, y, nodes.faces, nodes.labels, strict=True):
        ax.text(across, up, label, color=ink_on(face), **style)


def _draw_matrix(ax: Axes, picture: GraphPicture, scale: ColourScale) -> None:
    """Draw the adjacency matrix: the plain graph in grey, and the attributions over it."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap

    drawn, count = picture.drawn, picture.nodes.number
    if not count:
        ax.set_axis_off()
        return
    plain, scores = np.full((2, count, count), np.nan)  # not drawn
    sources, targets = drawn.edges.T
    both = ((sources, targets),) if picture.directed else ((sources, targets), (targets, sources))
    for rows, columns in both:
        plain[rows, columns] = 0.0
        scores[rows[drawn.coloured], columns[drawn.coloured]] = drawn.scores[drawn.coloured]
    marked = drawn.ground_truth
    if marked.any():
        cells = [CELL + cell for rows, columns in both for cell in zip(columns[marked], rows[marked], strict=True)]
        outline: dict[str, Any] = {
            "colors": INK,
            "linewidths": 1.5,
            "linestyles": ":",
            "label": "ground truth",
            "zorder": 3,
        }
        ax.add_collection(LineCollection(cells, **outline))
    ax.imshow(plain, cmap=ListedColormap([NEUTRAL]))
    ax.imshow(scores, cmap=scale.cmap, norm=scale.norm)
    label_matrix(ax, count, picture.nodes.labels)


def label_matrix(ax: Axes, count: int, labels: Sequence[object] | None) -> None:
    """Write the nodes' labels, or some of their indices, on the sides of a matrix: sources left, targets on top."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axis, name in ((ax.xaxis, "target"), (ax.yaxis, "source")):
        axis.set_label_text(name)
        if labels is None:
            axis.set_major_locator(MaxNLocator(integer=True))
            axis.set_major_formatter(ScalarFormatter())  # Captum removes the numbers
        else:
            axis.set_ticks(range(count), labels=[str(label) for label in labels])
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
