"""What is drawn beside the edges: how many nodes, where they lie, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import check_edges, node_count, plain_edges
from captum_goat.plot.elements import element_colours, element_symbols
from captum_goat.plot.layouts import LayoutName, Positions, node_positions
from captum_goat.plot.node_link import DrawnNodes, node_sizes
from captum_goat.plot.palette import INK, one_colour_each

if TYPE_CHECKING:
    from numpy.typing import NDArray


class GraphToDraw(NamedTuple):
    """The arguments of a picture that are the same for every method that is compared."""

    edge_index: Tensor
    num_nodes: int
    layout: LayoutName | Positions | None
    labels: list[str] | None
    atoms: list[str] | None

    def points(self) -> NDArray[Any]:
        """Return where the nodes lie, ``[N, 2]``."""
        return node_positions(plain_edges(self.edge_index).t().numpy(), self.num_nodes, self.layout, self.atoms)

    def nodes(self, points: NDArray[Any], node_colors: Any) -> DrawnNodes:
        """Return the nodes as they are drawn; elements have their colours unless others are given."""
        default: Any = element_colours(self.atoms) if self.atoms else "white" if self.labels is not None else INK
        faces = one_colour_each(node_colors, self.num_nodes, default)
        return DrawnNodes(points, faces, self.labels, node_sizes(self.labels, self.atoms, self.num_nodes))


def graph_to_draw(
    graph: Tensor | Data,
    *,
    num_nodes: int | None = None,
    layout: LayoutName | Positions | None = None,
    pos: Positions | None = None,
    node_labels: Sequence[object] | Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
) -> GraphToDraw:
    """Gather what is known of a graph.

    Args:
        graph: The edges, ``[2, E]``, or a graph of PyG: its ``edge_index``, its number of nodes and, if they are
            points of the plane, its ``pos``.
        num_nodes: The number of nodes.
        layout: How to place the nodes, or where.
        pos: Where to place the nodes.
        node_labels: What to write on the nodes.
        atoms: The elements of the nodes, which are labels, too.

    Raises:
        ValueError: If the arguments do not fit together.
    """
    if layout is not None and pos is not None:
        raise ValueError("Expected layout or pos (got both). Positions of nodes are a layout.")
    edge_index = graph if isinstance(graph, Tensor) else _edges_of(graph)
    check_edges(torch.zeros(edge_index.shape[1:]), edge_index)
    if isinstance(graph, Data):
        num_nodes = graph.num_nodes if num_nodes is None else num_nodes
        known = graph.pos
        if layout is None and pos is None and known is not None and known.dim() == 2 and known.size(1) == 2:
            pos = known
    placed: Any = layout if pos is None else pos
    symbols = None if atoms is None else element_symbols(atoms)
    per_node: dict[str, Sized | None] = {
        "pos": None if isinstance(placed, str) else placed,
        "node_labels": node_labels,
        "atoms": atoms,
    }
    count = node_count(plain_edges(edge_index).t().numpy(), num_nodes, **per_node)
    labels = symbols if node_labels is None else [_text(label) for label in node_labels]
    return GraphToDraw(edge_index, count, placed, labels, symbols)


def _edges_of(graph: Any) -> Tensor:
    if not isinstance(graph, Data):
        raise ValueError(
            f"Expected edge_index as a tensor [2, E], or a Data that has it (got {type(graph).__name__}). "
            "Of a heterogeneous graph, draw one edge type at a time."
        )
    if graph.edge_index is None:
        raise ValueError("Expected a Data with edge_index (got one without).")
    edge_index: Tensor = graph.edge_index
    return edge_index


def _text(label: object) -> str:
    return str(label.item() if isinstance(label, Tensor) and label.numel() == 1 else label)
