"""What is known about each tensor of a forward pass, for as long as the tensor lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

Trace = TypeVar("Trace")


class Traces(Generic[Trace]):
    """A dictionary from tensors to traces that does not keep the tensors alive.

    It is read for every argument of every operation; torch's ``WeakTensorKeyDictionary`` is too slow for that. The
    trace of a dead tensor stays, under an id that another tensor may get; the weak reference tells the two apart.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Tensor], Trace]] = {}

    def get(self, tensor: Tensor) -> Trace | None:
        """Return the trace of a tensor, if it has one."""
        entry = self._entries.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def set(self, tensor: Tensor, trace: Trace | None) -> None:
        """Set the trace of a tensor; ``None`` removes it."""
        if trace is None:
            self._entries.pop(id(tensor), None)
        else:
            self._entries[id(tensor)] = ref(tensor), trace

    def views(self) -> Iterator[Tensor]:
        """Return the tensors that are views."""
        alive = (reference() for reference, _ in list(self._entries.values()))
        return (tensor for tensor in alive if tensor is not None and tensor._is_view())
