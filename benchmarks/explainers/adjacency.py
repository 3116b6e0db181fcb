"""Methods whose mask is the presence of edges: an edge also answers for what it does to degrees and means.

Metrics take edges away altogether, so that they no longer count in degrees either. A mask of the messages knows nothing
of that; this one does. Where a model only sums over edges (GIN, GraphSAGE with sums, a GCN without normalisation), the
presence of an edge counts nowhere but in its messages, and the two are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from benchmarks.explainers.peeled import (
    LeaningUpperHalfGradients,
    PeeledGOAt,
    PeeledUpperHalfGradients,
)
from benchmarks.peeling import UpperHalfGradients
from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.compare.explainers import EdgeOcclusion, Explainer, ExplainerSkippedError, GOAt
from captum_goat.tracking import UnsupportedModelError


class Deletion(Explainer):
    """Base class of methods at the adjacency: skip models whose output without an edge is unknown."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor | Sequence[int] | int) -> Tensor:
        """Explain a class of every graph."""
        try:
            return super().__call__(model, data, target)
        except UnsupportedModelError as error:  # maxima over messages, for example
            raise ExplainerSkippedError(str(error)) from error


class AdjacencyGOAt(Deletion, GOAt):
    """GOAt with a mask at the adjacency: its scores add up to what the model loses with its edges.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers import EXPLAINERS
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> (graph,) = ba_2motifs(num_graphs=1)
        >>> model, target = GraphClassifier("gcn", in_channels=10, hidden_channels=8, num_classes=2).eval(), 0
        >>> scores = EXPLAINERS["goat_adjacency"]()(model, graph, torch.tensor([target]))
        >>> lost = model(graph.x, graph.edge_index) - model(graph.x, graph.edge_index[:, :0])
        >>> torch.allclose(scores.sum(), lost[0, target], atol=1e-4)
        True
    """

    name = "goat_adjacency"
    citation = f"{GOAt.citation}; here with masks at the adjacency"
    baseline = "removed"

    def method(self, model: Module) -> GOAtAttribution:
        """Return GOAt with a mask at the adjacency."""
        return GOAtAttribution(model, at="adjacency")


class ProportionalAdjacencyGOAt(AdjacencyGOAt):
    """GOAt with a mask at the adjacency, which shares a gate in proportion to what its edges have already."""

    name = "goat_adjacency_proportional"

    def method(self, model: Module) -> GOAtAttribution:
        """Return GOAt with a mask at the adjacency and proportional shares of gates."""
        return GOAtAttribution(model, at="adjacency", gates="proportional")


class PeeledAdjacencyGOAt(Deletion, PeeledGOAt):
    """GOAt with a mask at the adjacency, in rounds from the most important edges on."""

    name = "goat_adjacency_peeled"
    citation = f"{PeeledGOAt.citation}, with masks at the adjacency"

    def method(self, model: Module) -> Attribution:
        """Return GOAt with a mask at the adjacency."""
        return GOAtAttribution(model, at="adjacency")


class PeeledUpperHalfAdjacencyGradients(Deletion, PeeledUpperHalfGradients):
    """Integrated gradients of the presence of edges, upper half, peeled from both ends."""

    name = "ig_half_adjacency_peeled_both"
    citation = f"{PeeledUpperHalfGradients.citation}, with masks at the adjacency"

    def method(self, model: Module) -> Attribution:
        """Return integrated gradients of the presence of edges, upper half."""
        return UpperHalfGradients(EdgeMaskedModel(model, at="adjacency"))


class LeaningUpperHalfAdjacencyGradients(PeeledUpperHalfAdjacencyGradients):
    """The same, with two edges from the most important end for each from the other."""

    name = "ig_half_adjacency_peeled_2_1"
    turns = LeaningUpperHalfGradients.turns


class AdjacencyOcclusion(Deletion, EdgeOcclusion):
    """The drop of the target's logit when an edge is deleted, not only masked.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from benchmarks.explainers import EXPLAINERS
        >>> class FirstNode(torch.nn.Module):  # the mean of what it is sent
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = SimpleConv(aggr="mean")
        ...     def forward(self, x, edge_index, batch=None):
        ...         return self.conv(x, edge_index).view(-1, 3)[:, :1]
        >>> data = Data(x=torch.tensor([[0.0], [2.0], [5.0]]), edge_index=torch.tensor([[1, 2, 1], [0, 0, 2]]))
        >>> EXPLAINERS["occlusion"]()(FirstNode().eval(), data, target=torch.tensor([1]))
        tensor([1.0000, 2.5000, 0.0000])
        >>> EXPLAINERS["occlusion_adjacency"]()(FirstNode().eval(), data, target=torch.tensor([1]))
        tensor([-1.5000,  1.5000,  0.0000])
    """

    name = "occlusion_adjacency"
    citation = f"{EdgeOcclusion.citation}, deleted"
    at = "adjacency"
