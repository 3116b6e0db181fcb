"""Which edges reach which rows, and spreading the gates' shares over them (Eq. 11 of GOAt).

The field of a row is found by walking the row graph: a row has the edges that its messages crossed and the edges
in the fields of the rows it reads. Fields are kept as lists of (row, edge) pairs, never as a dense matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking import Block, RowGraph


class Field(NamedTuple):
    """The fields of the rows of one block, row by row.

    Attributes:
        counts: How many entries each row has.
        rows: The row of each entry, in ascending order.
        entries: The edges of row 0, then those of row 1, and so on. With hops told apart, edge e in hop k (counted
            from 0) is the entry ``k * num_edges + e``.
    """

    counts: Tensor
    rows: Tensor
    entries: Tensor


class ReceptiveFields:
    """The receptive fields of all rows of a forward pass.

    Args:
        graph: Which rows read which.
        num_edges: The number of edges in the user's graph.
        repeated: Whether an edge is listed once for every hop in which it appears, else only once.
    """

    def __init__(self, graph: RowGraph, num_edges: int, *, repeated: bool = False) -> None:
        self._graph = graph
        self._num_edges = max(num_edges, 1)
        self._repeated = repeated
        self._fields: dict[int, Field] = {}

    def spread(self, shares: Tensor, sources: Iterable[int]) -> Tensor:
        """Share each row's number equally among the edges in its field.

        Args:
            shares: One number per row, by row id.
            sources: The blocks whose rows have a share.
        """
        total = shares.new_zeros(self._num_edges)
        for index in sorted(set(sources)):
            block, field = self._graph.blocks[index], self._field(index)
            each = shares[block.offset : block.offset + block.size] / field.counts
            total.index_add_(0, field.entries % self._num_edges, each[field.rows])
        return total

    def owners(self, rows: Tensor, sources: Iterable[int]) -> Tensor | None:
        """Return the position in ``rows`` of the one row whose field has each edge (-1: none).

        Returns ``None`` if some edge is in the fields of several of the rows.
        """
        position = torch.full((self._graph.num_rows,), -1, device=rows.device)
        kept = rows >= 0
        numbers = torch.arange(rows.numel(), device=rows.device)
        position[rows[kept]] = numbers[kept]
        if (position[rows[kept]] != numbers[kept]).any():
            return None  # the same row twice
        owner = torch.full((self._num_edges,), -1, device=rows.device)
        for index in sorted(set(sources)):
            block, field = self._graph.blocks[index], self._field(index)
            of_entry = position[block.offset : block.offset + block.size][field.rows]
            wanted = of_entry >= 0
            edges, found = field.entries[wanted] % self._num_edges, of_entry[wanted]
            before = owner[edges]
            owner[edges] = found
            if ((before >= 0) & (before != found)).any() or (owner[edges] != found).any():
                return None
        return owner

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
        """Unite the edge that each row of a block crosses with the fields of the rows that it reads."""
        children, entries = [], []
        for source in block.sources:
            child, entry = self._read(block, source)
            if self._repeated and block.edge is not None:
                entry = entry + self._num_edges  # one hop further away
            elif self._repeated and block.pools:
                entry = entry % self._num_edges  # a pooled row has every edge of its graph once
            children.append(child)
            entries.append(entry)
        if block.edge is not None:
            crossing = torch.nonzero(block.edge >= 0).view(-1)
            children.append(crossing)
            entries.append(block.edge[crossing])
        hops = 1 + sum(each.edge is not None for each in self._graph.blocks)
        width = self._num_edges * hops
        pairs = torch.unique(torch.cat(children) * width + torch.cat(entries))
        rows = pairs // width
        return Field(torch.bincount(rows, minlength=block.size), rows, pairs % width)

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
