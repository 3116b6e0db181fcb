"""Messages without torch_geometric's hooks: values gathered at one end of edges and brought together at the other.

Values that are gathered from nodes by one end of the user's edges have one row per edge. That is followed through
operations that keep rows apart. What is scattered by the other end of the same edges, row by row, are messages. Other
sums over edges, such as degrees and the denominators of attention, are none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking.linear import dependence
from captum_goat.tracking.registry import MOVES, Call, aten, named, tensors_in
from captum_goat.tracking.row_graph import Edges, RowGraph, Rows, Trace, Traces, Unmasked

_SUMS = named("scatter_add index_add scatter_reduce")
_DIVIDES = named("reciprocal rsqrt log")


class ValuesAtEdges(NamedTuple):
    """Values with one row per edge along dimension 0, each computed from values of the same edge."""

    edges: Tensor | None  # the edge of each row (-1: none); ``None`` for values that mix edges
    ends: dict[int, Tensor]  # the nodes from which values were gathered, at sources (0) and at targets (1)
    pair: tuple[Tensor, ...] = ()  # the two edges of each row, if there are two


def ends_of_index(index: Any, trace: Trace | None) -> tuple[Tensor, dict[int, Tensor]] | None:
    """Return the edge of each entry of an index along dimension 0, and which end of it the entry is."""
    if not isinstance(index, Tensor) or not isinstance(trace, Edges) or trace.renumbered or index.dim() == 0:
        return None
    if index.dtype == torch.bool or index.layout != torch.strided or any(size != 1 for size in trace.ids.shape[1:]):
        return None
    nodes = _by_rows(index)
    if nodes is None:
        return None
    edges = trace.ids.reshape(-1).expand(len(nodes)).contiguous()
    known = edges >= 0
    at = [end for end in (0, 1) if torch.equal(nodes[known], trace.ends[end][edges[known]])]
    return (edges, dict.fromkeys(at, nodes)) if at else None


def _by_rows(index: Tensor) -> Tensor | None:
    """Return the entry of an index for each row; ``None`` if a row has several."""
    rows = index.flatten(1)[:, 0] if index.dim() > 1 and index.numel() else index.reshape(-1)
    same = index.dim() == 1 or torch.equal(index, rows.view(-1, *[1] * (index.dim() - 1)).expand_as(index))
    return rows if same else None


class HandMessages:
    """Follow values at edges outside of layers, in the calls that a tracker sees."""

    def __init__(self) -> None:
        self._values = Traces[ValuesAtEdges]()
        self._sums = Traces[bool]()  # sums of messages, also gathered at edges again, with nothing else done to them
        self._any = False
        self.ends = torch.empty(2, 0, dtype=torch.long)  # of the edges of all sets
        self.sets: list[range] = []  # the edges of each set

    def found(self, source: Any, index: Any, trace: Trace | None) -> tuple[Tensor, Tensor] | None:
        """Return the edges of messages and the nodes that they are scattered to; ``None`` if they are no messages."""
        values, place = self._values.get(source), ends_of_index(index, trace)
        if values is None or values.edges is None or place is None or not torch.equal(values.edges, place[0]):
            return None
        edges, ends = place
        for end, nodes in ends.items():
            gathered = values.ends.get(1 - end)
            if gathered is not None and torch.equal(gathered[edges < 0], nodes[edges < 0]):  # the model's own loops
                return edges, nodes
        return None

    def passed_on(self, source: Any, index: Any, into: Any) -> tuple[Tensor, Tensor, range] | None:
        """Return the edges of messages that go to the edges behind them, and these, and all edges of their set.

        Each row of the result stands for an edge, and each message goes to an edge that begins where its own ends.
        """
        values, local = self._values.get(source), _by_rows(index) if isinstance(index, Tensor) else None
        if values is None or local is None or not isinstance(into, Tensor) or into.dim() == 0:
            return None
        pair = values.pair if values.edges is None else (values.edges,) if 0 in values.ends else ()
        for edge_set in (one for one in self.sets if len(one) == into.size(0)):
            places = local + edge_set.start
            before = [edges for edges in pair if not torch.equal(edges, places)]  # the others are where they go
            if len(before) == 1 and bool(((before[0] >= edge_set.start) & (before[0] < edge_set.stop)).all()):
                behind = torch.equal(self.ends[0][places], self.ends[1][before[0]])
                return (before[0], places, edge_set) if behind else None
        return None

    def set_passed_on(self, edge_set: range, tensor: Tensor) -> None:
        """Note that a tensor is the sums of messages that go to the edges of a set, in their order."""
        edges = torch.arange(edge_set.start, edge_set.stop, device=self.ends.device)
        self._values.set(tensor, ValuesAtEdges(edges, {end: nodes[edges] for end, nodes in enumerate(self.ends)}))

    def edges_of(self, tensor: Tensor) -> Tensor | None:
        """Return the edge of each row of values at edges."""
        values = self._values.get(tensor)
        return None if values is None else values.edges

    def set_masked(self, tensor: Tensor) -> None:
        """Note that a tensor is masked messages, so that no mask enters what is made of it."""
        self._values.set(tensor, ValuesAtEdges(None, {}))
        self._any = True

    def set_sum(self, tensor: Tensor) -> None:
        """Note that a tensor is a sum of messages."""
        self._sums.set(tensor, True)
        self._any = True

    def see(self, call: Call) -> str | None:
        """Follow one call; return what it does if that is no message passing that can be masked."""
        packet, out = call.operation.packet, call.out
        index = _index_of(call)
        place = None if index is None else ends_of_index(index, call.trace(index))
        if place is None and not self._any:
            return None
        self._any = True
        tensors = tensors_in((*call.args, *call.kwargs.values()))
        if self._divides(call, tensors):
            return f"{packet.__name__} by a sum over the edges"
        passes_on = call.operation.pointwise or packet in MOVES or packet is aten.cat
        sums = passes_on and any(self._sums.get(tensor) for tensor in tensors)
        values = self._moved(call, tensors)
        if values is None and place is not None:
            values = _gathered(call, place)
        if call.operation.mutable:
            self._forget(out, whole=call.operation.pointwise)
        for tensor in tensors_in([out]):
            self._values.set(tensor, values if tensor.is_floating_point() else None)
            self._sums.set(tensor, True if sums else None)
        return None

    def _divides(self, call: Call, tensors: list[Tensor]) -> bool:
        """Return whether sums normalise something, as those of a softmax by hand do: they are no messages."""
        packet, arguments = call.operation.packet, call.args
        if packet in (aten.div, aten.div_):
            return len(arguments) > 1 and isinstance(arguments[1], Tensor) and bool(self._sums.get(arguments[1]))
        if packet in (aten.pow, aten.pow_):
            power = arguments[1]
            return bool(isinstance(power, int | float) and power < 1 and self._sums.get(arguments[0]))
        at_edges = packet in (aten.exp, aten.exp_) and self._values.get(arguments[0]) is not None
        return (packet in _DIVIDES or at_edges) and any(self._sums.get(tensor) for tensor in tensors)

    def _moved(self, call: Call, tensors: list[Tensor]) -> ValuesAtEdges | None:
        """Return the trace of a result whose row k depends on row k of values at edges."""
        packet, args = call.operation.packet, call.args
        known = [(tensor, values) for tensor in tensors if (values := self._values.get(tensor)) is not None]
        sums_up = packet in _SUMS and isinstance(call.trace(args[2]), Edges)  # in attention; others are refused
        if not known or sums_up:
            return None
        (first, values), ends, edges = known[0], dict[int, Tensor](), list[Tensor]()
        by_row = True
        for _, other in known:
            ends.update(other.ends)
            own = other.pair if other.edges is None else (other.edges,)
            edges += [ids for ids in own if not any(torch.equal(ids, before) for before in edges)]
            by_row &= bool(own)
        index = _index_of(call)
        if by_row and index is not None and index.dim() == 1 and first is args[0] and values.edges is not None:
            return ValuesAtEdges(values.edges[index], {end: nodes[index] for end, nodes in values.ends.items()})
        if not by_row or len(edges) > 2 or not _keeps_rows(call, [tensor for tensor, _ in known], len(edges[0])):
            return ValuesAtEdges(None, {})
        return ValuesAtEdges(edges[0], ends) if len(edges) == 1 else ValuesAtEdges(None, {}, tuple(edges))

    def _forget(self, out: Any, *, whole: bool) -> None:
        """Forget what was known of a tensor that was written to, and of what shares its values."""
        for written in tensors_in([out]):
            if whole and written._base is None:
                continue
            root = written if written._base is None else written._base
            for tensor in (root, *(view for view in self._values.views() if view._base is root)):
                self._values.set(tensor, None)


def _index_of(call: Call) -> Tensor | None:
    """Return the index by which rows are gathered, along dimension 0."""
    packet, args = call.operation.packet, call.args
    if packet is aten.index and len(args[1]) == 1:
        index = args[1][0]
        return index if index is not None and index.dim() == 1 else None
    if packet in (aten.index_select, aten.gather) and len(args) > 2 and args[1] in (0, -args[0].dim()):
        return args[2]  # type: ignore[no-any-return]
    return None


def _gathered(call: Call, place: tuple[Tensor, dict[int, Tensor]]) -> ValuesAtEdges | None:
    """Return the trace of what is gathered; degrees and the like are no values of nodes."""
    table = call.trace(call.args[0])
    structure = isinstance(table, Unmasked) and table.kind == "structure"
    return None if isinstance(table, Edges) else ValuesAtEdges(place[0], {} if structure else place[1])


def _rows_along(tensor: Tensor, count: int) -> int | None:
    """Return the dimension of the rows: 0, or for a while 1 in products of several dimensions, as of ``einsum``."""
    if tensor.dim() and tensor.size(0) == count:
        return 0
    return 1 if tensor.dim() > 1 and tensor.size(0) == 1 and tensor.size(1) == count else None


def _keeps_rows(call: Call, values: list[Tensor], count: int) -> bool:
    """Return whether row k of the result of a call depends on row k of the values, but on no other row of them.

    The rules tell, given rows of which each has a number of its own.
    """
    numbers = torch.arange(count, device=values[0].device)
    known: dict[int, Rows] = {}
    for value in values:
        if (dim := _rows_along(value, count)) is None:
            return False
        known[id(value)] = Rows(numbers.view([-1 if d == dim else 1 for d in range(value.dim())]), frozenset(), 0, 0)
    if call.operation.packet is aten.linalg_cross:  # of angles
        return bool(call.out.size(0) == count and call.argument(2, "dim", -1) % call.out.dim() != 0)
    numbered = call._replace(graph=RowGraph(), trace=lambda value: known.get(id(value)))
    result = dependence(numbered)
    results, outs = result if isinstance(result, list) else [result], tensors_in([call.out])
    for rows, out in zip(results, outs, strict=False):
        if not isinstance(rows, Rows):
            return rows is None and out is not outs[0]
        dim = _rows_along(out, count)
        if dim is None or rows.ids.dim() <= dim or rows.ids.size(dim) != count:
            return False
        column = numbers.view([-1 if d == dim else 1 for d in range(rows.ids.dim())])
        if not ((rows.ids == column) | (rows.ids < 0)).all():
            return False
    return bool(outs)
