"""Where the nodes and edges of a graph go on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOP_RADIUS, ARROW_LOOP_RADIUS = 0.05, 0.075  # a self-loop is a circle with this share of the layout's size as radius
BEND = 0.2  # two edges that run both ways part by this share of their length
CURVE_POINTS = 25
LAYOUT_STARTS, LAYOUT_STEPS = 10, 200  # the best of several layouts is taken,
LAYOUT_PAIRS = 100_000  # of fewer if they would have more pairs of nodes than this


def node_positions(edges: NDArray[Any], pos: Any, num_nodes: int) -> NDArray[Any]:
    """Return the points of the nodes, ``[N, 2]``: those in ``pos``, or a layout if it is ``None``.

    Raises:
        ImportError: If a layout is needed and networkx is missing.
        ValueError: If ``pos`` does not have two coordinates for every node.
    """
    if pos is None:
        try:
            pos = _kamada_kawai(edges, num_nodes)
        except ImportError as error:
            raise ImportError(
                "networkx is needed to lay out the graph (or give pos): pip install captum-goat[plot]"
            ) from error
    elif isinstance(pos, Tensor):
        pos = pos.detach().cpu().numpy()
    points = np.array([pos[node] for node in range(num_nodes)], dtype=float)
    if num_nodes and points.shape != (num_nodes, 2):
        raise ValueError(f"Expected pos of shape [{num_nodes}, 2], one point per node (got {list(points.shape)}).")
    return points.reshape(num_nodes, 2)


def _kamada_kawai(edges: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    """Lay out the graph so that distances on paper are close to distances in the graph.

    This is the energy of Kamada and Kawai, which weights squared errors by 1 / distance^2, minimised by majorisation
    (Gansner, Koren, North: *Graph Drawing by Stress Majorization*, 2004). networkx minimises it with SciPy, whose
    threads slow it down a lot on a busy machine, and from one start, which often leads to folded shapes.
    """
    wanted = _graph_distances(edges, num_nodes)
    weights = np.divide(1.0, wanted**2, out=np.zeros_like(wanted), where=wanted > 0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    starts = max(1, min(LAYOUT_STARTS, LAYOUT_PAIRS // max(1, num_nodes**2)))
    points = wanted.max(initial=1) * np.random.default_rng(0).random((starts, num_nodes, 2))
    for _ in range(LAYOUT_STEPS):
        pulls = weights * wanted / np.maximum(_pairwise(points), 1e-9)
        points = inverse @ (pulls.sum(axis=-1, keepdims=True) * points - pulls @ points)
    energies = (weights * (_pairwise(points) - wanted) ** 2).sum(axis=(1, 2))
    best = points[energies.argmin()]
    _, axes = np.linalg.eigh(best.T @ best)  # the short side first
    turned: NDArray[Any] = best @ axes[:, ::-1]  # the long side across
    return turned


def _pairwise(points: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between the points of every layout: ``[layouts, N, 2]`` to ``[layouts, N, N]``."""
    distances: NDArray[Any] = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    return distances


def _graph_distances(edges: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    """Return the lengths of shortest paths; between separate parts, one more than the longest of them."""
    import networkx

    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from(edges.tolist())
    distances = np.full((num_nodes, num_nodes), np.nan)
    for node, lengths in networkx.all_pairs_shortest_path_length(graph):
        distances[node, list(lengths)] = list(lengths.values())
    distances[np.isnan(distances)] = np.nanmax(distances, initial=0) + 1
    return distances


def edge_lines(edges: NDArray[Any], points: NDArray[Any], *, arrows: bool = False) -> list[NDArray[Any]]:
    """Return the lines from sources to targets, ``[points, 2]`` each; ``arrows`` leaves room for arrowheads.

    An edge that also runs the other way is bent to its left, so that the two part. A self-loop is a circle on the
    side of its node that faces away from the graph.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.graph_layout import edge_lines
        >>> (line,) = edge_lines(np.array([[0, 1]]), np.array([[0.0, 0.0], [2.0, 1.0]]))
        >>> line.tolist()
        [[0.0, 0.0], [2.0, 1.0]]
    """
    pairs = {(int(source), int(target)) for source, target in edges}
    size = float(np.ptp(points, axis=0).max()) if len(points) else 0.0
    radius = (ARROW_LOOP_RADIUS if arrows else LOOP_RADIUS) * (size or 1.0)
    lines = []
    for source, target in edges:
        if source == target:
            lines.append(_loop(points[source], points.mean(axis=0), radius))
        elif (int(target), int(source)) in pairs:
            lines.append(_curve(points[source], points[target]))
        else:
            lines.append(points[[source, target]])
    return lines


def _loop(point: NDArray[Any], centre: NDArray[Any], radius: float) -> NDArray[Any]:
    outward = point - centre if (point != centre).any() else np.array([0.0, 1.0])
    start = np.arctan2(*-outward[::-1])
    angles = start + np.linspace(0, 2 * np.pi, CURVE_POINTS)
    circle: NDArray[Any] = np.stack([np.cos(angles), np.sin(angles)], axis=1) - [np.cos(start), np.sin(start)]
    return point + radius * circle


def _curve(start: NDArray[Any], end: NDArray[Any]) -> NDArray[Any]:
    """Return a parabola to the left of the straight line, ``BEND / 2`` of its length away at the middle."""
    along = end - start
    left = np.array([-along[1], along[0]])
    share = np.linspace(0, 1, CURVE_POINTS)[:, None]
    curve: NDArray[Any] = start + share * along + 2 * BEND * share * (1 - share) * left
    return curve


def point_on(line: NDArray[Any], share: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the point at a share of a line's points, and the direction there (not normalised)."""
    index, rest = divmod(share * (len(line) - 1), 1)
    step = line[int(index) + 1] - line[int(index)]
    return line[int(index)] + rest * step, step
