"""The declaration of messages that a model passes by its own code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch.nn import Module
from torch.overrides import handle_torch_function, has_torch_function
from torch_geometric.nn import MessagePassing

from captum_goat.rules.registry import Rule, find, register

MESSAGES = Rule(None)  # of functions and classes of modules that return messages
Declared = TypeVar("Declared", bound=Callable[..., Any])


def message(operation: Declared) -> Declared:
    """Declare that a function or a class of modules returns the messages of a layer that passes them by its own code.

    The result has one row per edge, along dimension 0, and an edge mask multiplies these rows, as it multiplies the
    messages of :class:`torch_geometric.nn.MessagePassing`. Row k belongs to column k of the ``edge_index`` among the
    arguments, or to the edge at which row k of an argument was gathered; without such arguments to column k of the
    graph's ``edge_index``. More rows than that, such as those of self-loops, are constants. Whatever the function sums
    up over edges itself, such as the denominators of a softmax, is a part of the messages and not masked.

    Args:
        operation: A function, or a method of a class, whose place the returned one must take; or a class of modules.

    Returns:
        The class itself, or a function that does the same and is seen while a model is explained.

    Examples:
        >>> import torch
        >>> from captum_goat import GOAtAttribution, rules
        >>> class Attention(torch.nn.Module):
        ...     def forward(self, x, edge_index):
        ...         messages = self.messages(x, *edge_index)
        ...         return torch.zeros_like(x).index_add(0, edge_index[1], messages)
        ...
        ...     @rules.message
        ...     def messages(self, x, source, target):
        ...         weight = (x[source] * x[target]).sum(dim=1, keepdim=True).exp()
        ...         total = weight.new_zeros(len(x), 1).index_add(0, target, weight)
        ...         return weight / total[target] * x[source]
        >>> graph = torch.tensor([[1.0], [2.0], [0.0]]), torch.tensor([[0, 1], [2, 2]])
        >>> GOAtAttribution(Attention().eval()).attribute(torch.ones(2), (2, 0), graph)
        tensor([0.5000, 1.0000])
        >>> rules.forget(Attention.messages)  # the model is refused again
    """
    if isinstance(operation, type) and issubclass(operation, MessagePassing):
        raise TypeError(f"Expected a function that returns messages (got the layer {operation.__name__} itself).")
    if isinstance(operation, type | Module) or not callable(operation):
        register((operation,), MESSAGES)
        return operation

    @wraps(operation)
    def declared(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if find(declared) is MESSAGES and has_torch_function(given):
            return handle_torch_function(declared, given, *args, **kwargs)
        return operation(*args, **kwargs)

    register((declared,), MESSAGES)
    return declared  # type: ignore[return-value]
