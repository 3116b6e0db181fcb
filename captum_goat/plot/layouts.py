"""Where nodes and edges are drawn: the layout of nodes, and the lines of edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
