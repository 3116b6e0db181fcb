"""Rules for operations that move entries: views, indexing, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.registry import REFUSED, Call, Result, aten, depends, moves, rule
from captum_goat.tracking.row_graph import NO_ROW, Edges, Rows, indexed_shape, shrink_index, with_dims

moves(aten.clone, aten.alias, aten.lift_fresh, aten.positive, aten.neg, aten.neg_)(lambda _, ids: ids)
moves(aten.expand)(lambda call, ids: with_dims(ids, call.out.dim()))


@moves(aten.view, aten._unsafe_view, aten.reshape, aten.squeeze, aten._reshape_alias)
def _reshape(call: Call, ids: Tensor) -> Tensor:
    before, after = call.args[0].shape, call.out.shape
    if 0 in before:
        return ids.new_full([0 if size == 0 else 1 for size in after], NO_ROW)
    expanded, shape = list(ids.shape), []
    for old, new in _matching_dims(before, after):
        if any(ids.size(d) != 1 for d in old):
            for d in old:
                expanded[d] = before[d]
            shape += [after[d] for d in new]
        else:
            shape += [1] * len(new)
    return ids.expand(expanded).reshape(shape)


def _matching_dims(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the finest groups of dimensions, old and new, with the same entries in the same order."""
    groups, i, j = [], 0, 0
    while i < len(before) or j < len(after):
        old, new, size_old, size_new = [], [], 1, 1
        if i < len(before):
            old, size_old, i = [i], before[i], i + 1
        if j < len(after) and (not old or size_old != 1 or after[j] == 1):
            new, size_new, j = [j], after[j], j + 1
        while size_old != size_new:
            if size_old < size_new:
                old, size_old, i = [*old, i], size_old * before[i], i + 1
            else:
                new, size_new, j = [*new, j], size_new * after[j], j + 1
        groups.append((old, new))
    return groups


@rule(aten.detach, aten._to_copy)
def _converted(call: Call) -> Result:
    """Refuse values that are detached or rounded to integers: no gradient reaches them in the replay."""
    trace = call.trace(call.args[0])
    detached = call.operation.packet is aten.detach
    return REFUSED if isinstance(trace, Rows) and (detached or not call.out.is_floating_point()) else trace


@depends(aten.detach, aten._to_copy)
@rule(aten.nan_to_num, aten.nan_to_num_)
def _same_trace(call: Call) -> Result:
    """Return the trace of the first argument; where ``nan_to_num`` changes values the output is not reproduced."""
    return call.trace(call.args[0])


@moves(aten.transpose, aten.permute, aten.t, aten.unsqueeze, aten.flip, aten.roll)
def _rearrange(call: Call, ids: Tensor) -> Any:
    if call.operation.packet is aten.roll and not call.argument(2, "dims"):
        ids = ids.expand(call.args[0].shape)  # without dims it is rolled as if it were flat
    return call.func(ids, *call.args[1:], **call.kwargs)


@rule(aten.squeeze_, aten.unsqueeze_, aten.t_, aten.transpose_)
def _rearrange_in_place(call: Call) -> Result:
    trace = call.trace(call.args[0])
    if not isinstance(trace, Edges | Rows) or (call.operation.packet is aten.squeeze_ and len(call.args) == 1):
        return REFUSED  # the shape before the call is not known any more
    change = getattr(aten, call.operation.packet.__name__[:-1])
    return trace._replace(ids=change(trace.ids, *call.args[1:]))


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
    before, indices = call.args
    places = tuple(slice(None) if index is None else index for index in indices)
    moved = ids.expand(indexed_shape(ids.shape, before.shape, indices))[places]
    trace = call.trace(before)
    return _merged_edges(before, trace, moved) if isinstance(trace, Edges) else moved


def _merged_edges(before: Tensor, edges: Edges, moved: Tensor) -> Tensor:
    """Return the edges of columns that were picked from ``before``, also if that merged equal columns: coalescing.

    Merging keeps the first of each run of equal columns, and the sort before it decides which one is the first. The
    column gets the first edge of its run with the same direction, or the first one if all are reversed.
    """
    if before.dim() != 2 or before.size(0) != 2 or moved.dim() != 2 or not 0 < moved.size(1) < before.size(1):
        return moved
    again = (before[:, 1:] == before[:, :-1]).all(dim=0)
    first = torch.cat([again.new_ones(1), ~again])
    if not torch.equal(moved, edges.ids[:, first]):
        return moved
    key = before * (before.max() + 1) + before.flip(0)  # columns may be sorted by their first entries or their second
    if not (key[:, 1:] >= key[:, :-1]).all(dim=1).any():
        return moved
    if edges.renumbered:  # it is not known which of the merged edges has the direction of the result
        return torch.full_like(moved, NO_ROW)
    ids, other = edges.ids.expand(before.shape)
    known = (ids == other) & (ids >= 0)
    turned = known & (before != edges.ends[:, ids]).any(dim=0)
    num_edges = edges.ends.size(1)
    order = torch.where(known, ids + num_edges * turned, 2 * num_edges)  # the same direction, reversed, unknown
    best = torch.full_like(moved[0], 2 * num_edges).scatter_reduce(0, first.cumsum(0) - 1, order, "amin")
    return torch.where(best < 2 * num_edges, best % num_edges, NO_ROW).expand(2, -1)


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


@rule(aten.sort, aten.argsort)  # torch.argsort calls the second one in torch 2.4
def _sort(call: Call) -> Result:
    trace, sorts = call.trace(call.args[0]), call.operation.packet is aten.sort
    if not isinstance(trace, Edges) or (sorts and call.out[0].dim() != 1):
        return REFUSED
    return [trace._replace(ids=trace.ids[call.out[1]]), None] if sorts else None


@rule(aten.cat, aten.stack)
def _cat(call: Call) -> Result:
    dim = call.argument(1, "dim", 0) % call.out.dim()
    stacks = call.operation.packet is aten.stack
    tensors = [x for x in call.args[0] if x.dim() + stacks == call.out.dim()]  # torch.cat skips tensors of shape [0]
    traces = [call.trace(tensor) for tensor in tensors]
    ids = [t.ids if isinstance(t, Edges | Rows) else None for t in traces]
    if stacks:
        ids = [piece if piece is None else piece.unsqueeze(dim) for piece in ids]
    if not (known := [piece for piece in ids if piece is not None]):
        return None
    shape = [min(sizes) if 0 in sizes else max(sizes) for sizes in zip(*(piece.shape for piece in known), strict=True)]
    pieces = []
    for piece, tensor in zip(ids, tensors, strict=True):
        shape[dim] = 1 if stacks else tensor.size(dim)
        pieces.append(known[0].new_full(shape, NO_ROW) if piece is None else piece.expand(shape))
    together = torch.cat(pieces, dim)
    if rows := [t for t in traces if isinstance(t, Rows)]:
        return Rows.joined(rows, together, constants=len(rows) < len(traces))
    edges = [trace for trace in traces if isinstance(trace, Edges)]
    return edges[0]._replace(ids=together, renumbered=any(trace.renumbered for trace in edges))
