"""Where to draw the nodes: layouts by name, part by part, the parts side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from torch import Tensor

from captum_goat.plot.stress import kamada_kawai

if TYPE_CHECKING:
    from numpy.typing import NDArray

LayoutName = Literal["kamada_kawai", "spring", "spectral", "circular", "molecule"]
Positions: TypeAlias = "Mapping[int, Sequence[float]] | Tensor | NDArray[Any]"

SEED = 0  # of layouts that start at random: the same graph is drawn alike every time
LARGE = 500  # nodes; the time of Kamada and Kawai's layout grows with their cube
GAP = 1.2  # between parts of a graph, in lengths of an edge
ROW_SHAPE, ROW_WIDTHS = 1.4, 40  # all parts together are about that much wider than high; so many widths are tried


def node_positions(
    edges: NDArray[Any],
    num_nodes: int,
    layout: LayoutName | Positions | None = None,
    atoms: Sequence[str] | None = None,
) -> NDArray[Any]:
    """Return the points of the nodes, ``[N, 2]``. The same graph has the same points every time.

    The parts of a graph that are not connected are laid out on their own, with edges of length 1 on average, and put
    side by side.

    Args:
        edges: The edges, ``[M, 2]``; their direction does not matter.
        num_nodes: The number of nodes.
        layout: A name, or the points themselves: ``[N, 2]``, or a dictionary as networkx has it. ``None`` for
            ``"kamada_kawai"``, or ``"spring"`` if the graph has a part of more than 500 nodes.
        atoms: The symbols of the nodes' elements, for ``"molecule"``.

    Raises:
        ImportError: If networkx is missing, or what the layout needs beside it.
        ValueError: If there is no such layout, or not a point for every node.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.plot.layouts import node_positions
        >>> square = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
        >>> points = node_positions(square, 4, "circular")
        >>> np.linalg.norm(points[1] - points[0]).round(3)
        np.float64(1.0)
    """
    if layout is not None and not isinstance(layout, str):
        return _given_points(layout, num_nodes)
    if layout is not None and layout not in get_args(LayoutName):
        names = ", ".join(map(repr, get_args(LayoutName)))
        raise ValueError(f"Expected layout to be one of {names}, or the nodes' positions (got {layout!r}).")
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            "networkx is needed to lay out the graph (or give pos): pip install captum-goat[plot]"
        ) from error

    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from((source, target) for source, target in edges.tolist() if source != target)
    parts = sorted(map(sorted, networkx.connected_components(graph)), key=len, reverse=True)
    place = _layout_function(layout, max(map(len, parts), default=0))
    points = np.zeros((num_nodes, 2))
    for part in parts:
        numbered = networkx.relabel_nodes(graph.subgraph(part), {node: index for index, node in enumerate(part)})
        ordered = networkx.empty_graph(len(part))  # its nodes in order, as the layouts return them
        ordered.add_edges_from(sorted(map(sorted, numbered.edges)))
        symbols = None if atoms is None else [atoms[node] for node in part]
        points[part] = _unit_edges(ordered, place(ordered, symbols))
    return _side_by_side(points, parts)


def _given_points(pos: Positions, num_nodes: int) -> NDArray[Any]:
    known: Any = pos.detach().cpu().numpy() if isinstance(pos, Tensor) else pos
    points = np.array([known[node] for node in range(num_nodes)], dtype=float)
    if num_nodes and points.shape != (num_nodes, 2):
        raise ValueError(f"Expected pos of shape [{num_nodes}, 2], one point per node (got {list(points.shape)}).")
    if not np.isfinite(points).all():
        raise ValueError("Expected pos to be finite (got infinite or nan coordinates).")
    return points.reshape(num_nodes, 2)


def _layout_function(layout: LayoutName | None, largest: int) -> Callable[[Any, Sequence[str] | None], NDArray[Any]]:
    """Return the function from a connected graph and its atoms to points."""
    if layout == "molecule":
        from captum_goat.plot.molecule_graph import molecule_points

        return lambda graph, atoms: molecule_points(np.array(graph.edges).reshape(-1, 2), len(graph), atoms)
    if layout == "kamada_kawai" and largest > LARGE:
        warnings.warn(
            f"The layout of Kamada and Kawai takes long for {largest} connected nodes; layout='spring' is faster.",
            stacklevel=2,
        )
    name = layout or ("kamada_kawai" if largest <= LARGE else "spring")
    if name == "kamada_kawai":
        return lambda graph, _: _long_side_across(kamada_kawai(graph))
    if name == "circular":
        return lambda graph, _: _of_networkx("circular", graph)
    return lambda graph, _: _long_side_across(_of_networkx(name, graph))


def _of_networkx(name: str, graph: Any) -> NDArray[Any]:
    import networkx

    options = {"seed": SEED} if name == "spring" else {}
    try:
        points = getattr(networkx, f"{name}_layout")(graph, **options)
    except ImportError as error:
        raise ImportError(
            f"networkx needs SciPy for layout={name!r} of {len(graph)} nodes: pip install scipy"
        ) from error
    return np.array([points[node] for node in range(len(graph))], dtype=float)


def _long_side_across(points: NDArray[Any]) -> NDArray[Any]:
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)  # the short side first
    turned: NDArray[Any] = centred @ axes[:, ::-1]
    return turned


def _unit_edges(graph: Any, points: NDArray[Any]) -> NDArray[Any]:
    """Scale points so that edges have length 1 on average."""
    ends = np.array(graph.edges, dtype=int).reshape(-1, 2)
    lengths = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    mean = lengths.mean() if len(lengths) else 0.0
    return points / mean if mean > 0 else points


def _side_by_side(points: NDArray[Any], parts: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Put the parts of a graph into rows, from the largest at the upper left; one part stays where it is."""
    if len(parts) < 2:
        return points
    sizes = np.array([np.ptp(points[part], axis=0) + GAP for part in parts])
    widths = np.geomspace(sizes[:, 0].max(), sizes[:, 0].sum(), ROW_WIDTHS)
    tries = [_corners(sizes, width) for width in widths]
    shapes = [np.divide(*np.ptp(np.concatenate([corners, corners + sizes * [1, -1]]), axis=0)) for corners in tries]
    corners = tries[int(np.abs(np.log(np.array(shapes) / ROW_SHAPE)).argmin())]
    placed = np.empty_like(points)
    for part, corner in zip(parts, corners, strict=True):
        upper_left = np.array([points[part][:, 0].min(), points[part][:, 1].max()])
        placed[part] = points[part] - upper_left + corner
    return placed


def _corners(sizes: NDArray[Any], row_width: float) -> NDArray[Any]:
    """Return the upper left corners of boxes that are put into rows of at most that width."""
    corners, left, top, row_height = [], 0.0, 0.0, 0.0
    for width, height in sizes:
        if left and left + width > row_width * (1 + 1e-9):
            left, top, row_height = 0.0, top - row_height, 0.0
        corners.append((left, top))
        left, row_height = left + width, max(row_height, height)
    return np.array(corners)
