"""Rules for maxima and minima, and for sorting and selecting: the recorded winner or choice is frozen.

Values that are equal up to rounding share a winner's place. Unlike the losers of a maximum, entries that are not chosen
do not count as read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.aggr import SortAggregation
from torch_geometric.utils import to_dense_batch

from captum_goat.rules.operations import Arguments, Keywords, bind, input_of, is_inplace, operation_name, spellings
from captum_goat.rules.registry import Keep, RecordedCall, Rewrite, Rule, register, rule
from captum_goat.tracking import Rows, UnsupportedModelError

# Values that differ by less than this many units in the last place are equal: sums in another order differ by that.
_ROUNDING_UNITS = 8


def _wins(value: Tensor, best: Tensor, largest: bool) -> Tensor:
    """Return 1 for values that reach the best one, up to rounding, and 0 for others."""
    limits = torch.finfo(best.dtype)
    rounding = _ROUNDING_UNITS * limits.eps * best.abs().clamp(max=limits.max)  # not infinite, if the best one is
    reached = value >= best - rounding if largest else value <= best + rounding
    return reached.to(value.dtype)


def extreme(keep: Keep, value: Tensor, dims: list[int], keepdim: bool, largest: bool) -> Tensor:
    """Return the largest or smallest entries along dimensions, with the winners frozen."""

    def winners() -> Tensor:
        best = (torch.amax if largest else torch.amin)(value, dims, keepdim=True)
        wins = _wins(value, best, largest)
        return wins / wins.sum(dims, keepdim=True)

    return (value * keep(winners)).sum(dims, keepdim=keepdim)


def _max(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
    """Rewrite `max` and `min` in their three forms."""
    largest = func.__name__.startswith("max")
    given = bind(("input", "other", "keepdim"), args, kwargs)
    value, other = given["input"], given.get("other", given.get("dim"))
    if isinstance(other, Tensor):
        return _between(keep, value, other, largest)
    if other is None:
        return extreme(keep, value, list(range(value.dim())), False, largest)
    kind = torch.return_types.max if largest else torch.return_types.min
    best = extreme(keep, value, [other], bool(given.get("keepdim", False)), largest)
    return kind((best, func(*args, **kwargs).indices))


def _maximum(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "other"), args, kwargs)
    return _between(keep, given["input"], given["other"], func.__name__ in ("maximum", "fmax"))


def _between(keep: Keep, first: Tensor, second: Tensor, largest: bool) -> Tensor:
    def share(this: Tensor, that: Tensor) -> Tensor:
        wins = _wins(this, that, largest)
        return wins / (wins + _wins(that, this, largest))

    return first * keep(lambda: share(first, second)) + second * keep(lambda: share(second, first))


def _amax(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "dim", "keepdim"), args, kwargs)
    value, dim = given["input"], given.get("dim", ())
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(value.dim()))
    return extreme(keep, value, dims, bool(given.get("keepdim", False)), func.__name__ == "amax")


def _scatter_reduce(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "dim", "index", "src", "reduce"), args, kwargs)
    target, dim, index, source = (given[name] for name in ("input", "dim", "index", "src"))
    base = target.clone() if is_inplace(func, args, kwargs) else target
    if given["reduce"] not in ("amax", "amin"):
        result: Tensor = func(*args, **kwargs)
        return result
    with_base = given.get("include_self", True) and not bool(base.isinf().all())  # which never wins

    def hits(wins: Tensor) -> Tensor:
        return torch.zeros_like(base).scatter_add(dim, index, wins)

    def shares() -> tuple[Tensor, Tensor]:
        """Return the part of the base and of the source in the result."""
        winner = base.scatter_reduce(dim, index, source, given["reduce"], include_self=with_base)
        largest = given["reduce"] == "amax"
        from_source = _wins(source, winner.gather(dim, index), largest)
        alone = (hits(torch.ones_like(source)) == 0).to(base.dtype)
        from_base = _wins(base, winner, largest) if with_base else alone
        total = hits(from_source) + from_base
        return from_base / total, from_source / total.gather(dim, index)

    kept = base * keep(lambda: shares()[0]) if with_base else base.masked_fill(hits(torch.ones_like(source)) != 0, 0.0)
    out: Tensor = kept.scatter_add(dim, index, source * keep(lambda: shares()[1]))
    return target.copy_(out) if base is not target else out


register(spellings("max", "min"), Rule(_max))
register(spellings("maximum", "minimum", "fmax", "fmin"), Rule(_maximum))
register(spellings("amax", "amin"), Rule(_amax))
register(spellings("scatter_reduce"), Rule(_scatter_reduce))


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


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_POOLING = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")


class _Windows(Rule):
    """Convolution and maxima over a sequence whose entries are rows: they are written with an index of windows."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        given = bind(_POOLING if "pool" in call.func.__name__ else _CONVOLUTION, call.args, call.kwargs)
        rows, value = call.tracker.get(given["input"]), given["input"]
        if not isinstance(rows, Rows) or value.dim() != 3 or given.get("return_indices") or given.get("ceil_mode"):
            return None
        if given.get("groups", 1) != 1 or isinstance(given.get("padding"), str):
            return None
        return super().rewrite_for(call) if rows.ids.size(-1) != 1 or rows.ids.size(-2) != 1 else None


def _windows(given: Keywords, size: Any, stride: Any, fill: float) -> Tensor:
    """Return the windows ``[batch, channels, positions, size]`` of a sequence."""
    value, moves = given["input"], (size, stride, given.get("padding", 0), given.get("dilation", 1))
    size, stride, padding, dilation = (move[0] if isinstance(move, list | tuple) else move for move in moves)
    value = F.pad(value, (padding, padding), value=fill) if padding else value
    reach = dilation * (size - 1) + 1
    starts = torch.arange(0, value.size(-1) - reach + 1, stride, device=value.device)
    windows: Tensor = value[..., starts.view(-1, 1) + torch.arange(0, reach, dilation, device=value.device)]
    return windows


def _conv1d(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(_CONVOLUTION, args, kwargs)
    weight, bias = given["weight"], given.get("bias")
    windows = _windows(given, weight.size(-1), given.get("stride", 1), 0.0)
    out: Tensor = windows.transpose(1, 2).flatten(2) @ weight.flatten(1).t()
    return (out if bias is None else out + bias).transpose(1, 2)


def _max_pool1d(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(_POOLING, args, kwargs)
    size, finite = given["kernel_size"], torch.finfo(given["input"].dtype).min
    return extreme(keep, _windows(given, size, given.get("stride") or size, finite), [-1], False, True)


register(spellings("conv1d"), _Windows(_conv1d))
register(spellings("max_pool1d"), _Windows(_max_pool1d))
