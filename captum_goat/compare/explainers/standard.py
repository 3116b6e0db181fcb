"""Explainers that are installed, and those made of Captum's classes and of PyG's algorithms."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from typing import Any, ClassVar, Literal

import captum.attr as captum
import torch
import torch_geometric.explain as pyg
from torch import Tensor
from torch.nn import Module

from captum_goat import CaptumGraphExplainer, EdgeSetSearch, GOAtAttribution, GuidedShapley
from captum_goat.compare.explainers.graphs import LARGEST_CALL, Graphs, MaskedTargets, seeded
from captum_goat.compare.explainers.interface import Explainer, SignedLogits
from captum_goat.compare.explainers.search import places
from captum_goat.metrics.counted_edges import position_in_graph


class GOAt(Explainer):
    """GOAt, as in the paper: the share of a gate is spread over the *distinct* edges that reach it."""

    name = "goat"
    citation = "Lu, Mills, He, Liu, Niu: GOAt: Explaining Graph Neural Networks via Graph Output Attribution, ICLR 2024"
    complete = True
    baseline: ClassVar[Literal["masked", "removed"] | None] = "masked"
    batched = True

    def method(self, model: Module) -> GOAtAttribution:
        """Return GOAt with its defaults."""
        return GOAtAttribution(model)

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of all graphs in one call."""
        attributions: Tensor = self.method(model).attribute(graphs.mask, graphs.target, graphs.inputs)
        return attributions


class MaskGradients(Explainer):
    """A gradient method of Captum, applied to the edge mask of a whole batch at once."""

    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of a mask of ones."""
        mask = graphs.mask.unsqueeze(0).requires_grad_()
        attributions: Tensor = self.attributions(MaskedTargets(model, graphs), mask)
        return attributions[0]

    @abstractmethod
    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the attributions ``[1, E]`` of a mask ``[1, E]``."""


class Saliency(MaskGradients):
    r"""The absolute value of the gradient, :math:`|\partial f / \partial m_e|`, which has no sign."""

    name = "saliency"
    citation = "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR 2014 workshop"

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the absolute values."""
        return captum.Saliency(targets).attribute(mask)


class IntegratedGradients(MaskGradients):
    r"""The integral of the gradient from no messages to all, :math:`\int_0^1 \partial f / \partial m_e \, dt`."""

    name = "integrated_gradients"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017"
    complete = True
    baseline: ClassVar[Literal["masked", "removed"] | None] = "masked"

    def __init__(self, n_steps: int = 50) -> None:
        self.n_steps = n_steps

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the integrals, computed with as many steps at once as fit into memory."""
        at_once = max(1, LARGEST_CALL // mask.size(1))
        return captum.IntegratedGradients(targets).attribute(mask, n_steps=self.n_steps, internal_batch_size=at_once)


class EdgeOcclusion(Explainer):
    r"""The drop of the target's logit when an edge is masked, :math:`f(\mathbf 1) - f(\mathbf 1 - \mathbf 1_e)`.

    Both directions of an undirected edge share the drop equally. The k-th edges of all graphs are masked at once.
    """

    name = "occlusion"
    citation = "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014; here for edges"
    batched = True
    at: ClassVar[Literal["message", "adjacency"]] = "message"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the drops."""
        targets, edges = MaskedTargets(model, graphs, self.at), graphs.edges
        position = position_in_graph(edges.graph, edges.num_graphs)
        position_of_column = position[edges.number]
        at_once = max(1, LARGEST_CALL // graphs.num_edges)
        with torch.no_grad():
            whole = targets.values(graphs.mask.unsqueeze(0))
            drops = [
                whole - targets.values((positions.view(-1, 1) != position_of_column).to(graphs.x.dtype))
                for positions in torch.arange(int(edges.counts.max()), device=graphs.x.device).split(at_once)
            ]
        return graphs.shared(torch.cat(drops)[position, edges.graph])


class GNNExplainer(Explainer):
    """PyG's ``GNNExplainer``: learns a mask of one graph's edges that keeps the class, is small and nearly binary."""

    name = "gnn_explainer"
    citation = "Ying, Bourgeois, You, Zitnik, Leskovec: GNNExplainer, NeurIPS 2019"

    def __init__(self, epochs: int = 100, lr: float = 0.01, seed: int = 0) -> None:
        self.epochs, self.lr, self.seed = epochs, lr, seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the mask, from 0 to 1."""
        with seeded(graphs.seed(self.seed)):
            return edge_mask(pyg_explainer(model, pyg.GNNExplainer(epochs=self.epochs, lr=self.lr), graphs), graphs)


class Random(Explainer):
    """Uniform random numbers from 0 to 1; every graph has its own, the same alone and in a batch."""

    name = "random"
    citation = "none"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return random scores."""
        with seeded(graphs.seed(self.seed)):
            return torch.rand(graphs.num_edges, device=graphs.x.device)


class CaptumMethod(MaskGradients):
    """A class of Captum's methods, or of this package's, at its default arguments."""

    citation = "none"
    batched = False

    def __init__(self, method: type[captum.Attribution]) -> None:
        self.method, self.name = method, method.__name__

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of a mask of ones."""
        if issubclass(self.method, EdgeSetSearch):
            return places(self.method, model, graphs)
        if not issubclass(self.method, GOAtAttribution | GuidedShapley):
            return super().scores(model, graphs)
        attributions: Tensor = self.method(model).attribute(graphs.mask, graphs.target, graphs.inputs)
        return attributions

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the attributions ``[1, E]`` of a mask ``[1, E]``."""
        return self.method(targets).attribute(mask)


class PyGAlgorithm(Explainer):
    """An algorithm of :mod:`torch_geometric.explain` that scores edges."""

    citation = "none"

    def __init__(self, algorithm: pyg.ExplainerAlgorithm, seed: int = 0) -> None:
        self.algorithm, self.seed, self.name = algorithm, seed, type(algorithm).__name__

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the edge mask."""
        with seeded(graphs.seed(self.seed)):
            return edge_mask(pyg_explainer(model, deepcopy(self.algorithm), graphs), graphs)


def pyg_explainer(
    model: Module, algorithm: Any, graphs: Graphs | None = None, explanation_type: str = "phenomenon"
) -> pyg.Explainer:
    """Return PyG's explainer of a graph classifier, with an algorithm that scores edges.

    Given ``graphs``, the model may have one logit and any arguments; else it is called as model(x, edge_index, batch).
    """
    mode = "binary_classification" if isinstance(model, SignedLogits) else "multiclass_classification"
    return pyg.Explainer(
        model if graphs is None else _CalledByPyG(model, graphs),
        algorithm=algorithm,
        explanation_type=explanation_type,
        edge_mask_type="object",
        model_config={"mode": mode, "task_level": "graph", "return_type": "raw"},
    )


class _CalledByPyG(Module):
    """A model that is called as PyG's explainers call it, with the edges in the order of :func:`self_loops_last`."""

    def __init__(self, model: Module, graphs: Graphs) -> None:
        super().__init__()
        self.model = model.model if isinstance(model, SignedLogits) else model
        order = self_loops_last(graphs.edge_index)
        edge_attributes = [name for name in graphs.data.edge_attrs() if name != "edge_index"]
        self.graphs = graphs.changed(**{name: graphs.data[name][order] for name in edge_attributes})
        self.training = False

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        output: Tensor = self.model(*self.graphs.changed(x=x, edge_index=edge_index, batch=batch).inputs)
        return output


def edge_mask(explainer: pyg.Explainer, graphs: Graphs) -> Tensor:
    """Return the edge mask of PyG's explainer, ``[E]``.

    Where layers add self-loops, PyG's masks do not tell them from the graph's own, whose mask is 0 here.
    """
    order = self_loops_last(graphs.edge_index)
    edge_index = graphs.edge_index[:, order]
    of_class = explainer.explanation_type == pyg.config.ExplanationType.phenomenon
    target = {"target": graphs.target} if of_class else {}
    mask: Tensor = explainer(graphs.x, edge_index, batch=graphs.batch, **target).edge_mask
    adds_loops = any(getattr(module, "add_self_loops", False) for module in explainer.model.modules())
    if adds_loops and not isinstance(explainer.algorithm, CaptumGraphExplainer):
        mask = mask * (edge_index[0] != edge_index[1])
    return torch.zeros_like(mask).scatter_(0, order, mask)


def self_loops_last(edge_index: Tensor) -> Tensor:
    """Return an order of the edges, ``[E]``, with self-loops last, by their nodes: where layers put those they add.

    PyG's masks do not follow edges: in any other order, some edges would get the mask of others.
    """
    source, target = edge_index
    return torch.sort(torch.where(source == target, 1 + source, 0), stable=True).indices
