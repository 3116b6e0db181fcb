"""Rules for operations that are linear: sums and products, entry by entry or over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.operations import aten
from captum_goat.tracking.registry import REFUSED, Call, Result, joined, rule
from captum_goat.tracking.row_graph import NO_ROW, RowGraph, Rows
from captum_goat.tracking.row_ids import indexed_shape, scatter_positions, shrink_index, with_dims, without_repeats


@rule(aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub)
def _add(call: Call) -> Result:
    return combine(call, call.args[:2])


@rule(aten.mul, aten.mul_)
def _mul(call: Call) -> Result:
    return combine(call, call.args[:2], multiply=True)


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


@rule(aten.where)
def _where(call: Call) -> Result:
    condition = call.args[0]
    if call.rows(condition) is not None or len(call.args) != 3:
        return REFUSED
    return _chosen(call, condition, call.rows(call.args[1]), call.rows(call.args[2]))


@rule(aten.masked_fill, aten.masked_fill_)
def _masked_fill(call: Call) -> Result:
    if any(call.rows(argument) is not None for argument in call.args[1:]):
        return REFUSED
    return _chosen(call, ~call.args[1], call.rows(call.args[0]), None)


def _chosen(call: Call, condition: Tensor, yes: Rows | None, no: Rows | None) -> Rows:
    """Return rows that come entry by entry from one of two tensors (``None``: constants)."""
    found = [rows for rows in (yes, no) if rows is not None]
    ids = [NO_ROW if rows is None else with_dims(rows.ids, call.out.dim()) for rows in (yes, no)]
    return joined(found, torch.where(with_dims(condition, call.out.dim()), ids[0], ids[1]), constants=None in (yes, no))


@rule(aten.convolution, aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d, aten._adaptive_avg_pool2d)
def _convolution(call: Call) -> Result:
    """Every row of the batch, dimension 0, is mapped on its own; what it mixes are its channels and pixels."""
    rows = call.rows(call.args[0])
    if rows is None or any(call.rows(argument) is not None for argument in call.args[1:3]):
        return REFUSED
    if any(size != 1 for size in rows.ids.shape[1:]):
        return REFUSED
    return with_constants(rows._replace(ids=rows.ids.view([-1] + [1] * (call.out.dim() - 1))))


def with_constants(rows: Rows) -> Rows:
    """Return the rows of a tensor to which constants were added."""
    return rows._replace(frozen=max(rows.frozen, 0))


@rule(aten._native_batch_norm_legit_no_training)
def _batch_norm_eval(call: Call) -> Result:
    others = any(call.rows(argument) is not None for argument in call.args[1:])
    rows = call.rows(call.args[0])
    return REFUSED if others or rows is None else [with_constants(rows), *[None] * (len(call.out) - 1)]


@rule(aten.native_batch_norm, aten.cudnn_batch_norm, aten.miopen_batch_norm)
def _batch_norm(call: Call) -> Result:
    return REFUSED if call.argument(5, "training") else _batch_norm_eval(call)


def combine(call: Call, arguments: Sequence[Any], *, multiply: bool = False) -> Result:
    """Return the rows of something that is made of several tensors entry by entry."""
    rows = [found for argument in arguments if (found := call.rows(argument)) is not None]
    if not rows:
        return None
    aligned = [r._replace(ids=with_dims(r.ids, call.out.dim())) for r in rows]
    return call.graph.merge(aligned, multiply=multiply, constants=len(rows) < len(arguments))


@rule(aten.sum, aten.mean)
def _sum(call: Call) -> Result:
    tensor, rows = call.args[0], call.rows(call.args[0])
    if rows is None:
        return None
    dims = call.argument(1, "dim")
    dims = {d % max(tensor.dim(), 1) for d in dims} if dims else set(range(tensor.dim()))
    return sum_rows(call.graph, rows, dims, keepdim=bool(call.argument(2, "keepdim", False)))


def sum_rows(graph: RowGraph, rows: Rows, dims: set[int], *, keepdim: bool) -> Rows:
    """Return the rows of sums over dimensions."""
    if any(rows.ids.size(d) != 1 for d in dims):
        rows = rows._replace(ids=without_repeats(rows.ids, dims))
        shape = torch.Size(1 if d in dims else size for d, size in enumerate(rows.ids.shape))
        child = torch.arange(shape.numel(), device=rows.ids.device).view(shape)
        rows = graph.reduce(rows, child, shape)
    if keepdim:
        return rows
    kept = [size for d, size in enumerate(rows.ids.shape) if d not in dims]
    return rows._replace(ids=rows.ids.reshape(kept))


@rule(aten.mm, aten.bmm, aten.mv, aten.dot)
def _matmul(call: Call) -> Result:
    return _product(call, call.args[0], call.args[1])


@rule(aten.addcmul, aten.addcmul_)
def _addcmul(call: Call) -> Result:
    product = combine(call, call.args[1:3], multiply=True)
    found = [rows for rows in (combine(call, call.args[:1]), product) if isinstance(rows, Rows)]
    return call.graph.merge(found, constants=len(found) < 2) if found else None


@rule(aten.lerp)
def _lerp(call: Call) -> Result:
    return REFUSED if call.rows(call.args[2]) is not None else combine(call, call.args[:2])


@rule(aten.addmm, aten.baddbmm)
def _addmm(call: Call) -> Result:
    found = [call.rows(call.args[0]), _product(call, call.args[1], call.args[2])]
    rows = [r._replace(ids=with_dims(r.ids, call.out.dim())) for r in found if isinstance(r, Rows)]
    return call.graph.merge(rows, constants=len(rows) < 2) if rows else None


def _product(call: Call, left: Tensor, right: Tensor) -> Rows | None:
    before, after = call.rows(left), call.rows(right)
    if before is None and after is not None and left.dim() == 2 and after.ids.size(-1) == 1 != after.ids.size(0):
        return _sparse_product(call.graph, left, after)
    found = []
    if before is not None:
        rows = sum_rows(call.graph, before, {left.dim() - 1}, keepdim=True)
        found.append(rows if right.dim() > 1 else rows._replace(ids=rows.ids.squeeze(-1)))
    if after is not None:
        rows = sum_rows(call.graph, after, {right.dim() - 2 if right.dim() > 1 else 0}, keepdim=right.dim() > 1)
        found.append(rows._replace(ids=with_dims(rows.ids, call.out.dim())))
    return call.graph.merge(found, multiply=True) if found else None


def _sparse_product(graph: RowGraph, matrix: Tensor, rows: Rows) -> Rows:
    """Return the rows of a constant matrix times rows: each reads those where the matrix is not 0."""
    child, parent = torch.nonzero(matrix, as_tuple=True)
    graph.by_values = True
    picked = rows._replace(ids=rows.ids.reshape(-1)[parent])
    shape = torch.Size([matrix.size(0), 1] if rows.ids.dim() == 2 else [matrix.size(0)])
    return graph.reduce(picked, child, shape)


@rule(aten.scatter_add, aten.scatter_add_, aten.index_add, aten.index_add_)
def _scatter_add(call: Call) -> Result:
    base, dim, index, source = call.args[:4]
    return scatter_rows(call, base, dim, index, source)


@rule(aten.scatter_reduce, aten.scatter_reduce_)
def _scatter_reduce(call: Call) -> Result:
    base, dim, index, source, reduce = call.args[:5]
    return scatter_rows(call, base, dim, index, source) if reduce in ("sum", "mean") else REFUSED


def scatter_rows(call: Call, base: Tensor, dim: int, index: Tensor, source: Tensor) -> Result:
    """Return the rows of a source scattered to a base, which is zero where it has no rows."""
    before, rows = call.rows(base), call.rows(source)
    found = [] if before is None else [before]
    if rows is not None:
        dim %= max(source.dim(), 1)
        if index.dim() == 1:
            index = index.view([-1 if d == dim else 1 for d in range(source.dim())])
            index = index.expand([-1 if d == dim else size for d, size in enumerate(rows.ids.shape)])
        for d, size in enumerate(index.shape):  # a scatter may leave the end of its source out
            if 1 != rows.ids.size(d) > size:
                rows = rows._replace(ids=rows.ids.narrow(d, 0, size))
        child, shape = scatter_positions(shrink_index(index, dim, rows.ids), dim, base.shape)
        found.append(call.graph.reduce(rows, child, shape, dim))
    constants = before is None and not call.graph.propagating  # where sums begin with zeros
    return call.graph.merge(found, constants=constants) if found else None


@rule(aten.index_copy, aten.index_copy_)
def _index_copy(call: Call) -> Result:
    base, dim, index, source = call.args[:4]
    before, rows = call.rows(base), call.rows(source)
    found = []
    if before is not None:
        found.append(before._replace(ids=_sized(before.ids, dim, base.size(dim)).index_fill(dim, index, NO_ROW)))
    if rows is not None:
        ids = _sized(rows.ids, dim, index.numel())
        shape = [base.size(d) if d == dim % ids.dim() else size for d, size in enumerate(ids.shape)]
        found.append(rows._replace(ids=ids.new_full(shape, NO_ROW).index_copy(dim, index, ids)))
    return call.graph.merge(found, constants=len(found) < 2) if found else None


def _sized(ids: Tensor, dim: int, size: int) -> Tensor:
    """Return ids with a size along a dimension in which they may be broadcast."""
    return ids.expand([size if d == dim % ids.dim() else each for d, each in enumerate(ids.shape)])


@rule(aten.index_put, aten.index_put_)
def _index_put(call: Call) -> Result:
    base, indices, values = call.args[:3]
    before, rows = call.rows(base), call.rows(values)
    if before is not None and not call.argument(3, "accumulate", False):
        overwritten = before.ids.expand(indexed_shape(before.ids.shape, base.shape, indices)).clone()
        before = before._replace(ids=aten.index_put(overwritten, indices, overwritten.new_tensor(-1)))
    found = [] if before is None else [before]
    if rows is not None:
        small = base.shape if any(index is None for index in indices) else [1] * base.dim()
        shape = indexed_shape(small, base.shape, indices)
        position = torch.arange(shape.numel(), device=base.device).view(shape)
        child = aten.index(position, indices)
        found.append(call.graph.reduce(rows._replace(ids=with_dims(rows.ids, child.dim())), child, shape))
    return call.graph.merge(found) if found else None
