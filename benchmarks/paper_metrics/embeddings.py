"""Embeddings of explanations, and how well they tell classes apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import one_hot
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import check_selected, graph_of_nodes, number_of_graphs
from captum_goat.metrics.fidelity import NodePolicy, output_of
from captum_goat.models import RootClassifier


def explanation_embeddings(
    model: Module, data: Data | Batch, selected: Tensor, layer: str, node_policy: NodePolicy = "stay"
) -> Tensor:
    r"""Return the output of a layer for the explanations alone: for each graph with its selected edges only.

    The paper takes the embeddings before the last linear layer, the authors' code the output of the linear layer before
    that, with ``node_policy="leave"``. Select all edges, ``torch.ones(E, dtype=torch.bool)``, for whole graphs.

    Args:
        model: As for :func:`~captum_goat.metrics.fidelity_plus`.
        data: The graph, or the batch of G graphs.
        selected: The edges of the explanations, bool ``[E]``.
        layer: The name of a module of the model that gives one row per graph; its last output is taken if it is called
            more than once. In a :class:`~captum_goat.models.RootClassifier` it may give one row per node as well: the
            explained node's is taken.
        node_policy: As for :func:`~captum_goat.metrics.fidelity_plus`.

    Returns:
        One row per graph, ``[G, H]``.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.paper_metrics import explanation_embeddings
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=2, hidden_channels=32, num_classes=2).eval()
        >>> data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
        >>> explanation_embeddings(model, data, torch.tensor([True, False]), layer="classifier.0").shape
        torch.Size([1, 32])
    """
    selected = check_selected(selected, data)
    modules = dict(model.named_modules())
    if layer not in modules:
        raise ValueError(
            f"Expected layer to be the name of a module of the model, one of {list(modules)} (got {layer!r})."
        )
    outputs: list[Any] = []
    handle = modules[layer].register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    try:
        output_of(model, data, selected, node_policy)
    finally:
        handle.remove()
    if not outputs:
        raise ValueError(f"Expected a layer that the model calls (got {layer!r}, which it does not).")
    return _one_row_per_graph(outputs[-1], model, data, layer, node_policy)


def discriminability(embeddings: Tensor, classes: Tensor) -> Tensor:
    r"""Return the distances between the classes' mean embeddings.

    .. math:: d(a, b) = \left\| \frac{1}{N_a} \sum_{i \in a} h_i - \frac{1}{N_b} \sum_{j \in b} h_j \right\|_2

    The further the classes are apart, the better do the explanations tell them apart. Source: Lu, Mills, He, Liu, Niu:
    *GOAt: Explaining Graph Neural Networks via Graph Output Attribution*, ICLR 2024.

    Args:
        embeddings: One row per explanation, ``[M, H]``, of as many batches as there are; see
            :func:`explanation_embeddings`.
        classes: The class of each, ``[M]``.

    Returns:
        The distances between every two classes, ``[C, C]``; nan for classes without explanations. For two classes it is
        the entry ``[0, 1]``.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import discriminability
        >>> discriminability(torch.tensor([[0.0, 1.0], [0.0, 3.0], [3.0, 6.0]]), torch.tensor([0, 0, 1]))
        tensor([[0., 5.],
                [5., 0.]])
    """
    check_classes(classes, len(embeddings))
    member = one_hot(classes.to(embeddings.device)).to(embeddings.dtype)
    means = member.t() @ embeddings / member.sum(dim=0).unsqueeze(1)
    distances: Tensor = (means.unsqueeze(0) - means.unsqueeze(1)).norm(dim=2)
    return distances


def check_classes(classes: Tensor, count: int) -> None:
    """Raise a ValueError unless there is one class per explanation."""
    is_integer = isinstance(classes, Tensor) and not classes.is_floating_point() and classes.dtype != torch.bool
    if not is_integer or classes.shape != (count,) or count == 0:
        got = f"{classes.dtype} {list(classes.shape)}" if isinstance(classes, Tensor) else type(classes).__name__
        raise ValueError(f"Expected classes as integers, one for each of {count} explanations (got {got}).")


def _one_row_per_graph(output: Any, model: Module, data: Data | Batch, layer: str, node_policy: NodePolicy) -> Tensor:
    graphs = number_of_graphs(data)
    rows = (graphs, graphs + 1) if node_policy == "leave" else (graphs,)
    if isinstance(output, Tensor) and output.dim() >= 2:
        if len(output) in rows:
            return output[:graphs].detach().flatten(1)
        if isinstance(model, RootClassifier) and len(output) == data.num_nodes:
            batch = graph_of_nodes(data)
            position = torch.arange(len(batch), device=batch.device)
            roots = position.new_full((graphs,), len(batch)).scatter_reduce_(0, batch, position, "amin")
            return output[roots].detach().flatten(1)
    got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
    raise ValueError(
        f"Expected a layer with one row for each of {graphs} graphs (got {got} from {layer!r}). Name a layer after "
        "the pooling."
    )
