"""What is known of each tensor of a forward pass, for as long as the tensor lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

Trace = TypeVar("Trace")


class Traces(Generic[Trace]):
    """A dictionary from tensors to traces, whatever these are, that does not keep the tensors alive.

    It is looked into for every argument of every operation, for which torch's own ``WeakTensorKeyDictionary`` is slow.
    A tensor that is gone leaves its trace behind, under an id that is another tensor's by then or nobody's; the
    reference beside the trace tells.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[ref[Tensor], Trace]] = {}

    def get(self, tensor: Tensor) -> Trace | None:
        """Return what is known of a tensor."""
        entry = self._found.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def set(self, tensor: Tensor, trace: Trace | None) -> None:
        """Say what is known of a tensor; ``None`` to forget it."""
        if trace is None:
            self._found.pop(id(tensor), None)
        else:
            self._found[id(tensor)] = ref(tensor), trace

    def views(self) -> Iterator[Tensor]:
        """Return the views among the tensors."""
        for each, _ in list(self._found.values()):
            if (tensor := each()) is not None and tensor._is_view():
                yield tensor
