"""The networks around the layers under test, and random weights for them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv, global_mean_pool

from benchmarks.compat.graphs import CHANNELS, METADATA, Graph

CLASSES = 3
# Parameters that must be positive: temperatures and powers of aggregations, running variances.
_POSITIVE = ("running_var", ".t", ".p")

# Called with a network and a graph; returns the output.
Steps = Callable[[Any, Graph], Tensor]


class Network(nn.Module):
    """A model of graphs that is written as one function.

    Args:
        steps: Called with the network and the graph; returns the output.
        modules: The parts of the network, beside a first GCN layer and a linear layer ``head``, which are made when
            they are needed.
    """

    def __init__(self, steps: Steps, **modules: nn.Module) -> None:
        super().__init__()
        self.steps = steps
        for name, module in modules.items():
            self.add_module(name, module)
        self.head = nn.LazyLinear(CLASSES)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None,
        edge_attr: Tensor,
        edge_weight: Tensor,
        edge_type: Tensor,
        pos: Tensor,
        normal: Tensor,
        node_type: Tensor,
    ) -> Tensor:
        """Return the output for one graph or batch of graphs."""
        return self.steps(self, Graph(x, edge_index, batch, edge_attr, edge_weight, edge_type, pos, normal, node_type))

    def start(self, graph: Graph) -> Tensor:
        """Return the hidden rows of the nodes after a GCN layer and its ReLU."""
        return torch.relu(self.convolved(graph))

    def convolved(self, graph: Graph) -> Tensor:
        """Return the hidden rows of the nodes after a GCN layer."""
        if not hasattr(self, "first"):
            self.first = GCNConv(CHANNELS, CHANNELS)
        out: Tensor = self.first(graph.x, graph.edge_index)
        return out

    def pooled(self, hidden: Tensor, graph: Graph) -> Tensor:
        """Return the output from the mean over each graph's rows."""
        out: Tensor = self.head(global_mean_pool(hidden, graph.batch))
        return out


class SignedNetwork(nn.Module):
    """A model of positive and negative edges.

    Args:
        body: Called with ``x``, positive and negative edges; returns a row per node.
    """

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.ModuleList(body), nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor, pos_edge_index: Tensor, neg_edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return the output for one graph or batch of graphs."""
        for layer in self.body:
            x = torch.relu(layer(x, pos_edge_index, neg_edge_index))
        out: Tensor = self.head(global_mean_pool(x, batch))
        return out


class HeteroNetwork(nn.Module):
    """A model of graphs with several types of nodes and edges: SAGE layers, ReLU, then what is tried out.

    Args:
        body: Called with the rows and edges of each type; returns the rows of each type.
    """

    def __init__(self, body: Callable[..., dict[str, Tensor]], **modules: nn.Module) -> None:
        super().__init__()
        self.body, self.parts = body, nn.ModuleDict(modules)
        self.first = HeteroConv({edge_type: SAGEConv(CHANNELS, CHANNELS) for edge_type in METADATA[1]})
        self.head = nn.LazyLinear(CLASSES)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        """Return the output for one graph."""
        x_dict = {name: torch.relu(x) for name, x in self.first(x_dict, edge_index_dict).items()}
        x_dict = self.body(self.parts, x_dict, edge_index_dict)
        means = [torch.relu(x).mean(dim=0, keepdim=True) for x in x_dict.values()]
        out: Tensor = self.head(torch.cat(means, dim=1))
        return out


def graph_of_nodes(graph: Graph) -> Tensor:
    """Return the index of each node's graph."""
    return graph.edge_index.new_zeros(len(graph.x)) if graph.batch is None else graph.batch


def mlp(*channels: int) -> nn.Sequential:
    """Return linear layers with ReLUs between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def randomize(model: nn.Module) -> None:
    """Give every parameter and running statistic a random value, so that biases and norms matter."""
    generator = torch.Generator().manual_seed(0)
    statistics = [(name, buffer) for name, buffer in model.named_buffers() if "running_" in name]
    for name, tensor in [*model.named_parameters(), *statistics]:
        if not is_lazy(tensor) and tensor.is_floating_point():
            scale = tensor.size(-1) ** -0.5 if tensor.dim() > 1 else 0.5
            value = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * scale
            tensor.copy_(value.abs() + 0.5 if f".{name}".endswith(_POSITIVE) else value)
