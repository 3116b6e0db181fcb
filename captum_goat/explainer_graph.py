"""A model and its arguments as PyG's ``Explainer`` passes them: tensors, or dictionaries of them by type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.inputs.arguments import fresh


class ExplainedGraph(NamedTuple):
    """A model and its arguments.

    Attributes:
        model: The model.
        x: The node features, ``[N, F]``; of a heterogeneous graph by node type.
        edge_index: The edges, ``[2, E]``; of a heterogeneous graph by edge type.
        kwargs: The other arguments.
    """

    model: Module
    x: Any
    edge_index: Any
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Call the model."""
        return self.model(fresh(self.x), fresh(self.edge_index), **{k: fresh(each) for k, each in self.kwargs.items()})

    def check(self) -> None:
        """Refuse a graph of which only the nodes or only the edges have types."""
        if isinstance(self.x, dict) != isinstance(self.edge_index, dict):
            names = [type(each).__name__ for each in (self.x, self.edge_index)]
            raise ValueError(
                f"Expected tensors for x and edge_index, or dictionaries for both (got {names[0]} and {names[1]})."
            )

    @property
    def is_hetero(self) -> bool:
        """Whether the graph is heterogeneous."""
        return isinstance(self.edge_index, dict)

    def features(self) -> dict[str, Any]:
        """Return the features by the name of their mask."""
        return {"node_mask": by_type(Tensor.detach, self.x)}

    def edge_masks(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return edge masks of ones by the name of the mask."""

        def ones(edge_index: Tensor) -> Tensor:
            return torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)

        return {"edge_mask": by_type(ones, self.edge_index)}


class ByName(Module):
    """A model that takes its further arguments by position and passes them on by name."""

    def __init__(self, graph: ExplainedGraph) -> None:
        super().__init__()
        self.model, self.names, self.training = graph.model, tuple(graph.kwargs), False

    def forward(self, x: Any, edge_index: Any, *others: Any) -> Any:
        """Call the model."""
        return self.model(x, edge_index, **dict(zip(self.names, others, strict=True)))


def by_type(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to a tensor, or type by type to a dictionary of them."""
    return {key: function(each) for key, each in value.items()} if isinstance(value, dict) else function(value)
