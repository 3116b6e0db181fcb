"""The computation graphs of many nodes, cut out of a large graph and put side by side."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from captum_goat.fields.field_sets import repeated_positions

# Which edges of a node count: those that end there, those that begin there, or all.
Direction: TypeAlias = Literal["in", "out", "both"]
_MOST_SURPLUS = 4  # how many times as many edges there may be that serve degrees only


class NodeEdges(NamedTuple):
    """The edges at some nodes, one node's after another's, in the graph's order."""

    position: Tensor  # of the node among the given ones
    edge: Tensor
    neighbor: Tensor  # the node at the other end


class NeighborIndex:
    """The edges of a graph, sorted by the node at which they are looked up: ``"in"`` where they end.

    Only sorting takes time in proportion to the graph. A self-loop counts twice in ``"both"``.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, direction: Direction = "in") -> None:
        edges: Tensor = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
        edges = edges.long() if edges.dtype == torch.int32 else edges
        if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
            raise ValueError(f"Expected edges of shape [2, num_edges] (got {edges.dtype} {list(edges.shape)}).")
        if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
            got = f"nodes {int(edges.min())} to {int(edges.max())}"
            raise ValueError(f"Expected edges between nodes 0 to {num_nodes - 1} (got {got}).")
        self.num_nodes, self.num_edges, self.direction = num_nodes, edges.size(1), direction
        self.source, self.target = edges[0], edges[1]
        both = direction == "both"
        here = torch.cat([self.target, self.source]) if both else edges[1 if direction == "in" else 0]
        self._neighbor = torch.cat([self.source, self.target]) if both else edges[0 if direction == "in" else 1]
        counts = torch.bincount(here, minlength=num_nodes)
        self._first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self._order = here.argsort(stable=True)

    def degree(self, nodes: Tensor) -> Tensor:
        """Return the number of edges at some nodes."""
        return self._first[nodes + 1] - self._first[nodes]

    def edges_at(self, nodes: Tensor) -> NodeEdges:
        """Return the edges at some nodes."""
        counts = self.degree(nodes)
        position = repeated_positions(counts)
        shift = self._first[nodes] - counts.cumsum(0) + counts
        place = self._order[torch.arange(len(position), device=nodes.device) + shift[position]]
        return NodeEdges(position, place % max(self.num_edges, 1), self._neighbor[place])


class CutGraphs(NamedTuple):
    """The computation graphs of some nodes, the roots, side by side."""

    roots: Tensor  # the row of each root, [B]
    nodes: Tensor  # the node of the whole graph that each row is a copy of
    edge_index: Tensor  # between rows: those of computation graphs, root by root; then those for degrees only
    edges: Tensor  # the edge of the whole graph that each edge is a copy of
    owner: Tensor  # the position of the root whose computation graph each of the first edges is in
    distance: Tensor  # hops from each row to a root
    row_owner: Tensor  # the position of the root of each row; -1 for shared rows


def cut_graphs(
    index: NeighborIndex,
    roots: Tensor,
    num_hops: int,
    margin: int = 0,
    max_edges: int | None = None,
    *,
    at_least: int = 1,
    shared: bool = True,
) -> CutGraphs:
    """Cut the computation graphs of as many roots, from the first on, as have at most ``max_edges`` together.

    Every root has its own copies of the edges that reach it in :math:`L` hops, and of the nodes at which they end.
    Nodes :math:`L` steps away, the border, only send their inputs; one copy serves all roots if it is ``shared``. With
    a ``margin`` of 1 the border has its incoming edges, too, for the degrees. Their messages come too late to reach a
    root, so all but self-loops come from the first root. If edges are looked up at both ends, nothing is shared: every
    root has all edges of the nodes that are less than ``num_hops + margin`` steps away.
    """
    size, one_way = max(index.num_nodes, 1), index.direction != "both"
    reach = num_hops if one_way else num_hops + margin
    roots, own, distance, keys = _reach(index, roots, reach, max_edges, at_least)
    owner, edges, border = keys // max(index.num_edges, 1), keys % max(index.num_edges, 1), roots[:0]
    is_border = (distance == num_hops) & one_way
    if shared:
        border, own, distance = torch.unique(own[is_border] % size), own[~is_border], distance[~is_border]
        border_rows, border_nodes = len(own) + torch.arange(len(border), device=roots.device), border
    else:
        border_rows, border_nodes = is_border.nonzero().view(-1), own[is_border] % size
    if margin == 0:
        border_rows, border_nodes = border_rows[:0], border_nodes[:0]
    if max_edges is not None and len(roots) > 1 and int(index.degree(border_nodes).sum()) > _MOST_SURPLUS * max_edges:
        fewer = roots[: len(roots) // 2]
        return cut_graphs(index, fewer, num_hops, margin, max_edges, at_least=at_least, shared=shared)
    root_rows = torch.searchsorted(own, torch.arange(len(roots), device=roots.device) * size + roots)

    def rows_of(nodes: Tensor) -> Tensor:
        place, is_own = _find(own, owner * size + nodes)
        return place.where(is_own, len(own) + torch.searchsorted(border, nodes))

    between = torch.stack([rows_of(index.source[edges]), rows_of(index.target[edges])])
    surplus = index.edges_at(border_nodes)
    here = border_rows[surplus.position]
    there = here.where(surplus.neighbor == border_nodes[surplus.position], root_rows[:1])
    around = torch.stack([here, there] if index.direction == "out" else [there, here])
    return CutGraphs(
        root_rows,
        torch.cat([own % size, border]),
        torch.cat([between, around], dim=1),
        torch.cat([edges, surplus.edge]),
        owner,
        torch.cat([distance, torch.full_like(border, num_hops)]),
        torch.cat([own // size, torch.full_like(border, -1)]),
    )


def _reach(
    index: NeighborIndex, roots: Tensor, num_hops: int, max_edges: int | None, at_least: int
) -> tuple[Tensor, ...]:
    """Return roots, sorted keys root * num_nodes + node, their distances, and sorted keys root * num_edges + edge."""
    size, num_edges = max(index.num_nodes, 1), max(index.num_edges, 1)
    number = len(roots)
    frontier = torch.arange(number, device=roots.device) * size + roots
    nodes, distance, edges = frontier, torch.zeros_like(frontier), frontier[:0]
    for hop in range(num_hops):
        if max_edges is not None:  # keep the first roots that have few enough edges after this hop
            counts = torch.bincount(edges // num_edges, minlength=number)
            counts.index_add_(0, frontier // size, index.degree(frontier % size))
            number = min(number, max(at_least, int((counts.cumsum(0) <= max_edges).sum())))
            frontier, edges = frontier[frontier < number * size], edges[edges < number * num_edges]
            nodes, distance = nodes[nodes < number * size], distance[nodes < number * size]
        incoming = index.edges_at(frontier % size)
        owner = (frontier // size)[incoming.position]
        edges = torch.cat([edges, owner * num_edges + incoming.edge])
        reached = torch.unique(owner * size + incoming.neighbor)
        frontier = reached[~_find(nodes, reached)[1]]
        nodes, order = torch.cat([nodes, frontier]).sort()
        distance = torch.cat([distance, torch.full_like(frontier, hop + 1)])[order]
    edges = torch.unique(edges) if index.direction == "both" else edges.sort().values
    return roots[:number], nodes, distance, edges


def _find(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of wanted keys among sorted ones, and whether they are there."""
    if not keys.numel():
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
    return place, keys[place] == wanted
