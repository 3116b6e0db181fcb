"""A graph as nodes and lines, its edges coloured by attribution: the layout of nodes, the lines of edges, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from captum_goat.plot.edge_scores import as_tensor, edge_scores, is_directed, node_count, strongest, with_sign
from captum_goat.plot.style import INK, NEUTRAL, Picture, PictureOptions, add_lines, checked, draw_pictures, draw_truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Positions: TypeAlias = "Mapping[int, Sequence[float]] | Tensor | NDArray[Any]"

SEED = 0  # of layouts that start at random: the same graph is drawn alike every time
LARGE = 500  # nodes; the time of Kamada and Kawai's layout grows with their cube
GAP = 1.2  # between components of a graph, in lengths of an edge
ROW_SHAPE = 1.4  # all components together are about that much wider than high
STARTS, STEPS = 10, 200  # of Kamada and Kawai's layout: the best of several random starts is taken,
PAIRS = 100_000  # of fewer if all starts together would have more pairs of nodes than this
LOOP_RADIUS = 0.06  # a self-loop is a circle with this share of the layout's size as radius
BEND = 0.2  # the two directions of an edge are this share of their length apart
CURVE_POINTS = 25
ARROW_AT = 0.6  # share of a line
ARROW = np.array([[0.6, 0.0], [-0.4, 0.45], [-0.4, -0.45]])  # a triangle that points to the right
FIGURE_SIZE, PANEL_SIZE = 6.0, 4.2  # inches
MIN_WIDTH, MAX_WIDTH = 1.0, 6.0  # of edges, in points
NODE_SIZE, LABELLED_NODE_SIZE = 30.0, 260.0  # square points
FONT_SIZE, LABEL_DISTANCE = 9.0, 4.0  # points
WEAK_PUSH = 0.02  # how much an edge without attribution counts beside the strongest, for the side of labels
MAX_INSIDE = 3  # letters; longer labels are beside the nodes
MANY_NODES = 60  # if there are more, everything is drawn smaller, and the figure is larger
MAX_GROWTH = 1.6
CONTEXT = "#a0a0a0"  # nodes around those with labels
HEAD_SIZE, HEAD_GROWTH = 6.0, 2.0  # arrowheads: points, points per point of width


def node_positions(edges: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    """Return the points of the nodes, ``[N, 2]``; the same for the same graph every time.

    Connected components are laid out one by one, with a mean edge length of 1, and put side by side.
    """
    networkx = networkx_module()
    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from((source, target) for source, target in edges.tolist() if source != target)
    components = sorted(map(sorted, networkx.connected_components(graph)), key=len, reverse=True)
    uses_springs = bool(components) and len(components[0]) > LARGE
    points = np.zeros((num_nodes, 2))
    for component in components:
        index = {node: place for place, node in enumerate(component)}
        connected = networkx.empty_graph(len(component))
        connected.add_edges_from(
            sorted(sorted((index[source], index[target])) for source, target in graph.edges(component))
        )
        points[component] = _connected_points(connected, uses_springs)
    return side_by_side(points, components)


def networkx_module() -> Any:
    """Return networkx; raise an ImportError that says what to install if it is missing."""
    try:
        import networkx
    except ImportError as error:
        raise ImportError("Layouts need networkx (or pass positions): pip install captum-goat[plot]") from error
    return networkx


def _connected_points(graph: Any, uses_springs: bool) -> NDArray[Any]:
    """Lay out a connected networkx graph, long side across, with edges of length 1 on average."""
    springs = networkx_module().spring_layout(graph, seed=SEED) if uses_springs else {}  # needs SciPy
    points = np.array([*springs.values()]) if uses_springs else kamada_kawai(graph)
    centred = points - points.mean(axis=0)
    turned: NDArray[Any] = centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1]  # the short side comes first
    lengths = [np.linalg.norm(turned[source] - turned[target]) for source, target in graph.edges]
    return turned / np.mean(lengths) if any(lengths) else turned


def given_points(positions: Positions, num_nodes: int) -> NDArray[Any]:
    """Return given positions of the nodes, ``[N, 2]``, checked."""
    values: Any = positions.detach().cpu().numpy() if isinstance(positions, Tensor) else positions
    if isinstance(values, str):
        raise ValueError(f"Expected layout to be the nodes' positions (got {values!r}).")
    points = np.array([values[node] for node in range(num_nodes)], dtype=float)
    if num_nodes and points.shape != (num_nodes, 2):
        got = list(points.shape)
        raise ValueError(f"Expected positions of shape [{num_nodes}, 2], one point per node (got {got}).")
    if not np.isfinite(points).all():
        raise ValueError("Expected finite positions (got infinite or nan coordinates).")
    return points.reshape(num_nodes, 2)


def side_by_side(points: NDArray[Any], components: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Arrange components in rows, from the largest at the upper left; a single one stays where it is."""
    if len(components) < 2:
        return points
    sizes = np.array([np.ptp(points[component], axis=0) + GAP for component in components])
    row_width = max(sizes[:, 0].max(), np.sqrt(ROW_SHAPE * sizes.prod(axis=1).sum()))
    placed = np.empty_like(points)
    left, top, row_height = 0.0, 0.0, 0.0
    for component, (width, height) in zip(components, sizes, strict=True):
        if left and left + width > row_width * (1 + 1e-9):
            left, top, row_height = 0.0, top - row_height, 0.0
        own = points[component]
        placed[component] = own - [own[:, 0].min(), own[:, 1].max()] + [left, top]
        left, row_height = left + width, max(row_height, height)
    return placed


def kamada_kawai(graph: Any) -> NDArray[Any]:
    """Lay out a connected networkx graph with nodes 0 to N - 1, by Kamada and Kawai's energy: ``[N, 2]``.

    It is minimised by majorisation (Gansner, Koren, North: *Graph Drawing by Stress Majorization*, 2004). networkx uses
    SciPy, which is slow on a busy machine, and one start, which often leads to folded shapes.
    """
    import networkx

    path_lengths = np.zeros((len(graph), len(graph)))
    for node, distances in networkx.all_pairs_shortest_path_length(graph):
        path_lengths[node, list(distances)] = list(distances.values())
    weights = np.divide(1.0, path_lengths**2, out=np.zeros_like(path_lengths), where=path_lengths > 0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    starts = max(1, min(STARTS, PAIRS // max(1, len(path_lengths) ** 2)))
    points = path_lengths.max(initial=1) * np.random.default_rng(SEED).random((starts, len(path_lengths), 2))
    for _ in range(STEPS):
        pulls = weights * path_lengths / np.maximum(_pairwise(points), 1e-9)
        points = inverse @ (pulls.sum(axis=-1, keepdims=True) * points - pulls @ points)
    energies = (weights * (_pairwise(points) - path_lengths) ** 2).sum(axis=(1, 2))
    best: NDArray[Any] = points[energies.argmin()]
    return best


def _pairwise(points: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between the points of every layout: ``[layouts, N, 2]`` to ``[layouts, N, N]``."""
    x, y = points[..., 0], points[..., 1]
    distances: NDArray[Any] = np.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
    return distances


def edge_lines(edges: NDArray[Any], points: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the lines from sources to targets, ``[points, 2]`` each.

    An edge whose reverse exists is bent to its left. A self-loop is a circle that faces away from the graph.
    """
    pairs = {*map(tuple, edges.tolist())}
    radius = LOOP_RADIUS * (float(np.ptp(points, axis=0).max()) or 1.0) if len(points) else 0.0
    share = np.linspace(0, 1, CURVE_POINTS)[:, None]
    lines = []
    for source, target in edges.tolist():
        start, along = points[source], points[target] - points[source]
        if source == target:
            outward = start - points.mean(axis=0)
            angles = np.arctan2(*-(outward if outward.any() else np.array([0.0, 1.0]))[::-1]) + 2 * np.pi * share
            circle = np.hstack([np.cos(angles), np.sin(angles)])
            lines.append(start + radius * (circle - circle[0]))
        elif (target, source) in pairs:  # a parabola, at its middle BEND / 2 of its length away from the straight line
            lines.append(start + share * along + 2 * BEND * share * (1 - share) * [-along[1], along[0]])
        else:
            lines.append(points[[source, target]])
    return lines


def arrow_places(lines: Sequence[NDArray[Any]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return points past the middle of lines, where no node hides an arrowhead, and rotations, ``[2, 2]``."""
    places = []
    for line in lines:
        index, rest = divmod(ARROW_AT * (len(line) - 1), 1)
        step = line[int(index) + 1] - line[int(index)]
        turn = np.array([step, [-step[1], step[0]]]) / (np.linalg.norm(step) or 1.0)
        places.append((line[int(index)] + rest * step, turn))
    return places


class GraphOptions(PictureOptions, total=False):
    """The options of :func:`visualize_graph_attr`."""

    directed: bool | None
    only_top: bool
    layout: Positions | None
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
    - ``layout``: The positions of the nodes, ``[N, 2]`` or a dictionary such as networkx's layouts return. By default
      the ``pos`` of the ``Data``, or else a layout that keeps motifs in shape (Kamada and Kawai; springs if large).
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
    fig, (ax,) = _draw_panels({"": attributions}, edge_index, options, FIGURE_SIZE)
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
    if not isinstance(attributions, Mapping) or not attributions:
        got = "none" if isinstance(attributions, Mapping) else type(attributions).__name__
        raise ValueError(f"Expected the attributions of one or more methods, {{name: [E], ...}} (got {got}).")
    return _draw_panels(attributions, edge_index, {"show_colorbar": True} | options, PANEL_SIZE, shared_scale)


def _draw_panels(
    attributions: Mapping[str, Tensor],
    graph: Tensor | Data,
    options: Mapping[str, Any],
    size: float,
    shared_scale: bool = True,
) -> tuple[Figure, list[Axes]]:
    settings: Any = checked(options, GraphOptions)
    only_top, top_k, layout, node_labels = (settings[name] for name in ("only_top", "top_k", "layout", "node_labels"))
    if only_top and top_k is None:
        raise ValueError("Expected top_k, the number of edges to draw, with only_top=True (got None).")
    if isinstance(graph, BaseData) and not isinstance(graph, Data):
        got = type(graph).__name__
        raise ValueError(f"Expected a tensor [2, E] or a Data (got {got}). Draw edge types one by one.")
    if isinstance(graph, Data) and graph.edge_index is None:
        raise ValueError("Expected a Data with edge_index (got one without).")
    num_nodes, edge_index = None, graph
    if isinstance(graph, Data):
        num_nodes, edge_index = graph.num_nodes, graph.edge_index
        if layout is None and graph.pos is not None and graph.pos.shape[1:] == (2,):
            layout = graph.pos
    edge_index = as_tensor(edge_index, "edge_index")
    directed = is_directed(edge_index) if settings["directed"] is None else settings["directed"]
    merged: dict[str, Any] = {"directed": directed, "feature_mask": settings["feature_mask"]}
    scored = [edge_scores(values, edge_index, settings["ground_truth"], **merged) for values in attributions.values()]
    (edges, _, marked), scores = scored[0], [with_sign(values, settings["sign"]) for _, values, _ in scored]
    coloured = [strongest(values, top_k) for values in scores]
    count = node_count(edges, num_nodes, layout=layout, node_labels=node_labels)
    top_nodes = np.unique(edges[np.any(coloured, axis=0)])
    kept, nodes = np.arange(len(edges)), np.arange(count)
    if only_top:
        kept = np.flatnonzero(np.isin(edges, top_nodes).any(axis=1))
        nodes = np.unique(edges[kept])
    edges = np.searchsorted(nodes, edges[kept])
    points = node_positions(edges, len(nodes)) if layout is None else given_points(layout, count)[nodes]
    labels = [""] * count
    if node_labels is not None or only_top:
        texts: Any = range(count) if node_labels is None else node_labels
        few = only_top or (top_k is not None and count > MANY_NODES)
        for node in top_nodes if few else range(count):
            labels[node] = str(texts[node].item() if isinstance(texts, Tensor) else texts[node])
    shown: dict[str, Any] = {"edges": edges, "marked": marked[kept], "points": points, "directed": directed}
    shown["labels"] = [labels[node] for node in nodes]
    shown["faces"] = None if settings["node_colors"] is None else _node_faces(settings["node_colors"], count)[nodes]
    pictures = {
        title: Picture(values[kept], partial(_draw_graph, scores=values[kept], coloured=chosen[kept], **shown))
        for title, values, chosen in zip(attributions, scores, coloured, strict=True)
    }
    size *= min(MAX_GROWTH, 1 / _crowding(len(points)))
    return draw_pictures(pictures, settings, (size, size), shared_scale=shared_scale)


def _node_faces(colours: Any, count: int) -> NDArray[Any]:
    from matplotlib.colors import to_rgba_array

    try:
        return np.broadcast_to(to_rgba_array(colours), (count, 4))
    except (TypeError, ValueError) as error:
        expected = f"matplotlib colours, one or one for each of {count} nodes"
        raise ValueError(f"Expected node_colors as {expected} (got {colours!r}).") from error


def _crowding(count: int) -> float:
    """Return the factor by which lines and nodes are smaller than in a small graph."""
    return float(min(1.0, np.sqrt(MANY_NODES / max(count, 1))))


def _draw_graph(
    ax: Axes,
    scale: ScalarMappable,
    *,
    edges: NDArray[Any],
    scores: NDArray[Any],
    coloured: NDArray[Any],
    marked: NDArray[Any],
    points: NDArray[Any],
    labels: list[str],
    faces: NDArray[Any] | None,
    directed: bool,
) -> None:
    """Draw, from below: the ground truth, the plain graph, the coloured edges (strongest last), the nodes."""
    shares = (np.abs(scores) / np.abs(np.array(scale.get_clim(), dtype=float)).max()).clip(max=1)
    shrink = _crowding(len(points))
    widths = shrink * MIN_WIDTH + shrink**0.5 * (MAX_WIDTH - MIN_WIDTH) * shares
    lines = edge_lines(edges, points)
    order = np.argsort(np.abs(scores), kind="stable")
    order = order[coloured[order]]
    plain = min(MIN_WIDTH, widths.min(initial=MIN_WIDTH))
    # Weak edges are faint in large graphs: many of them must not be a blot.
    colours: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "array": scores[order]}
    colours["alpha"] = np.minimum(1.0, shrink + 2 * shares[order]) if shrink < 1 else None
    draw_truth(ax, [lines[edge] for edge in np.flatnonzero(marked)], widths[marked], shrink)
    add_lines(ax, lines, plain, colors=NEUTRAL, alpha=shrink, zorder=1.5)
    strong = [lines[edge] for edge in order]
    add_lines(ax, strong, widths[order], zorder=2, **colours)
    if directed:
        grey = [lines[edge] for edge in np.flatnonzero(~coloured)]
        _draw_heads(ax, grey, plain, shrink, facecolors=NEUTRAL, alpha=shrink, zorder=1.5)
        _draw_heads(ax, strong, widths[order], shrink, zorder=2.5, **colours)
    pushes = (points[edges[:, 0]] - points[edges[:, 1]]) * (WEAK_PUSH + shares * coloured)[:, None]
    free_sides = np.zeros_like(points)  # of nodes: away from their strong edges
    np.add.at(free_sides, edges, np.stack([pushes, -pushes], axis=1))
    _draw_nodes(ax, points, labels, faces, free_sides)
    ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
    ax.margins(0.04)


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


def _draw_nodes(
    ax: Axes, points: NDArray[Any], labels: list[str], faces: NDArray[Any] | None, free_sides: NDArray[Any]
) -> None:
    """Draw the nodes with their labels: on them or, with a white rim, on their free side."""
    from matplotlib.patheffects import withStroke

    shrink, has_label = _crowding(len(points)), np.array([bool(label) for label in labels], dtype=bool)
    inside = len(points) <= MANY_NODES and max(map(len, labels), default=0) <= MAX_INSIDE
    circles = has_label & inside
    if faces is None:  # nodes without a label are grey beside others that have one
        dots = np.where(has_label | ~has_label.any(), INK, CONTEXT)
        faces = _node_faces(np.where(circles, "white", dots).tolist(), len(points))
    sizes = np.where(circles, LABELLED_NODE_SIZE, NODE_SIZE) * shrink**2
    ax.scatter(*points.T, s=sizes, facecolors=faces, edgecolors=INK, linewidths=shrink, zorder=3)  # type: ignore[misc]
    for node in np.flatnonzero(has_label):
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": FONT_SIZE, "color": INK}
        x, y = (0.0, 0.0)
        if inside:
            is_bright = faces[node, :3] @ [0.299, 0.587, 0.114] > 0.5
            style["color"] = INK if is_bright else "white"
        else:
            x, y = free_sides[node] / (np.linalg.norm(free_sides[node]) or 1.0) * LABEL_DISTANCE
            style |= {"ha": "left" if x >= 0 else "right", "va": "bottom" if y >= 0 else "top"}
            style |= {"fontsize": FONT_SIZE * max(shrink, 0.75)}
            style["path_effects"] = [withStroke(linewidth=2, foreground="white")]
        ax.annotate(labels[node], points[node], (x, y), textcoords="offset points", zorder=4, **style)
