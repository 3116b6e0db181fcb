"""The part of a forward pass that matters to what is explained."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_goat.tracking import RowGraph


def reaching(graph: RowGraph, rows: Tensor) -> RowGraph:
    """Return the row graph without what does not reach some rows: other rows read nothing and have no edge.

    Args:
        graph: Which rows read which.
        rows: The ids of the rows that matter; -1 for none.
    """
    matters = torch.zeros(graph.num_rows, dtype=torch.bool, device=rows.device)
    matters[rows[rows >= 0]] = True
    found = RowGraph()
    found.num_rows = graph.num_rows
    for block in reversed(graph.blocks):  # a block reads only blocks made before it
        here = matters[block.offset : block.offset + block.size]
        kept = here[block.child]
        child, parent = block.child[kept], block.parent[kept]
        matters[parent] = True
        element = None if block.element is None else block.element.where(here, -1)
        found.blocks.append(block._replace(child=child, parent=parent, element=element))
    found.blocks.reverse()
    return found
