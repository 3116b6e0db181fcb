"""Rules for maxima and minima: the recorded winner is frozen. Values that are equal up to rounding share its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords, bind, is_inplace, spellings
from captum_goat.rules.registry import Keep, Rule, register

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
    with_base = given.get("include_self", True)

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

    kept = base * keep(lambda: shares()[0]) if with_base else base * (hits(torch.ones_like(source)) == 0)
    out: Tensor = kept.scatter_add(dim, index, source * keep(lambda: shares()[1]))
    return target.copy_(out) if base is not target else out


register(spellings("max", "min"), Rule(_max))
register(spellings("maximum", "minimum", "fmax", "fmin"), Rule(_maximum))
register(spellings("amax", "amin"), Rule(_amax))
register(spellings("scatter_reduce"), Rule(_scatter_reduce))
