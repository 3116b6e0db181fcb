"""The search for edge sets as an explainer."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers.graphs import Graphs
from captum_goat.compare.explainers.interface import Explainer, SignedLogits
from captum_goat.search import EdgeSetSearch
from captum_goat.wrapped_model import ExplainedModel


class EdgeSets(Explainer):
    """The order of edges whose first edges are the best sets that a search has found; scores are places.

    Args:
        n_passes: The number of passes.
    """

    name = "edge_set_search"
    citation = "captum_goat: sets of edges by measured swaps"
    batched = True
    search: ClassVar[type[EdgeSetSearch]] = EdgeSetSearch

    def __init__(self, n_passes: int = 30) -> None:
        self.n_passes = n_passes

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the places of all graphs' edges, from 1 for the first one down, shared among its columns."""
        return places(self.search, model, graphs, n_passes=self.n_passes)


def places(search: type[EdgeSetSearch], model: Module, graphs: Graphs, **options: Any) -> Tensor:
    """Return the places that a search gives to edges, shared among their columns."""
    explained: Any = model
    target: Tensor | None = graphs.target
    if isinstance(model, SignedLogits):  # the probability is the sigmoid of z, not the softmax of (-z, z)
        signs = 2 * graphs.target - 1
        explained, target = ExplainedModel(model.model, "edge", lambda output: output.view(-1) * signs), None
    scores: Tensor = search(explained, **options).attribute(graphs.mask, target, graphs.inputs)
    # Metrics sum over the columns of an edge, and not all edges have as many: a self-loop has one.
    return graphs.shared(scores.new_zeros(len(graphs.edges.graph)).scatter_(0, graphs.edges.number, scores))
