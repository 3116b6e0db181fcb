"""Which edges and inputs reach which rows, and spreading the gates' shares over them (Eq. 11 of GOAt).

The field of a row is found by walking the row graph: a row has the edges that its messages crossed and what is in the
fields of the rows it reads. Fields are kept as lists of (row, element) pairs, never as a dense matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking import Block, RowGraph

_SEVERAL = -1  # the node of a row that stands for several nodes


class Elements(NamedTuple):
    """What an output is attributed to: edges, and rows of inputs.

    Attributes:
        num_edges: How many of the elements are edges; they come first.
        weights: How many shares of a gate each element takes: one per edge, one per non-zero feature of an input's row.
    """

    num_edges: int
    weights: Tensor


class Field(NamedTuple):
    """The fields of the rows of one block, row by row.

    Attributes:
        counts: How many entries each row has.
        rows: The row of each entry, in ascending order.
        entries: The elements of row 0, then those of row 1, and so on. With hops told apart, element e in hop k
            (counted from 0) is the entry ``k * num_elements + e``.
    """

    counts: Tensor
    rows: Tensor
    entries: Tensor


class ReceptiveFields:
    """The receptive fields of all rows of a forward pass.

    Args:
        graph: Which rows read which.
        elements: The edges and inputs.
        repeated: Whether an edge is listed once for every hop in which it appears, else only once.
        own_features: Whether, of the inputs, a row has only those of the nodes that it stands for (its own node, or the
            nodes that were pooled into it), else those of every node that reaches it.
    """

    def __init__(
        self, graph: RowGraph, elements: Elements, *, repeated: bool = False, own_features: bool = False
    ) -> None:
        self._own_features = own_features
        self._graph = graph
        self._elements = elements
        self._count = max(elements.weights.numel(), 1)
        self._repeated = repeated
        self._fields: dict[int, Field] = {}
        self._nodes_at: dict[int, Tensor] = {}  # by the offset of the block

    def spread(self, shares: Tensor, sources: Iterable[int]) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights.

        Args:
            shares: One number per row, by row id.
            sources: The blocks whose rows have a share.
        """
        weights = self._elements.weights.to(shares.dtype)
        total = shares.new_zeros(self._count)
        row_weights = self.row_weights(sources).to(shares.dtype)
        for index in sorted(set(sources)):
            block, field = self._graph.blocks[index], self._field(index)
            rows = slice(block.offset, block.offset + block.size)
            each = (shares[rows] / row_weights[rows])[field.rows]
            element = field.entries % self._count
            total.index_add_(0, element, each * weights[element])
        return total

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed."""
        weights = self._elements.weights
        total = weights.new_zeros(self._graph.num_rows)
        for index in sorted(set(sources)):
            block, field = self._graph.blocks[index], self._field(index)
            total.index_add_(0, field.rows + block.offset, weights[field.entries % self._count])
        return total

    def owners(self, rows: Tensor, sources: Iterable[int]) -> Tensor | None:
        """Return the position in ``rows`` of the one row whose field has each element (-1: none).

        Returns ``None`` if some element is in the fields of several of the rows.
        """
        position = torch.full((self._graph.num_rows,), -1, device=rows.device)
        kept = rows >= 0
        numbers = torch.arange(rows.numel(), device=rows.device)
        position[rows[kept]] = numbers[kept]
        if (position[rows[kept]] != numbers[kept]).any():
            return None  # the same row twice
        owner = torch.full((self._count,), -1, device=rows.device)
        for index in sorted(set(sources)):
            block, field = self._graph.blocks[index], self._field(index)
            of_entry = position[block.offset : block.offset + block.size][field.rows]
            wanted = of_entry >= 0
            elements, found = field.entries[wanted] % self._count, of_entry[wanted]
            before = owner[elements]
            owner[elements] = found
            if ((before >= 0) & (before != found)).any() or (owner[elements] != found).any():
                return None
        return owner[: self._elements.weights.numel()]

    def _field(self, index: int) -> Field:
        """Return the fields of a block, after finding those of the blocks that it reads."""
        wanted, reading = set(), [index]
        while reading:
            current = reading.pop()
            if current not in self._fields and current not in wanted:
                wanted.add(current)
                reading += self._graph.blocks[current].sources
        for current in sorted(wanted):  # a block reads only blocks made before it
            self._fields[current] = self._compose(self._graph.blocks[current])
        return self._fields[index]

    def _compose(self, block: Block) -> Field:
        """Unite the element that each row of a block crosses or is with the fields of the rows that it reads."""
        children, entries = [block.child[:0]], [block.parent[:0]]
        for source in block.sources:
            child, entry = self._inherited(block, *self._read(block, source))
            children.append(child)
            entries.append(entry)
        if block.element is not None:
            present = torch.nonzero(block.element >= 0).view(-1)
            children.append(present)
            entries.append(block.element[present])
        if self._own_features and block.node is not None:
            own = self._elements.num_edges + block.node[block.child]
            children.append(block.child[own < self._count])
            entries.append(own[own < self._count])
        hops = 1 + sum(each.crosses for each in self._graph.blocks)
        width = self._count * hops
        pairs = torch.unique(torch.cat(children) * width + torch.cat(entries))
        rows = pairs // width
        return Field(torch.bincount(rows, minlength=block.size), rows, pairs % width)

    def _inherited(self, block: Block, child: Tensor, entry: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the rows of a block take over from the fields of the rows that they read."""
        if self._own_features and (block.crosses or block.node is not None):
            edges = entry % self._count < self._elements.num_edges
            child, entry = child[edges], entry[edges]
        if self._repeated and block.crosses:
            return child, entry + self._count  # one hop further away
        if self._repeated:
            # A row that stands for several nodes, a pooled one, has every edge of its graph once, whatever the hop.
            return child, torch.where(self._single_node(block)[child], entry, entry % self._count)
        return child, entry

    def _single_node(self, block: Block) -> Tensor:
        """Return which rows of a block stand for one node, or for a part of one."""
        return self._nodes(block) != _SEVERAL

    def _nodes(self, block: Block) -> Tensor:
        """Return the node that each row of a block stands for."""
        if block.offset not in self._nodes_at:
            self._nodes_at[block.offset] = self._find_nodes(block)
        return self._nodes_at[block.offset]

    def _find_nodes(self, block: Block) -> Tensor:
        if block.node is not None:
            return block.node
        if block.crosses or not block.sources:  # messages and inputs: one row each
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
        """Return the pairs (child, entry) that a block reads from one of its sources."""
        read, field = self._graph.blocks[source], self._fields[source]
        child, parent = block.child, block.parent - read.offset
        if len(block.sources) > 1:
            here = (parent >= 0) & (parent < read.size)
            child, parent = child[here], parent[here]
        counts = field.counts[parent]
        which = _repeated_positions(counts)
        # The entries of the k-th parent stand together; number them from the first entry of that parent.
        shift = field.counts.cumsum(0)[parent] - counts.cumsum(0)
        position = torch.arange(which.numel(), device=which.device) + shift[which]
        return child[which], field.entries[position]


def _repeated_positions(counts: Tensor) -> Tensor:
    """Return position k ``counts[k]`` times: `repeat_interleave`, which stalls on small inputs with several threads."""
    ends = counts.cumsum(0)
    total = int(ends[-1]) if counts.numel() else 0
    steps = counts.new_zeros(total + 1).index_add_(0, ends, torch.ones_like(ends))
    return steps[:-1].cumsum(0)
