"""Graphs drawn by Captum's visualizers for images, time series and text.

Captum's visualizers fail on empty inputs and on attributions that are all zero, and warn about tiny ones. The functions
``to_*`` return their inputs; the functions ``visualize_*`` call them, and draw an empty picture if there is no
attribution to show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import captum
import numpy as np
import torch
from captum.attr import visualization
from torch import Tensor

from captum_goat.plot.edge_scores import Sign, edge_scores, magnitude_scale, node_count, plain_edges, with_sign
from captum_goat.plot.graph import label_matrix
from captum_goat.plot.style import new_figure, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = [
    "to_image_attr",
    "to_text_record",
    "to_timeseries_attr",
    "visualize_adjacency_attr",
    "visualize_node_attr",
]

CHANNELS = ("incoming", "outgoing")
ALMOST_ALL = 100 - 1e-6  # Captum takes 100 percent of outliers for a scale of zero


def to_image_attr(attributions: Tensor, edge_index: Tensor, num_nodes: int | None = None) -> NDArray[Any]:
    """Return the adjacency matrix of attributions, an image for Captum's ``visualize_image_attr``.

    Rows are sources and columns are targets. Repeated edges are added up, and so the image has the sum of the
    attributions.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.

    Returns:
        The image, ``[N, N, 1]``.

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

    There are two channels, the incoming and the outgoing edges of a node. The data is their number, the attribution
    their sum. This suits graphs whose nodes have a meaningful order, such as paths.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.

    Returns:
        The attributions and the data, ``[N, 2]`` each, channels last.

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

    The words are in the order of their nodes. Their attributions are scaled to at most 1, as Captum's colours require;
    the score is the sum of the attributions themselves. ``visualize_text`` needs IPython (``pip install ipython``).

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        node_labels: The names of the nodes; ``None`` for their indices.
        directed: Whether the directions of an edge are separate words, ``C→N`` and ``N→C``, or one, ``C-N``, with the
            sum of their attributions.
        feature_mask: As in :func:`~captum_goat.plot.visualize_graph_attr`.
        pred_class: The predicted class.
        pred_prob: Its probability.
        true_class: The true class.
        attr_class: The class that is explained; ``None`` for the predicted one.
        convergence_delta: The completeness error of the attributions.

    Returns:
        The record; without words if the graph has no edges.

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


def visualize_adjacency_attr(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    num_nodes: int | None = None,
    node_labels: Sequence[object] | None = None,
    sign: Sign = "all",
    outlier_perc: float = 2,
    plt_fig_axis: tuple[Figure, Axes] | None = None,
    fig_size: tuple[float, float] = (6, 6),
    use_pyplot: bool = True,
    **options: Any,
) -> tuple[Figure, Axes]:
    """Draw the adjacency matrix of attributions with Captum's ``visualize_image_attr``, as a heat map.

    The picture is empty if there are no nodes or no attributions of the chosen sign. Captum scales the attributions to
    1. The heat map of :func:`captum_goat.plot.visualize_graph_attr` has a scale, and distinguishes edges without
    attribution from pairs of nodes without an edge.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.
        node_labels: What to write at rows and columns, one entry per node.
        sign: As in Captum, but with ``"all"`` as the default.
        outlier_perc: As in Captum.
        plt_fig_axis: As in Captum.
        fig_size: As in Captum.
        use_pyplot: Whether pyplot creates and shows the figure.
        **options: Other options of Captum's function: ``cmap``, ``show_colorbar``, ``title``.

    Returns:
        The figure and the axes.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import visualize_adjacency_attr
        >>> fig, ax = visualize_adjacency_attr(
        ...     torch.tensor([4.0, -1.0]), torch.tensor([[0, 1], [1, 0]]), outlier_perc=0, use_pyplot=False
        ... )
        >>> ax.images[0].get_array().tolist()
        [[0.0, 1.0], [-0.25, 0.0]]
    """
    count = node_count(edge_scores(attributions, edge_index).edges, num_nodes, node_labels=node_labels)
    image = _unit_scale(with_sign(to_image_attr(attributions, edge_index, count), sign), outlier_perc)
    # Captum cannot scale zeros: it draws a stand-in, which is then replaced by the zeros.
    stand_in = np.full((max(count, 1), max(count, 1)), -1.0 if sign == "negative" else 1.0)
    fig, ax = plt_fig_axis or new_figure(fig_size, use_pyplot)
    visualization.visualize_image_attr(
        stand_in if image is None else image,
        method="heat_map",
        sign=sign,
        outlier_perc=min(outlier_perc, ALMOST_ALL),
        plt_fig_axis=(fig, ax),
        use_pyplot=False,
        **options,
    )
    if image is None:
        ax.images[-1].set_data(np.zeros_like(stand_in))
    if count:
        label_matrix(ax, count, node_labels)
    if plt_fig_axis is None and use_pyplot:
        show()
    return fig, ax


def _unit_scale(values: NDArray[Any], outlier_perc: float) -> NDArray[Any] | None:
    """Scale values to at most 1 (Captum warns about tiny ones); return ``None`` if all are zero."""
    magnitude_scale(values.ravel(), outlier_perc)  # checks the percentage
    peak = np.abs(values).max(initial=0.0)
    return values / peak if peak else None


def visualize_node_attr(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    num_nodes: int | None = None,
    sign: Sign = "all",
    outlier_perc: float = 2,
    plt_fig_axis: tuple[Figure, Sequence[Axes]] | None = None,
    fig_size: tuple[float, float] = (6, 6),
    use_pyplot: bool = True,
    **options: Any,
) -> tuple[Figure, NDArray[Any]]:
    """Draw the nodes' edges along the nodes with Captum's ``visualize_timeseries_attr``, overlaid individually.

    The two lines are the numbers of incoming and outgoing edges of the nodes, over the colour of their summed
    attributions; see :func:`to_timeseries_attr`. Without an attribution of the chosen sign, or with fewer than two
    nodes, there are the lines only.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes; needed if the last nodes have no edges.
        sign: As in Captum, but with ``"all"`` as the default.
        outlier_perc: As in Captum.
        plt_fig_axis: As in Captum, with two axes.
        fig_size: As in Captum.
        use_pyplot: Whether pyplot creates and shows the figure.
        **options: Other options of Captum's function: ``cmap``, ``alpha_overlay``, ``show_colorbar``, ``title``.

    Returns:
        The figure and the two axes.

    Raises:
        RuntimeError: If the installed Captum needs another matplotlib: Captum 0.9 and before call
            ``matplotlib.cm.get_cmap``, which matplotlib 3.9.0 and 3.11 do not have.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.captum_visualizers import visualize_node_attr
        >>> fig, (incoming, outgoing) = visualize_node_attr(
        ...     torch.zeros(2), torch.tensor([[0, 1], [2, 2]]), use_pyplot=False
        ... )
        >>> incoming.lines[0].get_ydata().tolist()
        [0.0, 0.0, 2.0]
    """
    attr, data = to_timeseries_attr(attributions, edge_index, num_nodes)
    scaled = _unit_scale(with_sign(attr, sign), outlier_perc)
    fig, axes = plt_fig_axis or new_figure(fig_size, use_pyplot, nrows=2, sharex=True, gridspec_kw={"hspace": 0})
    axes = np.array(axes, dtype=object)
    if axes.shape != (2,):
        raise ValueError(f"Expected plt_fig_axis with two axes, for {' and '.join(CHANNELS)} edges (got {axes.size}).")
    if scaled is None or len(data) < 2:
        _draw_lines(axes, data, options.get("title"))
    else:
        with _captum_beside_pyplot(close_on_error=fig if plt_fig_axis is None and use_pyplot else None):
            visualization.visualize_timeseries_attr(
                scaled,
                data,
                method="overlay_individual",
                sign=sign,
                channel_labels=CHANNELS,
                outlier_perc=min(outlier_perc, ALMOST_ALL),
                plt_fig_axis=(fig, axes),
                use_pyplot=False,
                **options,
            )
        for ax in axes:
            ax.set_xlim(0, len(data) - 1)
    if plt_fig_axis is None and use_pyplot:
        show()
    return fig, axes


def _draw_lines(axes: NDArray[Any], data: NDArray[Any], title: str | None) -> None:
    for ax, values, channel in zip(axes, data.T, CHANNELS, strict=True):
        ax.plot(values)
        ax.set_ylabel(channel)
    if title:
        axes[0].set_title(title)


@contextmanager
def _captum_beside_pyplot(close_on_error: Figure | None) -> Iterator[None]:
    """Protect the user's figures, and raise a clear error if Captum calls what matplotlib lacks.

    Whatever axes it gets, Captum changes the limits and spaces of pyplot's current figure: it gets one to throw away.
    """
    import matplotlib
    from matplotlib import pyplot

    scrap = pyplot.figure()
    try:
        yield
    except AttributeError as error:
        if close_on_error is not None:
            pyplot.close(close_on_error)
        if "get_cmap" not in str(error):
            raise
        raise RuntimeError(
            f"Captum {captum.__version__} needs a matplotlib with matplotlib.cm.get_cmap to draw time series (got "
            f"{matplotlib.__version__}): install matplotlib 3.10, or use visualize_graph_attr."
        ) from error
    finally:
        pyplot.close(scrap)  # the figure that was current is so again
