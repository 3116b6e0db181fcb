"""Find message passing outside of torch_geometric's layers where edges cannot be masked, so that it is refused.

Code that passes messages by hand gathers values of nodes at the edges and sums them at nodes, or multiplies by a matrix
that it made of the edges. The mask enters what :mod:`captum_goat.tracking.edge_values` knows as messages; the rest is
refused. So values that are gathered, summed or made of edges are marked: in :attr:`Rows.marks` if
variables reach them, else as :class:`Unmasked`. Sums over edges that are gathered at the edges again are harmless:
degree normalisation and softmax do that. ``layer`` returns the name of the message passing layer that is running.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.utils import loop, softmax

from captum_goat.tracking.registry import RULES, Call, Result, aten, named, tensors_in
from captum_goat.tracking.row_graph import Edges, Rows, Trace, Unmasked

GATHERED, SUMMED, STRUCTURE, MASKED = "gathered", "summed", "structure", "masked"
DELIVERED = "delivered"
BY_RULE = Unmasked("", "")
# Functions of torch_geometric that sum over edges, but pass no messages: features of self-loops, and attention.
_NORMALISE = frozenset(inspect.unwrap(function).__code__ for function in (loop.compute_loop_attr, softmax))
_Layer = Callable[[], str]

_PUTS = named("index_put")
_BY_LISTS = named("index index_put")
_SUMS = named("scatter_add index_add scatter_reduce")
_SCATTERS = _PUTS | _SUMS | named("scatter index_copy")
_GATHERS = named("index index_select gather")
_MULTIPLIES = named("mm bmm addmm baddbmm mv _sparse_mm _sparse_addmm _linalg_solve_ex linalg_solve_triangular")
_LOOKS_UP = named("_scaled_dot_product_flash_attention_for_cpu _embedding_bag _embedding_bag_forward_only")
_REDUCES = named("sum mean amax amin max min prod cumsum segment_reduce")
_MASKS = named("mul where masked_fill")
_JOINS = named("add sub cat stack")
_MASKS_OR_ADDS = _MASKS | named("add sub")
_STORES = named("indices _indices col_indices crow_indices values _values _coalesced _coalesce") | named(
    "sparse_compressed_tensor _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors"
)


def misuse(call: Call, layer: _Layer) -> str | None:
    """Return what a call does that only a layer should do; ``None`` if nothing."""
    packet = call.operation.packet
    by_matrix = (packet in _MULTIPLIES or packet in _LOOKS_UP) and _multiplies_edges(call)
    if by_matrix or (packet in _MASKS_OR_ADDS and _masks_by_edges(call) and not layer()):
        return f"{packet.__name__} with a matrix that is made of the edges"
    by_index = packet in _SCATTERS and _is_at_edges(call) and _sums_by_hand(call, layer())
    if by_index and _normalises():
        return None
    if packet in _SCATTERS and not call.graph.propagating and _is_at_edges(call) and _sums_features(call, layer):
        return f"{packet.__name__} of features of edges alone"
    if by_index or (packet in _REDUCES and not call.graph.propagating and _reduces_edges(call) and not layer()):
        return f"{packet.__name__} over the edges outside of message passing"
    return None


def delivers(call: Call) -> bool:
    """Return whether messages that are masked already are brought together at the ends of edges."""
    return call.operation.packet in _SCATTERS and is_masked(call.trace(_source(call))) and _is_at_edges(call)


def is_masked(trace: Trace | None) -> bool:
    """Return whether values are masked messages, to which nothing was added that was gathered at edges."""
    if isinstance(trace, Rows):
        return MASKED in trace.marks and GATHERED not in trace.marks
    return isinstance(trace, Unmasked) and trace.kind == MASKED


def _normalises() -> bool:
    """Return whether torch_geometric computes features of self-loops or attention, as layers let it do."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code not in _NORMALISE:
        frame = frame.f_back
    return frame is not None


def _multiplies_edges(call: Call) -> bool:
    tensors = _tensors(call)
    for number, tensor in enumerate(tensors):
        if all(other is tensor or _is_parameter(other) for other in tensors):
            continue
        kind, inside = _kind(call, tensor), tensor.dim() == 3 and call.graph.propagating  # one product per edge
        sums = number == len(tensors) - 1 and call.operation.packet in _MULTIPLIES and not inside  # over its rows
        if kind in ("edges", STRUCTURE) or (sums and kind == GATHERED):
            return True
    return False


def _masks_by_edges(call: Call) -> bool:
    """Return whether values of nodes are selected or weighted by a matrix whose rows and columns are nodes."""
    tensors = _tensors(call)
    if not any(_kind(call, tensor) in ("edges", STRUCTURE) and _is_matrix(tensor) for tensor in tensors):
        return False
    traces = [(tensor, call.trace(tensor)) for tensor in tensors]
    unknown = [tensor for tensor, trace in traces if trace is None or _kind(call, tensor) == DELIVERED]
    plain = [tensor for tensor in unknown if not _is_parameter(tensor)]
    masks = call.operation.packet in _MASKS
    return any(isinstance(trace, Rows) for _, trace in traces) or (masks and any(map(_is_matrix, plain)))


def _sums_by_hand(call: Call, layer: str) -> bool:
    source, trace = _source(call), call.trace(_source(call))
    if not _sums_up(call):
        return False
    if isinstance(trace, Unmasked):
        return trace.kind == GATHERED and not call.graph.propagating and not layer
    if not isinstance(trace, Rows) or trace.broken is not None:
        return False
    if call.graph.propagating:
        return MASKED not in trace.marks and source.dim() > 1
    return not (source.dim() == 1 and layer)


def _sums_features(call: Call, layer: _Layer) -> bool:
    """Return whether constants of edges are summed that are no weights: with several features, not all the same."""
    source = _source(call)
    if not isinstance(source, Tensor) or source.dim() < 2 or call.trace(source) is not None or not _sums_up(call):
        return False
    rows = source.flatten(1)
    return source.is_floating_point() and not torch.equal(rows, rows[:, :1].expand_as(rows)) and not layer()


def _sums_up(call: Call) -> bool:
    """Return whether a scatter adds to the values that are there, else it replaces them."""
    packet = call.operation.packet
    return bool(call.argument(3, "accumulate", False)) if packet in _PUTS else packet in _SUMS


def _source(call: Call) -> Any:
    return next(iter(call.args[2 if call.operation.packet in _PUTS else 3 :]), None)


def _reduces_edges(call: Call) -> bool:
    value = call.args[0]
    if not isinstance(value, Tensor) or value.dim() < 2 or _kind(call, value) != GATHERED:
        return False
    dims = call.argument(1, "dim")
    dims = [0] if isinstance(dims, str) else [dims] if isinstance(dims, int) else list(dims or range(value.dim()))
    trace = call.trace(value)
    if isinstance(trace, Rows):
        return trace.broken is None and any(trace.ids.size(d) != 1 for d in dims)
    return any(d % value.dim() == 0 for d in dims)


def infer(call: Call, layer: _Layer) -> Unmasked | Edges | None:
    """Return the trace of a result that no variable reaches; :data:`BY_RULE` if the rules for edges apply."""
    packet, out = call.operation.packet, call.out
    kinds = {_kind(call, tensor) for tensor in _tensors(call)}
    at_edges = packet in _GATHERS | _SCATTERS and _is_at_edges(call)
    if kinds <= {DELIVERED, STRUCTURE, None} and DELIVERED in kinds and not at_edges:  # maybe a mean, by degrees
        return Unmasked(DELIVERED, packet.__name__)
    kind: str | None = None  # also of a table of constants that is looked up, and of degrees times parameters
    if packet in _STORES and "edges" in kinds:
        return BY_RULE
    if packet in _GATHERS and at_edges:
        if isinstance(call.trace(call.args[0]), Edges):
            return BY_RULE
        if (edges := _renumbered(call)) is not None:
            return edges
        foreign = _kind(call, call.args[0]) == SUMMED and layer() not in _layers(call)
        kind = (SUMMED if foreign else GATHERED) if out.is_floating_point() else None
    elif packet in _SCATTERS and at_edges:
        kind = _kind(call, _source(call))
        if kind not in (GATHERED, SUMMED):
            kind = None if call.graph.propagating else STRUCTURE
        elif _sums_up(call):
            kind = SUMMED
    elif (packet in _GATHERS and call.trace(call.args[0]) is None) or (
        packet in _MULTIPLIES and kinds <= {STRUCTURE, None} and None in kinds
    ):
        return None
    elif kinds & {MASKED, SUMMED, GATHERED, STRUCTURE}:
        kind = next(known for known in (MASKED, SUMMED, GATHERED, STRUCTURE) if known in kinds)
        if _joins_messages(call, kinds):
            kind = GATHERED
    elif packet in RULES or call.operation.pointwise or not isinstance(out, Tensor):
        return BY_RULE
    else:
        kind = STRUCTURE
    if kind is None:
        return None
    return Unmasked(kind, packet.__name__, [*_layers(call), layer()][0] if kind == SUMMED else "")


def _renumbered(call: Call) -> Edges | None:
    """Return the edges of a table of integers that is looked up at the ends of edges: their nodes get new numbers."""
    table, out, (index, *others) = call.args[0], call.out, _indices(call)
    if others or table.is_floating_point() or table.dtype == torch.bool or table.dim() != 1:
        return None
    trace = call.trace(index)
    if not isinstance(trace, Edges) or index.shape != out.shape or index.dtype == torch.bool:
        return None
    call.graph.by_values = True
    return trace._replace(renumbered=trace.renumbered or not torch.equal(out, index))


def _indices(call: Call) -> list[Tensor]:
    """Return where a call reads or writes."""
    return tensors_in(call.args[1:2] if call.operation.packet in _BY_LISTS else call.args[2:3])


def _is_at_edges(call: Call) -> bool:
    """Return whether an index is made of edges; boolean masks only leave out some of those that are read."""
    writes = call.operation.packet in _SCATTERS
    return any(isinstance(call.trace(i), Edges) and (writes or i.dtype != torch.bool) for i in _indices(call))


def marked(call: Call, result: Result, layer: _Layer) -> Result:
    """Return the rows that a call returns with the marks that it leaves on them."""
    packet = call.operation.packet
    if not isinstance(result, Rows):
        return result
    if packet in _GATHERS and _is_at_edges(call):
        here = {SUMMED + layer()} if is_summed(result) else set()
        return result._replace(marks=result.marks - here - {MASKED} | {GATHERED})
    if packet in _SCATTERS and _sums_up(call) and _is_at_edges(call):
        sums = not call.graph.propagating or MASKED not in result.marks
        return result._replace(marks=frozenset({SUMMED + layer()} if sums and result.broken is None else {}))
    foreign = {SUMMED + name for name in _layers(call)}
    if is_masked(result) and _joins_messages(call, {_kind(call, tensor) for tensor in _tensors(call)} | {MASKED}):
        foreign |= {GATHERED}
    return result._replace(marks=result.marks | foreign) if foreign else result


def _joins_messages(call: Call, kinds: set[str | None]) -> bool:
    """Return whether values at edges are put beside messages, or added to them, outside of layers."""
    return call.operation.packet in _JOINS and not call.graph.propagating and {MASKED, GATHERED} <= kinds


def _layers(call: Call) -> list[str]:
    """Return the layers in which constants were summed over edges."""
    traces = [call.trace(tensor) for tensor in _tensors(call)]
    return [trace.layer for trace in traces if isinstance(trace, Unmasked) and trace.kind == SUMMED]


def _kind(call: Call, value: Any) -> str | None:
    trace: Trace | None = call.trace(value) if isinstance(value, Tensor) else None
    if isinstance(trace, Edges):
        return "edges"
    if isinstance(trace, Unmasked):
        return trace.kind
    if isinstance(trace, Rows) and trace.marks:
        return SUMMED if is_summed(trace) else GATHERED if GATHERED in trace.marks else None
    return None


def is_summed(rows: Rows) -> bool:
    """Return whether rows are sums over edges that were not masked."""
    return any(mark.startswith(SUMMED) for mark in rows.marks)


def is_summed_in(trace: Trace | None, layer: str) -> bool:
    """Return whether all sums over edges that were not masked are those of one layer."""
    if isinstance(trace, Unmasked):
        return trace.kind == SUMMED and trace.layer == layer
    return isinstance(trace, Rows) and trace.marks - without_sums(trace.marks) == {SUMMED + layer}


def without_sums(marks: frozenset[str]) -> frozenset[str]:
    """Return the marks but those of sums over edges."""
    return frozenset(mark for mark in marks if not mark.startswith(SUMMED))


def _tensors(call: Call) -> list[Tensor]:
    """Return the tensors among arguments, without a divisor that is summed over edges: that is a normalisation."""
    tensors = tensors_in((*call.args, *call.kwargs.values()))
    divides = call.operation.packet in (aten.div, aten.div_) and len(tensors) == 2
    return tensors[:1] if divides and _kind(call, tensors[1]) == SUMMED else tensors


def _is_matrix(tensor: Tensor) -> bool:
    return sum(size > 1 for size in tensor.shape) > 1


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, Parameter) or (tensor._is_view() and isinstance(tensor._base, Parameter))
