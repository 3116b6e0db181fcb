"""Which edges and inputs reach which rows, and spreading the gates' shares over them (Eq. 11 of GOAt).

The field of a row is found by walking the row graph: a row has the edges that its messages crossed and what is in the
fields of the rows it reads. Equal fields are kept once (see :mod:`captum_goat.fields.field_sets`), never as a dense
matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.fields.edge_groups import edge_groups
from captum_goat.fields.field_sets import NO_SET, FieldSets
from captum_goat.tracking import Block, RowGraph

_SEVERAL = -1  # the node of a row that stands for several nodes


class Elements(NamedTuple):
    """What an output is attributed to: edges, and rows of inputs."""

    num_edges: int  # how many of the elements are edges; they come first
    weights: Tensor  # the shares of a gate that each takes: one per edge, one per non-zero feature of an input's row


class ReceptiveFields:
    """The receptive fields of all rows of a forward pass.

    Args:
        graph: Which rows read which.
        elements: The edges and inputs.
        repeated: Whether an edge is listed once for every hop in which it appears, else only once.
        own_rows: How many of the inputs, the first ones, are nodes of which a row has only those that it stands for
            (its own node, or the nodes that were pooled into it); of others it has every one that reaches it.
        wanted: The blocks whose fields will be asked for.
    """

    def __init__(
        self,
        graph: RowGraph,
        elements: Elements,
        *,
        wanted: Iterable[int],
        repeated: bool = False,
        own_rows: int = 0,
    ) -> None:
        self._graph, self._repeated, self._own_rows = graph, repeated, own_rows
        self._fine = elements
        self._group_of, self._elements = _grouped_elements(graph, elements, wanted)
        self._count = max(self._elements.weights.numel(), 1)
        # With hops told apart, element e in hop k (counted from 0) is the entry ``k * count + e``.
        hops = 1 + sum(block.crosses for block in graph.blocks) if repeated else 1
        self._sets = FieldSets(self._count, self._count * hops, elements.weights.device)
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
        fine, coarse = self._fine.weights.to(shares.dtype), self._elements.weights.to(shares.dtype)
        if weights is not None:
            fine, coarse = weights, shares.new_zeros(self._count).index_add_(0, self._group_of, weights)
        total = shares.new_zeros(self._count)
        fields = self._fields_of(sources)
        shared = shares.new_zeros(len(self._sets)).index_add_(0, fields[fields >= 0], shares[fields >= 0])
        used = torch.nonzero(shared).view(-1)
        of_set, entries = self._sets.entries_of(used)
        element = entries % self._count
        weight = torch.zeros_like(shared[used]).index_add_(0, of_set, coarse[element])
        total.index_add_(0, element, (shared[used] / weight)[of_set])
        return total[self._group_of] * fine

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed."""
        weights, fields = self._elements.weights, self._fields_of(sources)
        of_set, entries = self._sets.entries_of(torch.arange(len(self._sets), device=fields.device))
        of_sets = weights.new_zeros(len(self._sets) + 1).index_add_(0, of_set, weights[entries % self._count])
        return of_sets[fields]  # the last entry, 0, for rows without a field

    def _fields_of(self, sources: Iterable[int]) -> Tensor:
        """Return the set that is the field of each row of some blocks, by row id (-1: none, or another block)."""
        key = frozenset(sources)
        if key not in self._row_fields:
            fields = torch.full((self._graph.num_rows,), NO_SET, device=self._elements.weights.device)
            for index in sorted(key):
                block = self._graph.blocks[index]
                fields[block.offset : block.offset + block.size] = self._field(index)
            self._row_fields[key] = fields
        return self._row_fields[key]

    def _field(self, index: int) -> Tensor:
        """Return the fields of a block, after finding those of the blocks that it reads."""
        wanted, reading = set(), [index]
        while reading:
            current = reading.pop()
            if current not in self._fields and current not in wanted:
                wanted.add(current)
                reading += self._graph.blocks[current].sources
        for current in sorted(wanted):  # a block reads only blocks made before it
            self._fields[current] = self._compose(self._graph.blocks[current])
        columns = self._fields[index]
        if columns.size(1) == 1:
            return columns[:, 0]
        rows = torch.arange(len(columns), device=columns.device)
        return self._sets.unite(rows.repeat(columns.size(1)), columns.t().reshape(-1), len(columns))

    def _compose(self, block: Block) -> Tensor:
        """Return sets for each row, ``[rows, columns]``, whose union is its field.

        A message has what it brings and the edge that it crosses, as two sets: they are united where messages meet.
        """
        children, sets = [block.child[:0]], [block.parent[:0]]
        for source in block.sources:
            child, fields = self._read(block, source)
            for column in fields.unbind(1):
                children.append(child)
                sets.append(self._inherited(block, child, column))
        if block.crosses and block.element is not None:
            inherited = self._sets.unite(torch.cat(children), torch.cat(sets), block.size)
            return torch.stack([inherited, self._grouped(block.element)], dim=1)
        if block.element is not None:  # rows of inputs
            children.append(torch.arange(block.size, device=block.child.device))
            sets.append(self._grouped(block.element))
        if self._own_rows and block.node is not None:
            own = self._elements.num_edges + block.node[block.child]
            children.append(block.child)
            sets.append(own.masked_fill(block.node[block.child] >= self._own_rows, NO_SET))
        return self._sets.unite(torch.cat(children), torch.cat(sets), block.size).view(-1, 1)

    def _grouped(self, elements: Tensor) -> Tensor:
        """Return the groups of elements (-1: none)."""
        return self._group_of[elements].where(elements >= 0, NO_SET) if self._group_of.numel() else elements

    def _inherited(self, block: Block, child: Tensor, sets: Tensor) -> Tensor:
        """Return what the rows of a block take over of the sets of the rows that they read."""
        if self._own_rows and (block.crosses or block.node is not None):
            first, end = self._elements.num_edges, self._elements.num_edges + self._own_rows

            def kept(entry: Tensor) -> Tensor:
                element = entry % self._count
                return entry.where((element < first) | (element >= end), -1)

            sets = self._sets.changed(sets, kept)
        if self._repeated and block.crosses:
            return self._sets.changed(sets, lambda entry: entry + self._count)  # one hop further away
        if self._repeated:
            # A row that stands for several nodes, a pooled one, has every edge of its graph once, whatever the hop.
            several = (self._nodes(block) == _SEVERAL)[child]
            if several.any():
                sets = sets.where(~several, self._sets.changed(sets, lambda entry: entry % self._count))
        return sets

    def _nodes(self, block: Block) -> Tensor:
        """Return the node that each row of a block stands for, as a whole or as a part of it."""
        if block.offset not in self._nodes_at:
            self._nodes_at[block.offset] = self._find_nodes(block)
        return self._nodes_at[block.offset]

    def _find_nodes(self, block: Block) -> Tensor:
        if block.node is not None:
            return block.node
        if not block.sources:  # inputs: one row each
            return torch.arange(block.size, device=block.child.device)
        of_parent = torch.full_like(block.parent, _SEVERAL)
        for source in block.sources:
            read = self._graph.blocks[source]
            here = (block.parent >= read.offset) & (block.parent < read.offset + read.size)
            of_parent[here] = self._nodes(read)[block.parent[here] - read.offset]
        least = of_parent.new_full((block.size,), torch.iinfo(torch.long).max)
        least.scatter_reduce_(0, block.child, of_parent, "amin")
        most = of_parent.new_full((block.size,), _SEVERAL).scatter_reduce_(0, block.child, of_parent, "amax")
        return least.where(least == most, _SEVERAL)

    def _read(self, block: Block, source: int) -> tuple[Tensor, Tensor]:
        """Return the rows of a block that read one of its sources, and the sets of what they read."""
        read = self._graph.blocks[source]
        child, parent = block.child, block.parent - read.offset
        if len(block.sources) > 1:
            here = (parent >= 0) & (parent < read.size)
            child, parent = child[here], parent[here]
        return child, self._fields[source][parent]


def _grouped_elements(graph: RowGraph, elements: Elements, wanted: Iterable[int]) -> tuple[Tensor, Elements]:
    """Return the group of each element, and the groups as elements.

    Edges that go together are one group; every input's row is one of its own.
    """
    device, num_inputs = elements.weights.device, elements.weights.numel() - elements.num_edges
    of_edges = edge_groups(graph, elements.num_edges, wanted, device)
    num_edge_groups = int(of_edges.max()) + 1 if of_edges.numel() else 0
    group_of = torch.cat([of_edges, torch.arange(num_inputs, device=device) + num_edge_groups])
    weights = elements.weights.new_zeros(num_edge_groups + num_inputs).index_add_(0, group_of, elements.weights)
    return group_of, Elements(num_edge_groups, weights)
