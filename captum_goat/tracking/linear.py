"""Rules for sums and products, entry by entry or over rows, and what the results of nonlinear operations depend on.

A nonlinear result is not a polynomial of the variables, and an output that is made of it is refused. But it may become
a frozen factor (attention, the scale of a norm), and then the edges that reach it count. See :mod:`captum_goat.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.registry import DEPENDS, REFUSED, RULES, Call, Result, aten, depends, named, rule
from captum_goat.tracking.row_graph import NO_ROW, RowGraph, Rows, indexed_shape, shrink_index, with_dims


def combine(call: Call, arguments: Sequence[Any], *, multiply: bool = False) -> Result:
    """Return the rows of a result that reads several tensors entry by entry."""
    rows = [r for argument in arguments if (r := call.rows(argument)) is not None]
    if not rows:
        return None
    aligned = [r._replace(ids=with_dims(r.ids, call.out.dim())) for r in rows]
    return call.graph.merge(aligned, multiply=multiply, constants=len(rows) < len(arguments))


rule(aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub)(lambda call: combine(call, call.args[:2]))
rule(aten.mul, aten.mul_)(lambda call: combine(call, call.args[:2], multiply=True))
rule(aten.lerp)(lambda call: REFUSED if call.rows(call.args[2]) is not None else combine(call, call.args[:2]))


@rule(aten.div, aten.div_)
def _div(call: Call) -> Result:
    if call.rows(call.args[1]) is not None or call.kwargs.get("rounding_mode") is not None:
        return REFUSED
    return combine(call, call.args[:1])


@rule(aten.pow, aten.pow_)
def _pow(call: Call) -> Result:
    base, exponent = call.rows(call.args[0]), call.args[1]
    if base is None or not isinstance(exponent, int | float) or exponent < 1 or exponent != int(exponent):
        return REFUSED
    power = int(exponent)
    frozen = base.frozen * power if base.frozen > 0 else base.frozen
    return base._replace(degree=base.degree * power, gates=base.gates * power, frozen=frozen)


@rule(aten.where, aten.masked_fill, aten.masked_fill_)
def _choose(call: Call) -> Result:
    """Take every entry from one of two tensors or constants, by a condition that is a constant."""
    if len(call.args) != 3:
        return REFUSED
    is_where, (condition, yes, no) = call.operation.packet is aten.where, call.args
    if not is_where:
        no, condition, yes = call.args
    sides, dims = [call.rows(yes), call.rows(no)], call.out.dim()
    if call.rows(condition) is not None or (sides[0] is not None and not is_where):
        return REFUSED
    ids = [NO_ROW if rows is None else with_dims(rows.ids, dims) for rows in sides]
    known = [rows for rows in sides if rows is not None]
    return Rows.joined(known, torch.where(with_dims(condition, dims), ids[0], ids[1]), constants=len(known) < 2)


@rule(aten.convolution, aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d, aten._adaptive_avg_pool2d)
def _convolution(call: Call) -> Result:
    """Map every row of the batch, dimension 0, on its own: only its channels and pixels are mixed."""
    rows = call.rows(call.args[0])
    if rows is None or any(map(call.rows, call.args[1:3])):
        return REFUSED
    convolves = call.operation.packet is aten.convolution
    if convolves and call.args[1].shape[2:].numel() == 1 and call.args[0].shape[2:] == call.out.shape[2:]:
        return with_constants(sum_rows(call.graph, rows, {1}, keepdim=True))  # it mixes channels alone
    if any(size != 1 for size in rows.ids.shape[1:]):
        return REFUSED
    return with_constants(rows._replace(ids=rows.ids.view([-1] + [1] * (call.out.dim() - 1))))


def with_constants(rows: Rows) -> Rows:
    """Return the rows of a tensor plus constants."""
    return rows._replace(frozen=max(rows.frozen, 0))


@rule(aten._native_batch_norm_legit_no_training, aten.native_batch_norm, aten.cudnn_batch_norm, aten.miopen_batch_norm)
def _batch_norm(call: Call) -> Result:
    never_trains = call.operation.packet is aten._native_batch_norm_legit_no_training
    rows, *others = map(call.rows, call.args)
    if rows is None or any(others) or (call.argument(5, "training") and not never_trains):
        return REFUSED
    return [with_constants(rows), *[None] * (len(call.out) - 1)]


@rule(aten.sum, aten.mean)
def _sum(call: Call) -> Result:
    if (rows := call.rows(call.args[0])) is None:
        return None
    count, dims = call.args[0].dim(), call.argument(1, "dim")
    dims = {d % max(count, 1) for d in dims} if dims else set(range(count))
    return sum_rows(call.graph, rows, dims, keepdim=bool(call.argument(2, "keepdim", False)))


def sum_rows(graph: RowGraph, rows: Rows, dims: set[int], *, keepdim: bool) -> Rows:
    """Return the rows of sums over dimensions."""
    if any(rows.ids.size(d) != 1 for d in dims):
        shape = torch.Size(1 if d in dims else size for d, size in enumerate(rows.ids.shape))
        rows = graph.reduce(rows, torch.arange(shape.numel(), device=rows.ids.device).view(shape), shape)
    if keepdim:
        return rows
    return rows._replace(ids=rows.ids.reshape([size for d, size in enumerate(rows.ids.shape) if d not in dims]))


@rule(aten.addcmul, aten.addcmul_, aten.addmm, aten.baddbmm)
def _add_product(call: Call) -> Result:
    left, right = call.args[1:3]
    entrywise = call.operation.packet in (aten.addcmul, aten.addcmul_)
    product = combine(call, (left, right), multiply=True) if entrywise else _product(call, left, right)
    rows = [side for side in (combine(call, call.args[:1]), product) if isinstance(side, Rows)]
    return call.graph.merge(rows, constants=len(rows) < 2) if rows else None


rule(aten.mm, aten.bmm, aten.mv, aten.dot)(lambda call: _product(call, call.args[0], call.args[1]))


def _product(call: Call, left: Tensor, right: Tensor) -> Rows | None:
    before, after, graph = call.rows(left), call.rows(right), call.graph
    if before is None and after is not None and left.dim() == 2 and after.ids.size(-1) == 1 != after.ids.size(0):
        # A constant matrix: each row of the product reads the rows at which the matrix is not 0.
        child, parent = torch.nonzero(left, as_tuple=True)
        graph.by_values = True
        shape = torch.Size([left.size(0)] + [1] * (after.ids.dim() == 2))
        return graph.reduce(after._replace(ids=after.ids.reshape(-1)[parent]), child, shape)
    factors = []
    if before is not None:
        rows = sum_rows(graph, before, {left.dim() - 1}, keepdim=True)
        factors.append(rows if right.dim() > 1 else rows._replace(ids=rows.ids.squeeze(-1)))
    if after is not None:
        rows = sum_rows(graph, after, {right.dim() - 2 if right.dim() > 1 else 0}, keepdim=right.dim() > 1)
        factors.append(rows._replace(ids=with_dims(rows.ids, call.out.dim())))
    return graph.merge(factors, multiply=True) if factors else None


@rule(aten.scatter_add, aten.scatter_add_, aten.index_add, aten.index_add_)
def scatter_rows(call: Call) -> Result:
    """Return the rows of a source scattered to a base, which is zero where it has no rows."""
    base, dim, index, source = call.args[:4]
    before, rows = call.rows(base), call.rows(source)
    summands = [] if before is None else [before]
    if rows is not None:
        dim %= max(source.dim(), 1)
        if index.dim() == 1:
            index = index.view([-1 if d == dim else 1 for d in range(source.dim())])
            index = index.expand([-1 if d == dim else size for d, size in enumerate(rows.ids.shape)])
        for d, size in enumerate(index.shape):  # a scatter may leave the end of its source out
            if 1 != rows.ids.size(d) > size:
                rows = rows._replace(ids=rows.ids.narrow(d, 0, size))
        child, shape = _scatter_positions(shrink_index(index, dim, rows.ids), dim, base.shape)
        summands.append(call.graph.reduce(rows, child, shape, dim))
    constants = before is None and not call.graph.propagating  # the zeros to which message passing adds do not count
    return call.graph.merge(summands, constants=constants) if summands else None


@rule(aten.scatter_reduce, aten.scatter_reduce_)
def _scatter_reduce(call: Call) -> Result:
    return scatter_rows(call) if call.args[4] in ("sum", "mean") else REFUSED


def _scatter_positions(index: Tensor, dim: int, shape: Sequence[int]) -> tuple[Tensor, torch.Size]:
    """Return the position of each entry that is scattered along ``dim``, and the shape in which positions count."""
    dim %= index.dim()
    sizes = torch.Size(shape[d] if d == dim or size != 1 else 1 for d, size in enumerate(index.shape))
    if sizes.numel() == sizes[dim]:  # channels are not told apart
        return index, sizes
    position, step = torch.zeros_like(index), 1
    for d in reversed(range(index.dim())):
        if d == dim:
            position = position + index * step
        elif sizes[d] != 1:
            along = torch.arange(index.size(d), device=index.device)
            position = position + (along * step).view([-1 if k == d else 1 for k in range(index.dim())])
        step *= sizes[d]
    return position, sizes


@rule(aten.index_put, aten.index_put_)
def _index_put(call: Call) -> Result:
    return _put(call, call.args[1], call.args[2], accumulate=call.argument(3, "accumulate", False))


@rule(aten.index_copy, aten.index_copy_)
def _index_copy(call: Call) -> Result:
    base, dim, index, source = call.args
    return _put(call, [None] * (dim % max(base.dim(), 1)) + [index], source, accumulate=False)


def _put(call: Call, indices: list[Tensor | None], values: Tensor, *, accumulate: bool) -> Result:
    """Return the rows of the first argument with values at indices."""
    base = call.args[0]
    before, rows = call.rows(base), call.rows(values)
    if before is not None and not accumulate:
        overwritten = before.ids.expand(indexed_shape(before.ids.shape, base.shape, indices)).clone()
        before = before._replace(ids=aten.index_put(overwritten, indices, overwritten.new_tensor(-1)))
    parts = [] if before is None else [before]
    if rows is not None:
        small = base.shape if any(index is None for index in indices) else [1] * base.dim()
        shape = indexed_shape(small, base.shape, indices)
        child = aten.index(torch.arange(shape.numel(), device=base.device).view(shape), indices)
        if not accumulate and child.unique().numel() < child.numel():
            return REFUSED  # which of several values for one place stays is not known, and torch's gradient is wrong
        parts.append(call.graph.reduce(rows._replace(ids=with_dims(rows.ids, child.dim())), child, shape))
    return call.graph.merge(parts, constants=len(parts) < 2) if parts else None


@depends(aten.masked_fill_)
def pointwise(call: Call) -> Result:
    """Return what an element-wise operation depends on."""
    return combine(call, [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Tensor)])


def dependence(call: Call) -> Result:
    """Return what the results of a call depend on, linear or not."""
    packet = call.operation.packet
    result = RULES[packet](call) if packet in RULES else REFUSED
    if result is REFUSED:
        rule = DEPENDS.get(packet, pointwise if call.operation.pointwise else None)
        return REFUSED if rule is None else rule(call)
    return result


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
