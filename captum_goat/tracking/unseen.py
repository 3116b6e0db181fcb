"""Message passing that is not done by layers of torch_geometric, and so cannot be masked: found, to be refused.

Who passes messages by hand gathers values of nodes at the edges, and scatters them to nodes again; or makes an
adjacency matrix of the edges, and multiplies by it. What is gathered or made in such a way is traced, as long as no
variable reaches it, and so is the misuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from captum_goat.tracking.registry import RULES, Call, aten
from captum_goat.tracking.row_graph import Edges, Gathered, Rows, Structure, Trace

_SCATTERS = frozenset(
    {
        *(getattr(aten, name) for name in ("scatter_add", "scatter_add_", "index_add", "index_add_")),
        *(getattr(aten, name) for name in ("scatter_reduce", "scatter_reduce_", "index_put", "index_put_")),
    }
)
_GATHERS = frozenset({aten.index, aten.index_select, aten.gather})
_PRODUCTS = frozenset({aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.mv, aten._sparse_mm, aten._sparse_addmm})


def misuse(call: Call, traces: list[Trace], in_layer: Callable[[], bool]) -> str | None:
    """Return what a call does by hand that a layer should do; ``None`` if nothing.

    Args:
        call: The call.
        traces: The traces of its arguments.
        in_layer: Notes and returns whether a message passing layer is what is running. Such a layer may sum constants
            and weights of edges up, for degrees; but if it then passes no messages it has done so by hand.
    """
    operation = call.func.overloadpacket
    if operation in _PRODUCTS and any(isinstance(trace, Structure) for trace in traces):
        others = [
            each for each in call.args if isinstance(each, Tensor) and not isinstance(call.trace(each), Structure)
        ]
        if not others or not all(_is_parameter(each) for each in others):
            return f"{operation.__name__} with an adjacency matrix that is made of the edges"
    if operation in _SCATTERS and not call.graph.propagating and _index_is_edges(call):
        source = _source(call)
        trace = call.trace(source)
        sound = isinstance(trace, Rows) and trace.broken is None
        harmless = isinstance(trace, Gathered) or (sound and source.dim() == 1)
        if (sound or harmless) and not (harmless and in_layer()):
            return f"{operation.__name__} over the edges outside of message passing"
    return None


def infer(call: Call, traces: list[Trace]) -> Gathered | Structure | None:
    """Return the trace of numbers that no variable reaches; ``None`` if rules for edges apply."""
    operation, out = call.func.overloadpacket, call.out
    if not isinstance(out, Tensor) or not out.is_floating_point() or call.graph.propagating:
        return None
    known = [trace for trace in traces if isinstance(trace, Gathered | Structure)]
    if known:
        return min(known, key=lambda trace: isinstance(trace, Structure))
    if operation in _SCATTERS and _index_is_edges(call):
        return Structure()
    if operation in _GATHERS and not isinstance(call.trace(call.args[0]), Edges):
        return Gathered()
    return None if operation in RULES or torch.Tag.pointwise in call.func.tags else Structure()


def _index_is_edges(call: Call) -> bool:
    puts = call.func.overloadpacket in (aten.index_put, aten.index_put_)
    if puts and not call.argument(3, "accumulate", False):
        return False
    index = call.args[1] if puts else [call.args[2]]
    return any(isinstance(call.trace(each), Edges) for each in index if each is not None)


def _source(call: Call) -> Any:
    return call.args[2 if call.func.overloadpacket in (aten.index_put, aten.index_put_) else 3]


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, Parameter) or (tensor._is_view() and isinstance(tensor._base, Parameter))
