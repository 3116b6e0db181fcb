"""The receptive fields of a small graph, or of many small graphs: a matrix, which takes fewer operations than sets."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from captum_goat.fields.owners import Owners
from captum_goat.tracking import RowGraph

MOST_ENTRIES = 2**18  # of the matrix of one graph
MOST_ENTRIES_OF_MANY, MOST_COLUMNS_OF_MANY = 2**23, 256  # of the matrix of many graphs


class SmallFields:
    """The receptive fields of all rows of a forward pass, as :class:`~.receptive_field.ReceptiveFields` has them.

    Args:
        graph: Which rows read which.
        weights: How many shares of a gate each element takes.
        owners: The explained row that every row and element reaches, if there are several. The elements of each have
            columns from 0 on. Rows and elements that reach none are left out.
    """

    def __init__(self, graph: RowGraph, weights: Tensor, owners: Owners | None = None) -> None:
        self._weights, self._owners = weights, owners
        self._columns, self._width = _columns(weights, owners)
        # The last column is that of rows that cross no edge, the last row that of no row.
        reach = torch.zeros(graph.num_rows + 1, self._width + 1, device=weights.device)
        columns = torch.cat([self._columns, self._columns.new_full((1,), self._width)])
        for block in graph.blocks:  # a block reads only blocks made before it
            rows = reach[block.offset : block.offset + block.size]
            if block.parent.numel():
                rows.index_add_(0, block.child, reach.index_select(0, block.parent)).clamp_(max=1.0)
            if block.element is not None:
                rows.scatter_(1, columns[block.element].view(-1, 1), 1.0)
        self._reach = reach[:, :-1]

    @staticmethod
    def fits(graph: RowGraph, weights: Tensor, owners: Owners | None) -> bool:
        """Return whether the matrix is small enough."""
        width = _columns(weights, owners)[1]
        most = MOST_ENTRIES_OF_MANY if owners is not None and width <= MOST_COLUMNS_OF_MANY else MOST_ENTRIES
        return (graph.num_rows + 1) * (width + 1) <= most

    def spread(self, shares: Tensor, sources: Iterable[int], weights: Tensor | None = None) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights."""
        weights = (self._weights if weights is None else weights).to(shares.dtype)
        if self._owners is None:
            reach = self._reach[:-1].to(shares.dtype)
            sizes = reach @ weights
            return torch.where(sizes > 0, shares / sizes, 0.0) @ reach * weights
        rows = torch.nonzero((shares != 0) & (self._owners.rows >= 0)).view(-1)
        reach, owner = self._reach[rows].to(shares.dtype), self._owners.rows[rows]
        sizes = (reach * self._by_owner(weights)[owner]).sum(dim=1)
        parts = reach.mul_(torch.where(sizes > 0, shares[rows] / sizes, 0.0).view(-1, 1))
        total = shares.new_zeros(self._owners.number + 1, self._width + 1)  # the last row and column stay 0
        total[:, :-1].index_add_(0, owner, parts)
        return total[self._owners.elements, self._columns] * weights

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed."""
        weights = self._weights.to(self._reach.dtype)
        if self._owners is None:
            return self._reach @ weights
        return (self._reach[:-1] * self._by_owner(weights)[self._owners.rows]).sum(dim=1)

    def _by_owner(self, weights: Tensor) -> Tensor:
        """Return the weights in the columns of each explained row; the last row is 0."""
        assert self._owners is not None
        table = weights.new_zeros(self._owners.number + 1, self._width + 1)
        table[self._owners.elements, self._columns] = weights * (self._owners.elements >= 0)
        return table[:, :-1]


def _columns(weights: Tensor, owners: Owners | None) -> tuple[Tensor, int]:
    """Return the column of each element, and the number of columns, which is that of elements without one."""
    if owners is None:
        return torch.arange(weights.numel(), device=weights.device), weights.numel()
    order = torch.argsort(owners.elements, stable=True)
    counts = torch.bincount(owners.elements + 1, minlength=owners.number + 1)
    rank = torch.empty_like(order)
    rank[order] = (
        torch.arange(order.numel(), device=order.device) - (counts.cumsum(0) - counts)[owners.elements[order] + 1]
    )
    width = int(counts[1:].max()) if owners.number else 0
    return rank.where(owners.elements >= 0, width), width
