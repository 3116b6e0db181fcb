"""One graph with its edges coloured by attribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.adjacency_matrix import draw_matrix
from captum_goat.plot.drawn_edges import drawn_edges, full_scale
from captum_goat.plot.edge_scores import Sign
from captum_goat.plot.figures import add_colour_bar, add_legend, new_figure, show
from captum_goat.plot.graph_to_draw import graph_to_draw
from captum_goat.plot.layouts import LayoutName, Positions
from captum_goat.plot.node_link import draw_node_link
from captum_goat.plot.palette import check_scale, colour_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Method = Literal["edges", "heat_map"]


def visualize_graph_attr(
    attributions: Tensor,
    edge_index: Tensor | Data,
    *,
    method: Method = "edges",
    sign: Sign = "all",
    top_k: int | None = None,
    directed: bool = False,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    edge_label: Tensor | None = None,
    node_labels: Sequence[object] | Tensor | None = None,
    node_colors: Any = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    num_nodes: int | None = None,
    layout: LayoutName | Positions | None = None,
    pos: Positions | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 1.0,
    show_colorbar: bool = False,
    show_legend: bool = False,
    title: str | None = None,
    fig_size: tuple[float, float] = (6, 6),
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Axes] | None = None,
) -> tuple[Figure, Axes]:
    """Draw one graph with its edges coloured by attribution: blue speaks for the target, red against it.

    Colours are centred on zero and widths grow with the magnitude. The two directions of an edge are drawn as one
    line, which stands for their sum, unless the graph is ``directed``.

    Args:
        attributions: One number per edge, ``[E]``.
        edge_index: The edges, ``[2, E]``, or a PyG ``Data`` that has them (and, maybe, points ``pos`` ``[N, 2]``).
        method: ``"edges"`` draws nodes and lines, ``"heat_map"`` the adjacency matrix with a row per source and a
            column per target, which suits dense graphs. Pairs of nodes without an edge stay white.
        sign: Which attributions to show: ``"all"``, only ``"positive"``, only ``"negative"`` (the others count as
            zero), or the ``"absolute_value"``.
        top_k: How many edges to colour, those of largest magnitude after ``sign``; the rest is grey. The scale is that
            of all edges.
        directed: Whether the directions of an edge are drawn apart, as arrows.
        feature_mask: The ``feature_mask`` that the attributions were made with, if any, ``[E]``, such as
            :func:`~captum_goat.undirected_feature_mask`. All edges of a feature have its sum: it is shared equally
            among them, so that nothing counts twice.
        ground_truth: The edges that a good explanation finds, bool ``[E]``: they have a dotted outline.
        edge_label: Edges to mark with a yellow halo, bool ``[E]``; without ``ground_truth`` the legend calls them that.
        node_labels: What to write on the nodes, one entry per node.
        node_colors: One colour of matplotlib, or one per node.
        atoms: The elements of a molecule's nodes, as symbols or atomic numbers: their labels and colours, unless others
            are given.
        num_nodes: The number of nodes; needed if the last nodes have no edges.
        layout: How to place the nodes: ``"kamada_kawai"``, which keeps motifs in shape; ``"spring"``, for large graphs;
            ``"spectral"``; ``"circular"``; ``"molecule"``, for RDKit's drawing coordinates; or their points,
            ``[N, 2]``. ``None`` chooses one of the first two, by size.
        pos: The nodes' points, in place of ``layout``; a dictionary of networkx will do, too.
        vmax: The magnitude that has the full colour and width, so that several pictures can share one scale; ``None``
            to find it in these attributions.
        outlier_perc: If ``vmax`` is not given, the share (in percent) of the summed magnitudes that may be cut off.
        cmap: A colour map of matplotlib. The default is red, grey, blue, or the half of it that ``sign`` needs.
        alpha_overlay: How opaque the attributions lie over the plain grey graph.
        show_colorbar: Whether to draw a colour bar.
        show_legend: Whether to say below the graph what the outlines of edges mean.
        title: The title.
        fig_size: The size of a new figure in inches.
        use_pyplot: Whether pyplot makes and shows the figure. Given axes are left for their owner to show.
        plt_fig_axis: A figure and axes to draw in, instead of a new figure.

    Returns:
        The figure and the axes.

    Raises:
        ImportError: If matplotlib or networkx is missing, or RDKit for ``layout="molecule"``.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_graph_attr
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> fig, ax = visualize_graph_attr(
        ...     torch.tensor([2.0, 1.0, -4.0, 0.0]), edge_index, atoms=["C", "N", "O"], use_pyplot=False
        ... )
        >>> [text.get_text() for text in ax.texts]
        ['C', 'N', 'O']
    """
    if method not in get_args(Method):
        raise ValueError(f"Expected method to be one of {', '.join(map(repr, get_args(Method)))} (got {method!r}).")
    check_scale(vmax, alpha_overlay)
    graph = graph_to_draw(edge_index, num_nodes=num_nodes, layout=layout, pos=pos, node_labels=node_labels, atoms=atoms)
    drawn = drawn_edges(
        attributions,
        graph.edge_index,
        directed=directed,
        sign=sign,
        top_k=top_k,
        edge_label=edge_label,
        ground_truth=ground_truth,
        feature_mask=feature_mask,
    )
    scale = colour_scale(sign, full_scale(drawn.scores, vmax, outlier_perc), cmap, alpha_overlay)
    nodes = graph.nodes(graph.points(), node_colors) if method == "edges" else None
    fig, ax = plt_fig_axis or new_figure(fig_size, use_pyplot)
    if nodes is None:
        draw_matrix(ax, drawn, graph.num_nodes, graph.labels, scale, directed=directed)
    else:
        draw_node_link(ax, drawn, nodes, scale, directed=directed)
    if show_colorbar:
        add_colour_bar(fig, ax, scale, sign, drawn.scores)
    if show_legend:
        add_legend(ax, ax, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    if title is not None:
        ax.set_title(title)
    if plt_fig_axis is None and use_pyplot:
        show()
    return fig, ax
