"""Rules for attention: its coefficients are frozen."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import softmax

from captum_goat.rules.operations import Arguments, Keywords, bind, spellings
from captum_goat.rules.products import PRODUCTS
from captum_goat.rules.registry import Factors, Keep, Kept, RecordedCall, Rewrite, Rule, find, register
from captum_goat.tracking import Broken, Rows, Unsupported


def freeze(*operations: Any) -> None:
    """Make the whole result a frozen factor: for attention coefficients.

    Args:
        *operations: Classes of modules, or functions of torch.

    Examples:
        >>> import torch
        >>> from captum_goat import rules
        >>> class Temperature(torch.nn.Module):
        ...     def forward(self, scores):
        ...         weights = (scores / 0.5).exp()
        ...         return weights / weights.sum(dim=-1, keepdim=True)
        >>> rules.freeze(Temperature)
        >>> rules.forget(Temperature)
    """
    register(operations, Rule(frozen_result, cuts=True))


def frozen_result(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
    """Rewrite an operation as a constant."""
    return keep(lambda: func(*args, **kwargs))


def _attention(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"), args, kwargs)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    attn_mask: Tensor | None = given.get("attn_mask")
    scale = 1 / math.sqrt(query.size(-1)) if given.get("scale") is None else given["scale"]
    if given.get("enable_gqa"):
        times = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)

    def weights() -> Tensor:
        scores: Tensor = query @ key.transpose(-2, -1) * scale
        allowed = attn_mask
        if given.get("is_causal"):
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if allowed is not None and allowed.dtype == torch.bool:
            scores = scores.masked_fill(~allowed, -math.inf)
        elif allowed is not None:
            scores = scores + allowed
        return scores.softmax(-1)

    def reads() -> Tensor:
        seen: Tensor = query.sum(-1, keepdim=True) + key.sum((-2, -1), keepdim=True)
        return seen if attn_mask is None or attn_mask.dtype == torch.bool else seen + attn_mask.sum(-1, keepdim=True)

    out: Tensor = keep(weights, reads=reads) @ value
    return out


@cache
def stepped_into(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the body of a function that torch hides from function modes; ``None`` for other functions."""
    if func not in (F.normalize, F.multi_head_attention_forward):
        return None
    visible = {name: lambda *_: False for name in func.__globals__ if name.startswith("has_torch_function")}
    body = FunctionType(func.__code__, func.__globals__ | visible, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def bounded_exp(value: Tensor) -> Tensor:
    """Return exp, but finite: an absent edge may have any attention, and zero times infinity is nan."""
    return value.clamp(max=math.log(torch.finfo(value.dtype).max) / 2).exp()


class _PresentExponential(Rule):
    """The exponentials in a softmax whose sum the presence of edges enters: they are what is frozen there."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        return super().rewrite_for(call) if call.over_edges else None

    def settle(self, call: RecordedCall, out: Any, kept: list[Kept]) -> list[Kept]:
        """Make the exponentials constants, of which only the quotient can be used."""
        rows = call.tracker.get(out)
        if kept and isinstance(rows, Rows):
            call.tracker.set(out, rows._replace(broken=Broken("exp", call.tracker.place())))
        factors = [one for one in kept if isinstance(one, Factors)]
        return [one._replace(variable=torch.zeros_like(one.variable), full=False) for one in factors]


class _PresentQuotient(Rule):
    """The division in such a softmax: it is done."""

    __slots__ = ()

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        return None if call.over_edges else super().rewrite_for(call)

    def settle(self, call: RecordedCall, out: Any, kept: list[Kept]) -> list[Kept]:
        """Take attention over edges for a factor that depends on their presence alone: the rest of it is frozen."""
        trace = call.tracker.get(out)
        if not kept and isinstance(trace, Rows | Unsupported):
            rows = call.tracker.rows(out) if isinstance(trace, Unsupported) else trace
            call.tracker.set(out, rows and rows._replace(degree=0, gates=0, frozen=0, broken=None))
        return kept


register((F.scaled_dot_product_attention,), Rule(_attention))
_FROZEN = Rule(frozen_result, cuts=True)
_EXPONENTIAL = _PresentExponential(frozen_result, cuts=True)
_QUOTIENT = _PresentQuotient(frozen_result, cuts=True)

register(spellings("softmax", "_softmax"), Rule(frozen_result, squashes=True, cuts=True))
register(spellings("softmin"), _FROZEN)
register(spellings("log_softmax"), Rule(None, squashes=True))

# The sparse softmax of torch_geometric is an exponential and a division in the end; rules for these would not do.
SOFTMAX = inspect.unwrap(softmax).__code__
SOFTMAX_STEPS: frozenset[Any] = PRODUCTS | {Tensor.exp}


def softmax_step(func: Callable[..., Any], *, presence: bool) -> tuple[Rule | None, Callable[..., Any]]:
    """Return the rule for one of :data:`SOFTMAX_STEPS` in torch_geometric's softmax, and the function to call.

    With ``presence`` the presence of edges enters sums over them.
    """
    if func is Tensor.exp:
        return (_EXPONENTIAL, bounded_exp) if presence else (find(func), func)
    return _QUOTIENT if presence else _FROZEN, func
