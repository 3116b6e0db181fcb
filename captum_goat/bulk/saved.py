"""Attributions in a file, graph by graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from torch import Tensor


class GraphAttributions(NamedTuple):
    """The attributions of one graph.

    Attributes:
        attributions: ``[E]``, or ``[E, C]`` for all classes.
        edge_index: The edges, ``[2, E]``.
        target: The explained class; ``None`` where all are explained or there are none.
        output: The model's output, ``[C]`` or one number, without a last softmax or sigmoid.
        delta: The completeness error, one number, or ``[C]`` for all classes.
    """

    attributions: Tensor
    edge_index: Tensor
    target: Tensor | None
    output: Tensor
    delta: Tensor


class SavedAttributions(Sequence[GraphAttributions]):
    """The attributions of a data set, read from a file when they are asked for.

    Attributes:
        meta: How they came about: the options, the numbers of graphs and edges, and ``largest_error``, the largest
            completeness error.
    """

    meta: dict[str, Any]

    def __len__(self) -> int:
        return int(self.meta["graphs"])

    @overload
    def __getitem__(self, index: int) -> GraphAttributions: ...

    @overload
    def __getitem__(self, index: slice) -> list[GraphAttributions]: ...

    def __getitem__(self, index: int | slice) -> GraphAttributions | list[GraphAttributions]:
        if isinstance(index, slice):
            return [self._graph(number) for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"Expected the number of one of {len(self)} graphs (got {index}).")
        return self._graph(index % len(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} graphs, {self.meta['edges']} edges)"

    @abstractmethod
    def _graph(self, number: int) -> GraphAttributions:
        """Return the attributions of a graph."""
