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

    Examples::

        >>> import torch
        >>> from captum_goat.bulk import GraphAttributions
        >>> one, edges = torch.tensor(1), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> graph = GraphAttributions(torch.tensor([0.1, 0.7, 0.2]), edges, one, torch.zeros(2), torch.tensor(0.0))
        >>> graph.edge_index[:, graph.attributions.argmax()]  # the edge that speaks for class 1 most
        tensor([1, 2])
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

    Examples::

        >>> import tempfile
        >>> from captum_goat.bulk import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = explain_dataset(model, graphs, out=f"{folder}/attributions.pt", show_progress=False)
        ...     len(saved), saved.meta["target"], [graph.edge_index.shape[0] for graph in saved[:2]]
        (4, 'predicted', [2, 2])
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


def is_meta(value: Any) -> bool:
    """Return whether a value can be the ``meta`` of a file: a dictionary with the numbers of graphs and edges."""
    counts = [value.get(name) for name in ("graphs", "edges")] if isinstance(value, dict) else [None]
    return all(type(count) is int and count >= 0 for count in counts)
