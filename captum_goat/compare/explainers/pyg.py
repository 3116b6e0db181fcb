"""GNNExplainer, through ``torch_geometric.explain``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain import Explainer, GNNExplainer

from captum_goat.compare.explainers import interface
from captum_goat.compare.explainers.graphs import Graphs
from captum_goat.compare.explainers.randomness import seed_of, seeded


class Ordered(NamedTuple):
    """Graphs whose self-loops come last, in the order of their nodes, and where the edges were before.

    That is the order in which layers put the self-loops that they add. PyG does not follow edges: in any other order it
    would give some of them the mask of others.
    """

    graphs: Graphs
    order: Tensor

    @classmethod
    def of(cls, graphs: Graphs) -> Ordered:
        """Put the self-loops last."""
        source, target = graphs.edge_index
        order = torch.sort(torch.where(source == target, 1 + source, 0), stable=True).indices
        return cls(Graphs(graphs.x, graphs.edge_index[:, order], graphs.batch, graphs.target), order)

    def restored(self, scores: Tensor) -> Tensor:
        """Put scores in the order of the graphs that were given."""
        return torch.zeros_like(scores).scatter_(0, self.order, scores)


def pyg_explainer(model: Module, algorithm: Any, explanation_type: str = "phenomenon") -> Explainer:
    """Return PyG's explainer of a graph classifier, with an algorithm that scores edges."""
    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type=explanation_type,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )


def edge_mask(explainer: Explainer, graphs: Graphs, *, with_target: bool = True) -> Tensor:
    """Return the edge mask that PyG's explainer finds, ``[E]``.

    Where layers add self-loops, PyG does not say which of them is which: there the self-loops of the graph have mask 0.
    """
    ordered = Ordered.of(graphs)
    x, edge_index, batch = ordered.graphs.inputs
    target = {"target": graphs.target} if with_target else {}
    mask: Tensor = explainer(x, edge_index, batch=batch, **target).edge_mask
    if any(getattr(module, "add_self_loops", False) for module in explainer.model.modules()):
        mask = mask * (edge_index[0] != edge_index[1])
    return ordered.restored(mask)


class GNNExplainerOfPyG(interface.Explainer):
    """PyG's ``GNNExplainer``: learns a mask of one graph's edges that keeps the class, is small and nearly binary.

    Args:
        epochs: The number of steps.
        lr: Adam's learning rate.
        seed: Where the random numbers start.
    """

    name = "gnn_explainer"
    citation = "Ying, Bourgeois, You, Zitnik, Leskovec: GNNExplainer, NeurIPS 2019"

    def __init__(self, epochs: int = 100, lr: float = 0.01, seed: int = 0) -> None:
        self.epochs = epochs
        self.lr = lr
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the mask, from 0 to 1."""
        with seeded(seed_of(graphs, self.seed)):
            return edge_mask(pyg_explainer(model, GNNExplainer(epochs=self.epochs, lr=self.lr)), graphs)
