"""What becomes of rows when tensors that share memory are written to."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_goat.tracking.registry import joined
from captum_goat.tracking.row_graph import NO_ROW, Edges, Rows, Trace, Unsupported
from captum_goat.tracking.row_ids import without_channels


def written_to(base: Tensor, before: Trace | None, view: Tensor, written: Rows | Unsupported) -> Trace | None:
    """Return the trace of a tensor after something was written to a view of it; ``None`` if that cannot be told."""
    if view.shape == base.shape and view.stride() == base.stride():
        return written
    if isinstance(written, Unsupported) or isinstance(before, Edges | Unsupported) or not base.is_contiguous():
        return None
    ids = torch.full(base.shape, NO_ROW, device=base.device)
    if isinstance(before, Rows):
        ids.copy_(before.ids.expand(base.shape))
    _seen(ids, base, view).copy_(written.ids.expand(view.shape))
    rows = [each for each in (before, written) if isinstance(each, Rows)]
    return joined(rows, without_channels(ids), constants=len(rows) < 2)


def seen_through(base: Tensor, behind: Trace | None, view: Tensor) -> Trace | None:
    """Return what a view shows of a tensor that was written to."""
    if isinstance(behind, Unsupported):
        return behind
    if not isinstance(behind, Rows) or not base.is_contiguous():
        return None
    ids = behind.ids.expand(base.shape).contiguous()
    return behind._replace(ids=without_channels(_seen(ids, base, view)))


def still_edges(base: Tensor, before: Trace | None, view: Tensor, written: Trace | None) -> bool:
    """Return whether columns of edges stay those of the same edges, as where indices are shifted in place."""
    if not isinstance(before, Edges) or not isinstance(written, Edges) or not base.is_contiguous():
        return not isinstance(before, Edges) and written is None
    ids = before.ids.expand(base.shape).contiguous()
    return torch.equal(_seen(ids, base, view), written.ids.expand(view.shape))


def _seen(ids: Tensor, base: Tensor, view: Tensor) -> Tensor:
    return ids.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
