"""Rules for products with sizes, such as norms that a model computes itself, and for values that leave torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords, is_inplace, spellings
from captum_goat.rules.recorded_calls import Factors, RecordedCall
from captum_goat.rules.registry import Keep, Rewrite, Rule, register
from captum_goat.tracking import Edges, Rows, UnsupportedModelError


class _Product(Rule):
    """Multiplication and division: where one factor is a size that depends on variables, it is frozen."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        rows = [trace for argument in call.args if isinstance(trace := call.tracker.get(argument), Rows)]
        if len(rows) != 2 or len(call.args) != 2 or call.kwargs:
            return None
        sizes = [position for position, trace in enumerate(rows) if trace.broken is not None]
        if len(sizes) != 1 or any(trace.broken is not None and not trace.broken.scale for trace in rows):
            return None
        return None if _divides(call.func) and sizes[0] == 0 else partial(_frozen_size, position=sizes[0])


def _frozen_size(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords, *, position: int) -> Tensor:
    """Multiply or divide by a size as by a constant."""
    size, other = args[position], args[1 - position]
    inplace = is_inplace(func, args, kwargs) or func.__name__.startswith("__i")
    out: Tensor = (other.clone() if inplace else other) * keep(lambda: 1 / size if _divides(func) else size)
    return args[0].copy_(out) if inplace else out


def _divides(func: Callable[..., Any]) -> bool:
    return "div" in func.__name__


class _Leaving(Rule):
    """What takes values out of torch: noted, in case the attributions do not add up."""

    __slots__ = ()

    def settle(self, call: RecordedCall, out: Any, kept: list[Factors | None]) -> list[Factors | None]:
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
register(tuple(PRODUCTS), _Product(None))
register(tuple(getattr(Tensor, name) for name in ("item", "tolist", "numpy", "__float__", "__int__")), _Leaving(None))
