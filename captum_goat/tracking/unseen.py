"""Find message passing outside of torch_geometric's layers, where edges cannot be masked, so that it is refused.

Code that passes messages by hand gathers values of nodes at the edges and sums them at nodes, or multiplies by a matrix
that it made of the edges. So values that are gathered, summed or made of edges are marked: in :attr:`Rows.marks` if
variables reach them, else as :class:`Unmasked`. Sums over edges that are gathered at the edges again are harmless:
degree normalisation and softmax do that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.utils import loop

from captum_goat.tracking.operations import aten
from captum_goat.tracking.registry import RULES, Call, Result, tensors_in
from captum_goat.tracking.row_graph import Edges, Rows, Trace, Unmasked

GATHERED, SUMMED, STRUCTURE, MASKED = "gathered", "summed", "structure", "masked"
BY_RULE = Unmasked("", "")
_LOOPS = (inspect.unwrap(loop.compute_loop_attr).__code__,)


def misuse(call: Call, layer: Callable[[], str]) -> str | None:
    """Return what a call does that only a layer should do; ``None`` if nothing.

    ``layer`` returns the name of the message passing layer that is running, if any: it may compute degrees.
    """
    operation = call.operation
    by_matrix = (operation.multiplies or operation.looks_up) and _multiplies_edges(call)
    if by_matrix or ((operation.masks or operation.adds) and _masks_by_edges(call) and not layer()):
        return f"{operation.packet.__name__} with a matrix that is made of the edges"
    by_index = operation.scatters and _index_is_edges(call) and _sums_by_hand(call, layer())
    if by_index and _makes_loops():
        return None
    if by_index or (operation.reduces and not call.graph.propagating and _reduces_edges(call) and not layer()):
        return f"{operation.packet.__name__} over the edges outside of message passing"
    return None


def _makes_loops() -> bool:
    """Return whether torch_geometric computes the features of self-loops from those of edges, as layers let it do."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code not in _LOOPS:
        frame = frame.f_back
    return frame.f_code in _LOOPS


def _multiplies_edges(call: Call) -> bool:
    tensors = _tensors(call)
    for number, tensor in enumerate(tensors):
        if all(other is tensor or _is_parameter(other) for other in tensors):
            continue
        inside = tensor.dim() == 3 and bool(call.graph.propagating)  # one product per edge, in the message of a layer
        kind, last = _kind(call, tensor), number == len(tensors) - 1 and call.operation.multiplies and not inside
        if kind in ("edges", STRUCTURE) or (last and kind == GATHERED):  # the rows of the last, the edges, are summed
            return True
    return False


def _masks_by_edges(call: Call) -> bool:
    """Return whether values of nodes are selected or weighted by a matrix whose rows and columns are nodes."""
    tensors = _tensors(call)
    if not any(_kind(call, tensor) in ("edges", STRUCTURE) and _is_matrix(tensor) for tensor in tensors):
        return False
    traces = [(tensor, call.trace(tensor)) for tensor in tensors]
    plain = [tensor for tensor, trace in traces if trace is None and not _is_parameter(tensor)]
    return any(isinstance(trace, Rows) for _, trace in traces) or (call.operation.masks and any(map(_is_matrix, plain)))


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


def _sums_up(call: Call) -> bool:
    """Return whether a scatter adds to the values that are there, else it replaces them."""
    return bool(call.argument(3, "accumulate", False)) if call.operation.puts else call.operation.sums


def _source(call: Call) -> Any:
    position = 2 if call.operation.puts else 3
    return call.args[position] if len(call.args) > position else None


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


def infer(call: Call, layer: Callable[[], str]) -> Unmasked | Edges | None:
    """Return the trace of a result that no variable reaches; :data:`BY_RULE` if the rules for edges apply."""
    operation, out = call.operation, call.out
    kinds = {_kind(call, tensor) for tensor in _tensors(call)}
    kind: str | None = None
    if operation.stores and "edges" in kinds:
        return BY_RULE
    if operation.gathers and _gathers_at_edges(call):
        if isinstance(call.trace(call.args[0]), Edges):
            return BY_RULE
        if (edges := _renumbered(call)) is not None:
            return edges
        foreign = _kind(call, call.args[0]) == SUMMED and layer() not in _layers(call)
        kind = (SUMMED if foreign else GATHERED) if out.is_floating_point() else None
    elif operation.scatters and _index_is_edges(call):
        kind = _kind(call, _source(call))
        if kind not in (GATHERED, SUMMED):
            kind = None if call.graph.propagating else STRUCTURE
        elif _sums_up(call):
            kind = SUMMED
    elif operation.gathers and call.trace(call.args[0]) is None:
        kind = None  # a table of constants, looked up
    elif operation.multiplies and kinds <= {STRUCTURE, None} and None in kinds:
        kind = None  # features made of degrees, times parameters
    elif kinds & {MASKED, SUMMED, GATHERED, STRUCTURE}:
        kind = next(known for known in (MASKED, SUMMED, GATHERED, STRUCTURE) if known in kinds)
    elif operation.packet in RULES or operation.pointwise or not isinstance(out, Tensor):
        return BY_RULE
    else:
        kind = STRUCTURE
    if kind is None:
        return None
    earlier = _layers(call) if kind == SUMMED else []
    return Unmasked(kind, operation.packet.__name__, earlier[0] if earlier else layer() if kind == SUMMED else "")


def _renumbered(call: Call) -> Edges | None:
    """Return the edges of a table of integers that is looked up at the ends of edges: their nodes get new numbers."""
    table, out = call.args[0], call.out
    indices = [tensor for tensor in _tensors(call) if tensor is not table]
    if table.is_floating_point() or table.dtype == torch.bool or table.dim() != 1 or len(indices) != 1:
        return None
    trace = call.trace(indices[0])
    if not isinstance(trace, Edges) or indices[0].shape != out.shape or indices[0].dtype == torch.bool:
        return None
    call.graph.by_values = True
    return trace._replace(renumbered=trace.renumbered or not torch.equal(out, indices[0]))


def _gathers_at_edges(call: Call) -> bool:
    """Return whether an index is made of edges; boolean masks only leave out some of them."""
    indices = [tensor for tensor in _tensors(call) if tensor is not call.args[0] and tensor.dtype != torch.bool]
    return any(_kind(call, index) == "edges" for index in indices)


def marked(call: Call, result: Result, layer: Callable[[], str]) -> Result:
    """Return the rows that a call returns with the marks that it leaves on them."""
    operation = call.operation
    if not isinstance(result, Rows):
        return result
    if operation.gathers and _gathers_at_edges(call):
        here = {SUMMED + layer()} if is_summed(result) else set()
        return result._replace(marks=result.marks - here | {GATHERED})
    if operation.scatters and _sums_up(call) and _index_is_edges(call):
        sums = not call.graph.propagating or MASKED not in result.marks
        return result._replace(marks=frozenset({SUMMED + layer()} if sums and result.broken is None else {}))
    foreign = {SUMMED + name for name in _layers(call)}
    return result._replace(marks=result.marks | foreign) if foreign else result


def _layers(call: Call) -> list[str]:
    """Return the layers in which constants were summed over edges."""
    traces = [call.trace(tensor) for tensor in _tensors(call)]
    return [trace.layer for trace in traces if isinstance(trace, Unmasked) and trace.kind == SUMMED]


def _index_is_edges(call: Call) -> bool:
    indices = call.args[1] if call.operation.puts else call.args[2:3]
    return any(isinstance(call.trace(index), Edges) for index in indices)


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
