"""Which rows read which rows, and which edges they cross, in one forward pass.

A *row* is what one slice of a tensor stands for: a message, a node, a graph. An operation that mixes rows makes a
:class:`Block` of new ones. The blocks form the row graph, from which :mod:`captum_goat.fields.receptive_field` reads
the edges that reach each gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar
from weakref import ref

import torch
from torch import Tensor

NO_ROW = -1


class Edges(NamedTuple):
    """The trace of an integer tensor made of columns of the user's ``edge_index``."""

    ids: Tensor  # the edge of each column (-1: none), broadcastable to the tensor
    ends: Tensor  # the user's edges, ``[2, E]``: source and target of each
    renumbered: bool = False  # whether nodes have other numbers than in the user's edges


class Pointer(NamedTuple):
    """The trace of the row pointers of a sparse matrix, or of the numbers of entries in its rows."""

    edges: Edges  # the edges of all entries


class Broken(NamedTuple):
    """Why a tensor is not a polynomial of the variables."""

    operation: str  # the first nonlinear operation
    place: str  # the module in which it ran
    call: int | None = None  # the number of its call, if it can be a polynomial with a frozen factor


class Rows(NamedTuple):
    """The trace of a tensor that depends on the edges."""

    # the row of each entry (-1: no edge reaches it), broadcastable to the tensor: the entries along a dimension of
    # size one, the channels, belong to the same row
    ids: Tensor
    sources: frozenset[int]  # the blocks that the ids come from
    degree: int  # the largest number of variable factors (edges and gates) in a scalar product
    gates: int  # the largest number of gates alone in a scalar product
    # the largest number of frozen factors (scales, winners, attention) in a scalar product without variables; -1 if
    # every product has a variable
    frozen: int = 0
    broken: Broken | None = None  # why the tensor is not a polynomial; ``None`` if it is one
    marks: frozenset[str] = frozenset()  # the kinds of message passing in it, see :mod:`captum_goat.tracking.unseen`

    @classmethod
    def joined(cls, rows: Sequence[Rows], ids: Tensor, *, constants: bool) -> Rows:
        """Return rows with ids that come entry by entry from one of several tensors, or from ``constants`` too."""
        sources: frozenset[int] = frozenset().union(*(r.sources for r in rows))
        marks: frozenset[str] = frozenset().union(*(r.marks for r in rows))
        frozen = max([r.frozen for r in rows] + [0] * constants)
        degree, gates = max(r.degree for r in rows), max(r.gates for r in rows)
        return cls(ids, sources, degree, gates, frozen, broken_of(rows), marks)


class Unsupported(NamedTuple):
    """The trace of a result whose rows are unknown."""

    operation: str  # the operation that made it
    place: str  # the module in which it ran
    by_hand: bool = False  # whether it is message passing outside of a layer


class Unmasked(NamedTuple):
    """The trace of constants that were computed with the edges."""

    # "gathered" from nodes at the edges, "summed" over the edges after that, "structure" made of the edges themselves,
    # "masked" messages, or what was "delivered" by masked messages outside of layers
    kind: str
    operation: str  # the operation that made them
    layer: str = ""  # the layer in which they were summed


Trace = Edges | Pointer | Rows | Unsupported | Unmasked
_Entry = TypeVar("_Entry")


class Traces(Generic[_Entry]):
    """A dictionary from tensors to traces that does not keep the tensors alive.

    It is read for every argument of every operation; torch's ``WeakTensorKeyDictionary`` is too slow for that. The
    trace of a dead tensor stays, under an id that another tensor may get; the weak reference tells the two apart.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Tensor], _Entry]] = {}

    def get(self, tensor: Tensor) -> _Entry | None:
        """Return the trace of a tensor, if it has one."""
        entry = self._entries.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def set(self, tensor: Tensor, trace: _Entry | None) -> None:
        """Set the trace of a tensor; ``None`` removes it."""
        if trace is None:
            self._entries.pop(id(tensor), None)
        else:
            self._entries[id(tensor)] = ref(tensor), trace

    def views(self) -> Iterator[Tensor]:
        """Return the tensors that are views."""
        for reference, _ in list(self._entries.values()):
            if (tensor := reference()) is not None and tensor._is_view():
                yield tensor


class Block(NamedTuple):
    """Rows made by one operation.

    Elements are what an output is attributed to: the edges, and then the rows of attributed inputs.
    """

    offset: int  # the id of the first row
    size: int  # the number of rows
    child: Tensor  # positions in this block, one entry per row read
    parent: Tensor  # ids of the rows read
    sources: frozenset[int]  # the blocks that ``parent`` comes from
    element: Tensor | None = None  # the edge that each masked message crosses, or the element of each input (-1: none)
    crosses: bool = False  # whether the rows are masked messages
    # the node that each masked message is sent to, or that each sum of them stands for, if that is asked for
    node: Tensor | None = None


class RowGraph:
    """The blocks of one forward pass, in the order in which they were made."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.num_rows = 0
        self.by_node = True  # whether blocks say which nodes their rows stand for
        self.propagating = 0  # depth of nested `propagate` calls: sums inside of them stand for nodes
        self.first_node = 0  # the row of the first node to which messages are passed, among the nodes of all types
        self.renumbered = False  # whether messages were passed between nodes with other numbers than the user's
        self.by_values = False  # whether values of tensors that are no indices have decided which rows are read
        # which edges reach each row, as ones, ``[rows + 1, E]``; the last row is 0. If it is known there are no blocks
        self.reach: Tensor | None = None
        self._full: dict[int, Tensor] = {}  # tensors of ids without any -1, by the id() of the tensor

    def is_full(self, ids: Tensor) -> bool:
        """Return whether it is known that all ids are rows, none is -1."""
        return self._full.get(id(ids)) is ids

    def _add(self, shape: torch.Size, block: Block, *, full: bool = False) -> tuple[Tensor, frozenset[int]]:
        """Add a block, and return the ids of its rows; ``full`` if edges are known to reach all of them."""
        self.blocks.append(block)
        self.num_rows += block.size
        ids = torch.arange(block.offset, self.num_rows, device=block.child.device)
        if not full:
            reached = torch.zeros_like(ids, dtype=torch.bool).index_fill_(0, block.child, True)
            if block.element is not None:
                reached |= block.element >= 0
            full = bool(reached.all())
            ids = ids if full else ids.where(reached, NO_ROW)
        ids = ids.view(shape)
        if full:
            self._full[id(ids)] = ids
        return ids, frozenset({len(self.blocks) - 1})

    def read_for(self, blocks: Iterable[int]) -> list[int]:
        """Return the numbers of blocks and of all blocks that they read, in order: a block reads those before it."""
        found, waiting = set[int](), [*blocks]
        while waiting:
            if (number := waiting.pop()) not in found:
                found.add(number)
                waiting += self.blocks[number].sources
        return sorted(found)

    def read_by(self, block: Block) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Yield the rows of a block that read one of its sources, the rows of that which they read, and its number."""
        for source in block.sources:
            read = self.blocks[source]
            parent = block.parent - read.offset
            if len(block.sources) == 1:
                yield block.child, parent, source
            else:
                here = (parent >= 0) & (parent < read.size)
                yield block.child[here], parent[here], source

    def inputs(self, elements: Tensor, dims: int) -> Rows:
        """Return the rows of an attributed input with one element per row and ``dims`` dimensions."""
        none = elements.new_empty(0)
        block = Block(self.num_rows, elements.numel(), none, none, frozenset(), elements)
        return Rows(*self._add(torch.Size([elements.numel()] + [1] * (dims - 1)), block), 1, 0, -1)

    def merge(self, traces: list[Rows], *, multiply: bool = False, constants: bool = False) -> Rows:
        """Return the rows of the sum, or product, of tensors and maybe of constants, entry by entry."""
        if len(traces) == 1:
            first = traces[0]
            return first if multiply or not constants or first.frozen >= 0 else first._replace(frozen=0)
        combine = sum if multiply else max
        degree, gates = combine([r.degree for r in traces]), combine([r.gates for r in traces])
        counts = [r.frozen for r in traces] + [0] * (constants and not multiply)
        frozen = -1 if multiply and -1 in counts else combine(counts)
        first, broken = traces[0], broken_of(traces)
        marks: frozenset[str] = frozenset().union(*[r.marks for r in traces])
        if all(_same(first.ids, other.ids) for other in traces[1:]):
            return first._replace(degree=degree, gates=gates, frozen=frozen, broken=broken, marks=marks)
        shape = _common_shape(*(r.ids for r in traces))
        sources: frozenset[int] = frozenset().union(*(r.sources for r in traces))
        parents = torch.cat([r.ids.expand(shape).reshape(-1) for r in traces])
        full = all(self.is_full(r.ids) for r in traces)
        if full:
            children = torch.arange(shape.numel(), device=parents.device).repeat(len(traces))
        else:
            kept = torch.nonzero(parents >= 0).view(-1)
            children, parents = kept % max(shape.numel(), 1), parents.index_select(0, kept)
        block = Block(self.num_rows, shape.numel(), children, parents, sources)
        return Rows(*self._add(shape, block, full=full), degree, gates, frozen, broken, marks)

    def select(self, ids: Tensor, dim: int, index: Tensor) -> Tensor:
        """Return the ids at an index along a dimension."""
        selected = ids.index_select(dim, index)
        if self.is_full(ids):
            self._full[id(selected)] = selected
        return selected

    def reduce(self, rows: Rows, child: Tensor, shape: torch.Size, dim: int | None = None) -> Rows:
        """Return rows of ``shape`` of which number ``child[k]`` reads row k; scattered along ``dim``, if given."""
        full = self.is_full(rows.ids)
        common = _common_shape(rows.ids, child)
        ids, child = rows.ids.expand(common), child.expand(common)
        node = None
        if self.by_node and self.propagating and dim is not None:
            count = torch.arange(shape[dim], device=ids.device) + self.first_node
            node = count.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(shape).reshape(-1)
        child, parent = child.reshape(-1), ids.reshape(-1)
        if not full:
            kept = torch.nonzero(parent >= 0).view(-1)
            child, parent = child.index_select(0, kept), parent.index_select(0, kept)
        ids, sources = self._add(shape, Block(self.num_rows, shape.numel(), child, parent, rows.sources, node=node))
        return rows._replace(ids=ids, sources=sources)

    def cross(self, rows: Rows | None, edges: Tensor, nodes: Tensor | None = None) -> Rows:
        """Return the rows of messages that have crossed ``edges`` (-1: none) to ``nodes``, shaped like the messages."""
        crossing = edges >= 0
        everywhere = self.is_full(edges) or bool(crossing.all())
        if everywhere:
            self._full[id(edges)] = edges
        if rows is None:
            rows = Rows(torch.full_like(edges, NO_ROW), frozenset(), 0, 0)
            before, child, parent = rows.ids, edges.new_empty(0), edges.new_empty(0)
        elif everywhere and self.is_full(rows.ids):
            before = rows.ids.expand(_common_shape(rows.ids, edges))
            child, parent = torch.arange(before.numel(), device=edges.device), before.reshape(-1)
        else:
            before = rows.ids.expand(_common_shape(rows.ids, edges))
            child = torch.nonzero((crossing & (before >= 0)).reshape(-1)).view(-1)
            parent = before.reshape(-1).index_select(0, child)
        edge = edges.expand(_common_shape(before, edges))
        node = None if nodes is None else nodes.expand(edge.shape).reshape(-1)
        block = Block(self.num_rows, edge.numel(), child, parent, rows.sources, edge.reshape(-1), True, node)
        ids, source = self._add(edge.shape, block, full=everywhere)
        if not everywhere:
            ids = ids.where(crossing, before)
        frozen = -1 if everywhere else rows.frozen
        return Rows(ids, rows.sources | source, rows.degree + 1, rows.gates, frozen, None, frozenset({"masked"}))


def broken_of(traces: Iterable[Rows]) -> Broken | None:
    """Return why a result of several tensors is not a polynomial; first what may be one with a frozen factor."""
    reasons = [rows.broken for rows in traces if rows.broken is not None]
    return next((reason for reason in reasons if reason.call is not None), reasons[0] if reasons else None)


def _common_shape(*tensors: Tensor) -> torch.Size:
    """Return the shape to which tensors broadcast; ``torch.broadcast_shapes`` is slow."""
    shape = tensors[0].shape
    return shape if all(t.shape == shape for t in tensors) else torch.broadcast_shapes(*(t.shape for t in tensors))


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and torch.equal(a, b))


def with_dims(ids: Tensor, dims: int) -> Tensor:
    """Return ids with the leading dimensions of size one that broadcasting adds; the same tensor if it has them."""
    missing = dims - ids.dim()
    return ids.view([1] * missing + list(ids.shape)) if missing else ids


def indexed_shape(small: Sequence[int], full: Sequence[int], indices: Sequence[Tensor | None]) -> torch.Size:
    """Return ``small`` with the full size in every dimension that is indexed."""
    shape, dim = list(small), 0
    for index in indices:
        spans = 1
        if index is not None:
            spans = index.dim() if index.dtype in (torch.bool, torch.uint8) else 1
            shape[dim : dim + spans] = full[dim : dim + spans]
        dim += spans
    return torch.Size(shape)


def shrink_index(index: Tensor, dim: int, ids: Tensor) -> Tensor:
    """Return the index of a gather or scatter without the channels to which it was expanded."""
    for d in range(index.dim()):
        if d != dim % index.dim() and ids.size(d) == 1 and index.size(d) > 1 and index.stride(d) == 0:
            index = index.narrow(d, 0, 1)
    return index
