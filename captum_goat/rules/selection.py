"""Rules for sorting and selecting: the chosen indices are frozen, and the rest only moves entries.

Unlike the losers of a maximum, entries that are not chosen do not count as read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.aggr import SortAggregation
from torch_geometric.utils import to_dense_batch

from captum_goat.rules.maxima import extreme
from captum_goat.rules.operations import Arguments, Keywords, bind, input_of, operation_name, spellings
from captum_goat.rules.registry import Keep, RecordedCall, Rewrite, Rule, register, rule
from captum_goat.tracking import Rows, UnsupportedModelError


def _indices(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
    """Rewrite an operation that returns indices."""
    return keep(lambda: func(*args, **kwargs), index=True)


def _sorted(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
    """Rewrite an operation that returns sorted or chosen entries and their indices."""
    value, kind = input_of(args, kwargs), func.__name__
    given = bind(("input", "dim") if kind in ("sort", "msort") else ("input", "k", "dim"), args, kwargs)
    index = keep(lambda: func(*args, **kwargs).indices, index=True)
    pair = value.gather(given.get("dim", -1), index), index
    return getattr(torch.return_types, kind)(pair)


class _Selection(Rule):
    """Sorting or selecting, but not among messages."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        rewrite = super().rewrite_for(call)
        if rewrite is not None and call.tracker.graph.propagating:
            raise UnsupportedModelError(
                f"'{operation_name(call.func)}' in {call.tracker.place()} selects among messages, as a median does. "
                f"Without edges all messages are 0, and which of them is selected depends on the order of the edges. "
                f"Use another aggregation, such as 'max' or 'mean'."
            )
        return rewrite


register(spellings("sort", "topk"), _Selection(_sorted, cuts=True))
register(spellings("argsort", "argmax", "argmin", "nonzero"), _Selection(_indices, cuts=True))


@rule(SortAggregation)
def _sort_aggregation(
    keep: Keep,
    module: SortAggregation,
    x: Tensor,
    index: Tensor | None = None,
    ptr: Tensor | None = None,
    dim_size: int | None = None,
    dim: int = -2,
    max_num_elements: int | None = None,
) -> Tensor:
    dense, mask = to_dense_batch(x, index, batch_size=dim_size, max_num_nodes=max_num_elements)

    def order() -> Tensor:
        last = dense[..., -1].masked_fill(~mask, -torch.inf)
        indices: Tensor = last.sort(dim=-1, descending=True).indices
        return indices[:, : module.k]

    chosen = keep(order, index=True)
    taken: Tensor = dense.gather(1, chosen.unsqueeze(-1).expand(-1, -1, dense.size(-1)))
    padded: Tensor = F.pad(taken, (0, 0, 0, module.k - taken.size(1)))
    return padded.flatten(1)


_MOVES = {"stride": 1, "padding": 0, "dilation": 1}  # how windows move, by default


class _Windows(Rule):
    """Convolution and maxima over a sequence whose entries are rows: they are written with an index of windows."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        rows, value = call.tracker.get(call.args[0]), call.args[0]
        if not isinstance(rows, Rows) or value.dim() != 3 or call.kwargs.get("return_indices"):
            return None
        return super().rewrite_for(call) if rows.ids.size(-1) != 1 or rows.ids.size(-2) != 1 else None


def _windows(value: Tensor, size: Any, moves: list[Any], fill: float) -> Tensor:
    """Return the windows ``[batch, channels, positions, size]`` of a sequence."""
    numbers = (number[0] if isinstance(number, list | tuple) else number for number in (size, *moves))
    size, stride, padding, dilation = numbers
    value = F.pad(value, (padding, padding), value=fill) if padding else value
    reach = dilation * (size - 1) + 1
    starts = torch.arange(0, value.size(-1) - reach + 1, stride, device=value.device)
    return value[..., starts.view(-1, 1) + torch.arange(0, reach, dilation, device=value.device)]


def _conv1d(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "weight", "bias", "stride", "padding", "dilation"), args, kwargs)
    weight, moves = given["weight"], [given.get(name, usual) for name, usual in _MOVES.items()]
    windows = _windows(given["input"], weight.size(-1), moves, 0.0)
    out: Tensor = windows.transpose(1, 2).flatten(2) @ weight.flatten(1).t()
    out = out if given.get("bias") is None else out + given["bias"]
    return out.transpose(1, 2)


def _max_pool1d(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "kernel_size", "stride", "padding", "dilation"), args, kwargs)
    size = given["kernel_size"]
    stride = given.get("stride") or size
    finite = torch.finfo(given["input"].dtype).min
    windows = _windows(given["input"], size, [stride, given.get("padding", 0), given.get("dilation", 1)], finite)
    return extreme(keep, windows, [-1], False, True)


def _is_simple(func: Callable[..., Any], args: Arguments, kwargs: Keywords, *, last: str, usual: Any) -> bool:
    """Return whether the last of six or seven arguments (groups, ceil_mode) is as usual, and padding a number."""
    given = bind(
        ("", "", "", "", "padding", "", last) if last == "groups" else ("", "", "", "padding", "", last), args, kwargs
    )
    return given.get(last, usual) == usual and not isinstance(given.get("padding"), str)


register(spellings("conv1d"), _Windows(_conv1d, when=partial(_is_simple, last="groups", usual=1)))
register(spellings("max_pool1d"), _Windows(_max_pool1d, when=partial(_is_simple, last="ceil_mode", usual=False)))
