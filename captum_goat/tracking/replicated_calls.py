"""Calls for many replicas at once: tensors that depend on attributed inputs have the replicas as first dimension.

Functions without a rule here are called once per replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.registry import by_names, tensors_in
from captum_goat.tracking.tape import Slot, Step, Zeros, rows_of_index

# Called with the calls and one step; returns the result for all replicas, or `NotImplemented`.
_Rule = Callable[["ReplicatedCalls", Step], Any]
_RULES: dict[Any, _Rule] = {}
_rule = by_names(_RULES)


class ReplicatedCalls:
    """Makes the calls of a tape for ``count`` replicas."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.values: Mapping[int, Tensor] = {}

    def __call__(self, step: Step, values: Mapping[int, Tensor]) -> Any:
        """Return the results of a call, each for all replicas."""
        self.values = values
        rule = _RULES.get(step.function)
        if rule is not None and (result := rule(self, step)) is not NotImplemented:
            return result
        return self.one_by_one(lambda args, kwargs, _: step.function(*args, **kwargs), step, values)

    def one_by_one(
        self, call: Callable[[tuple[Any, ...], dict[str, Any], int], Any], step: Step, values: Mapping[int, Tensor]
    ) -> list[Tensor]:
        """Return the results of a call that is made once per replica."""
        results = []
        for replica in range(self.count):
            args, kwargs = step.arguments(lambda number, replica=replica: values[number][replica])  # type: ignore[misc]
            results.append(tensors_in([call(args, kwargs, replica)]))
        return [torch.stack(parts) for parts in zip(*results, strict=True)]

    def every(self, value: Any) -> Tensor | None:
        """Return a tensor of all replicas; ``None`` for what does not depend on attributed inputs."""
        return self.values[value.number] if isinstance(value, Slot) else None

    def flat(self, value: Any) -> Tensor | None:
        """Return a tensor with the rows of all replicas one after the other, if it has such rows."""
        every = self.every(value)
        return None if every is None or every.dim() < 2 else every.flatten(0, 1)


@_rule("add sub mul div neg clone detach contiguous dropout __add__ __radd__ __sub__ __mul__ __rmul__ __truediv__")
@_rule("add_ sub_ mul_ div_ __iadd__ __isub__ __imul__ __itruediv__")
def _entry_by_entry(calls: ReplicatedCalls, step: Step) -> Any:
    """Align the dimensions behind that of the replicas."""
    if any(isinstance(value, Slot) for value in step.kwargs.values()) or isinstance(step.args[0], Zeros):
        return NotImplemented
    args, slots, dims = list(step.args), list[int](), 0
    for place, value in enumerate(args):
        if isinstance(value, Slot):
            args[place] = calls.values[value.number]
            slots.append(place)
        if isinstance(value, Slot | Tensor):
            dims = max(dims, args[place].dim() + isinstance(value, Tensor))
    for place in slots:
        if (missing := dims - args[place].dim()) > 0:
            args[place] = args[place].view(calls.count, *[1] * missing, *args[place].shape[1:])
    if step.writes:
        args[0] = args[0].clone()
    return step.function(*args, **step.kwargs)


@_rule("linear matmul __matmul__")
def _linear(calls: ReplicatedCalls, step: Step) -> Any:
    every, rest = calls.every(step.args[0]), (*step.args[1:], *step.kwargs.values())
    if every is None or every.dim() < 3 or any(isinstance(value, Slot) for value in rest) or rest[0].dim() != 2:
        return NotImplemented
    if every.dim() == 3 and len(step.args) == 3 and step.args[2] is not None:  # without the views that `linear` makes
        weight = step.args[1].t()
        return torch.baddbmm(step.args[2], every, weight.expand(calls.count, *weight.shape))
    return step.function(every, *step.args[1:], **step.kwargs)


@_rule("batch_norm")
def _batch_norm(calls: ReplicatedCalls, step: Step) -> Any:
    flat, rest = calls.flat(step.args[0]), (*step.args[1:], *step.kwargs.values())
    training = step.kwargs.get("training", step.args[5] if len(step.args) > 5 else False)
    if flat is None or training or any(isinstance(value, Slot) for value in rest):
        return NotImplemented
    return step.function(flat, *step.args[1:], **step.kwargs).view_as(calls.values[step.args[0].number])


@_rule("index_select")
def _index_select(calls: ReplicatedCalls, step: Step) -> Any:
    if len(step.args) != 3 or step.kwargs:
        return NotImplemented
    value, dim, index = step.args
    every = calls.every(value)
    if every is None or not isinstance(index, Tensor) or index.dim() != 1 or dim not in (0, 1 - every.dim()):
        return NotImplemented
    return every.index_select(1, index)


@_rule("__getitem__")
def _getitem(calls: ReplicatedCalls, step: Step) -> Any:
    value, index = step.args
    every, parts = calls.every(value), index if isinstance(index, tuple) else (index,)
    if every is None or any(isinstance(part, Slot | list) for part in parts):
        return NotImplemented
    if isinstance(index, Tensor) and index.dtype == torch.long and index.dim() == 1 and every.dim() > 1:
        return every.index_select(1, index % max(every.size(1), 1))
    return NotImplemented if any(isinstance(part, Tensor) for part in parts) else every[(slice(None), *parts)]


@_rule("scatter_add scatter_add_")
def _scatter_add(calls: ReplicatedCalls, step: Step) -> Any:
    if len(step.args) != 4 or step.kwargs:
        return NotImplemented
    zeros, dim, index, source = step.args
    rows = calls.every(source)
    if not isinstance(zeros, Zeros) or rows is None or not isinstance(index, Tensor) or dim not in (0, -index.dim()):
        return NotImplemented
    same = rows.dim() > 1 and index.shape == rows.shape[1:] and zeros.size[1:] == index.shape[1:]
    if not same or (index := rows_of_index(index)) is None:
        return NotImplemented
    return torch.zeros(calls.count, *zeros.size, **zeros.kind).index_add(1, index, rows)


@_rule("mean sum")
def _reduce(calls: ReplicatedCalls, step: Step) -> Any:
    every = calls.every(step.args[0])
    dims = step.kwargs.get("dim", step.args[1] if len(step.args) > 1 else None)
    if every is None or len(step.args) > 2 or dims is None:
        return NotImplemented
    dims = [dim + 1 if dim >= 0 else dim for dim in ([dims] if isinstance(dims, int) else dims)]
    others = {name: value for name, value in step.kwargs.items() if name != "dim"}
    return step.function(every, dims, **others) if dims else NotImplemented


@_rule("view reshape")
def _view(calls: ReplicatedCalls, step: Step) -> Any:
    every, sizes = calls.every(step.args[0]), step.args[1:]
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    if every is None or step.kwargs or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    return every.reshape(calls.count, *sizes)


@_rule("unsqueeze")
def _unsqueeze(calls: ReplicatedCalls, step: Step) -> Any:
    every = calls.every(step.args[0])
    if every is None or len(step.args) != 2 or step.kwargs:
        return NotImplemented
    return every.unsqueeze(step.args[1] + (step.args[1] >= 0))


@_rule("cat concat")
def _cat(calls: ReplicatedCalls, step: Step) -> Any:
    tensors, dim = step.args[0], step.kwargs.get("dim", step.args[1] if len(step.args) > 1 else 0)
    if not isinstance(dim, int) or len(step.args) > 2 or step.kwargs.keys() - {"dim"}:
        return NotImplemented
    parts = [
        value.expand(calls.count, *value.shape) if (every := calls.every(value)) is None else every for value in tensors
    ]
    return torch.cat(parts, dim + (dim >= 0))
