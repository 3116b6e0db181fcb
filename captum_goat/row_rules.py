"""How each tensor operation moves, merges or makes rows.

A rule is also a licence: an operation without one is refused when its result matters (see
:class:`captum_goat.row_tracking.RowTracker`). So only operations that are linear in what depends on the edges,
or a product of such things, which stays a polynomial, have a rule here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.row_graph import Edges, RowGraph, Rows, Trace, Unsupported
from captum_goat.row_ids import (
    concatenate_ids,
    index_ids,
    indexed_shape,
    reshape_ids,
    scatter_positions,
    shrink_index,
    with_dims,
)

aten = torch.ops.aten

Result = Trace | list[Trace | None] | None


class Call(NamedTuple):
    """One call of an operation, after it has run."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    graph: RowGraph
    trace: Callable[[Any], Trace | None]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def rows(self, tensor: Any) -> Rows | None:
        """Return the rows of a tensor; ``None`` when no edge reaches it."""
        trace = self.trace(tensor)
        return trace if isinstance(trace, Rows) else None


REFUSED = Unsupported("", "")  # what a rule returns for a call that is not linear
Rule = Callable[[Call], Result]
RULES: dict[Any, Rule] = {}

# Results that depend on the shape of the argument at most, not on its values.
FACTORIES = frozenset(
    {
        *(getattr(aten, f"{kind}_like") for kind in ("zeros", "ones", "empty", "full", "rand", "randn")),
        *(getattr(aten, f"new_{kind}") for kind in ("zeros", "ones", "empty", "full", "empty_strided")),
        aten.zero_,
        aten.fill_,
    }
)


def rule(*operations: Any) -> Callable[[Rule], Rule]:
    """Register a rule for operations; it returns ``REFUSED`` for calls that it refuses."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, function))
        return function

    return register


def moves(*operations: Any) -> Callable[[Callable[[Call, Tensor], Any]], Rule]:
    """Register a rule for operations that only move the entries of their first argument.

    The decorated function does to the ids what the operation does to the tensor.
    """

    def register(function: Callable[[Call, Tensor], Any]) -> Rule:
        def apply(call: Call) -> Result:
            trace = call.trace(call.args[0])
            if not isinstance(trace, Edges | Rows):
                return None  # an index was traced, but no value
            moved = function(call, trace.ids)
            if isinstance(moved, list | tuple):
                return [trace._replace(ids=ids) for ids in moved]
            return trace._replace(ids=moved)

        return rule(*operations)(apply)

    return register


def edges_of_pointwise(traces: list[Trace], out: Any) -> Result:
    """Return the edges of the result of an element-wise operation: those of its arguments, if they agree."""
    ids = [trace.ids for trace in traces if isinstance(trace, Edges)]
    agree = all(ids[0] is other or torch.equal(ids[0], other) for other in ids[1:])
    return Edges(with_dims(ids[0], out.dim())) if agree and isinstance(out, Tensor) else None


# Entries are moved ###################################################################################################


@moves(aten.clone, aten.detach, aten.alias, aten._to_copy, aten.lift_fresh, aten.positive, aten.neg, aten.neg_)
def _same(_: Call, ids: Tensor) -> Tensor:
    return ids


@moves(aten.transpose, aten.permute, aten.t, aten.unsqueeze, aten.flip)
def _rearrange(call: Call, ids: Tensor) -> Any:
    return call.func(ids, *call.args[1:], **call.kwargs)


@moves(aten.view, aten._unsafe_view, aten.reshape, aten.squeeze, aten._reshape_alias)
def _reshape(call: Call, ids: Tensor) -> Tensor:
    return reshape_ids(ids, call.args[0].shape, call.out.shape)


@moves(aten.expand)
def _expand(call: Call, ids: Tensor) -> Tensor:
    return with_dims(ids, call.out.dim())


@moves(aten.repeat)
def _repeat(call: Call, ids: Tensor) -> Tensor:
    ids = with_dims(ids, call.out.dim())
    return ids.repeat([times if size != 1 else 1 for times, size in zip(call.args[1], ids.shape, strict=True)])


@moves(aten.select)
def _select(call: Call, ids: Tensor) -> Tensor:
    dim = call.argument(1, "dim", 0)
    return ids.select(dim, 0 if ids.size(dim) == 1 else call.argument(2, "index"))


@moves(aten.slice, aten.index_select, aten.split, aten.split_with_sizes, aten.unbind)
def _pick(call: Call, ids: Tensor) -> Any:
    splits = call.func.overloadpacket in (aten.split, aten.split_with_sizes)
    dim = call.argument(2 if splits else 1, "dim", 0)
    if ids.size(dim) != 1 or call.args[0].size(dim) == 1:
        return call.func(ids, *call.args[1:], **call.kwargs)
    if call.func.overloadpacket is aten.unbind:
        ids = ids.squeeze(dim)
    return ids if isinstance(call.out, Tensor) else [ids] * len(call.out)


@moves(aten.index)
def _index(call: Call, ids: Tensor) -> Tensor:
    return index_ids(ids, call.args[0].shape, call.args[1])


@moves(aten.gather)
def _gather(call: Call, ids: Tensor) -> Tensor:
    dim, index = call.args[1:3]
    index = shrink_index(index, dim, ids)
    shape = [size if d == dim % ids.dim() else index.size(d) for d, size in enumerate(ids.shape)]
    return ids.expand(shape).gather(dim, index)


@moves(aten.constant_pad_nd)
def _pad(call: Call, ids: Tensor) -> Tensor:
    pads = list(call.args[1])
    for d in range(len(pads) // 2):
        if ids.size(-1 - d) == 1 != call.args[0].size(-1 - d):  # channels
            pads[2 * d : 2 * d + 2] = 0, 0
    return aten.constant_pad_nd(ids, pads, -1)  # type: ignore[no-any-return]


@rule(aten.copy_)
def _copy(call: Call) -> Result:
    trace = call.trace(call.args[1])
    return trace._replace(ids=with_dims(trace.ids, call.out.dim())) if isinstance(trace, Edges | Rows) else None


@rule(aten.sort)
def _sort(call: Call) -> Result:
    trace = call.trace(call.args[0])
    if not isinstance(trace, Edges) or call.out[0].dim() != 1:
        return REFUSED
    return [Edges(trace.ids[call.out[1]]), None]


@rule(aten.cat, aten.stack)
def _cat(call: Call) -> Result:
    dim = call.argument(1, "dim", 0) % call.out.dim()
    stacks = call.func.overloadpacket is aten.stack
    tensors = [x for x in call.args[0] if x.dim() + stacks == call.out.dim()]  # torch.cat skips tensors of shape [0]
    traces = [call.trace(tensor) for tensor in tensors]
    if stacks:
        traces = [t._replace(ids=t.ids.unsqueeze(dim)) if isinstance(t, Edges | Rows) else t for t in traces]
    ids = [t.ids if isinstance(t, Edges | Rows) else None for t in traces]
    shapes = [[*x.shape[:dim], 1, *x.shape[dim:]] if stacks else list(x.shape) for x in tensors]
    rows = [t for t in traces if isinstance(t, Rows)]
    if not any(i is not None and i.size(dim) == shape[dim] for i, shape in zip(ids, shapes, strict=True)):
        return call.graph.merge(rows) if rows else None  # channels side by side: each row reads all of them
    joined = concatenate_ids(ids, [shape[dim] for shape in shapes], dim)
    if not rows:
        return Edges(joined)
    sources: frozenset[int] = frozenset().union(*(r.sources for r in rows))
    return Rows(joined, sources, max(r.degree for r in rows), max(r.gates for r in rows))


# Entries are combined one by one #####################################################################################


@rule(aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub)
def _add(call: Call) -> Result:
    return _combine(call, call.args[:2])


@rule(aten.mul, aten.mul_)
def _mul(call: Call) -> Result:
    return _combine(call, call.args[:2], multiply=True)


@rule(aten.div, aten.div_)
def _div(call: Call) -> Result:
    if call.rows(call.args[1]) is not None or call.kwargs.get("rounding_mode") is not None:
        return REFUSED
    return _combine(call, call.args[:1])


@rule(aten.pow)
def _pow(call: Call) -> Result:
    base, exponent = call.rows(call.args[0]), call.args[1]
    if base is None or not isinstance(exponent, int) or exponent < 1:
        return REFUSED
    return base._replace(degree=base.degree * exponent, gates=base.gates * exponent)


@rule(aten.where)
def _where(call: Call) -> Result:
    return REFUSED if call.rows(call.args[0]) is not None else _combine(call, call.args[1:3])


@rule(aten.masked_fill, aten.masked_fill_)
def _masked_fill(call: Call) -> Result:
    if any(call.rows(argument) is not None for argument in call.args[1:]):
        return REFUSED
    return _combine(call, call.args[:1])


@rule(aten._native_batch_norm_legit_no_training)
def _batch_norm_eval(call: Call) -> Result:
    others = any(call.rows(argument) is not None for argument in call.args[1:])
    return REFUSED if others else [call.trace(call.args[0]), *[None] * (len(call.out) - 1)]


@rule(aten.native_batch_norm, aten.cudnn_batch_norm, aten.miopen_batch_norm)
def _batch_norm(call: Call) -> Result:
    return REFUSED if call.argument(5, "training") else _batch_norm_eval(call)


def _combine(call: Call, arguments: tuple[Any, ...], *, multiply: bool = False) -> Result:
    rows = [found for argument in arguments if (found := call.rows(argument)) is not None]
    if not rows:
        return None
    aligned = [r._replace(ids=with_dims(r.ids, call.out.dim())) for r in rows]
    return call.graph.merge(aligned, multiply=multiply)


# Rows are mixed ######################################################################################################


@rule(aten.sum, aten.mean)
def _sum(call: Call) -> Result:
    tensor, rows = call.args[0], call.rows(call.args[0])
    if rows is None:
        return None
    dims = call.argument(1, "dim")
    dims = {d % max(tensor.dim(), 1) for d in dims} if dims else set(range(tensor.dim()))
    return _sum_rows(call.graph, rows, dims, keepdim=bool(call.argument(2, "keepdim", False)))


def _sum_rows(graph: RowGraph, rows: Rows, dims: set[int], *, keepdim: bool) -> Rows:
    if any(rows.ids.size(d) != 1 for d in dims):
        shape = torch.Size(1 if d in dims else size for d, size in enumerate(rows.ids.shape))
        child = torch.arange(shape.numel(), device=rows.ids.device).view(shape)
        rows = graph.reduce(rows, child, shape)
    if keepdim:
        return rows
    kept = [size for d, size in enumerate(rows.ids.shape) if d not in dims]
    return rows._replace(ids=rows.ids.reshape(kept))


@rule(aten.mm, aten.bmm)
def _matmul(call: Call) -> Result:
    return _product(call, call.args[0], call.args[1])


@rule(aten.addmm, aten.baddbmm)
def _addmm(call: Call) -> Result:
    found = [call.rows(call.args[0]), _product(call, call.args[1], call.args[2])]
    rows = [r._replace(ids=with_dims(r.ids, call.out.dim())) for r in found if isinstance(r, Rows)]
    return call.graph.merge(rows) if rows else None


def _product(call: Call, left: Tensor, right: Tensor) -> Rows | None:
    found = [
        _sum_rows(call.graph, rows, {tensor.dim() + dim}, keepdim=True)
        for tensor, dim in ((left, -1), (right, -2))
        if (rows := call.rows(tensor)) is not None
    ]
    return call.graph.merge(found, multiply=True) if found else None


@rule(aten.scatter_add, aten.scatter_add_, aten.index_add, aten.index_add_)
def _scatter_add(call: Call) -> Result:
    base, dim, index, source = call.args[:4]
    return _scatter(call, base, dim, index, source)


@rule(aten.scatter_reduce, aten.scatter_reduce_)
def _scatter_reduce(call: Call) -> Result:
    base, dim, index, source, reduce = call.args[:5]
    return _scatter(call, base, dim, index, source) if reduce in ("sum", "mean") else REFUSED


def _scatter(call: Call, base: Tensor, dim: int, index: Tensor, source: Tensor) -> Result:
    before, rows = call.rows(base), call.rows(source)
    found = [] if before is None else [before]
    if rows is not None:
        if index.dim() == 1:
            index = index.view([-1 if d == dim % source.dim() else 1 for d in range(source.dim())])
        child, shape = scatter_positions(shrink_index(index, dim, rows.ids), dim, base.shape)
        found.append(call.graph.reduce(rows, child, shape))
    return call.graph.merge(found) if found else None


@rule(aten.index_put, aten.index_put_)
def _index_put(call: Call) -> Result:
    base, indices, values = call.args[:3]
    before, rows = call.rows(base), call.rows(values)
    if before is not None and not call.argument(3, "accumulate", False):
        overwritten = before.ids.expand(indexed_shape(before.ids.shape, base.shape, indices)).clone()
        before = before._replace(ids=aten.index_put(overwritten, indices, overwritten.new_tensor(-1)))
    found = [] if before is None else [before]
    if rows is not None:
        shape = indexed_shape([1] * base.dim(), base.shape, indices)
        position = torch.arange(shape.numel(), device=base.device).view(shape)
        child = aten.index(position, indices)
        found.append(call.graph.reduce(rows._replace(ids=with_dims(rows.ids, child.dim())), child, shape))
    return call.graph.merge(found) if found else None
