"""Receptive fields as a matrix of rows and elements: for small graphs, for many of them, and step by step.

That takes fewer operations than sets (:mod:`captum_goat.fields.receptive_field`), and more memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking import Block, RowGraph

MOST_ENTRIES = 2**18  # of the matrix of one graph
MOST_ENTRIES_OF_MANY, MOST_COLUMNS_OF_MANY = 2**23, 256  # of the matrix of many graphs
_MOST_ENTRIES_OF_STEPS = 2**24  # of the matrix of rows, steps and edges that is held at once


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


def owners_by_reach(reach: Tensor, rows: Tensor) -> Tensor | None:
    """Return which of some rows (-1: none) each element reaches (-1: none); ``None`` if an element reaches several."""
    reaches = reach[rows] > 0  # the last row, -1, is 0
    return None if (reaches.sum(dim=0) > 1).any() else reaches.int().argmax(dim=0).where(reaches.any(dim=0), -1)


class SmallFields:
    """The receptive fields of all rows of a forward pass, as :class:`~.receptive_field.ReceptiveFields` has them.

    With ``owners``, of several explained rows, the elements of each row have columns from 0 on. Rows and elements that
    reach none of them are left out.
    """

    def __init__(self, graph: RowGraph, weights: Tensor, owners: Owners | None = None) -> None:
        self._weights, self._owners = weights, owners
        if graph.reach is not None:
            self._reach, self._owners = graph.reach, None
            return
        self._columns, self._width = _columns(weights, owners)
        columns = torch.cat([self._columns, self._columns.new_full((1,), self._width)])
        empty = weights.new_zeros(graph.num_rows + 1, self._width + 1, dtype=torch.float32)
        self._reach = _reach(graph, empty, lambda block: None if block.element is None else columns[block.element])

    @staticmethod
    def fits(graph: RowGraph, weights: Tensor, owners: Owners | None) -> bool:
        """Return whether the matrix is small enough, or known."""
        if graph.reach is not None:
            return True
        width = _columns(weights, owners)[1]
        most = MOST_ENTRIES_OF_MANY if owners is not None and width <= MOST_COLUMNS_OF_MANY else MOST_ENTRIES
        return (graph.num_rows + 1) * (width + 1) <= most

    @property
    def reach(self) -> Tensor:
        """Which elements reach each row, as ones, ``[rows + 1, elements]``, if there are no ``owners``."""
        return self._reach

    def spread(self, shares: Tensor, sources: Iterable[int], weights: Tensor | None = None) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights."""
        counts, weights = weights is None, (self._weights if weights is None else weights).to(shares.dtype)
        if self._owners is None:
            reach = self._reach[:-1].to(shares.dtype)
            sizes = reach @ weights
            per_weight = shares / sizes.clamp_(min=1) if counts else torch.where(sizes > 0, shares / sizes, 0.0)
            return per_weight @ reach * weights
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
    position = torch.arange(weights.numel(), device=weights.device)
    if owners is None:
        return position, weights.numel()
    order = torch.argsort(owners.elements, stable=True)
    counts = torch.bincount(owners.elements + 1, minlength=owners.number + 1)
    rank = torch.empty_like(order)
    rank[order] = position - (counts.cumsum(0) - counts)[owners.elements[order] + 1]
    width = int(counts[1:].max()) if owners.number else 0
    return rank.where(owners.elements >= 0, width), width


def _reach(graph: RowGraph, reach: Tensor, columns: Callable[[Block], Tensor | None]) -> Tensor:
    """Return which columns reach each row, as ones in a matrix ``reach`` of zeros, of which the last column is none.

    ``columns`` returns those that the rows of a block have themselves; the last row of the matrix is that of no row.
    """
    for block in graph.blocks:  # a block reads only blocks made before it
        rows = reach[block.offset : block.offset + block.size]
        if block.parent.numel():  # the numbers of paths: infinity is one, too
            rows.index_add_(0, block.child, reach.index_select(0, block.parent))
        if (column := columns(block)) is not None:
            rows.scatter_(1, column.view(-1, 1), 1.0)
    return reach[:, :-1].clamp_(max=1.0)


def spread_by_step(graph: RowGraph, shares: Tensor, weights: Tensor) -> Tensor:
    """Share each row's number among the edges that reach it, each at the last step in which it does.

    Args:
        graph: Which rows read which; every block of masked messages is a step.
        shares: One number per row, by row id.
        weights: The weight of each edge, ``[E]``: a row is shared in proportion to these.

    Returns:
        One number per step and edge, ``[steps, E]``.
    """
    steps = {block.offset: number for number, block in enumerate(block for block in graph.blocks if block.crosses)}
    if not weights.numel():
        return shares.new_zeros(len(steps), 0)
    most = max(1, _MOST_ENTRIES_OF_STEPS // max((graph.num_rows + 1) * len(steps), 1))
    parts = torch.arange(weights.numel(), device=weights.device).split(most)

    def reach_of(edges: Tensor) -> Tensor:
        first, count = int(edges[0]), len(edges)

        def columns(block: Block) -> Tensor | None:
            if block.element is None or block.offset not in steps:
                return None
            place = block.element - first
            here = (place >= 0) & (place < count)
            return (place + steps[block.offset] * count).where(here, len(steps) * count)

        empty = shares.new_zeros(graph.num_rows + 1, len(steps) * count + 1)
        return _reach(graph, empty, columns)[:-1].reshape(graph.num_rows, len(steps), count)

    reaches = [reach_of(edges) for edges in parts]
    pairs = zip(reaches, parts, strict=True)
    sizes = sum((reach.amax(dim=1) @ weights[edges] for reach, edges in pairs), torch.zeros_like(shares))
    per_weight = torch.where(sizes > 0, shares / sizes, 0.0)
    spread = []
    for reach, edges in zip(reaches, parts, strict=True):
        last = reach * (reach.flip(1).cumsum(dim=1).flip(1) == 1)
        spread.append(torch.einsum("r,rse->se", per_weight, last) * weights[edges])
    return torch.cat(spread, dim=1) if spread else shares.new_zeros(len(steps), 0)
