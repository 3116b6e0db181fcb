"""Edge attributions as the inputs of Captum's visualizers for images, time series and text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from captum.attr import visualization
from torch import Tensor

from captum_goat.plot.edge_scores import edge_scores, node_count, plain_edges

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHANNELS = ("incoming", "outgoing")


def to_image_attr(attributions: Tensor, edge_index: Tensor, num_nodes: int | None = None) -> NDArray[Any]:
    """Return the adjacency matrix of attributions, an image for Captum's ``visualize_image_attr``.

    Row and column are source and target. Repeated edges add up; the directions of an edge stay apart. The matrix adds
    up to what the attributions add up to.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.

    Returns:
        The image, ``[N, N, 1]``.

    Raises:
        ValueError: If the arguments do not fit together.

    Examples::

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
    """Return attributions and data for Captum's ``visualize_timeseries_attr``: the nodes are the points in time.

    There are two channels: the edges that come into a node, and those that go out. The data is their number, the
    attribution their sum, so that each channel adds up to what the attributions add up to. That reads best if the order
    of the nodes means something, as in paths and in graphs that grew node by node.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.

    Returns:
        The attributions and the data, ``[N, 2]`` each, channels last.

    Raises:
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import to_timeseries_attr
        >>> attr, data = to_timeseries_attr(torch.tensor([2.0, -3.0]), torch.tensor([[0, 1], [2, 2]]))
        >>> attr.tolist(), data.tolist()
        ([[0.0, 2.0], [0.0, -3.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0], [2.0, 0.0]])
    """
    count = node_count(edge_scores(attributions, edge_index).edges, num_nodes)
    scores = attributions.detach().cpu().double().numpy()
    source, target = plain_edges(edge_index).numpy()
    attr = np.stack([np.bincount(ends, scores, count) for ends in (target, source)], axis=1)
    data = np.stack([np.bincount(ends, minlength=count) for ends in (target, source)], axis=1)
    return attr, data.astype(float)


def to_text_record(
    attributions: Tensor,
    edge_index: Tensor,
    node_labels: Sequence[object] | None = None,
    *,
    directed: bool = False,
    feature_mask: Tensor | None = None,
    pred_class: object = "",
    pred_prob: float = math.nan,
    true_class: object = "",
    attr_class: object = None,
    convergence_delta: float | Tensor = math.nan,
) -> visualization.VisualizationDataRecord:
    """Return the graph as a text, its edges as words, for Captum's ``visualize_text([record, ...])``.

    The words are in the order of their nodes. Their attributions are scaled to at most 1, as Captum's colours need it;
    the score is the sum of the attributions themselves. The record is made without IPython, which is not among the
    dependencies: ``visualize_text`` needs it (``pip install ipython``).

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        node_labels: What to call the nodes, one entry per node; ``None`` for their numbers.
        directed: Whether the directions of an edge are words of their own, ``C→N`` and ``N→C``; else they are one,
            ``C-N``, with the sum of their attributions.
        feature_mask: The ``feature_mask`` that the attributions were made with, if any, ``[E]``, such as
            :func:`~captum_goat.undirected_feature_mask`. All edges of a feature have its sum: it is shared equally
            among them, so that nothing counts twice.
        pred_class: The predicted class.
        pred_prob: Its probability.
        true_class: The true class.
        attr_class: The class that is explained; ``None`` for the predicted one.
        convergence_delta: The completeness error of the attributions.

    Returns:
        The record; without words if the graph has no edges.

    Raises:
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import to_text_record
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> record = to_text_record(torch.tensor([2.0, 2.0, -1.0, 0.0]), edge_index, ["C", "N", "O"])
        >>> record.raw_input_ids, record.word_attributions.tolist(), record.attr_score
        (['C-N', 'N-O'], [1.0, -0.25], 3.0)
    """
    edges, scores, _ = edge_scores(attributions, edge_index, directed=directed, feature_mask=feature_mask)
    count = node_count(edges, node_labels=node_labels)
    names = [str(label) for label in (range(count) if node_labels is None else node_labels)]
    link = "→" if directed else "-"
    if isinstance(convergence_delta, Tensor) and convergence_delta.numel() != 1:
        raise ValueError(
            f"Expected one convergence_delta, that of this graph (got {convergence_delta.numel()}). "
            "Make one record per graph."
        )
    return visualization.VisualizationDataRecord(
        word_attributions=torch.from_numpy(scores / (np.abs(scores).max(initial=0.0) or 1.0)),
        pred_prob=float(pred_prob),
        pred_class=pred_class,
        true_class=true_class,
        attr_class=pred_class if attr_class is None else attr_class,
        attr_score=float(scores.sum()),
        raw_input_ids=[f"{names[source]}{link}{names[target]}" for source, target in edges],
        convergence_score=float(convergence_delta),
    )
