"""Edges that always go together: whatever reads one of them reads all of them.

In most models these are the edges that end at the same node. A receptive field is a union of such groups, and a hub
with a million edges is one group of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from captum_goat.fields.field_sets import first_of_equals, hashed
from captum_goat.tracking import Block, RowGraph


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
