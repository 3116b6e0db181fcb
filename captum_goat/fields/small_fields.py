"""Receptive fields as a matrix of rows and elements: for small graphs, for many of them, and step by step.

That takes fewer operations than sets (:mod:`captum_goat.fields.receptive_field`), and more memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
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
    """The receptive fields of rows of a forward pass, as :class:`~.receptive_field.ReceptiveFields` has them.

    Args:
        graph: Which rows read which.
        weights: The share of a gate that each element takes.
        owners: With several explained rows, the one that each row and element reaches. The elements of each then have
            columns from 0 on; rows and elements that reach none of them are left out.
        wanted: The blocks whose fields will be asked for; ``None`` for all.
    """

    def __init__(
        self, graph: RowGraph, weights: Tensor, owners: Owners | None = None, wanted: Collection[int] | None = None
    ) -> None:
        self._weights, self._owners, self._num_rows = weights, owners, graph.num_rows
        self._parts: list[tuple[int, Tensor]]  # of wanted blocks, the first row, and which columns reach rows, as ones
        if graph.reach is not None:
            self._parts, self._owners = [(0, graph.reach[:-1])], None
            return
        self._columns, self._width = _columns(weights, owners)
        columns = torch.cat([self._columns, self._columns.new_full((1,), self._width)])
        wanted = range(len(graph.blocks)) if wanted is None else wanted
        matrices = _reach(graph, self._width, wanted, lambda block: _entries(columns, block.element))
        self._parts = [(graph.blocks[number].offset, matrices[number]) for number in sorted(wanted)]

    @staticmethod
    def fits(graph: RowGraph, weights: Tensor, owners: Owners | None) -> bool:
        """Return whether the matrices are small enough, or known."""
        if graph.reach is not None:
            return True
        width = _columns(weights, owners)[1]
        most = MOST_ENTRIES_OF_MANY if owners is not None and width <= MOST_COLUMNS_OF_MANY else MOST_ENTRIES
        return (graph.num_rows + 1) * (width + 1) <= most

    def spread(self, shares: Tensor, sources: Iterable[int], weights: Tensor | None = None) -> Tensor:
        """Share each row's number among the elements in its field, in proportion to their weights."""
        fine = (self._weights if weights is None else weights).to(shares.dtype)
        owners, by_owner = self._owners, self._by_owner(fine)
        total = shares.new_zeros(by_owner.shape)
        for first, matrix in self._parts:
            rows, reach = slice(first, first + len(matrix)), matrix.to(shares.dtype)
            if owners is None:
                sizes = reach @ fine
            else:  # the last owner is none
                owner = owners.rows[rows] % (owners.number + 1)
                sizes = torch.linalg.vecdot(reach, by_owner.index_select(0, owner))
            # weights of their own are numbers of features, so that no field is smaller than 1
            safe = sizes.clamp(min=1) if weights is None else sizes.where(sizes > 0, math.inf)
            per_weight = shares[rows] / safe
            if owners is None:
                total += per_weight @ reach
            else:
                total.index_add_(0, owner, reach * per_weight.view(-1, 1))
        if owners is None:
            return total * fine
        total = torch.nn.functional.pad(total, (0, 1))  # a column for elements without an owner
        return total[owners.elements, self._columns] * fine

    def row_weights(self, sources: Iterable[int]) -> Tensor:
        """Return the weight of each row's whole field, by row id; 0 where nothing is attributed, and in the end."""
        weights = self._weights.to(torch.float32)
        total, by_owner = weights.new_zeros(self._num_rows + 1), self._by_owner(weights)
        for first, reach in self._parts:
            rows = slice(first, first + len(reach))
            own = weights if self._owners is None else by_owner[self._owners.rows[rows]]
            total[rows] = (reach * own).sum(dim=1)
        return total

    def reach(self) -> Tensor:
        """Return which elements reach each row, as ones, ``[rows + 1, elements]``, if all blocks are wanted."""
        matrices = [matrix for _, matrix in self._parts]
        return torch.cat([*matrices, matrices[0].new_zeros(1, self._weights.numel())])

    def _by_owner(self, weights: Tensor) -> Tensor:
        """Return the weights in the columns of each explained row; the last row is 0. Without owners: the weights."""
        if self._owners is None:
            return weights
        table = weights.new_zeros(self._owners.number + 1, self._width + 1)
        table[self._owners.elements, self._columns] = weights * (self._owners.elements >= 0)
        return table[:, :-1]


def _entries(values: Tensor, places: Tensor | None) -> Tensor | None:
    return None if places is None else values[places]


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


def _reach(
    graph: RowGraph, width: int, wanted: Collection[int], columns: Callable[[Block], Tensor | None]
) -> dict[int, Tensor]:
    """Return which columns reach each row of wanted blocks, by their numbers, as ones in matrices ``[rows, width]``.

    ``columns`` returns those that the rows of a block have themselves, ``width`` for none.
    """
    matrices, needed = dict[int, Tensor](), graph.read_for(wanted)
    last = {source: number for number in needed for source in graph.blocks[number].sources}  # that reads a block
    for number in needed:
        block = graph.blocks[number]
        paths = torch.zeros(block.size, width + 1, device=block.child.device)  # how many; infinity is one, too
        for child, parent, source in graph.read_by(block):
            paths.index_add_(0, child, matrices[source].index_select(0, parent))
            if last[source] == number and source not in wanted:
                del matrices[source]
        if (column := columns(block)) is not None:
            paths.scatter_(1, column.view(-1, 1), 1.0)
        matrices[number] = paths
    return {number: matrices[number][:, :-1].clamp_(max=1.0) for number in wanted}


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

        matrices = _reach(graph, len(steps) * count, range(len(graph.blocks)), columns)
        return torch.cat([*matrices.values()]).to(shares.dtype).view(graph.num_rows, len(steps), count)

    reaches = [reach_of(edges) for edges in parts]
    pairs = zip(reaches, parts, strict=True)
    sizes = sum((reach.amax(dim=1) @ weights[edges] for reach, edges in pairs), torch.zeros_like(shares))
    per_weight = torch.where(sizes > 0, shares / sizes, 0.0)
    spread = []
    for reach, edges in zip(reaches, parts, strict=True):
        last = reach * (reach.flip(1).cumsum(dim=1).flip(1) == 1)
        spread.append(torch.einsum("r,rse->se", per_weight, last) * weights[edges])
    return torch.cat(spread, dim=1) if spread else shares.new_zeros(len(steps), 0)
