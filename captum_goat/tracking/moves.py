"""Rules for operations that move entries about: views, indexing, concatenation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.operations import aten
from captum_goat.tracking.registry import REFUSED, Call, Result, depends, joined, moves, rule
from captum_goat.tracking.row_graph import NO_ROW, Edges, Rows
from captum_goat.tracking.row_ids import concatenate_ids, index_ids, reshape_ids, shrink_index, with_dims


@moves(aten.clone, aten.alias, aten.lift_fresh, aten.positive, aten.neg, aten.neg_)
def _same(_: Call, ids: Tensor) -> Tensor:
    return ids


@rule(aten.detach, aten._to_copy)
def _converted(call: Call) -> Result:
    """Values that are detached or rounded to integers would be constants in the replay, but they are not."""
    trace = call.trace(call.args[0])
    detached = call.operation.packet is aten.detach
    return REFUSED if isinstance(trace, Rows) and (detached or not call.out.is_floating_point()) else trace


@depends(aten.detach, aten._to_copy)
def _dependent(call: Call) -> Result:
    return call.trace(call.args[0])


@moves(aten.transpose, aten.permute, aten.t, aten.unsqueeze, aten.flip, aten.roll)
def _rearrange(call: Call, ids: Tensor) -> Any:
    if call.operation.packet is aten.roll and not call.argument(2, "dims"):
        ids = ids.expand(call.args[0].shape)  # which is rolled as if it were flat
    return call.func(ids, *call.args[1:], **call.kwargs)


@moves(aten.view, aten._unsafe_view, aten.reshape, aten.squeeze, aten._reshape_alias)
def _reshape(call: Call, ids: Tensor) -> Tensor:
    return reshape_ids(ids, call.args[0].shape, call.out.shape)


@rule(aten.squeeze_, aten.unsqueeze_, aten.t_, aten.transpose_)
def _rearrange_in_place(call: Call) -> Result:
    trace = call.trace(call.args[0])
    if not isinstance(trace, Edges | Rows) or (call.operation.packet is aten.squeeze_ and len(call.args) == 1):
        return REFUSED  # the shape from before is gone
    change = getattr(aten, call.operation.packet.__name__[:-1])
    return trace._replace(ids=change(trace.ids, *call.args[1:]))


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


@moves(aten.slice, aten.index_select, aten.split, aten.unsafe_split, aten.split_with_sizes, aten.unbind)
def _pick(call: Call, ids: Tensor) -> Any:
    splits = call.operation.packet in (aten.split, aten.unsafe_split, aten.split_with_sizes)
    dim = call.argument(2 if splits else 1, "dim", 0)
    if ids.size(dim) != 1 or call.args[0].size(dim) == 1:
        if call.operation.packet is aten.index_select:
            return call.graph.select(ids, dim, call.argument(2, "index"))
        return call.func(ids, *call.args[1:], **call.kwargs)
    if call.operation.packet is aten.unbind:
        ids = ids.squeeze(dim)
    return ids if isinstance(call.out, Tensor) else [ids] * len(call.out)


@moves(aten.index)
def _index(call: Call, ids: Tensor) -> Tensor:
    moved = index_ids(ids, call.args[0].shape, call.args[1])
    trace = call.trace(call.args[0])
    return merged_edges(call.args[0], trace, moved) if isinstance(trace, Edges) else moved


def merged_edges(before: Tensor, edges: Edges, moved: Tensor) -> Tensor:
    """Return the edges of the columns that are left of ``before``, if equal columns were merged, as coalescing does.

    Merging keeps the first of each run of equal columns, and which one is the first is up to the sort before it. Of the
    edges in a run, the first one that has the column's direction stands for all; the first one of them all, if each has
    been turned round.

    Args:
        before: The columns, sorted, before some were left out.
        edges: Their edges.
        moved: The edges of the columns that are left, as they come.
    """
    if before.dim() != 2 or before.size(0) != 2 or moved.dim() != 2 or not 0 < moved.size(1) < before.size(1):
        return moved
    again = (before[:, 1:] == before[:, :-1]).all(dim=0)
    first = torch.cat([again.new_ones(1), ~again])
    of_ends = edges.ids.expand(before.shape)
    if not torch.equal(moved, edges.ids[:, first]) or not _is_sorted(before):
        return moved
    ids, known = of_ends[0], (of_ends[0] == of_ends[1]) & (of_ends[0] >= 0)
    turned = known & (before != edges.ends[:, ids]).any(dim=0)
    num_edges = edges.ends.size(1)
    order = torch.where(known, ids + num_edges * turned, 2 * num_edges)  # in their direction, turned round, unknown
    best = torch.full_like(moved[0], 2 * num_edges).scatter_reduce(0, first.cumsum(0) - 1, order, "amin")
    return torch.where(best < 2 * num_edges, best % num_edges, NO_ROW).expand(2, -1)


def _is_sorted(columns: Tensor) -> bool:
    """Return whether columns are in the order of their first entries and then of their second ones, or vice versa."""
    key = columns * (columns.max() + 1) + columns.flip(0)
    return bool((key[:, 1:] >= key[:, :-1]).all(dim=1).any())


@moves(aten.gather)
def _gather(call: Call, ids: Tensor) -> Tensor:
    dim, index = call.args[1:3]
    if ids.size(dim) == 1:  # channels
        index = torch.zeros_like(index)
    index = shrink_index(index, dim, ids)
    for d, size in enumerate(index.shape):  # a gather may leave the end of its input out
        if d != dim % ids.dim() and 1 != ids.size(d) > size:
            ids = ids.narrow(d, 0, size)
    shape = [size if d == dim % ids.dim() else index.size(d) for d, size in enumerate(ids.shape)]
    return ids.expand(shape).gather(dim, index)


@moves(aten.constant_pad_nd)
def _pad(call: Call, ids: Tensor) -> Tensor:
    pads, shape = call.args[1], list(ids.shape)
    for d in range(len(pads) // 2):
        if any(pads[2 * d : 2 * d + 2]):
            shape[-1 - d] = call.args[0].size(-1 - d)
        elif ids.size(-1 - d) == 1:
            pads = [*pads[: 2 * d], 0, 0, *pads[2 * d + 2 :]]
    padded: Tensor = aten.constant_pad_nd(ids.expand(shape), pads, NO_ROW)
    return padded


@rule(aten.copy_)
def _copy(call: Call) -> Result:
    trace = call.trace(call.args[1])
    return trace._replace(ids=with_dims(trace.ids, call.out.dim())) if isinstance(trace, Edges | Rows) else None


@rule(aten.nan_to_num, aten.nan_to_num_)
def _without_nans(call: Call) -> Result:
    """Where numbers are finite nothing happens to them; a replay with others would not reproduce the output."""
    return call.trace(call.args[0])


@rule(aten.sort)
def _sort(call: Call) -> Result:
    trace = call.trace(call.args[0])
    if not isinstance(trace, Edges) or call.out[0].dim() != 1:
        return REFUSED
    return [trace._replace(ids=trace.ids[call.out[1]]), None]


@rule(aten.argsort)  # seen in torch 2.4, where it is not a sort
def _argsort(call: Call) -> Result:
    return None if isinstance(call.trace(call.args[0]), Edges) else REFUSED


@rule(aten.cat, aten.stack)
def _cat(call: Call) -> Result:
    dim = call.argument(1, "dim", 0) % call.out.dim()
    stacks = call.operation.packet is aten.stack
    tensors = [x for x in call.args[0] if x.dim() + stacks == call.out.dim()]  # torch.cat skips tensors of shape [0]
    traces = [call.trace(tensor) for tensor in tensors]
    if stacks:
        traces = [t._replace(ids=t.ids.unsqueeze(dim)) if isinstance(t, Edges | Rows) else t for t in traces]
    ids = [t.ids if isinstance(t, Edges | Rows) else None for t in traces]
    shapes = [[*x.shape[:dim], 1, *x.shape[dim:]] if stacks else list(x.shape) for x in tensors]
    rows = [t for t in traces if isinstance(t, Rows)]
    if all(each is None for each in ids):
        return None
    together = concatenate_ids(ids, [shape[dim] for shape in shapes], dim)
    if rows:
        return joined(rows, together, constants=len(rows) < len(traces))
    return next(trace._replace(ids=together) for trace in traces if isinstance(trace, Edges))
