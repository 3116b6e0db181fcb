"""Rules for products and quotients, whose factors are frozen if they are no polynomials, and for roots as values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords, bind, input_of, is_inplace, ratio, spellings
from captum_goat.rules.registry import KERNELS, Keep, Kept, RecordedCall, Rewrite, Rule, register, rule
from captum_goat.tracking import Edges, Rows, UnsupportedModelError


class _Product(Rule):
    """Products and quotients: divisors are frozen, and factors of polynomials that are no polynomials themselves."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        if call.kwargs:
            return None
        divides, traces = _divides(call.func), [call.tracker.get(value) for value in _operands(call.args)]
        rows = {place: trace for place, trace in enumerate(traces) if isinstance(trace, Rows)}
        frozen = {place for place, trace in rows.items() if trace.broken is not None or (divides and place == 1)}
        if not frozen or frozen == rows.keys() or (divides and 0 in frozen):
            return None
        reasons = [rows[place].broken for place in frozen]
        can_be_values = any(reason is not None and reason.call is not None for reason in reasons)
        if can_be_values and all(rows[place].degree == 0 for place in rows.keys() - frozen):
            return None  # a root times attention: the root is the value
        return partial(_frozen_factors, places=frozen)


def _frozen_factors(
    keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords, *, places: set[int]
) -> Tensor:
    """Multiply by factors, or divide by a divisor, as by constants."""
    if func not in PRODUCTS:
        operands = [keep(partial(_same, one)) if k in places else one for k, one in enumerate(_operands(args))]
        product: Tensor = func(*operands) if isinstance(args[0], Tensor) else func(args[0], *operands)
        return product
    (place,) = places
    size, other = args[place], args[1 - place]
    inplace = is_inplace(func, args, kwargs) or func.__name__.startswith("__i")
    size = size if size.is_floating_point() else size.to(other.dtype)
    out: Tensor = (other.clone() if inplace else other) * keep(lambda: 1 / size if _divides(func) else size)
    return args[0].copy_(out) if inplace else out


def _same(value: Tensor) -> Tensor:
    return value


def _operands(args: Arguments) -> list[Any]:
    """Return the factors among the arguments of a product, which may be an equation and a list of them."""
    first, *others = args
    if isinstance(first, Tensor):
        return [first, *others]
    return list(others[0]) if len(others) == 1 and isinstance(others[0], list | tuple) else others


def _divides(func: Callable[..., Any]) -> bool:
    return "div" in func.__name__


class _Choice(Rule):
    """A choice between values by a condition that depends on variables: the condition is frozen."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        if len(call.args) != 3 or call.kwargs:
            return None
        condition, *sides = _sides(call.func, call.args)
        traces = [trace for side in sides if isinstance(trace := call.tracker.get(side), Rows)]
        finite = all(isinstance(side, Tensor) or math.isfinite(side) for side in sides)
        known = bool(traces) and finite and not any(trace.broken for trace in traces)
        return _chosen if known and isinstance(call.tracker.get(condition), Rows) else None


def _sides(func: Callable[..., Any], args: Arguments) -> tuple[Any, Any, Any]:
    """Return a condition, the value where it is true and the value where it is not."""
    value, condition, fill = args
    return (condition, fill, value) if "fill" in func.__name__ else (value, condition, fill)


def _chosen(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    condition, yes, no = _sides(func, args)
    dtype = next(side.dtype for side in (yes, no) if isinstance(side, Tensor))
    inplace = is_inplace(func, args, kwargs)
    no = no.clone() if inplace else no
    out: Tensor = keep(lambda: condition.to(dtype)) * yes + keep(lambda: (~condition).to(dtype)) * no
    return args[0].copy_(out) if inplace else out


class _Root(Rule):
    """Roots and powers: frozen as factors and divisors of others; where they are values, ``P * polynomial``."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        return super().rewrite_for(call) if call.as_value else None

    def settle(self, call: RecordedCall, out: Any, kept: list[Kept]) -> list[Kept]:
        """Note which call it is that makes the result no polynomial."""
        rows = call.tracker.get(out)
        if isinstance(rows, Rows) and rows.broken is not None and rows.broken.call is None:
            call.tracker.set(out, rows._replace(broken=rows.broken._replace(call=call.number)))
        return kept


def _proportional(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a power as ``x * P``, with ``P = f(x) / x`` frozen."""
    value = input_of(args, kwargs)
    inplace = is_inplace(func, args, kwargs)
    base = value.clone() if inplace else value
    out: Tensor = base * keep(lambda: ratio(func(base.clone(), *args[1:], **kwargs), base))
    return value.copy_(out) if inplace else out


def _is_root(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    """Return whether a power is no product."""
    exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    return not (isinstance(exponent, int | float) and exponent >= 1 and exponent == int(exponent))


def _norm(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a Euclidean norm as the sum of squares times a frozen factor."""
    given = bind(("input", "p", "dim", "keepdim"), args, kwargs)
    value: Tensor = given["input"] if "input" in given else given["x"]
    dims = list(range(value.dim())) if given.get("dim") is None else given["dim"]
    squares = value.square().sum(dims, keepdim=bool(given.get("keepdim", False)))
    return squares * keep(lambda: ratio(func(*args, **kwargs), squares))


def _is_euclidean(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    given = bind(("input", "p", "dim", "keepdim"), args, kwargs)
    return given.get("p", given.get("ord", 2)) in (None, 2, "fro") and given.get("dtype") is None


def _deviation(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a variance as squares; a standard deviation as the variance times a frozen factor."""
    given = bind(("input", "dim"), args, kwargs)
    value: Tensor = given["input"]
    dims = given.get("dim")
    dims = list(range(value.dim())) if dims is None or isinstance(dims, bool) else dims
    keepdim = bool(given.get("keepdim", args[3] if len(args) > 3 else False))
    squares = (value - value.mean(dims, keepdim=True)).square().sum(dims, keepdim=keepdim)
    return squares * keep(lambda: ratio(func(*args, **kwargs), squares))


@rule(*spellings("cosine_similarity"))
def _cosine(keep: Keep, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    def scale() -> Tensor:
        one, other = (value.square().sum(dim).clamp(min=eps * eps).sqrt() for value in (x1, x2))
        return 1 / (one * other)

    return (x1 * x2).sum(dim) * keep(scale)


class _Leaving(Rule):
    """What takes values out of torch: noted, in case the attributions do not add up."""

    __slots__ = ()

    def settle(self, call: RecordedCall, out: Any, kept: list[Kept]) -> list[Kept]:
        """Raise UnsupportedModelError for edges, and note values that depend on variables."""
        trace, place = call.tracker.get(call.args[0]), f"'{call.func.__name__}' in {call.tracker.place()}"
        if isinstance(trace, Edges):
            raise UnsupportedModelError(
                f"{place} takes edges out of torch, and what is done with them there cannot be masked. Let a layer "
                f"that derives from torch_geometric.nn.MessagePassing do it."
            )
        if isinstance(trace, Rows):
            call.suspects.append(place)
        return kept


_NAMES = "mul multiply __mul__ __rmul__ __imul__ div divide true_divide __truediv__ __itruediv__ __div__ __idiv__"
PRODUCTS: frozenset[Any] = frozenset(spellings(*_NAMES.split()))
_MATRIX_PRODUCTS = spellings("matmul", "mm", "bmm", "mv", "dot", "einsum", "__matmul__")
register((*PRODUCTS, *_MATRIX_PRODUCTS), _Product(None))
register(spellings("where", "masked_fill"), _Choice(None))
register(spellings("sqrt"), _Root(_proportional))
register(spellings("pow", "float_power", "__pow__"), _Root(_proportional, when=_is_root))
register(spellings("norm", "vector_norm"), _Root(_norm, when=_is_euclidean))
register(spellings("std", "var"), _Root(_deviation))
register(tuple(getattr(Tensor, name) for name in ("item", "tolist", "numpy", "__float__", "__int__")), _Leaving(None))


def _spline_weighting(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Multiply each row by its sum of matrices, by operations that can be followed."""
    x, weight, basis, index = args
    matrices = (basis.unsqueeze(-1).unsqueeze(-1) * weight[index]).sum(dim=1)
    return torch.bmm(x.unsqueeze(1), matrices).squeeze(1)


KERNELS |= dict.fromkeys(("torch_spline_conv.spline_weighting", "pyg.spline_weighting"), Rule(_spline_weighting))
