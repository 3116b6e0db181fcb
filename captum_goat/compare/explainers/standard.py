"""The six explainers that are installed: GOAt, three methods of Captum's kind, GNNExplainer, and random scores."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import captum.attr as captum
import torch
import torch_geometric.explain as pyg
from torch import Tensor
from torch.nn import Module

from captum_goat import GOAtAttribution
from captum_goat.compare.explainers.graphs import LARGEST_CALL, Graphs, MaskedTargets
from captum_goat.compare.explainers.interface import Explainer
from captum_goat.compare.explainers.randomness import seeded


class GOAt(Explainer):
    """GOAt, as in the paper: the share of a gate is spread over the *distinct* edges that reach it."""

    name = "goat"
    citation = "Lu, Mills, He, Liu, Niu: GOAt: Explaining Graph Neural Networks via Graph Output Attribution, ICLR 2024"
    complete = True
    baseline: ClassVar[Literal["masked", "removed"] | None] = "masked"
    batched = True
    field: ClassVar[Literal["distinct", "repeated"]] = "distinct"
    at: ClassVar[Literal["message", "adjacency"]] = "message"
    gates: ClassVar[Literal["equal", "proportional"]] = "equal"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of all graphs in one call."""
        mask = torch.ones(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        goat = GOAtAttribution(model, self.field, at=self.at, gates=self.gates)
        attributions: Tensor = goat.attribute(mask, graphs.target, graphs.inputs)
        return attributions


class MaskGradients(Explainer):
    """A gradient method of Captum's, applied to the edge mask for a whole batch at once."""

    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of a mask of ones."""
        mask = torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device, requires_grad=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Setting backward hooks on ReLU activations")
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
    r"""The integral of the gradient from no messages to all messages, :math:`\int_0^1 \partial f / \partial m_e \, dt`.

    Args:
        n_steps: The number of steps of the integral, as in Captum.
    """

    name = "integrated_gradients"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017"
    complete = True
    baseline = "masked"

    def __init__(self, n_steps: int = 50) -> None:
        self.n_steps = n_steps

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the integrals."""
        return integrated_gradients(targets, mask, self.n_steps)


def integrated_gradients(function: Module, inputs: Tensor, n_steps: int) -> Any:
    """Return Captum's integrated gradients of inputs ``[1, E]``, with as many steps at once as fit into memory."""
    at_once = max(1, LARGEST_CALL // inputs.size(1))
    return captum.IntegratedGradients(function).attribute(inputs, n_steps=n_steps, internal_batch_size=at_once)


class EdgeOcclusion(Explainer):
    r"""The drop of the target's logit when an edge is masked, :math:`f(\mathbf 1) - f(\mathbf 1 - \mathbf 1_e)`.

    Both directions of an undirected edge are masked together and share the drop equally. The k-th edges of all graphs
    of a batch are masked at once.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat.compare.explainers import EXPLAINERS
        >>> class FirstNode(torch.nn.Module):  # returns the sum of the messages to node 0
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
        position_of_column = graphs.position[graphs.edges.number]
        with torch.no_grad():
            whole = targets.values(torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device))
            drops = [
                whole - targets.values((positions.view(-1, 1) != position_of_column).to(graphs.x.dtype))
                for positions in torch.arange(graphs.max_edges, device=graphs.x.device).split(at_once)
            ]
        return graphs.shared(graphs.by_position(torch.cat(drops)))


class GNNExplainer(Explainer):
    """PyG's ``GNNExplainer``: learns a mask of one graph's edges that keeps the class, is small and nearly binary.

    Args:
        epochs: The number of optimisation steps.
        lr: Adam's learning rate.
        seed: The seed of the random numbers.
    """

    name = "gnn_explainer"
    citation = "Ying, Bourgeois, You, Zitnik, Leskovec: GNNExplainer, NeurIPS 2019"

    def __init__(self, epochs: int = 100, lr: float = 0.01, seed: int = 0) -> None:
        self.epochs = epochs
        self.lr = lr
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the mask, from 0 to 1."""
        with seeded(graphs.seed(self.seed)):
            return edge_mask(pyg_explainer(model, pyg.GNNExplainer(epochs=self.epochs, lr=self.lr)), graphs)


class Random(Explainer):
    """Uniform random numbers from 0 to 1.

    Args:
        seed: The seed; every graph has its own random numbers, the same alone and in a batch.
    """

    name = "random"
    citation = "none"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return random scores."""
        with seeded(graphs.seed(self.seed)):
            return torch.rand(graphs.num_edges, device=graphs.x.device)


class SelfLoopsLast(NamedTuple):
    """Graphs whose self-loops come last, in the order of their nodes, and the original order of the edges.

    Layers put the self-loops that they add there. PyG's masks do not follow edges: in any other order some edges would
    get the mask of others.
    """

    graphs: Graphs
    order: Tensor

    @classmethod
    def of(cls, graphs: Graphs) -> SelfLoopsLast:
        """Reorder the edges of graphs."""
        source, target = graphs.edge_index
        order = torch.sort(torch.where(source == target, 1 + source, 0), stable=True).indices
        return cls(Graphs(graphs.x, graphs.edge_index[:, order], graphs.batch, graphs.target), order)

    def restored(self, scores: Tensor) -> Tensor:
        """Return scores in the original order of the edges."""
        return torch.zeros_like(scores).scatter_(0, self.order, scores)


def pyg_explainer(model: Module, algorithm: Any, explanation_type: str = "phenomenon") -> pyg.Explainer:
    """Return PyG's explainer of a graph classifier, with an algorithm that scores edges."""
    return pyg.Explainer(
        model,
        algorithm=algorithm,
        explanation_type=explanation_type,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )


def edge_mask(explainer: pyg.Explainer, graphs: Graphs, *, with_target: bool = True) -> Tensor:
    """Return the edge mask of PyG's explainer, ``[E]``.

    Where layers add self-loops, PyG does not tell them from the graph's own, whose mask is 0 here.
    """
    ordered = SelfLoopsLast.of(graphs)
    x, edge_index, batch = ordered.graphs.inputs
    target = {"target": graphs.target} if with_target else {}
    mask: Tensor = explainer(x, edge_index, batch=batch, **target).edge_mask
    if any(getattr(module, "add_self_loops", False) for module in explainer.model.modules()):
        mask = mask * (edge_index[0] != edge_index[1])
    return ordered.restored(mask)
