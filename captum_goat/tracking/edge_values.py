"""Messages without torch_geometric's hooks: values gathered at one end of edges and brought together at the other.

Values that are gathered from nodes by one end of the user's edges have one row per edge. That is followed through
operations that keep rows apart. What is scattered by the other end of the same edges, row by row, are messages. Other
sums over edges, such as degrees and the denominators of attention, are none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking.registry import MOVES, Call, aten, named, tensors_in
from captum_goat.tracking.row_graph import Edges, Trace, Traces, Unmasked

_SHAPES = named("view _unsafe_view reshape _reshape_alias expand unsqueeze squeeze transpose permute") | named(
    "clone alias detach _to_copy lift_fresh"
)
_PARTS = named("slice select split unsafe_split split_with_sizes unbind")
_REDUCES = named("sum mean amax amin prod linalg_vector_norm norm _softmax _log_softmax var std")
_NORMS = named("native_layer_norm native_batch_norm _native_batch_norm_legit_no_training")
_SUMS = named("scatter_add index_add scatter_reduce")
_DIVIDES = named("reciprocal rsqrt log")


class EdgeValues(NamedTuple):
    """Values with one row per edge along dimension 0, each computed from values of the same edge."""

    edges: Tensor | None  # the edge of each row (-1: none); ``None`` for values that mix edges
    ends: dict[int, Tensor]  # the nodes from which values were gathered, at sources (0) and at targets (1)


def ends_of_index(index: Any, trace: Trace | None) -> tuple[Tensor, dict[int, Tensor]] | None:
    """Return the edge of each entry of an index along dimension 0, and which end of it the entry is."""
    if not isinstance(index, Tensor) or not isinstance(trace, Edges) or trace.renumbered or index.dim() == 0:
        return None
    if index.dtype == torch.bool or index.layout != torch.strided or any(size != 1 for size in trace.ids.shape[1:]):
        return None
    nodes = index.flatten(1)[:, 0] if index.dim() > 1 and index.numel() else index.reshape(-1)
    if index.dim() > 1 and not torch.equal(index, nodes.view(-1, *[1] * (index.dim() - 1)).expand_as(index)):
        return None
    edges = trace.ids.reshape(-1).expand(len(nodes)).contiguous()
    known = edges >= 0
    at = [end for end in (0, 1) if torch.equal(nodes[known], trace.ends[end][edges[known]])]
    return (edges, dict.fromkeys(at, nodes)) if at else None


class HandMessages:
    """Follow values at edges outside of layers, in the calls that a tracker sees."""

    def __init__(self) -> None:
        self._values = Traces[EdgeValues]()
        self._sums = Traces[bool]()  # sums of messages, also gathered at edges again, with nothing else done to them
        self._any = False

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

    def edges_of(self, tensor: Tensor) -> Tensor | None:
        """Return the edge of each row of values at edges."""
        values = self._values.get(tensor)
        return None if values is None else values.edges

    def set_masked(self, tensor: Tensor) -> None:
        """Note that a tensor is masked messages, so that no mask enters what is made of it."""
        self._values.set(tensor, EdgeValues(None, {}))
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

    def _moved(self, call: Call, tensors: list[Tensor]) -> EdgeValues | None:
        """Return the trace of a result whose row k depends on row k of values at edges."""
        packet, args = call.operation.packet, call.args
        known = [(tensor, values) for tensor in tensors if (values := self._values.get(tensor)) is not None]
        sums_up = packet in _SUMS and isinstance(call.trace(args[2]), Edges)  # in attention; others are refused
        if not known or sums_up:
            return None
        (first, values), ends = known[0], dict[int, Tensor]()
        by_row = packet not in (aten.mm, aten.addmm) or (len(known) == 1 and first is args[packet is aten.addmm])
        for _, other in known:
            ends.update(other.ends)
            same = values.edges is not None and other.edges is not None and torch.equal(values.edges, other.edges)
            by_row &= same
        if not by_row or not _keeps_rows(call, [tensor for tensor, _ in known]):
            return EdgeValues(None, {})
        return EdgeValues(values.edges, ends)

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


def _gathered(call: Call, place: tuple[Tensor, dict[int, Tensor]]) -> EdgeValues | None:
    """Return the trace of what is gathered; degrees and the like are no values of nodes."""
    table = call.trace(call.args[0])
    structure = isinstance(table, Unmasked) and table.kind == "structure"
    return None if isinstance(table, Edges) else EdgeValues(place[0], {} if structure else place[1])


def _keeps_rows(call: Call, values: list[Tensor]) -> bool:
    """Return whether row k of the result of a call depends on row k of the values, but on no other row of them."""
    packet, args, out, value = call.operation.packet, call.args, call.out, values[0]
    outs = tensors_in([out])
    size = value.size(0)
    same = all(tensor.dim() > 0 and tensor.size(0) == size for tensor in outs[:1])
    if call.operation.pointwise:
        return same and all(tensor.dim() == out.dim() and tensor.size(0) == size for tensor in values)
    if packet is aten.cat:
        return bool(call.argument(1, "dim", 0) % out.dim() != 0)
    if packet in (aten.mm, aten.addmm, aten.bmm):
        return same
    if packet in (aten.transpose, aten.permute):
        dims = [d % value.dim() for d in (args[1] if packet is aten.permute else args[1:3])]
        return dims[0] == 0 if packet is aten.permute else 0 not in dims
    if packet in (aten.expand, aten.squeeze, aten.unsqueeze):
        first = out.dim() == value.dim() if packet is aten.expand else True
        if packet is aten.unsqueeze:
            first = args[1] % out.dim() != 0
        return same and first and (size > 1 or packet is not aten.squeeze)
    if packet in _SHAPES:
        return same
    if packet in _PARTS:
        dim = call.argument(2 if "split" in packet.__name__ else 1, "dim", 0)
        return dim % value.dim() != 0 or (packet is aten.slice and same and call.argument(4, "step", 1) == 1)
    if packet in _REDUCES:
        dims = call.argument(2 if "norm" in packet.__name__ else 1, "dim")
        dims = [dims] if isinstance(dims, int) else list(dims or [])
        return same and bool(dims) and all(isinstance(d, int) and d % value.dim() != 0 for d in dims)
    if packet is aten.native_batch_norm:
        return not args[5] and value is args[0]
    return packet in _NORMS and value is args[0] and value.dim() > 1
