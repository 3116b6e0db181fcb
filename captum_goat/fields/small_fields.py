"""The receptive fields of a small graph: one matrix, which takes fewer operations than sets."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from captum_goat.tracking import RowGraph

MOST_ENTRIES = 2**18


class SmallFields:
    """The receptive fields of all rows of a forward pass, as :class:`~.receptive_field.ReceptiveFields` has them.

    Args:
        graph: Which rows read which.
        weights: How many shares of a gate each element takes.
    """

    def __init__(self, graph: RowGraph, weights: Tensor) -> None:
        self._weights = weights
        count = weights.numel()
        # The last column is that of rows that cross no edge, the last row that of no row.
        reach = torch.zeros(graph.num_rows + 1, count + 1, device=weights.device)
        for block in graph.blocks:  # a block reads only blocks made before it
            rows = reach[block.offset : block.offset + block.size]
            if block.parent.numel():
                rows.index_add_(0, block.child, reach.index_select(0, block.parent)).clamp_(max=1.0)
            if block.element is not None:
                rows.scatter_(1, block.element.where(block.element >= 0, count).view(-1, 1), 1.0)
        self._reach = reach[:, :-1]

    @staticmethod
    def fits(graph: RowGraph, weights: Tensor) -> bool:
        """Return whether the matrix is small enough."""
        return (graph.num_rows + 1) * (weights.numel() + 1) <= MOST_ENTRIES

    def spread(self, shares: Tensor, sources: Iterable[int], weights: Tensor | None = None) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights."""
        weights, reach = (self._weights if weights is None else weights).to(shares.dtype), self._reach.to(shares.dtype)
        sizes = reach[:-1] @ weights
        return torch.where(sizes > 0, shares / sizes, 0.0) @ reach[:-1] * weights

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed."""
        return self._reach @ self._weights.to(self._reach.dtype)

    def owners(self, rows: Tensor, sources: Iterable[int]) -> Tensor | None:
        """Return the position in ``rows`` of the one row whose field has each element (-1: none).

        Returns ``None`` if some element is in the fields of several of the rows.
        """
        reached = self._reach[rows]
        times = reached.sum(dim=0)
        known = rows[rows >= 0]
        if (times > 1).any() or torch.unique(known).numel() != known.numel():
            return None
        return reached.argmax(dim=0).where(times > 0, -1) if rows.numel() else torch.full_like(times, -1).long()
