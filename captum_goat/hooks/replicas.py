"""Run a function for many replicas at once: ``torch.vmap``, but safe to interrupt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]

from captum_goat.hooks.global_state import restores_state

_functorch: Any = torch._C._functorch  # what torch.vmap is made of

# What torch raises for operations and models that it cannot batch.
CANNOT_BATCH = (RuntimeError, TypeError, ValueError, IndexError)


@restores_state
def batched(run: Callable[..., Tensor], count: int, *inputs: list[Tensor]) -> Tensor:
    """Run a function of lists of tensors for ``count`` replicas at once, the first dimension of all tensors.

    ``torch.vmap`` has a generator that pops the transform when it is collected: after an interrupt any time later.
    """
    lazy_load_decompositions()
    level = _functorch._vmap_increment_nesting(count, "error")
    output = run(*([_functorch._add_batch_dim(tensor, 0, level) for tensor in tensors] for tensors in inputs))
    result: Tensor = _functorch._remove_batch_dim(output, level, count, 0)
    return result


def is_batched(values: Tensor) -> bool:
    """Return whether a tensor differs from replica to replica."""
    return bool(_functorch.is_batchedtensor(values))


def outside_replicas(action: Callable[[], Any]) -> Any:
    """Call a function on plain tensors while replicas run."""
    layer = _functorch.pop_dynamic_layer_stack()  # an interrupt may lose it, but then it is not needed any more
    try:
        with torch._C.DisableTorchFunction():
            return action()
    finally:
        _functorch.push_dynamic_layer_stack(layer)


def as_replicas(every: Tensor) -> Tensor:
    """Return a tensor of all replicas, its first dimension, as the running replicas see it."""
    replicated: Tensor = _functorch._add_batch_dim(every, 0, _functorch.maybe_current_level())
    return replicated


def with_replicas(func: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Apply a function to the tensor of all replicas, its first dimension."""
    level, dim = _functorch.maybe_get_level(values), _functorch.maybe_get_bdim(values)
    every = _functorch.get_unwrapped(values)
    if _functorch.maybe_current_level() != level or is_batched(every):
        raise NotImplementedError("torch.vmap inside of the model")
    return as_replicas(outside_replicas(lambda: func(every.movedim(dim, 0) if dim else every)))
