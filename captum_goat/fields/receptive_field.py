"""Which edges and inputs reach which rows, and spreading the gates' shares over them (Eq. 11 of GOAt).

The field of a row is found by walking the row graph: a row has the edges that its messages crossed and what is in the
fields of the rows it reads. Equal fields are kept once (see :mod:`captum_goat.fields.field_sets`), never as a dense
matrix. A field is a union of groups of edges that always go together, in most models those that end at the same node:
a hub with a million edges is one group of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.fields.field_sets import NO_SET, FieldSets, first_of_equals, hashed
from captum_goat.tracking import Block, RowGraph

_SEVERAL = -1  # the node of a row that stands for several nodes
_NO_NODE = -2  # the node of a row that is made of edge attributes alone


class Elements(NamedTuple):
    """What an output is attributed to: edges, and rows of inputs."""

    num_edges: int  # how many of the elements are edges; they come first
    weights: Tensor  # the shares of a gate that each takes: one per edge, one per non-zero feature of an input's row


class ReceptiveFields:
    """The receptive fields of all rows of a forward pass.

    Args:
        graph: Which rows read which.
        elements: The edges and inputs.
        wanted: The blocks whose fields will be asked for.
        repeated: Whether an edge is listed once for every hop in which it appears, else only once.
        own_rows: How many of the inputs, the first ones, are nodes of which a row has only those that it stands for
            (its own node, or the nodes that were pooled into it); of others it has every one that reaches it.
    """

    def __init__(
        self, graph: RowGraph, elements: Elements, *, wanted: Iterable[int], repeated: bool = False, own_rows: int = 0
    ) -> None:
        self._graph, self._repeated, self._own_rows = graph, repeated, own_rows
        self._weights, self._first_attribute = elements.weights, elements.num_edges + own_rows
        of_edges = edge_groups(graph, elements.num_edges, wanted, elements.weights.device)
        self._num_edges = int(of_edges.max()) + 1 if of_edges.numel() else 0  # groups of edges; inputs come behind
        inputs = torch.arange(elements.weights.numel() - elements.num_edges, device=of_edges.device)
        self._group_of = torch.cat([of_edges, inputs + self._num_edges, inputs.new_full((1,), NO_SET)])
        self._count = max(self._num_edges + inputs.numel(), 1)
        # With hops told apart, element e in hop k (counted from 0) is the entry ``k * count + e``.
        hops = 1 + sum(block.crosses for block in graph.blocks) if repeated else 1
        self._sets = FieldSets(self._count, self._count * hops, of_edges.device)
        self._fields: dict[int, Tensor] = {}  # by the number of the block
        self._nodes_at: dict[int, Tensor] = {}  # by the offset of the block
        self._row_fields: dict[frozenset[int], Tensor] = {}  # by the blocks that were asked for

    def spread(self, shares: Tensor, sources: Iterable[int], weights: Tensor | None = None) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights.

        Args:
            shares: One number per row, by row id.
            sources: The blocks whose rows have a share.
            weights: Other weights of the elements; 0 only where their own are.
        """
        fine = (self._weights if weights is None else weights).to(shares.dtype)
        coarse, total = self._of_groups(fine), shares.new_zeros(self._count)
        fields = self._fields_of(sources)
        shared = shares.new_zeros(len(self._sets)).index_add_(0, fields[fields >= 0], shares[fields >= 0])
        used = torch.nonzero(shared).view(-1)
        of_set, entries = self._sets.entries_of(used)
        element = entries % self._count
        weight = torch.zeros_like(shared[used]).index_add_(0, of_set, coarse[element])
        total.index_add_(0, element, (shared[used] / weight)[of_set])
        return total[self._group_of[:-1]] * fine

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed."""
        weights, fields = self._of_groups(self._weights), self._fields_of(sources)
        of_set, entries = self._sets.entries_of(torch.arange(len(self._sets), device=fields.device))
        of_sets = weights.new_zeros(len(self._sets) + 1).index_add_(0, of_set, weights[entries % self._count])
        return of_sets[fields]  # the last entry, 0, for rows without a field

    def _of_groups(self, weights: Tensor) -> Tensor:
        return weights.new_zeros(self._count).index_add_(0, self._group_of[:-1], weights)

    def _fields_of(self, sources: Iterable[int]) -> Tensor:
        """Return the set that is the field of each row of some blocks, by row id (-1: none, or another block)."""
        key = frozenset(sources)
        if key not in self._row_fields:
            fields = torch.full((self._graph.num_rows,), NO_SET, device=self._weights.device)
            self._find(key)
            for index in sorted(key):
                block = self._graph.blocks[index]
                columns = self._fields[index]
                rows = torch.arange(block.size, device=columns.device).repeat(columns.size(1))
                united = self._sets.unite(rows, columns.t().reshape(-1), block.size)
                fields[block.offset : block.offset + block.size] = united
            self._row_fields[key] = fields
        return self._row_fields[key]

    def _find(self, blocks: Iterable[int]) -> None:
        """Find the fields of blocks, after those of the blocks that they read."""
        for current in self._graph.read_for(blocks):
            if current not in self._fields:
                self._fields[current] = self._compose(self._graph.blocks[current])

    def _compose(self, block: Block) -> Tensor:
        """Return sets for each row, ``[rows, columns]``, whose union is its field.

        A message has what it brings and the edge that it crosses, as two sets: they are united where messages meet.
        """
        children, sets = [block.child[:0]], [block.parent[:0]]
        for child, parent, source in self._graph.read_by(block):
            for column in self._fields[source][parent].unbind(1):
                children.append(child)
                sets.append(self._inherited(block, child, column))
        if block.element is not None:
            element = self._group_of[block.element]
            if block.crosses:
                inherited = self._sets.unite(torch.cat(children), torch.cat(sets), block.size)
                return torch.stack([inherited, element], dim=1)
            children.append(torch.arange(block.size, device=block.child.device))
            sets.append(element)
        if self._own_rows and block.node is not None:
            own = block.node[block.child]
            children.append(block.child)
            sets.append((own + self._num_edges).where(own < self._own_rows, NO_SET))
        return self._sets.unite(torch.cat(children), torch.cat(sets), block.size).view(-1, 1)

    def _inherited(self, block: Block, child: Tensor, sets: Tensor) -> Tensor:
        """Return what the rows of a block take over of the sets of the rows that they read."""
        count, changed = self._count, self._sets.changed
        if self._own_rows and (block.crosses or block.node is not None):
            first, end = self._num_edges, self._num_edges + self._own_rows
            sets = changed(sets, lambda entry: entry.where((entry % count < first) | (entry % count >= end), -1))
        if self._repeated and block.crosses:
            return changed(sets, lambda entry: entry + count)  # one hop further away
        if self._repeated:
            # A row that stands for several nodes, a pooled one, has every edge of its graph once, whatever the hop.
            several = (self._nodes(block) == _SEVERAL)[child]
            if several.any():
                sets = sets.where(~several, changed(sets, lambda entry: entry % count))
        return sets

    def _nodes(self, block: Block) -> Tensor:
        """Return the node that each row of a block stands for, as a whole or as a part of it."""
        if block.node is not None:
            return block.node
        if not block.sources:  # inputs: one row each; those behind the nodes are edge attributes
            rows = torch.arange(block.size, device=block.child.device)
            return rows if block.element is None else rows.where(block.element < self._first_attribute, _NO_NODE)
        if block.offset not in self._nodes_at:
            least = block.parent.new_full((block.size,), torch.iinfo(torch.long).max)
            most = block.parent.new_full((block.size,), _SEVERAL)
            of_attributes = torch.zeros_like(most, dtype=torch.bool)
            for child, parent, source in self._graph.read_by(block):
                nodes = self._nodes(self._graph.blocks[source])[parent]
                known = nodes != _NO_NODE
                of_attributes[child[~known]] = True
                least.scatter_reduce_(0, child[known], nodes[known], "amin")
                most.scatter_reduce_(0, child[known], nodes[known], "amax")
            nowhere = of_attributes & (least == torch.iinfo(torch.long).max)
            self._nodes_at[block.offset] = least.where(least == most, _SEVERAL).masked_fill(nowhere, _NO_NODE)
        return self._nodes_at[block.offset]


def edge_groups(graph: RowGraph, num_edges: int, exposed: Iterable[int], device: torch.device) -> Tensor:
    """Return the group of each edge.

    Two edges are in the same group if the same rows read their messages, in every layer. All that is made of these rows
    then depends on both edges or on neither. Of ``exposed`` blocks the rows count themselves, not only their readers.
    """
    exposed = frozenset(exposed)
    readers: list[list[Block]] = [[] for _ in graph.blocks]  # the blocks that read each block
    for block in graph.blocks:
        for source in block.sources:
            readers[source].append(block)
    hashes = hashed(torch.zeros(1, dtype=torch.long, device=device)).new_zeros(num_edges, 2)
    for number, block in enumerate(graph.blocks):
        if not block.crosses or block.element is None:
            continue
        crossed = torch.nonzero(block.element >= 0).view(-1)
        if number in exposed:
            hashes.index_add_(0, block.element[crossed], hashed(block.offset + crossed))
        for reader in readers[number]:
            parent = reader.parent - block.offset
            here = (parent >= 0) & (parent < block.size)
            edge = block.element[parent[here]]
            known = edge >= 0
            # The same row may read an edge in two layers, in which repeated fields tell it apart.
            rows = (reader.offset + reader.child[here][known]) * len(graph.blocks) + number
            hashes.index_add_(0, edge[known], hashed(rows))
    return first_of_equals(hashes)[1]
