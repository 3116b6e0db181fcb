"""GOAt, and what any explainer has to beat: random scores, and trying out every edge."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat import GOAtAttribution
from captum_goat.compare.explainers.graphs import LARGEST_CALL, Graphs
from captum_goat.compare.explainers.interface import Explainer
from captum_goat.compare.explainers.masked_targets import MaskedTargets
from captum_goat.compare.explainers.randomness import seed_of, seeded


class GOAt(Explainer):
    """GOAt, as in the paper: a gate is shared among the *distinct* edges that reach it.

    Examples::

        >>> import torch
        >>> from captum_goat.compare.explainers import EXPLAINERS
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> (graph,) = ba_2motifs(num_graphs=1)
        >>> model = GraphClassifier("gcn", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> EXPLAINERS["goat"]()(model, graph, target=torch.tensor([0])).shape
        torch.Size([50])
    """

    name = "goat"
    citation = "Lu, Mills, He, Liu, Niu: GOAt: Explaining Graph Neural Networks via Graph Output Attribution, ICLR 2024"
    complete = True
    baseline: ClassVar[Literal["masked", "removed"] | None] = "masked"
    batched = True
    field: ClassVar[Literal["distinct", "repeated"]] = "distinct"
    at: ClassVar[Literal["message", "adjacency"]] = "message"
    gates: ClassVar[Literal["equal", "proportional"]] = "equal"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of all graphs, by one call."""
        mask = torch.ones(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        goat = GOAtAttribution(model, self.field, at=self.at, gates=self.gates)
        attributions: Tensor = goat.attribute(mask, graphs.target, graphs.inputs)
        return attributions


class Random(Explainer):
    """Uniform random numbers from 0 to 1.

    Args:
        seed: Where they start; every graph has its own, alone and in a batch.
    """

    name = "random"
    citation = "none"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return random scores of a graph."""
        with seeded(seed_of(graphs, self.seed)):
            return torch.rand(graphs.num_edges, device=graphs.x.device)


class EdgeOcclusion(Explainer):
    r"""The drop of the target's logit when an edge is masked, :math:`f(\mathbf 1) - f(\mathbf 1 - \mathbf 1_e)`.

    Both directions of an undirected edge are masked together, and share the drop equally. The k-th edges of all graphs
    of a batch are masked at once.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat.compare.explainers import EXPLAINERS
        >>> class FirstNode(torch.nn.Module):  # what it is sent
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = SimpleConv()
        ...     def forward(self, x, edge_index, batch=None):
        ...         return self.conv(x, edge_index).view(-1, 3)[:, :1]
        >>> data = Data(x=torch.tensor([[0.0], [2.0], [5.0]]), edge_index=torch.tensor([[1, 2, 1], [0, 0, 2]]))
        >>> EXPLAINERS["occlusion"]()(FirstNode().eval(), data, target=torch.tensor([0]))
        tensor([2., 5., 0.])
    """

    name = "occlusion"
    citation = "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014; here for edges"
    batched = True
    at: ClassVar[Literal["message", "adjacency"]] = "message"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the drops."""
        targets = MaskedTargets(model, graphs, self.at)
        at_once = max(1, LARGEST_CALL // graphs.num_edges)
        place_of_column = graphs.place[graphs.edges.number]
        with torch.no_grad():
            whole = targets.values(torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device))
            places = torch.arange(graphs.most_edges, device=graphs.x.device)
            drops = [
                whole - targets.values((some.view(-1, 1) != place_of_column).to(graphs.x.dtype))
                for some in places.split(at_once)
            ]
        return graphs.shared(graphs.by_place(torch.cat(drops)))
