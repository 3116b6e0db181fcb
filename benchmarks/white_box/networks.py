"""Networks with weights set by hand, in the form of a GCN, GraphSAGE or GIN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool

Form: TypeAlias = Literal["gcn", "gcn_sum", "sage", "gin"]
ROOT_FACTOR = 10.0  # of a node's own label in a GIN that has to tell it from its neighbours' labels
MANY = 100.0  # more than any count of neighbours: switches a unit off


@dataclass(frozen=True)
class Layer:
    """One layer, ``relu(neighbours @ sum of the neighbours' features + root @ own features + bias)``.

    Attributes:
        neighbours: The weights of the sum over neighbours, ``[out, in]``.
        bias: The bias, ``[out]``.
        root: The weights of a node's own features, ``[out, in]``; ``None`` if the layer does not read them.
    """

    neighbours: Tensor
    bias: Tensor
    root: Tensor | None = None


class WhiteBox(Module):
    """A graph classifier of two classes with logits ``-scale * (f - 1/2)`` and ``scale * (f - 1/2)``.

    f is computed by the layers, the sum over a graph's nodes (or the first node of each graph, at the node level), and
    the head.

    Args:
        form: ``"gcn"``: degree-normalised with self-loops; ``"gcn_sum"``: sums over neighbours; ``"sage"``: sums over
            neighbours beside the node's own features; ``"gin"``: an MLP of the sum of both.
        layers: The layers; the first reads labels, one-hot.
        head: What becomes of the pooled units: weights ``[hidden, units]``, biases ``[hidden]`` and weights of f
            ``[hidden]``.
        level: Whether graphs are pooled, or their first node is read.

    Examples::

        >>> import torch
        >>> from benchmarks.white_box import Layer, WhiteBox
        >>> degree = Layer(neighbours=torch.ones(1, 1), bias=torch.tensor([-1.0]))  # relu(degree - 1)
        >>> head = (torch.ones(1, 1), torch.zeros(1), torch.ones(1))
        >>> model = WhiteBox("gcn_sum", [degree], head)
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> model(torch.ones(3, 1).double(), path)  # the node in the middle has one edge more than one
        tensor([[-1.,  1.]], dtype=torch.float64)
    """

    def __init__(
        self,
        form: Form,
        layers: Sequence[Layer],
        head: tuple[Tensor, Tensor, Tensor],
        level: Literal["graph", "node"] = "graph",
        scale: float = 2.0,
    ) -> None:
        super().__init__()
        self.level = level
        self.convs = ModuleList(convolution(form, layer) for layer in layers)
        weights, biases, out = head
        self.head = Sequential(
            linear(weights, biases), ReLU(), linear(torch.stack([-out, out]) * scale, torch.tensor([0.5, -0.5]) * scale)
        )
        self.double().eval().requires_grad_(False)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every graph, ``[G, 2]``."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        if self.level == "graph":
            pooled = global_add_pool(x, batch)
        elif batch is None:
            pooled = x[:1]
        else:
            first = torch.ones_like(batch, dtype=torch.bool)
            first[1:] = batch[1:] != batch[:-1]
            pooled = x[first]
        logits: Tensor = self.head(pooled)
        return logits


def convolution(form: Form, layer: Layer) -> Any:
    """Return a layer of PyTorch Geometric with these weights.

    Raises:
        ValueError: If a GCN would have to tell a node's own features from its neighbours'.
    """
    out, channels = layer.neighbours.shape
    if form == "sage":
        sage = SAGEConv(channels, out, aggr="sum")
        fill(sage.lin_l, layer.neighbours, layer.bias)
        fill(sage.lin_r, torch.zeros_like(layer.neighbours) if layer.root is None else layer.root)
        return sage
    if form == "gin":
        return _gin(layer)
    if layer.root is not None:
        raise ValueError("Expected a layer that does not read a node's own features (a GCN cannot tell them apart).")
    gcn = GCNConv(channels, out, normalize=form == "gcn").double()
    fill(gcn.lin, layer.neighbours)
    gcn.bias.data.copy_(layer.bias)
    return gcn


def _gin(layer: Layer) -> Module:
    """Return a GIN of ``s = factor * own label + sum of the neighbours' labels``.

    Where the node's own label counts, the factor is 10 and more than the number of neighbours, so that ``relu(s - 9) -
    relu(s - 10)`` is 1 for a node's own label and 0 for any other.
    """
    out, channels = layer.neighbours.shape
    identity, copies = torch.eye(channels), 1 if layer.root is None else 3
    mlp = Sequential(Linear(channels, copies * channels), ReLU(), Linear(copies * channels, out))
    gin: Module = GINConv(
        mlp, eps=0.0 if layer.root is None else ROOT_FACTOR - 1.0
    )  # which gives the MLP random weights
    if layer.root is None:
        fill(mlp[0], identity, torch.zeros(channels))
        fill(mlp[2], layer.neighbours, layer.bias)
    else:
        own = layer.root - ROOT_FACTOR * layer.neighbours
        shifts = torch.tensor([0.0, 1.0 - ROOT_FACTOR, -ROOT_FACTOR]).repeat_interleave(channels)
        fill(mlp[0], identity.repeat(copies, 1), shifts)
        fill(mlp[2], torch.cat([layer.neighbours, own, -own], dim=1), layer.bias)
    return gin


def linear(weight: Tensor, bias: Tensor) -> Linear:
    """Return a linear layer with these weights."""
    layer = Linear(weight.size(1), weight.size(0))
    fill(layer, weight, bias)
    return layer


def fill(layer: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    """Set the weights of a linear layer, in double precision."""
    layer.double()
    layer.weight.data.copy_(weight)
    if bias is not None:
        layer.bias.data.copy_(bias)
