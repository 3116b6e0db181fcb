"""The logits of the asked classes as a function of numbers on edges: what Captum's methods are given."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from torch import Tensor
from torch.nn import Module

from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers.graphs import Graphs


class EdgeFunction(Module):
    r"""The asked classes' logits, as a function of a number on each edge.

    The graphs of a batch are disjoint, so the gradient of the *sum* of their logits has the gradients of all of them,
    each at its own edges: one backward pass explains the whole batch.

    Args:
        graphs: The graphs and their classes.
    """

    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.graphs = graphs

    @abstractmethod
    def logits(self, numbers: Tensor) -> Tensor:
        """Return the logits for each of B rows of numbers, ``[B, G, C]`` from ``[B, E]``."""

    def values(self, numbers: Tensor) -> Tensor:
        """Return the logit of each graph's class for each of B rows of numbers, ``[B, G]`` from ``[B, E]``."""
        return self.graphs.of_target(self.logits(numbers))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the sum of the logits for each of B rows of numbers, ``[B]`` from ``[B, E]``."""
        return self.values(numbers).sum(-1)


class MaskedTargets(EdgeFunction):
    """The asked classes' logits, as a function of an edge mask.

    Args:
        model: A graph model.
        graphs: The graphs and their classes.
        at: Where the mask enters, as for :class:`~captum_goat.EdgeMaskedModel`.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.explainers.graphs import Graphs
        >>> from captum_goat.compare.explainers.masked_targets import MaskedTargets
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gcn", in_channels=1, hidden_channels=4, num_classes=2).eval()
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> MaskedTargets(model, Graphs.of(data, torch.tensor([1])))(torch.ones(5, 2)).shape  # five masks of two edges
        torch.Size([5])
    """

    def __init__(self, model: Module, graphs: Graphs, at: Literal["message", "adjacency"] = "message") -> None:
        super().__init__(graphs)
        self.masked = EdgeMaskedModel(model, at)

    def logits(self, numbers: Tensor) -> Tensor:
        """Return the logits for each of B masks."""
        logits: Tensor = self.masked(numbers, *self.graphs.inputs)
        return logits.view(len(numbers), len(self.graphs.target), -1)
