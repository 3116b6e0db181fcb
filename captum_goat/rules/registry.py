"""The register of rules, and how users add their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.rules.activation_gates import gated, ratio
from captum_goat.rules.call_arguments import input_of

__all__ = ["Keep", "Rule", "forget", "freeze", "gate", "rule", "scale"]


class Keep(Protocol):
    """Keeps numbers of the recorded pass, and gives them back in every replay.

    A function with a :func:`rule` is given one. To try the function out, anything will do that computes the numbers.

    Examples::

        >>> import torch
        >>> def halved(keep, x):
        ...     return x * keep(lambda: 1 / (2 * torch.ones_like(x)))
        >>> halved(lambda values, **options: values(), torch.tensor([3.0]))
        tensor([1.5000])
    """

    def __call__(
        self, values: Callable[[], Tensor], *, gate: bool = False, reads: Callable[[], Tensor] | None = None
    ) -> Tensor:
        """Return frozen numbers, by which something must be multiplied.

        Args:
            values: Computes them; not called in replays.
            gate: Whether they are gates, else constants.
            reads: Computes a tensor that broadcasts to the values and depends on the same inputs, where that is cheaper
                to follow; ``None`` to follow ``values``.
        """


# Called with a Keep, the operation, its arguments and its keyword arguments; returns the result.
Rewrite = Callable[[Keep, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Rule(NamedTuple):
    """How an operation is replayed.

    Attributes:
        rewrite: Called with a :class:`Keep`, the operation and its arguments; returns its result. ``None`` leaves the
            operation as it is.
        squashes: Whether the operation is left out where it is the very last step of a model.
        cuts: Whether the result is a constant, so that the arguments need not be polynomials.
        unary: Whether only the first argument may depend on variables.
        when: Called with the operation and its arguments; returns whether the call is to be rewritten. ``None`` for
            every call.

    Examples::

        >>> from captum_goat.rules import Rule
        >>> Rule(rewrite=None, squashes=True)  # stays as it is, but is left out where it is the last step
        Rule(rewrite=None, squashes=True, cuts=False, unary=False, when=None)
    """

    rewrite: Rewrite | None
    squashes: bool = False
    cuts: bool = False
    unary: bool = False
    when: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], bool] | None = None


_RULES: dict[Any, Rule] = {}


def register(operations: tuple[Any, ...], new: Rule) -> None:
    """Give operations a rule, in place of the one that they may have."""
    for operation in operations:
        if not callable(operation):
            raise TypeError(f"Expected a function of torch or a class of modules (got {operation!r}).")
        if isinstance(operation, Module):
            raise TypeError(f"Expected the class of a module (got a {type(operation).__name__} itself).")
        _RULES[operation] = new


def find(operation: Any) -> Rule | None:
    """Return the rule of a function or of a class of modules."""
    return _RULES.get(operation)


def forget(*operations: Any) -> None:
    """Take the rules of operations away.

    Args:
        *operations: Classes of modules, or functions of torch. Those without a rule are passed over.

    Examples::

        >>> import torch
        >>> from captum_goat import rules
        >>> class Snake(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + torch.sin(x) ** 2
        >>> rules.gate(Snake)
        >>> rules.forget(Snake)  # its models are refused again
    """
    for operation in operations:
        _RULES.pop(operation, None)


def gate(*operations: Any) -> None:
    """Make element-wise activations gates: ``out = f(0) + P * in``, with P kept as a gate.

    Args:
        *operations: Classes of modules, or functions of torch, with the activation's input as first argument.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCNConv, Sequential
        >>> from captum_goat import GOAtAttribution, rules
        >>> class Snake(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + torch.sin(x) ** 2
        >>> rules.gate(Snake)
        >>> _ = torch.manual_seed(0)
        >>> model = Sequential("x, edge_index", [(GCNConv(2, 2), "x, edge_index -> x"), Snake()]).eval()
        >>> graph = torch.ones(2, 2), torch.tensor([[0], [1]])
        >>> attributions, delta = GOAtAttribution(model).attribute(torch.ones(1), (1, 0), graph, True)
        >>> bool(delta.abs() < 1e-6)
        True
        >>> rules.forget(Snake)
    """
    register(operations, Rule(_own_gate, unary=True))


def scale(*operations: Any) -> None:
    """Make ``out / in`` a frozen factor: for norms that only scale their input.

    Args:
        *operations: Classes of modules, or functions of torch, with what is scaled as first argument.

    Examples::

        >>> import torch
        >>> from captum_goat import rules
        >>> class SoftNorm(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x / torch.log1p(x.square().sum(dim=-1, keepdim=True).exp())
        >>> rules.scale(SoftNorm)
        >>> rules.forget(SoftNorm)
    """

    def rewrite(keep: Keep, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = input_of(args, kwargs)
        return value * keep(lambda: ratio(func(*args, **kwargs), value))

    register(operations, Rule(rewrite))


def freeze(*operations: Any) -> None:
    """Make the whole result a frozen factor: for attention coefficients.

    Args:
        *operations: Classes of modules, or functions of torch.

    Examples::

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


def rule(*operations: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function ``(keep, *arguments)`` that rewrites an operation; a module is its own first argument.

    Args:
        *operations: Classes of modules, or functions of torch.

    Returns:
        A decorator, which leaves the function as it is.

    Examples::

        >>> import torch
        >>> from captum_goat import rules
        >>> class Squared(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x * x.abs()
        >>> @rules.rule(Squared)
        ... def squared(keep, module, x):
        ...     return x * keep(lambda: x.abs(), gate=True)
        >>> rules.forget(Squared)
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def rewrite(keep: Keep, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            owner = getattr(func, "__self__", None)
            return function(keep, *((owner,) if isinstance(owner, Module) else ()), *args, **kwargs)

        register(operations, Rule(rewrite))
        return function

    return decorate


def _own_gate(keep: Keep, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Rewrite an activation of the user's, after a look at whether it treats every row on its own."""

    def keep_checked(values: Callable[[], Tensor], **options: Any) -> Tensor:
        def checked() -> Tensor:
            value = input_of(args, kwargs).detach()
            if value.dim() and _mixes_rows(lambda rows: func(rows.clone(), *args[1:]), value):
                raise ValueError(
                    f"Expected an activation that acts on every number alone (got {func.__qualname__}, which mixes "
                    f"rows). Write a rule of its own for it, with captum_goat.rules.rule."
                )
            return values()

        return keep(checked, **options)

    return gated(keep_checked, func, args, kwargs)


def _mixes_rows(function: Callable[[Tensor], Tensor], value: Tensor) -> bool:
    order = torch.arange(len(value), device=value.device).roll(len(value) // 3 + 1)
    out, rolled = function(value), function(value[order])
    return not torch.allclose(out[order], rolled, rtol=1e-3, atol=1e-5, equal_nan=True)


def frozen_result(keep: Keep, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rewrite an operation as a constant."""
    return keep(lambda: func(*args, **kwargs))
