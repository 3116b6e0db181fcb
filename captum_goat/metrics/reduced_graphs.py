"""What a model makes of graphs from which edges have been removed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import edges_of, graph_of_nodes, number_of_graphs
from captum_goat.metrics.logits import of_two_classes, refuse_probabilities, refuse_squashed

# What becomes of nodes without edges: they stay in the pool, or they leave it, as in the authors' code.
NodePolicy: TypeAlias = Literal["stay", "leave"]
Measure: TypeAlias = Literal["probability", "accuracy"]


def model_arguments(model: Module, data: Data | Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments with which a model is called for a graph.

    Whatever ``forward`` names that the graph has is given, ``edge_weight`` and ``edge_attr`` among it. A model that
    does not name ``x`` and ``edge_index`` is called as ``model(x, edge_index, batch)``.
    """
    parameters = inspect.signature(model.forward).parameters
    usual = {"x": data.x, "edge_index": edges_of(data), "batch": graph_of_nodes(data)}
    if "x" not in parameters or "edge_index" not in parameters:
        return tuple(usual.values()), {}
    others = {name: data[name] for name in parameters if name in data and name not in usual}
    return (), {name: value for name, value in usual.items() if name in parameters} | others


def reduced_graphs(data: Data | Batch, keep: Tensor, nodes: NodePolicy) -> Data:
    """Return the graphs with some of their edges only.

    Nodes that leave go to one graph more, behind all others. So the others keep their numbers; in mean, sum and maximum
    pooling a graph without any nodes has zeros.

    Args:
        data: The graph, or the batch of G graphs.
        keep: The edges that are kept, bool ``[E]``.
        nodes: What becomes of nodes without edges.
    """
    kept = keep.nonzero().squeeze(1)
    edge_index, batch = edges_of(data)[:, kept], graph_of_nodes(data)
    order = torch.arange(len(batch), device=batch.device)
    if nodes == "leave":
        has_edge = torch.zeros_like(batch, dtype=torch.bool).index_fill_(0, edge_index.reshape(-1), True)
        batch, order = torch.sort(torch.where(has_edge, batch, number_of_graphs(data)), stable=True)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        edge_index = place[edge_index]
    reduced = {name: _rows(data, name, kept, order) for name in data.keys() if name != "ptr"}  # noqa: SIM118
    return Data.from_dict(reduced | {"edge_index": edge_index, "batch": batch})


def _rows(data: Data | Batch, name: str, edges: Tensor, nodes: Tensor) -> Any:
    """Return an attribute for the given edges, or nodes, if it is one of edges, or nodes."""
    value = data[name]
    if not isinstance(value, Tensor):
        return value
    if data.is_edge_attr(name):
        return value.index_select(data.__cat_dim__(name, value), edges)
    return value.index_select(data.__cat_dim__(name, value), nodes) if data.is_node_attr(name) else value


def reads_roots(model: Module) -> bool:
    """Return whether a model reads the first node of each graph, so that there is no pool to leave."""
    from captum_goat.models import RootClassifier

    return isinstance(model, RootClassifier)


@torch.no_grad()
def output_of(model: Module, data: Data | Batch, keep: Tensor | None = None, nodes: NodePolicy = "stay") -> Tensor:
    """Return a model's output for graphs with some of their edges only, one row per graph; ``[G]`` becomes ``[G, 1]``.

    Args:
        model: The model, in evaluation mode.
        data: The graph, or the batch of G graphs.
        keep: The edges that are kept, bool ``[E]``; ``None`` for the graphs as they are.
        nodes: What becomes of nodes without edges. A :class:`~captum_goat.models.RootClassifier` has no pool to leave.
    """
    if nodes not in get_args(NodePolicy):
        raise ValueError(f"Expected nodes to be one of {', '.join(map(repr, get_args(NodePolicy)))} (got {nodes!r}).")
    if model.training:
        raise ValueError("Expected a model in evaluation mode (got one in training mode). Call model.eval() first.")
    policy: NodePolicy = "stay" if reads_roots(model) else nodes
    args, kwargs = model_arguments(model, data if keep is None else reduced_graphs(data, keep, policy))
    output: Tensor = model(*args, **kwargs)
    graphs = number_of_graphs(data)
    rows = (graphs, graphs + 1) if nodes == "leave" else (graphs,)
    if not isinstance(output, Tensor) or output.dim() < 1 or len(output) not in rows:
        got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"Expected one row of output for each of {graphs} graphs (got {got}). Wrap a model that has one row per "
            "node in captum_goat.models.RootClassifier."
        )
    return output[:graphs] if output.dim() > 1 else output[:graphs].unsqueeze(1)


def logits_of(model: Module, data: Data | Batch, *, logarithms_too: bool = True) -> Tensor:
    """Return a model's logits for graphs as they are, ``[G, C]``, or ``[G, 1]`` if it has one logit for two classes.

    Args:
        model: The model, in evaluation mode.
        data: The graph, or the batch of G graphs.
        logarithms_too: Whether logarithms of probabilities are refused, like probabilities.

    Raises:
        ValueError: If the model returns something else.
    """
    output = output_of(model, data)
    if output.dim() != 2 or not output.size(1):
        raise ValueError(f"Expected logits [G, C] of classes, or one of two (got an output {list(output.shape)}).")
    without_edges = partial(output_of, model, data, torch.zeros_like(edges_of(data)[0], dtype=torch.bool))
    if output.size(1) == 1:
        refuse_squashed(partial(output_of, model, data), without_edges)
    else:
        refuse_probabilities(output, without_edges, logarithms_too=logarithms_too)
    return output


@dataclass(frozen=True)
class Prediction:
    """How sure a model is of a class, for graphs as they are and with some of their edges only.

    Attributes:
        model: The model.
        data: The graph, or the batch of G graphs.
        target: The class of each graph, ``[G]``.
        nodes: What becomes of nodes without edges.
        measure: ``"probability"``: that of the class. ``"accuracy"``: 1 if the class is predicted, else 0.
        original: The measure for the graphs as they are, ``[G]``.
    """

    model: Module
    data: Data | Batch
    target: Tensor
    nodes: NodePolicy
    measure: Measure
    original: Tensor

    @classmethod
    def of(
        cls,
        model: Module,
        data: Data | Batch,
        target: Tensor | int | None = None,
        nodes: NodePolicy = "stay",
        measure: Measure = "probability",
    ) -> Prediction:
        """Predict the graphs as they are; ``None`` for the target stands for the predicted classes."""
        if measure not in get_args(Measure):
            raise ValueError(f"Expected measure to be 'probability' or 'accuracy' (got {measure!r}).")
        logits = of_two_classes(logits_of(model, data, logarithms_too=False))
        classes = logits.argmax(dim=1) if target is None else class_per_graph(target, logits)
        return cls(model, data, classes, nodes, measure, _measured(logits, classes, measure))

    def with_edges(self, keep: Tensor) -> Tensor:
        """Return the measure for the graphs with the kept edges only, ``[G]``."""
        logits = of_two_classes(output_of(self.model, self.data, keep, self.nodes))
        return _measured(logits, self.target, self.measure)

    def drop(self, keep: Tensor) -> Tensor:
        """Return how far the measure drops if only the kept edges are left, ``[G]``."""
        return self.original - self.with_edges(keep)


def class_per_graph(target: Tensor | int, logits: Tensor) -> Tensor:
    """Return a class for each graph, ``[G]``."""
    graphs, classes = logits.shape
    given = torch.as_tensor(target, device=logits.device)
    is_class = not given.is_floating_point() and given.dtype != torch.bool and given.numel() in (1, graphs)
    if not is_class or bool(((given < 0) | (given >= classes)).any()):
        raise ValueError(
            f"Expected target to be a class below {classes}, or one for each of {graphs} graphs (got {target})."
        )
    return given.long().reshape(-1).expand(graphs)


def _measured(logits: Tensor, target: Tensor, measure: Measure) -> Tensor:
    if measure == "accuracy":
        return (logits.argmax(dim=1) == target).to(logits.dtype)
    return logits.softmax(dim=1).gather(1, target.unsqueeze(1)).squeeze(1)
