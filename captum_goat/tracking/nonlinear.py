"""What the results of nonlinear operations depend on.

Such a result is not a polynomial of the variables, and an output that is made of it is refused. But it may become a
frozen factor (attention, the scale of a norm), and then the edges that reach it count. See :mod:`captum_goat.rules`.
"""

from __future__ import annotations

from torch import Tensor

from captum_goat.tracking.linear import combine, scatter_rows, sum_rows
from captum_goat.tracking.operations import aten, named
from captum_goat.tracking.registry import REFUSED, Call, Result, depends
from captum_goat.tracking.row_graph import with_dims


@depends(aten.masked_fill_)
def pointwise(call: Call) -> Result:
    """Return what an element-wise operation depends on."""
    return combine(call, [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Tensor)])


def _reduce(call: Call, dim: int | list[int] | None, keepdim: bool = True) -> Result:
    if (rows := call.rows(call.args[0])) is None:
        return REFUSED
    dims = [dim] if isinstance(dim, int) else list(dim or range(rows.ids.dim()))
    reduced = sum_rows(call.graph, rows, {d % max(rows.ids.dim(), 1) for d in dims}, keepdim=bool(keepdim))
    return reduced if isinstance(call.out, Tensor) else [reduced] * len(call.out)


@depends(*named("_cdist_forward"))
def _distances(call: Call) -> Result:
    """Return what the distances of all pairs of rows depend on."""
    ends = [(call.rows(end), end.dim() - 1) for end in call.args[:2]]
    of_ends = [rows and sum_rows(call.graph, rows, {last}, keepdim=True) for rows, last in ends]
    if (second := of_ends[1]) is not None:
        of_ends[1] = second._replace(ids=second.ids.transpose(-1, -2))
    known = [rows._replace(ids=with_dims(rows.ids, call.out.dim())) for rows in of_ends if rows is not None]
    return call.graph.merge(known, multiply=True) if known else REFUSED


depends(aten.scatter_reduce, aten.scatter_reduce_)(scatter_rows)
# Attention with a mask uses the last one from torch 2.5 on.
depends(*named("_softmax _log_softmax _safe_softmax"))(lambda call: _reduce(call, call.args[1]))
depends(aten.native_layer_norm)(lambda call: _reduce(call, list(range(-len(call.args[1]), 0))))
depends(aten.linalg_vector_norm, aten.norm)(
    lambda call: _reduce(call, call.argument(2, "dim"), call.argument(3, "keepdim", False))
)
depends(aten.amax, aten.amin, aten.var, aten.std, aten.prod, aten.max, aten.min, aten.argmax, aten.argmin)(
    lambda call: _reduce(call, call.argument(1, "dim"), call.argument(2, "keepdim", False))
)
