"""Graphs for Captum's visualizers of images, time series and text.

The functions ``to_*`` return the inputs of Captum's visualizers. These fail on graphs without edges and on attributions
that are all zero, and that of time series with matplotlib 3.11. :func:`visualize_adjacency_attr` draws the image of any
graph, in the colours of :mod:`captum_goat.plot`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from captum.attr import visualization
from torch import Tensor

from captum_goat.plot.edge_scores import edge_scores, node_count, plain_edges, strongest, with_sign
from captum_goat.plot.style import INK, Picture, PictureOptions, checked, draw_pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

__all__ = ["to_image_attr", "to_text_record", "to_timeseries_attr", "visualize_adjacency_attr"]

MATRIX_SIZE = (6.0, 6.0)  # inches
FONT_SIZE, LABEL_ROOM = 10.0, 240.0  # points: of a label, and of all labels at a side of the matrix


def to_image_attr(attributions: Tensor, edge_index: Tensor, num_nodes: int | None = None) -> NDArray[Any]:
    """Return the adjacency matrix of attributions ``[N, N, 1]``, an image for Captum's ``visualize_image_attr``.

    Rows are sources and columns targets; repeated edges are added up. ``num_nodes`` is needed if the last have none.

    Examples:
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


def to_text_record(
    attributions: Tensor,
    edge_index: Tensor,
    node_labels: Sequence[object] | None = None,
    *,
    directed: bool = False,
    feature_mask: Tensor | None = None,
    **fields: Any,
) -> visualization.VisualizationDataRecord:
    """Return the graph as a text, its edges as words, for Captum's ``visualize_text([record, ...])``.

    The words are in the order of their nodes, ``C-N``, or ``C→N`` and ``N→C`` if ``directed``. Their attributions are
    scaled to at most 1, as Captum's colours require; the score is the sum of the attributions themselves. ``fields``
    are other fields of Captum's record, such as ``pred_class``. ``visualize_text`` needs IPython.

    Examples:
        >>> from captum_goat.plot.captum_visualizers import to_text_record
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> record = to_text_record(torch.tensor([2.0, 2.0, -1.0, 0.0]), edge_index, ["C", "N", "O"], pred_class=1)
        >>> record.raw_input_ids, record.word_attributions.tolist(), record.attr_score
        (['C-N', 'N-O'], [1.0, -0.25], 3.0)
    """
    edges, scores, _ = edge_scores(attributions, edge_index, directed=directed, feature_mask=feature_mask)
    count = node_count(edges, node_labels=node_labels)
    names = [str(label) for label in (range(count) if node_labels is None else node_labels)]
    link = "→" if directed else "-"
    record: dict[str, Any] = dict.fromkeys(("pred_class", "true_class", "attr_class"), "")
    record |= {"pred_prob": math.nan, "convergence_score": math.nan, "attr_score": float(scores.sum())}
    record["word_attributions"] = torch.from_numpy(scores / (np.abs(scores).max(initial=0.0) or 1.0))
    record["raw_input_ids"] = [f"{names[source]}{link}{names[target]}" for source, target in edges]
    return visualization.VisualizationDataRecord(**record | fields)


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
        >>> from captum_goat.plot.captum_visualizers import visualize_adjacency_attr
        >>> attributions, edge_index = torch.tensor([4.0, -1.0]), torch.tensor([[0, 1], [1, 0]])
        >>> fig, ax = visualize_adjacency_attr(attributions, edge_index, use_pyplot=False)
        >>> ax.images[0].get_array().tolist()
        [[None, 4.0], [-1.0, None]]
    """
    settings: PictureOptions = checked(options)
    marks: dict[str, Any] = {"directed": True, "feature_mask": settings["feature_mask"]}
    edges, scores, marked = edge_scores(attributions, edge_index, settings["ground_truth"], **marks)
    scores = with_sign(scores, settings["sign"])
    count = node_count(edges, num_nodes, node_labels=node_labels)
    image = np.full((max(count, 1), max(count, 1)), np.nan)  # what is nan is not drawn
    image[edges[:, 0], edges[:, 1]] = np.where(strongest(scores, settings["top_k"]), scores, 0.0)
    picture = Picture(scores, partial(_draw_matrix, image=image, dots=edges[marked], labels=node_labels))
    fig, (ax,) = draw_pictures({"": picture}, settings, MATRIX_SIZE)
    return fig, ax


def _draw_matrix(
    ax: Axes, scale: ScalarMappable, image: NDArray[Any], dots: NDArray[Any], labels: Sequence[object] | None
) -> None:
    """Draw the matrix, with some of the nodes' indices, or all labels, at its sides."""
    from matplotlib.ticker import MaxNLocator

    ax.set_axis_on()
    ax.imshow(image, cmap=scale.cmap, clim=scale.get_clim())
    if len(dots):
        ax.plot(dots[:, 1], dots[:, 0], ".", color=INK, label="ground truth")
    for axis, name in ((ax.xaxis, "target"), (ax.yaxis, "source")):
        axis.set_label_text(name)
        axis.set_major_locator(MaxNLocator(integer=True))
        if labels is not None:
            axis.set_ticks(range(len(labels)), labels=[str(label) for label in labels])
            axis.set_tick_params(labelsize=min(FONT_SIZE, LABEL_ROOM / max(len(labels), 1)))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
