"""Rules for activations: element-wise functions as gates, ``f(0) + P * in``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captum_goat.rules.operations import Arguments, Keywords, inplace_position, input_of, is_inplace, ratio, spellings
from captum_goat.rules.registry import Keep, Rule, register, rule


def gate(*operations: Any) -> None:
    """Make element-wise activations gates: ``out = f(0) + P * in``, with P kept as a gate.

    Args:
        *operations: Classes of modules, or functions of torch, with the activation's input as first argument.

    Examples:
        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GOAtAttribution, rules
        >>> class Snake(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + torch.sin(x) ** 2
        >>> rules.gate(Snake)
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(2, 4, num_layers=2, out_channels=2, act=Snake()).eval()
        >>> graph = torch.ones(2, 2), torch.tensor([[0], [1]])
        >>> attributions, delta = GOAtAttribution(model).attribute(torch.ones(1), (1, 0), graph, True)
        >>> bool(delta.abs() < 1e-6)
        True
        >>> rules.forget(Snake)
    """
    register(operations, Rule(_own_gate, unary=True))


def _own_gate(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite an activation of the user's, after a check in the recorded pass that it does not mix rows."""

    def keep_checked(values: Callable[[], Tensor], **options: Any) -> Tensor:
        def checked() -> Tensor:
            value = input_of(args, kwargs).detach()
            order = torch.arange(len(value), device=value.device).roll(len(value) // 3 + 1) if value.dim() else ...
            out, rolled = (func(rows.clone(), *args[1:]) for rows in (value, value[order]))
            if not torch.allclose(out[order], rolled, rtol=1e-3, atol=1e-5, equal_nan=True):
                raise ValueError(
                    f"Expected an activation that acts on every number alone (got {func.__qualname__}, which mixes "
                    f"rows). Write a rule for it with captum_goat.rules.rule."
                )
            return values()

        return keep(checked, **options)

    return gated(keep_checked, func, args, kwargs)


def gated(
    keep: Keep,
    func: Callable[..., Any],
    args: Arguments,
    kwargs: Keywords,
    *,
    passes_zero: bool = False,
    smooth: bool = False,
) -> Tensor:
    """Rewrite an element-wise function as ``f(0) + P * in``.

    With ``passes_zero`` f(0) is known to be 0. With ``smooth`` f is known to be smooth at 0, and P is its slope near 0,
    where ``(f(in) - f(0)) / in`` would be nothing but rounding.
    """
    value: Tensor = input_of(args, kwargs)
    inplace = is_inplace(func, args, kwargs)
    others = args[1 : inplace_position(func)]
    others_by_name = {name: option for name, option in kwargs.items() if name not in ("input", "inplace")}

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


def relu(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a ReLU: P is 1 where it lets its input pass."""

    def gated(value: Tensor) -> Tensor:
        return value * keep(lambda: value.detach().relu().sign_(), gate=True, reads=lambda: value)

    return relu_as(gated, func, args, kwargs)


def relu_as(gate: Callable[[Tensor], Tensor], func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Apply ``gate`` instead of a ReLU; in place if the ReLU is."""
    value: Tensor = input_of(args, kwargs)
    if is_inplace(func, args, kwargs):
        return value.copy_(gate(value.clone()))
    return gate(value)


@rule(F.glu)
def _glu(keep: Keep, input: Tensor, dim: int = -1) -> Tensor:
    value, open_ = input.chunk(2, dim)
    return value * gated(keep, torch.sigmoid, (open_,), {}, smooth=True)


# Element-wise functions through the origin, with a kink there or not: out = P * in.
_ACTIVATIONS = """leaky_relu prelu elu selu celu gelu silu mish hardswish softsign tanh tanhshrink hardshrink
softshrink abs absolute relu6 rrelu"""
register(spellings(*_ACTIVATIONS.split()), Rule(partial(gated, passes_zero=True), unary=True))
# Smooth ones that are not 0 at 0: out = f(0) + P * in.
register(spellings("hardsigmoid", "softplus"), Rule(partial(gated, smooth=True), unary=True))
register(spellings("sigmoid", "expit", "logsigmoid"), Rule(partial(gated, smooth=True), squashes=True, unary=True))
# With bounds that decide what they are at 0.
register(spellings("hardtanh", "clamp", "clip", "clamp_min", "clamp_max", "threshold"), Rule(gated, unary=True))
register((nn.ReLU, *spellings("relu")), Rule(relu, unary=True, is_relu=True))
