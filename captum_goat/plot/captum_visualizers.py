"""Graphs for Captum's visualizers of images and time series.

The functions ``to_*`` return the inputs of Captum's visualizers. These fail on graphs without edges, on attributions
that are all zero and, for time series, with matplotlib 3.11: the functions ``visualize_*`` draw the same pictures for
all graphs, in the colours of :mod:`captum_goat.plot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from captum_goat.plot.edge_scores import edge_scores, node_count, plain_edges, with_sign
from captum_goat.plot.style import INK, ColourScale, PictureOptions, checked, draw_pictures, drawn_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

__all__ = ["to_image_attr", "to_timeseries_attr", "visualize_adjacency_attr", "visualize_node_attr"]

CHANNELS = ("incoming", "outgoing")
MATRIX_SIZE, LINE_SIZE = (6.0, 6.0), (4.2, 3.2)  # inches
FONT_SIZE, LABEL_ROOM = 10.0, 240.0  # points: of a label, and of all labels at a side of the matrix
OVERLAY = 0.7  # how opaque colours over lines are, as in Captum


def to_image_attr(attributions: Tensor, edge_index: Tensor, num_nodes: int | None = None) -> NDArray[Any]:
    """Return the adjacency matrix of attributions ``[N, N, 1]``, an image for Captum's ``visualize_image_attr``.

    Rows are sources and columns targets; repeated edges are added up. ``num_nodes`` is needed if the last have none.

    Examples:
        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import to_image_attr
        >>> to_image_attr(torch.tensor([2.0, -1.0]), torch.tensor([[0, 1], [1, 0]]))[:, :, 0].tolist()
        [[0.0, 2.0], [-1.0, 0.0]]
    """
    edges, scores, _ = edge_scores(attributions, edge_index, directed=True)
    count = node_count(edges, num_nodes)
    image = np.zeros((count, count, 1))
    image[edges[:, 0], edges[:, 1], 0] = scores
    return image


def to_timeseries_attr(
    attributions: Tensor, edge_index: Tensor, num_nodes: int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return attributions and data ``[N, 2]`` for Captum's ``visualize_timeseries_attr``: nodes are points in time.

    The two channels are the incoming and the outgoing edges of a node. The data is their number, the attribution their
    sum. This suits graphs whose nodes have a meaningful order, such as paths. ``num_nodes`` is needed if the last nodes
    have no edges.

    Examples:
        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import to_timeseries_attr
        >>> attr, data = to_timeseries_attr(torch.tensor([2.0, -3.0]), torch.tensor([[0, 1], [2, 2]]))
        >>> attr.tolist(), data.tolist()
        ([[0.0, 2.0], [0.0, -3.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0], [2.0, 0.0]])
    """
    edges, scores, _ = edge_scores(attributions, edge_index, directed=True)
    count = node_count(edges, num_nodes)
    attr = np.stack([np.bincount(edges[:, end], scores, count) for end in (1, 0)], axis=1)
    data = np.stack([np.bincount(ends, minlength=count) for ends in plain_edges(edge_index).numpy()[::-1]], axis=1)
    return attr, data.astype(float)


def visualize_adjacency_attr(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    num_nodes: int | None = None,
    node_labels: Sequence[object] | None = None,
    **options: Unpack[PictureOptions],
) -> tuple[Figure, Axes]:
    """Draw the adjacency matrix of attributions as a heat map, which suits dense graphs.

    Rows are sources and columns are targets. Pairs of nodes without an edge stay white; edges without attribution are
    grey; the ground truth has dots. ``node_labels`` has one entry per node; ``num_nodes`` is needed if the last nodes
    have no edges. For Captum's own heat map, pass :func:`to_image_attr` to ``visualize_image_attr``.

    Examples:
        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import visualize_adjacency_attr
        >>> attributions, edge_index = torch.tensor([4.0, -1.0]), torch.tensor([[0, 1], [1, 0]])
        >>> fig, ax = visualize_adjacency_attr(attributions, edge_index, use_pyplot=False)
        >>> ax.images[0].get_array().tolist()
        [[None, 4.0], [-1.0, None]]
    """
    settings: PictureOptions = checked(options)
    edges, scores, coloured, marked = drawn_edges(settings, attributions, edge_index, directed=True)
    count = node_count(edges, num_nodes, node_labels=node_labels)
    image = np.full((max(count, 1), max(count, 1)), np.nan)  # what is nan is not drawn
    image[edges[:, 0], edges[:, 1]] = np.where(coloured, scores, 0.0)
    picture = _Matrix(scores, image, edges[marked], node_labels)
    fig, (ax,) = draw_pictures({"": picture}, settings, MATRIX_SIZE)
    return fig, ax


class _Matrix(NamedTuple):
    scores: NDArray[Any]  # of the edges
    image: NDArray[Any]  # [N, N]
    marked: NDArray[Any]  # the edges of the ground truth, [marked, 2]
    labels: Sequence[object] | None
    alpha: float = 1.0

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Draw the matrix, with some of the nodes' indices, or all labels, at its sides."""
        from matplotlib.ticker import MaxNLocator

        ax.set_axis_on()
        ax.imshow(self.image, cmap=scale.cmap, norm=scale.norm)
        if len(self.marked):
            ax.plot(self.marked[:, 1], self.marked[:, 0], ".", color=INK, label="ground truth")
        for axis, name in ((ax.xaxis, "target"), (ax.yaxis, "source")):
            axis.set_label_text(name)
            axis.set_major_locator(MaxNLocator(integer=True))
            if self.labels is not None:
                axis.set_ticks(range(len(self.labels)), labels=[str(label) for label in self.labels])
                axis.set_tick_params(labelsize=min(FONT_SIZE, LABEL_ROOM / max(len(self.labels), 1)))
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")


def visualize_node_attr(
    attributions: Tensor, edge_index: Tensor, *, num_nodes: int | None = None, **options: Unpack[PictureOptions]
) -> tuple[Figure, list[Axes]]:
    """Draw the edges of nodes along the nodes, as Captum's ``visualize_timeseries_attr`` draws time series.

    There are two panels, for incoming and for outgoing edges. A line shows how many edges the nodes have, over the
    colours of their summed attributions; see :func:`to_timeseries_attr`. Of :class:`~captum_goat.plot.PictureOptions`,
    ``top_k``, ``ground_truth`` and ``feature_mask`` are refused, as they concern single edges.

    Examples:
        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import visualize_node_attr
        >>> attributions, edge_index = torch.tensor([1.0, -2.0]), torch.tensor([[0, 1], [2, 2]])
        >>> fig, (incoming, outgoing) = visualize_node_attr(attributions, edge_index, use_pyplot=False)
        >>> incoming.lines[0].get_ydata().tolist()
        [0.0, 0.0, 2.0]
    """
    settings: PictureOptions = checked(options)
    refused = [name for name in ("top_k", "ground_truth", "feature_mask") if settings[name] is not None]
    if refused:
        raise ValueError(f"Expected options of nodes (got {refused[0]}, which concerns single edges).")
    attr, data = to_timeseries_attr(attributions, edge_index, num_nodes)
    pictures = {
        channel: _NodeLine(with_sign(attr[:, number], settings["sign"]), data[:, number])
        for number, channel in enumerate(CHANNELS)
    }
    return draw_pictures(pictures, settings, LINE_SIZE)


class _NodeLine(NamedTuple):
    scores: NDArray[Any]  # [N]
    data: NDArray[Any]  # [N]
    alpha: float = OVERLAY

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Draw a line over one coloured span per node."""
        ax.set_axis_on()
        ax.plot(self.data)
        ax.set_xlabel("node")
        for node, colour in enumerate(scale.colours(self.scores)):
            ax.axvspan(node - 0.5, node + 0.5, facecolor=colour, edgecolor="none", zorder=0)
        ax.set_xlim(-0.5, max(len(self.data), 1) - 0.5)
