"""Pictures of attributed graphs, with the parameter names of :mod:`captum.attr.visualization`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import coalesce

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Sign = Literal["all", "positive", "negative", "absolute_value"]

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
NODE_SIZE, LABELLED_NODE_SIZE = 30.0, 220.0  # square points
LOOP_RADIUS, LOOP_POINTS = 0.05, 25  # a self-loop is a circle with this share of the layout's size as its radius
LAYOUT_STARTS, LAYOUT_STEPS = 10, 200  # the best of several layouts is taken,
LAYOUT_PAIRS = 100_000  # of fewer if they would have more pairs of nodes than this


def visualize_graph_attr(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    sign: Sign = "all",
    edge_label: Tensor | None = None,
    node_labels: Sequence[object] | None = None,
    num_nodes: int | None = None,
    pos: Mapping[int, Sequence[float]] | Tensor | NDArray[Any] | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    show_colorbar: bool = False,
    title: str | None = None,
    fig_size: tuple[float, float] = (6, 6),
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Axes] | None = None,
) -> tuple[Figure, Axes]:
    """Draw one graph with its edges coloured by attribution: blue speaks for the target, red against it.

    Colours are centred on zero and widths grow with the magnitude. The two directions of an edge are drawn as one
    line, which stands for their sum.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        sign: Which attributions to show: ``"all"``, only ``"positive"``, only ``"negative"`` (the others count as
            zero), or the ``"absolute_value"``.
        edge_label: The edges to mark with a halo, bool ``[E]``, for example the ground truth. The halos have the label
            "ground truth" for ``ax.legend()``.
        node_labels: What to write on the nodes, one entry per node.
        num_nodes: The number of nodes; needed if the last nodes have no edges.
        pos: Where to draw the nodes: ``[N, 2]``, or a layout of networkx; ``None`` for the layout of Kamada and Kawai.
        vmax: The magnitude that has the full colour and width, so that several pictures can share one scale; ``None``
            to find it in these attributions.
        outlier_perc: If ``vmax`` is not given, the share (in percent) of the summed magnitudes that may be cut off.
        cmap: A colour map of matplotlib. The default is red, grey, blue, or the half of it that ``sign`` needs.
        show_colorbar: Whether to draw a colour bar.
        title: The title.
        fig_size: The size of a new figure in inches.
        use_pyplot: Whether pyplot makes the figure, so that notebooks and ``plt.show()`` display it.
        plt_fig_axis: A figure and axes to draw in, instead of a new figure.

    Returns:
        The figure and the axes.

    Raises:
        ImportError: If matplotlib or networkx is missing.
        ValueError: If the arguments do not fit together.
    """
    _check(attributions, edge_index, edge_label, sign)
    edges, scores, marked = _undirected(attributions, edge_index, edge_label)
    scores = _with_sign(scores, sign)
    scale = vmax if vmax is not None else _scale(np.abs(scores), outlier_perc)
    points = _positions(edges, pos, _node_count(edges, num_nodes, pos, node_labels))
    fig, ax = plt_fig_axis or _new_figure(fig_size, use_pyplot)
    lines = _draw_edges(ax, _segments(edges, points), scores, marked, scale or 1.0, sign, cmap)
    _draw_nodes(ax, points, node_labels)
    if show_colorbar:
        fig.colorbar(lines, ax=ax, label="attribution", shrink=0.8)
    if title is not None:
        ax.set_title(title)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")  # the axes keep their size: titles beside each other line up
    ax.margins(0.08)
    return fig, ax


def _check(attributions: Tensor, edge_index: Tensor, edge_label: Tensor | None, sign: str) -> None:
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"Expected edge_index of shape [2, num_edges] (got {list(edge_index.shape)}).")
    for name, tensor in (("attributions", attributions), ("edge_label", edge_label)):
        if tensor is not None and tensor.shape != edge_index.shape[1:]:
            raise ValueError(
                f"Expected {name} of shape [{edge_index.size(1)}], one per edge (got {list(tensor.shape)})."
            )
    if sign not in CMAP_COLORS:
        raise ValueError(f"Expected sign to be one of {', '.join(map(repr, CMAP_COLORS))} (got {sign!r}).")


def _undirected(
    attributions: Tensor, edge_index: Tensor, edge_label: Tensor | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Merge the two directions of every edge (and repeated edges): add the attributions, keep the marks."""
    marks = torch.zeros_like(attributions) if edge_label is None else edge_label.to(attributions)
    values = torch.stack([attributions.detach(), marks], dim=1)
    edges, values = coalesce(edge_index.sort(dim=0).values, values, reduce="sum")
    return edges.t().cpu().numpy(), values[:, 0].cpu().numpy(), values[:, 1].cpu().numpy() > 0


def _with_sign(scores: NDArray[Any], sign: Sign) -> NDArray[Any]:
    if sign == "positive":
        return scores.clip(min=0)
    if sign == "negative":
        return scores.clip(max=0)
    return np.abs(scores) if sign == "absolute_value" else scores


def _scale(magnitudes: NDArray[Any], outlier_perc: float) -> float:
    """Return the magnitude up to which the smaller ones make up all but ``outlier_perc`` percent of the sum."""
    if not 0 <= outlier_perc <= 100:
        raise ValueError(f"Expected outlier_perc between 0 and 100 (got {outlier_perc}).")
    if not len(magnitudes):
        return 0.0
    ascending = np.sort(magnitudes)
    sums = ascending.cumsum()
    return float(ascending[np.searchsorted(sums, sums[-1] * (1 - outlier_perc / 100))])


def _node_count(edges: NDArray[Any], num_nodes: int | None, pos: Any, node_labels: Sequence[object] | None) -> int:
    given = {len(each) for each in (pos, node_labels) if each is not None}
    if num_nodes is not None:
        given.add(num_nodes)
    needed = int(edges.max()) + 1 if len(edges) else 0
    if len(given) > 1 or (given and min(given) < needed):
        raise ValueError(
            f"Expected num_nodes, pos and node_labels to agree on one number of nodes, at least {needed} "
            f"for the nodes in edge_index (got {sorted(given)})."
        )
    return given.pop() if given else needed


def _positions(edges: NDArray[Any], pos: Any, num_nodes: int) -> NDArray[Any]:
    if pos is None:
        try:
            pos = _kamada_kawai(edges, num_nodes)
        except ImportError as error:
            raise _missing("networkx", "to lay out the graph (or give pos)") from error
    elif isinstance(pos, Tensor):
        pos = pos.detach().cpu().numpy()
    points = np.array([pos[node] for node in range(num_nodes)], dtype=float)
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


def _segments(edges: NDArray[Any], points: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the lines to draw; a self-loop is a circle on the side of its node that faces away from the graph."""
    size = float(np.ptp(points, axis=0).max()) if len(points) else 0.0
    radius = LOOP_RADIUS * (size or 1.0)
    angles = np.linspace(0, 2 * np.pi, LOOP_POINTS)
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    segments = []
    for source, target in edges:
        if source == target:
            outward = points[source] - points.mean(axis=0)
            outward = outward / (np.linalg.norm(outward) or 1.0)
            segments.append(points[source] + radius * outward + circle)
        else:
            segments.append(points[[source, target]])
    return segments


def _draw_edges(
    ax: Axes,
    segments: list[NDArray[Any]],
    scores: NDArray[Any],
    marked: NDArray[Any],
    scale: float,
    sign: Sign,
    cmap: str | Colormap | None,
) -> Any:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    widths = MIN_WIDTH + (MAX_WIDTH - MIN_WIDTH) * (np.abs(scores) / scale).clip(max=1)
    if marked.any():
        halo = [line for line, mark in zip(segments, marked, strict=True) if mark]
        ax.add_collection(
            LineCollection(
                halo,
                colors=HALO,
                linewidths=widths[marked] + HALO_WIDTH,
                capstyle="round",
                zorder=1,
                label="ground truth",
            )
        )
    order = np.argsort(np.abs(scores), kind="stable")  # strong edges on top
    norm = Normalize(-scale if sign in ("all", "negative") else 0, scale if sign != "negative" else 0)
    lines = LineCollection(
        [segments[index] for index in order],
        array=scores[order],
        cmap=cmap or LinearSegmentedColormap.from_list(f"goat_{sign}", CMAP_COLORS[sign]),
        norm=norm,
        linewidths=widths[order],
        capstyle="round",
        zorder=2,
    )
    ax.add_collection(lines)
    return lines


def _draw_nodes(ax: Axes, points: NDArray[Any], node_labels: Sequence[object] | None) -> None:
    x, y = points.T
    if node_labels is None:
        ax.scatter(x, y, s=NODE_SIZE, c=INK, zorder=3)
        return
    ax.scatter(x, y, s=LABELLED_NODE_SIZE, c="white", edgecolors=INK, zorder=3)
    for across, up, label in zip(x, y, node_labels, strict=True):
        ax.text(across, up, str(label), ha="center", va="center", fontsize=8, color=INK, zorder=4)


def _new_figure(fig_size: tuple[float, float], use_pyplot: bool) -> tuple[Figure, Axes]:
    try:
        from matplotlib import pyplot
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing("matplotlib", "to draw the graph") from error
    fig = pyplot.figure(figsize=fig_size) if use_pyplot else Figure(figsize=fig_size)
    return fig, fig.subplots()


def _missing(what: str, purpose: str) -> ImportError:
    return ImportError(f"visualize_graph_attr needs {what} {purpose}: pip install captum-goat[plot]")
