"""Which rows read which rows, and which edges they cross, in one forward pass.

A *row* is whatever one slice of a tensor stands for: a message, a node, a graph. The operations that mix rows
make new ones; each such set of new rows is a :class:`Block`, and the blocks together form the row graph, from
which :mod:`captum_goat.fields.receptive_field` reads the edges that reach each gate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

NO_ROW = -1


class Edges(NamedTuple):
    """What is known of an integer tensor made of columns of the user's ``edge_index``."""

    ids: Tensor  # the edge of each column (-1: none), broadcastable to the tensor
    ends: Tensor  # the user's edges, ``[2, E]``: source and target of each


class Broken(NamedTuple):
    """Why a tensor is no polynomial of the variables."""

    operation: str  # the operation that is to blame
    place: str  # the module in which it ran
    # whether the tensor is a size (a norm, a standard deviation), which may be frozen where others are multiplied
    # or divided by it
    scale: bool


class Rows(NamedTuple):
    """What is known of a tensor that depends on the edges."""

    # the row of each entry (-1: no edge reaches it), broadcastable to the tensor. Dimensions of size one are
    # channels: their entries belong to the same row
    ids: Tensor
    sources: frozenset[int]  # the blocks that the ids come from
    degree: int  # the largest number of variable factors (edges and gates) in a scalar product
    gates: int  # the largest number of gates alone in a scalar product
    # the largest number of frozen factors (scales, winners, attention) in a scalar product without variables; -1
    # if every product has a variable
    frozen: int = 0
    broken: Broken | None = None  # why the tensor is no polynomial; ``None`` if it is one
    marks: frozenset[str] = frozenset()  # what edges have to do with it, see :mod:`captum_goat.tracking.unseen`


class Unsupported(NamedTuple):
    """What is known of a result of which not even the rows are known."""

    operation: str  # the operation that made it
    place: str  # the module in which it ran
    by_hand: bool = False  # whether it is the result of message passing that no layer does


class Unmasked(NamedTuple):
    """What is known of constants in which edges have had a part."""

    # ``"gathered"`` from nodes at the edges, ``"summed"`` up over edges after that, ``"structure"``, made of the
    # edges themselves; or ``"masked"`` messages
    kind: str
    operation: str  # the operation that made them
    layer: str = ""  # the layer in which they were summed up


Trace = Edges | Rows | Unsupported | Unmasked


class Block(NamedTuple):
    """Rows made by one operation.

    Elements are what an output is attributed to: the edges, and then the rows of attributed inputs.
    """

    offset: int  # the id of the first row
    size: int  # the number of rows
    child: Tensor  # positions in this block, one entry per row read
    parent: Tensor  # ids of the rows read
    sources: frozenset[int]  # the blocks that ``parent`` comes from
    # for masked messages the edge that each row crosses, for inputs the element that each row is (-1: none); else
    # ``None``
    element: Tensor | None = None
    crosses: bool = False  # whether the rows are masked messages
    # for masked messages the node that each is sent to, for sums of them the node that each row stands for; else
    # ``None``
    node: Tensor | None = None


class RowGraph:
    """The blocks of one forward pass, in the order in which they were made."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.num_rows = 0
        self.propagating = 0  # depth of nested `propagate` calls: sums inside of them stand for nodes
        self.by_values = False  # whether more than calls, sizes and indices has decided which rows are read
        self._full: dict[int, Tensor] = {}  # ids that are known to be rows, all of them, by their tensors' ids

    def is_full(self, ids: Tensor) -> bool:
        """Return whether all of these ids are known to be rows."""
        return self._full.get(id(ids)) is ids

    def _add(self, shape: torch.Size, block: Block, *, full: bool = False) -> tuple[Tensor, frozenset[int]]:
        """Add a block, and return the ids of its rows.

        Args:
            shape: The shape of the rows.
            block: The block.
            full: Whether edges are known to reach all of them.
        """
        self.blocks.append(block)
        self.num_rows += block.size
        ids = torch.arange(block.offset, self.num_rows, device=block.child.device)
        if not full:
            reached = torch.zeros_like(ids, dtype=torch.bool)
            reached[block.child] = True
            if block.element is not None:
                reached |= block.element >= 0
            full = bool(reached.all())
            ids = ids if full else ids.where(reached, NO_ROW)
        ids = ids.view(shape)
        if full:
            self._full[id(ids)] = ids
        return ids, frozenset({len(self.blocks) - 1})

    def inputs(self, elements: Tensor, dims: int) -> Rows:
        """Return the rows of an attributed input with one element per row and ``dims`` dimensions."""
        none = elements.new_empty(0)
        block = Block(self.num_rows, elements.numel(), none, none, frozenset(), elements)
        return Rows(*self._add(torch.Size([elements.numel()] + [1] * (dims - 1)), block), 1, 0, -1)

    def merge(self, traces: list[Rows], *, multiply: bool = False, constants: bool = False) -> Rows:
        """Return rows that read several tensors entry by entry.

        Args:
            traces: The rows that are read.
            multiply: Whether the tensors are multiplied, else added.
            constants: Whether constants are added as well.
        """
        combine = sum if multiply else max
        degree, gates = combine(r.degree for r in traces), combine(r.gates for r in traces)
        counts = [r.frozen for r in traces] + [0] * (constants and not multiply)
        frozen = -1 if multiply and -1 in counts else combine(counts)
        first, broken = traces[0], broken_of(traces)
        marks: frozenset[str] = frozenset().union(*(r.marks for r in traces))
        if all(_same(first.ids, other.ids) for other in traces[1:]):
            return first._replace(degree=degree, gates=gates, frozen=frozen, broken=broken, marks=marks)
        shape = _common_shape(*(r.ids for r in traces))
        sources: frozenset[int] = frozenset().union(*(r.sources for r in traces))
        parents = torch.cat([r.ids.expand(shape).reshape(-1) for r in traces])
        children = torch.arange(shape.numel(), device=parents.device).repeat(len(traces))
        full = all(self.is_full(r.ids) for r in traces)
        if not full:
            kept = parents >= 0
            children, parents = children[kept], parents[kept]
        block = Block(self.num_rows, shape.numel(), children, parents, sources)
        return Rows(*self._add(shape, block, full=full), degree, gates, frozen, broken, marks)

    def select(self, ids: Tensor, dim: int, index: Tensor) -> Tensor:
        """Return the ids at an index along a dimension."""
        selected = ids.index_select(dim, index)
        if self.is_full(ids):
            self._full[id(selected)] = selected
        return selected

    def reduce(self, rows: Rows, child: Tensor, shape: torch.Size, dim: int | None = None) -> Rows:
        """Return rows of ``shape`` of which number ``child[k]`` reads row k of ``rows``.

        Args:
            rows: The rows that are read.
            child: Where each of them goes.
            shape: The shape of the new rows.
            dim: The dimension along which rows were scattered, if they were.
        """
        full = self.is_full(rows.ids)
        common = _common_shape(rows.ids, child)
        ids, child = rows.ids.expand(common), child.expand(common)
        node = None
        if self.propagating and dim is not None:
            count = torch.arange(shape[dim], device=ids.device)
            node = count.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(shape).reshape(-1)
        kept = None if full else ids >= 0
        read = (child.reshape(-1), ids.reshape(-1)) if kept is None else (child[kept], ids[kept])
        block = Block(self.num_rows, shape.numel(), *read, rows.sources, node=node)
        ids, sources = self._add(shape, block)
        return rows._replace(ids=ids, sources=sources)

    def cross(self, rows: Rows | None, edges: Tensor, nodes: Tensor | None = None) -> Rows:
        """Return the rows of messages that have crossed ``edges`` (-1: none) to ``nodes``, shaped like the messages."""
        none, crossing = edges.new_empty(0), edges >= 0
        everywhere = bool(crossing.all())
        if rows is None:
            rows = Rows(edges.new_full([1] * edges.dim(), NO_ROW), frozenset(), 0, 0)
            before, child, parent = rows.ids, none, none
        elif everywhere and self.is_full(rows.ids):
            before = rows.ids.expand(_common_shape(rows.ids, edges))
            child, parent = torch.arange(before.numel(), device=edges.device), before.reshape(-1)
        else:
            before = rows.ids.expand(_common_shape(rows.ids, edges))
            child = torch.nonzero((crossing & (before >= 0)).reshape(-1)).view(-1)
            parent = before.reshape(-1)[child]
        edge = edges.expand(_common_shape(before, edges))
        node = None if nodes is None else nodes.expand(edge.shape).reshape(-1)
        block = Block(self.num_rows, edge.numel(), child, parent, rows.sources, edge.reshape(-1), True, node)
        ids, source = self._add(edge.shape, block, full=everywhere)
        if not everywhere:
            ids = ids.where(crossing, before)
        frozen = -1 if everywhere else rows.frozen
        marks = frozenset({"masked"})
        return Rows(ids, rows.sources | source, rows.degree + 1, rows.gates, frozen, None, marks)


def broken_of(traces: Iterable[Rows]) -> Broken | None:
    """Return why what is made of several tensors is no polynomial; it is a size if all of them are."""
    reasons = [each.broken for each in traces]
    found = [each for each in reasons if each is not None]
    if not found:
        return None
    worst = min(found, key=lambda each: each.scale)
    return worst if len(found) == len(reasons) else worst._replace(scale=False)


def _common_shape(*tensors: Tensor) -> torch.Size:
    """Return the shape to which tensors broadcast; torch's own function takes its time."""
    shape = tensors[0].shape
    return shape if all(t.shape == shape for t in tensors) else torch.broadcast_shapes(*(t.shape for t in tensors))


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and torch.equal(a, b))
