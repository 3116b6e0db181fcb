"""The explainers of PyG that learn edge masks, through ``torch_geometric.explain``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.explain import AttentionExplainer, GraphMaskExplainer, PGExplainer
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.training_sample import sample_graphs
from captum_goat.compare.explainers import (
    Explainer,
    ExplainerSkippedError,
    edge_mask,
    own_copy,
    pyg_explainer,
    self_loops_last,
)
from captum_goat.compare.graphs import Graphs, seeded


class PGExplainerOfPyG(Explainer):
    """PyG's ``PGExplainer``: learns a network that tells an edge's mask from the embeddings of its two nodes.

    It has to be fitted. The network is trained on the classes that the model predicts, one graph at a time. The root of
    a computation graph has no special role in it: it is fitted as for graph classification. PyG returns the sigmoid of
    what the network says, in which all good edges may well be 1.0; the scores are the network's own log-odds.

    Args:
        epochs: How often to go through the graphs.
        lr: Adam's learning rate.
        num_graphs: How many graphs to train with at most; they are sample_graphs at random.
        seed: Where the random numbers start.
    """

    name = "pg_explainer"
    citation = "Luo, Cheng, Xu, Yu, Zong, Chen, Zhang: Parameterized Explainer for Graph Neural Network, NeurIPS 2020"
    batched = True
    trained = True

    def __init__(self, epochs: int = 30, lr: float = 0.003, num_graphs: int = 100, seed: int = 0) -> None:
        self.epochs = epochs
        self.lr = lr
        self.num_graphs = num_graphs
        self.seed = seed
        self._algorithm: PGExplainer | None = None

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:
        """Train the network."""
        model = own_copy(model)
        with seeded(self.seed), torch.enable_grad():
            algorithm = PGExplainer(epochs=self.epochs, lr=self.lr)
            pyg_explainer(model, algorithm)  # tells the algorithm what it explains
            chosen = sample_graphs(graphs, self.num_graphs)
            algorithm.to(chosen[0].x.device, chosen[0].x.dtype)
            examples = [_predicted(model, graph) for graph in chosen]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad=True to a scalar")
                for epoch in range(self.epochs):
                    for x, edge_index, batch, target in examples:
                        algorithm.train(epoch, model, x, edge_index, target=target, batch=batch)
        self._algorithm = algorithm

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the log-odds of the masks of all graphs."""
        if self._algorithm is None:
            raise ValueError("Expected PGExplainer to be fitted. Call fit(model, graphs) first.")
        log_odds: list[Tensor] = []
        hook = self._algorithm.mlp.register_forward_hook(lambda _, inputs, out: log_odds.append(out.view(-1)))
        try:
            edge_mask(pyg_explainer(model, self._algorithm), graphs)
        finally:
            hook.remove()
        last = log_odds[-1].detach()
        return torch.zeros_like(last).scatter_(0, self_loops_last(graphs.edge_index), last)


def _predicted(model: Module, graph: Data) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a model's arguments for a graph, self-loops last, and the class that it predicts."""
    graphs = Graphs.of(graph, torch.zeros(1, dtype=torch.long))
    with torch.no_grad():
        target = model(*graphs.inputs).argmax(-1)
    return graphs.x, graphs.edge_index[:, self_loops_last(graphs.edge_index)], graphs.batch, target


class GraphMaskOfPyG(Explainer):
    """PyG's ``GraphMaskExplainer``: learns, layer by layer, which messages can be replaced by a constant.

    PyG sends every message through a layer norm and a ReLU while it learns, so that what it explains is not quite the
    model. It returns hard gates, 0 or 1 for each layer, which rank nothing; the scores are the log-odds of the gates,
    their mean over the layers. PyG takes the widths of a layer's inputs and messages from its ``in_channels`` and
    ``out_channels``; where these are others it starts anew, with weights that its optimizer does not know. Here the
    layers of the copy are told their true widths before.

    Args:
        epochs: The number of steps for each layer.
        lr: Adam's learning rate.
        seed: Where the random numbers start.
    """

    name = "graph_mask"
    citation = "Schlichtkrull, De Cao, Titov: Interpreting Graph Neural Networks for NLP, ICLR 2021"

    def __init__(self, epochs: int = 100, lr: float = 0.01, seed: int = 0) -> None:
        self.epochs = epochs
        self.lr = lr
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the means of the gates' log-odds."""
        model, graphs = model.float(), graphs.changed(x=graphs.x.float())  # as PyG's own weights are
        layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
        _tell_widths(model, layers, graphs)
        with seeded(graphs.seed(self.seed)):
            algorithm = _SoftGraphMask(len(layers), epochs=self.epochs, lr=self.lr, log=False)
            return edge_mask(pyg_explainer(model, algorithm), graphs)


class _SoftGraphMask(GraphMaskExplainer):
    """PyG's algorithm, which shows the log-odds of its gates in place of the gates."""

    def _hard_concrete(self, input_element: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("training", True):
            return super()._hard_concrete(input_element, *args, **kwargs)
        return input_element, torch.zeros_like(input_element)


def _tell_widths(model: Module, layers: list[MessagePassing], graphs: Graphs) -> None:
    """Set the layers' ``in_channels`` and ``out_channels`` to the widths of what their messages are made of."""

    def tell(layer: MessagePassing, arguments: tuple[dict[str, Any]], messages: Tensor) -> None:
        features = arguments[0].get("x_j")
        if features is None or features.dim() != 2 or messages.dim() != 2:
            raise ExplainerSkippedError(
                f"GraphMask needs messages [E, channels] that are made of 'x_j' (got {type(layer).__name__})."
            )
        layer.in_channels, layer.out_channels = features.size(1), messages.size(1)

    hooks = [layer.register_message_forward_hook(tell) for layer in layers]
    try:
        with torch.no_grad():
            model(*graphs.inputs)
    finally:
        for hook in hooks:
            hook.remove()


class AttentionOfPyG(Explainer):
    """PyG's ``AttentionExplainer``: the largest attention coefficient of an edge, over all layers and heads.

    It is skipped for models without attention. It does not depend on the class.
    """

    name = "attention"
    citation = "Velickovic, Cucurull, Casanova, Romero, Lio, Bengio: Graph Attention Networks, ICLR 2018"
    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the coefficients."""
        try:
            return edge_mask(pyg_explainer(model, AttentionExplainer(), explanation_type="model"), graphs)
        except ValueError as error:
            if "attention coefficients" not in str(error):
                raise
            raise ExplainerSkippedError(
                "Expected a model with attention layers, such as GATConv (got none)."
            ) from error
