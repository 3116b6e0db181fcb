"""A value for the last graph that was seen, to be used again when the same graph comes again."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.inputs.graph_inputs import GraphInputs

Value = TypeVar("Value")


@dataclass(frozen=True)
class CachedGraph(Generic[Value]):
    """A graph, without any tensor of the user's, and what is known of it.

    Attributes:
        model: The model.
        layout: The names of its arguments, and where the edges are among them.
        key: What else must be the same.
        indices: Copies of the arguments that are integers or masks; the arguments may have been written to since.
        value: What is known.
    """

    model: Module
    layout: Any
    key: Hashable
    indices: list[Tensor]
    value: Value

    def is_of(self, graph: GraphInputs, key: Hashable) -> bool:
        """Return whether a graph is this one, but for floating point numbers."""
        if self.model is not graph.model or self.key != key or self.layout != graph.layout:
            return False
        indices = _indices(graph)
        return len(indices) == len(self.indices) and all(map(_same, self.indices, indices))


class GraphCache(Generic[Value]):
    """Remembers the last graph. What is remembered is never changed, so several threads may use it."""

    def __init__(self) -> None:
        self._last: CachedGraph[Value] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_last": None}  # nothing that a copy of the explainer would miss

    def clear(self) -> None:
        """Forget the graph."""
        self._last = None

    def keep(self, graph: GraphInputs, key: Hashable, value: Value) -> None:
        """Remember a graph in place of the last one."""
        indices = [tensor.clone() for tensor in _indices(graph)]
        self._last = CachedGraph(graph.model, graph.layout, key, indices, value)

    def recall(self, graph: GraphInputs, key: Hashable) -> CachedGraph[Value] | None:
        """Return what is known of a graph, if it is the last one."""
        last = self._last
        return last if last is not None and last.is_of(graph, key) else None

    def update(self, cached: CachedGraph[Value], value: Value) -> None:
        """Remember another value for a graph that was recalled."""
        self._last = replace(cached, value=value)


def _indices(graph: GraphInputs) -> list[Tensor]:
    return [tensor for tensor in graph.tensors if not tensor.is_floating_point()]


def _same(one: Tensor, other: Tensor) -> bool:
    kinds = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
    return kinds and torch.equal(one, other)
