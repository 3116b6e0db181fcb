"""Do to the ids of rows what an operation does to their tensor.

Ids have as many dimensions as their tensor and broadcast to it: the entries along a dimension of size one, the
channels, belong to the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from captum_goat.tracking.row_graph import NO_ROW


def with_dims(ids: Tensor, dims: int) -> Tensor:
    """Return ids with the leading dimensions of size one that broadcasting adds."""
    return ids.view([1] * (dims - ids.dim()) + list(ids.shape))


def reshape_ids(ids: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Return the ids of a tensor that was reshaped from ``before`` to ``after``."""
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


def without_channels(ids: Tensor) -> Tensor:
    """Return ids with size one in every dimension along which they do not change."""
    for d, size in enumerate(ids.shape):
        if size > 1 and bool((ids == (first := ids.narrow(d, 0, 1))).all()):
            ids = first
    return ids


def without_repeats(ids: Tensor, dims: Iterable[int]) -> Tensor:
    """Return ids with -1 in place of those that equal their neighbor before them along dimensions."""
    for d in dims:
        if ids.size(d) > 1:
            again = ids.narrow(d, 1, ids.size(d) - 1) == ids.narrow(d, 0, ids.size(d) - 1)
            first = torch.zeros_like(again.narrow(d, 0, 1))
            ids = ids.masked_fill(torch.cat([first, again], d), NO_ROW)
    return ids


def index_ids(ids: Tensor, shape: Sequence[int], indices: Sequence[Tensor | None]) -> Tensor:
    """Return the ids of ``tensor[indices]`` for a tensor of a given shape."""
    indexed: Tensor = torch.ops.aten.index(ids.expand(indexed_shape(ids.shape, shape, indices)), indices)
    return indexed


def indexed_shape(small: Sequence[int], full: Sequence[int], indices: Sequence[Tensor | None]) -> torch.Size:
    """Return ``small`` with the full size in every dimension that is indexed."""
    shape, dim = list(small), 0
    for index in indices:
        spans = 1
        if index is not None:
            spans = index.dim() if index.dtype in (torch.bool, torch.uint8) else 1
            shape[dim : dim + spans] = full[dim : dim + spans]
        dim += spans
    return torch.Size(shape)


def concatenate_ids(ids: Sequence[Tensor | None], sizes: Sequence[int], dim: int) -> Tensor:
    """Return the ids of a concatenation of tensors of these sizes along ``dim`` (``None``: no edge reaches one)."""
    known = [piece for piece in ids if piece is not None]
    shape = list(torch.broadcast_shapes(*(piece.narrow(dim, 0, min(1, piece.size(dim))).shape for piece in known)))
    pieces = []
    for piece, size in zip(ids, sizes, strict=True):
        shape[dim] = size
        pieces.append(known[0].new_full(shape, NO_ROW) if piece is None else piece.expand(shape))
    return torch.cat(pieces, dim)


def shrink_index(index: Tensor, dim: int, ids: Tensor) -> Tensor:
    """Return the index of a gather or scatter without the channels to which it was expanded."""
    for d in range(index.dim()):
        if d != dim % index.dim() and ids.size(d) == 1 and index.size(d) > 1 and index.stride(d) == 0:
            index = index.narrow(d, 0, 1)
    return index


def scatter_positions(index: Tensor, dim: int, shape: Sequence[int]) -> tuple[Tensor, torch.Size]:
    """Return the position of each entry that is scattered along ``dim``, and the shape in which positions count."""
    dim %= index.dim()
    sizes = torch.Size(shape[d] if d == dim or size != 1 else 1 for d, size in enumerate(index.shape))
    position, step = torch.zeros_like(index), 1
    for d in reversed(range(index.dim())):
        if d == dim:
            position = position + index * step
        elif sizes[d] != 1:
            along = torch.arange(index.size(d), device=index.device)
            position = position + (along * step).view([-1 if k == d else 1 for k in range(index.dim())])
        step *= sizes[d]
    return position, sizes
