"""Which of several explained rows everything else reaches: in a batch of graphs, the graph that it belongs to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking import RowGraph


class Owners(NamedTuple):
    """The position of the one explained row that each row and each element reaches (-1: none)."""

    rows: Tensor  # by row id
    elements: Tensor
    number: int  # how many rows are explained


def find_owners(graph: RowGraph, rows: Tensor, num_elements: int, nodes: range = range(0)) -> Owners | None:
    """Return which of some rows (-1: none) each row and element reaches; ``None`` if an element reaches several.

    ``nodes`` are elements that also take a share in the gates of their nodes, whether or not they reach them.
    """
    position, known = torch.arange(rows.numel(), device=rows.device), rows >= 0
    if torch.unique(rows[known]).numel() != int(known.sum()):
        return None
    both = []  # the first and the last position that is reached
    for reduce, none in (("amin", rows.numel()), ("amax", -1)):
        of_rows = position.new_full((graph.num_rows + 1,), none)
        of_elements = position.new_full((num_elements + 1,), none)  # the last one for rows that cross no edge
        of_rows[rows[known]] = position[known]
        for block in reversed(graph.blocks):  # a block reads only blocks made before it
            here = of_rows[block.offset : block.offset + block.size]
            of_rows.scatter_reduce_(0, block.parent, here[block.child], reduce)
            if block.element is not None:
                of_elements.scatter_reduce_(0, block.element % (num_elements + 1), here, reduce)
            if nodes and block.node is not None and not block.crosses:
                own = nodes.start + block.node[block.child]
                own = own.where((own >= nodes.start) & (own < nodes.stop), num_elements)
                of_elements.scatter_reduce_(0, own, here[block.child], reduce)
        both.append((of_rows[:-1], of_elements[:-1]))
    (first_row, first), (_, last) = both
    if ((first != last) & (last >= 0)).any():
        return None
    return Owners(first_row.where(first_row < rows.numel(), -1), last, rows.numel())
