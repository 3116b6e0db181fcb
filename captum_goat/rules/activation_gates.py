"""An element-wise function as a gate: ``f(0) + P * in``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from captum_goat.rules.call_arguments import inplace_position, input_of, is_inplace

if TYPE_CHECKING:
    from captum_goat.rules.registry import Keep


def ratio(out: Tensor, value: Tensor) -> Tensor:
    """Return out / value, and 0 where value is 0."""
    return torch.where(value == 0, 0.0, out / value)


def gated(
    keep: Keep,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    passes_zero: bool = False,
    smooth: bool = False,
) -> Tensor:
    """Rewrite an element-wise function as ``f(0) + P * in``.

    Args:
        keep: Keeps P.
        func: The function.
        args: Its arguments, first of all its input.
        kwargs: Its keyword arguments.
        passes_zero: Whether f(0) is known to be 0.
        smooth: Whether the function is known to be smooth at 0. Then P is its slope near 0, where
            ``(f(in) - f(0)) / in`` would be nothing but rounding.
    """
    value: Tensor = input_of(args, kwargs)
    others = args[1:]
    inplace = is_inplace(func, args, kwargs)
    others_by_name = {name: each for name, each in kwargs.items() if name not in ("input", "inplace")}
    position = inplace_position(func)
    if position is not None:
        others = others[: position - 1]

    def apply(to: Tensor) -> Tensor:
        result: Tensor = func(to, *others, **others_by_name)
        return result

    at_zero = None
    if not passes_zero:
        with torch.no_grad():
            at_zero = apply(torch.zeros_like(value))

    def pattern() -> Tensor:
        at = value
        if smooth:
            small = torch.finfo(value.dtype).eps ** 0.5
            at = torch.where(value.abs() < small, small, value)
        out = apply(at.clone() if inplace else at)
        return torch.where(value == 0, 0.0, ratio(out if at_zero is None else out - at_zero, at))

    out = (value.clone() if inplace else value) * keep(pattern, gate=True, reads=lambda: value)
    out = out if at_zero is None else out + at_zero
    # In place means in place: some code goes on with the tensor and drops what is returned.
    return value.copy_(out) if inplace else out
