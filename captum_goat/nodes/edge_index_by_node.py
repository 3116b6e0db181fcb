"""The edges at every node of a large graph, found in time that depends on how many they are."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from captum_goat.fields.field_sets import repeated_positions

# Which edges of a node count: those that end there, those that begin there, or all.
Direction: TypeAlias = Literal["in", "out", "both"]


class NodeEdges(NamedTuple):
    """The edges at some nodes, one node's after another's, in the graph's order.

    Attributes:
        position: The position of the node among the given ones.
        edge: The edge.
        neighbor: The node at its other end.
    """

    position: Tensor
    edge: Tensor
    neighbor: Tensor


class NeighborIndex:
    """The edges of a graph, sorted by the node at which they are looked up.

    Sorting is all that takes time in proportion to the graph, a fraction of a second for ten million edges; edges that
    are sorted already stay as they are.

    Args:
        edge_index: The edges, ``[2, E]``.
        num_nodes: The number of nodes.
        direction: Which edges of a node are looked up: ``"in"`` those that end there, ``"out"`` those that begin there,
            ``"both"`` all. A self-loop is one of ``"both"`` twice.

    Examples::

        >>> import torch
        >>> from captum_goat.nodes.edge_index_by_node import NeighborIndex
        >>> index = NeighborIndex(torch.tensor([[0, 1, 2, 0], [1, 2, 1, 2]]), num_nodes=3)
        >>> index.edges_at(torch.tensor([1])).neighbor
        tensor([0, 2])
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, direction: Direction = "in") -> None:
        edges: Tensor = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
        edges = edges.long() if edges.dtype == torch.int32 else edges
        if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
            raise ValueError(f"Expected edges of shape [2, num_edges] (got {edges.dtype} {list(edges.shape)}).")
        if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
            raise ValueError(
                f"Expected edges between nodes 0 to {num_nodes - 1} (got nodes {int(edges.min())} to "
                f"{int(edges.max())})."
            )
        self.num_nodes = num_nodes
        self.num_edges = edges.size(1)
        self.direction = direction
        self.source, self.target = edges[0], edges[1]
        ends = {"in": [self.target], "out": [self.source], "both": [self.target, self.source]}[direction]
        here = ends[0] if len(ends) == 1 else torch.cat(ends)
        counts = torch.bincount(here, minlength=num_nodes)
        self._first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        is_sorted = len(ends) == 1 and bool((here[1:] >= here[:-1]).all())
        self._order = None if is_sorted else _order(here, num_nodes)

    def degree(self, nodes: Tensor) -> Tensor:
        """Return how many edges some nodes have."""
        return self._first[nodes + 1] - self._first[nodes]

    def edges_at(self, nodes: Tensor) -> NodeEdges:
        """Return the edges of some nodes."""
        first, counts = self._first[nodes], self.degree(nodes)
        position = repeated_positions(counts)
        place = torch.arange(len(position), device=nodes.device) + (first - counts.cumsum(0) + counts)[position]
        if self._order is not None:
            place = self._order[place]
        if self.direction == "in":
            return NodeEdges(position, place, self.source[place])
        if self.direction == "out":
            return NodeEdges(position, place, self.target[place])
        edge = place % max(self.num_edges, 1)
        return NodeEdges(position, edge, torch.where(place < self.num_edges, self.source[edge], self.target[edge]))


def _order(nodes: Tensor, num_nodes: int) -> Tensor:
    """Return the order that sorts edges by node and leaves those of one node as they are."""
    small = nodes.int() if num_nodes <= torch.iinfo(torch.int32).max else nodes  # half the memory
    return small.argsort(stable=True)
