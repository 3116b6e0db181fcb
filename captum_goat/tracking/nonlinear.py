"""What the results of operations that are not linear depend on.

Such a result is no polynomial of the variables, and it is refused where it matters. But it may also become a frozen
factor (attention, the scale of a norm), and then the edges that reach it count. See :mod:`captum_goat.rules`.
"""

from __future__ import annotations

from torch import Tensor

from captum_goat.tracking.linear import combine, scatter_rows, sum_rows
from captum_goat.tracking.operations import aten
from captum_goat.tracking.registry import REFUSED, Call, Result, depends
from captum_goat.tracking.row_graph import Rows

# Sizes: what norms divide by. A result of one of these may be frozen where others are multiplied or divided by it.
SCALES = frozenset(
    {aten.sqrt, aten.sqrt_, aten.rsqrt, aten.rsqrt_, aten.linalg_vector_norm, aten.norm, aten.std, aten.var}
)
# A size stays one under these.
_STILL_SCALES = frozenset(
    {
        *(getattr(aten, name) for name in ("clamp", "clamp_", "clamp_min", "clamp_min_", "maximum", "reciprocal")),
        *(getattr(aten, name) for name in ("div", "div_", "where", "masked_fill", "masked_fill_", "eq", "ne", "isinf")),
        *(getattr(aten, name) for name in ("lt", "le", "gt", "ge", "isnan")),
    }
)


def is_scale(call: Call) -> bool:
    """Return whether the result of an operation that is not linear is a size."""
    operation = call.operation.packet
    if operation in (aten.pow, aten.pow_):
        return isinstance(call.args[1], float) and call.args[1] in (0.5, -0.5)
    rows = [found for each in call.args if (found := call.rows(each)) is not None]
    all_scales = all(each.broken is not None and each.broken.scale for each in rows)
    return operation in SCALES or (operation in _STILL_SCALES and all_scales)


@depends(aten.masked_fill_)
def pointwise(call: Call) -> Result:
    """Return what an element-wise operation depends on."""
    tensors = [each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Tensor)]
    return combine(call, tensors)


# Attention with a mask is a "safe" softmax from torch 2.5 on.
_SOFTMAXES = [getattr(aten, name) for name in ("_softmax", "_log_softmax", "_safe_softmax") if hasattr(aten, name)]


@depends(*_SOFTMAXES)
def _softmax(call: Call) -> Result:
    rows, dim = call.rows(call.args[0]), call.args[1]
    return REFUSED if rows is None else sum_rows(call.graph, rows, {dim % max(rows.ids.dim(), 1)}, keepdim=True)


@depends(aten.amax, aten.amin, aten.var, aten.std, aten.prod, aten.max, aten.min, aten.argmax, aten.argmin)
def _reduced(call: Call) -> Result:
    return _reduce(call, call.argument(1, "dim"), call.argument(2, "keepdim", False))


@depends(aten.linalg_vector_norm)
def _vector_norm(call: Call) -> Result:
    return _reduce(call, call.argument(2, "dim"), call.argument(3, "keepdim", False))


@depends(aten.norm)
def _norm(call: Call) -> Result:
    return _reduce(call, call.argument(2, "dim"), call.argument(3, "keepdim", False))


def _reduce(call: Call, dim: int | list[int] | None, keepdim: bool) -> Result:
    rows = call.rows(call.args[0])
    if rows is None:
        return REFUSED
    count = max(rows.ids.dim(), 1)
    dims = [dim] if isinstance(dim, int) else list(dim or range(rows.ids.dim()))
    found: Rows = sum_rows(call.graph, rows, {each % count for each in dims}, keepdim=bool(keepdim))
    return found if isinstance(call.out, Tensor) else [found] * len(call.out)


@depends(aten.scatter_reduce, aten.scatter_reduce_)
def _scatter_reduce(call: Call) -> Result:
    base, dim, index, source = call.args[:4]
    return scatter_rows(call, base, dim, index, source)


@depends(aten.native_layer_norm)
def _layer_norm(call: Call) -> Result:
    rows = call.rows(call.args[0])
    if rows is None:
        return REFUSED
    count = rows.ids.dim()
    normed = sum_rows(call.graph, rows, set(range(count - len(call.args[1]), count)), keepdim=True)
    return [normed] * 3
