"""One graph as several methods explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.drawn_edges import drawn_edges
from captum_goat.plot.edge_scores import Sign
from captum_goat.plot.graph_picture import visualize_graph_attr
from captum_goat.plot.graph_to_draw import graph_to_draw
from captum_goat.plot.palette import check_scale
from captum_goat.plot.panels import Arrangement, Colours, draw_panels, named_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

PANEL_SIZE = (4.2, 4.2)  # inches
GRAPH_OPTIONS = ("num_nodes", "layout", "pos", "node_labels", "atoms")


def visualize_graph_attr_multiple(
    attributions: Mapping[str, Tensor] | Sequence[Tensor],
    edge_index: Tensor | Data,
    *,
    titles: Sequence[str] | None = None,
    shared_scale: bool = True,
    columns: int | None = None,
    sign: Sign = "all",
    directed: bool = False,
    feature_mask: Tensor | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 1.0,
    show_colorbar: bool = True,
    show_legend: bool = True,
    title: str | None = None,
    fig_size: tuple[float, float] | None = None,
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Sequence[Axes]] | None = None,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Draw one graph as several methods explain it: the same layout in every panel and, by default, one scale.

    Args:
        attributions: One number per edge, ``[E]``, of every method: by name, or in a sequence.
        edge_index: The edges, ``[2, E]``, or a PyG ``Data`` that has them.
        titles: The panels' titles; by default the names.
        shared_scale: Whether a colour and a width mean the same attribution in every panel. Turn it off for methods
            whose numbers cannot be compared, such as masks from 0 to 1 beside attributions that add up to the output:
            then every panel has its own scale and colour bar.
        columns: How many panels are in a row; by default at most 4.
        sign: As in :func:`visualize_graph_attr`.
        directed: As in :func:`visualize_graph_attr`.
        feature_mask: As in :func:`visualize_graph_attr`, for all methods.
        vmax: The magnitude that has the full colour in all panels; ``None`` to find it in the attributions.
        outlier_perc: As in :func:`visualize_graph_attr`; the shared scale is the largest of the panels'.
        cmap: As in :func:`visualize_graph_attr`.
        alpha_overlay: As in :func:`visualize_graph_attr`.
        show_colorbar: Whether to draw the colour bar, or one per panel if the scale is not shared.
        show_legend: Whether to say below the panels what the outlines of edges mean.
        title: A title above all panels.
        fig_size: The size of a new figure in inches; by default it grows with the panels.
        use_pyplot: Whether pyplot makes and shows the figure. Given axes are left for their owner to show.
        plt_fig_axis: A figure and as many axes as there are methods, instead of a new figure.
        **options: Other options of :func:`visualize_graph_attr`: ``ground_truth``, ``layout``, ``atoms``, ...

    Returns:
        The figure and the axes, one per method.

    Raises:
        ImportError: As :func:`visualize_graph_attr`.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr_multiple
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> methods = {"GOAt": torch.tensor([2.0, 1.0, -4.0, 0.0]), "gradients": torch.ones(4)}
        >>> fig, axes = visualize_graph_attr_multiple(methods, edge_index, use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    check_scale(vmax, alpha_overlay)
    panels = named_panels(attributions, titles)
    graph = graph_to_draw(edge_index, **{name: options.pop(name, None) for name in GRAPH_OPTIONS})
    merged: dict[str, Any] = {"directed": directed, "feature_mask": feature_mask}
    scores = [drawn_edges(each, graph.edge_index, sign=sign, **merged).scores for _, each in panels]
    if options.get("method") != "heat_map":
        options["pos"] = graph.points()
    draw = partial(
        visualize_graph_attr,
        edge_index=graph.edge_index,
        **merged,
        num_nodes=graph.num_nodes,
        node_labels=graph.labels,
        atoms=graph.atoms,
        **options,
    )
    return draw_panels(
        panels,
        scores,
        draw,
        Colours(sign, vmax, outlier_perc, cmap, alpha_overlay),
        Arrangement(shared_scale, columns, show_colorbar, show_legend, title, fig_size, use_pyplot, plt_fig_axis),
        PANEL_SIZE,
    )
