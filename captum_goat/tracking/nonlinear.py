"""What the results of nonlinear operations depend on.

Such a result is not a polynomial of the variables, and an output that is made of it is refused. But it may become a
frozen factor (attention, the scale of a norm), and then the edges that reach it count. See :mod:`captum_goat.rules`.
"""

from __future__ import annotations

from torch import Tensor

from captum_goat.tracking.linear import combine, scatter_rows, sum_rows
from captum_goat.tracking.operations import aten, named
from captum_goat.tracking.registry import REFUSED, Call, Result, depends

# Scales: what norms divide by. Their results may be frozen where other values are multiplied or divided by them.
SCALES = named("sqrt rsqrt linalg_vector_norm norm std var")
# A scale is still one after these.
_STILL_SCALES = {aten.maximum, aten.reciprocal, aten.where, aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge}
_STILL_SCALES |= {aten.isinf, aten.isnan, *named("clamp clamp_min div masked_fill")}


def is_scale(call: Call) -> bool:
    """Return whether the result of a nonlinear operation is a scale."""
    operation = call.operation.packet
    if operation in (aten.pow, aten.pow_):
        return isinstance(call.args[1], float) and call.args[1] in (0.5, -0.5)
    broken = [rows.broken for argument in call.args if (rows := call.rows(argument)) is not None]
    all_scales = all(reason is not None and reason.scale for reason in broken)
    return operation in SCALES or (operation in _STILL_SCALES and all_scales)


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
