"""What explainers work on: graphs side by side with their target classes, and logits as functions of edge masks."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel
from captum_goat.metrics.counted_edges import CountedEdges, edges_of, graph_of_nodes, number_of_graphs, sums

# The largest number of edges in one call of a model, copies included: enough to be fast, few enough for any memory.
LARGEST_CALL = 400_000


@dataclass(frozen=True)
class Graphs:
    """One graph, or several side by side as in a PyG batch, each with the class to explain.

    Attributes:
        x: The node features ``[N, F]``.
        edge_index: The edges ``[2, E]``.
        batch: The graph of each node ``[N]``.
        target: The class of each graph ``[G]``.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.explainers.graphs import Graphs
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))  # 0 - 1 - 2
        >>> graphs = Graphs.of(data, torch.tensor([1]))
        >>> graphs.edges.number, graphs.position
        (tensor([0, 0, 1, 1]), tensor([0, 1]))
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    target: Tensor

    @classmethod
    def of(cls, data: Data | Batch, target: Tensor) -> Graphs:
        """Read a graph or a batch of graphs.

        Raises:
            ValueError: If there is not one class per graph.
        """
        count = number_of_graphs(data)
        if not isinstance(target, Tensor) or target.shape != (count,) or target.is_floating_point():
            got = f"{target.dtype} {list(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
            raise ValueError(f"Expected a tensor of {count} classes as target, one per graph (got {got}).")
        return cls(data.x, edges_of(data), graph_of_nodes(data), target.to(data.x.device, torch.long))

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of a model."""
        return self.x, self.edge_index, self.batch

    @property
    def num_edges(self) -> int:
        """E, the number of columns of ``edge_index``."""
        return self.edge_index.size(1)

    @cached_property
    def edges(self) -> CountedEdges:
        """The edges as they are counted: both directions are one edge if every edge has its reverse."""
        return CountedEdges.of(Data(x=self.x, edge_index=self.edge_index, batch=self.batch))

    @cached_property
    def position(self) -> Tensor:
        """The position of each counted edge among those of its graph, ``[M]``, starting at 0."""
        graph = self.edges.graph
        order = torch.sort(graph, stable=True).indices
        counts = self.edges.counts
        position = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[graph[order]]
        return torch.empty_like(position).scatter_(0, order, position)

    @property
    def max_edges(self) -> int:
        """The number of counted edges of the largest graph."""
        counts = self.edges.counts
        return int(counts.max()) if counts.numel() else 0

    def shared(self, totals: Tensor) -> Tensor:
        """Share the score of each counted edge ``[M]`` equally among its columns ``[E]``."""
        columns = sums(torch.ones_like(self.edges.number), self.edges.number, len(totals))
        return (totals / columns)[self.edges.number]

    def by_position(self, table: Tensor) -> Tensor:
        """Return the value of each counted edge ``[M]`` from a table of positions and graphs ``[positions, G]``."""
        values: Tensor = table[self.position, self.edges.graph]
        return values

    def of_target(self, logits: Tensor) -> Tensor:
        """Select the target class: ``[..., G]`` from logits ``[..., G, C]``."""
        index = self.target.view(-1, 1).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, index).squeeze(-1)

    def values(self, model: Module) -> Tensor:
        """Return the model's logit of each graph's target class, ``[G]``."""
        return self.of_target(model(*self.inputs))

    def repeated(self, count: int) -> Graphs:
        """Return copies of the graphs side by side, the first copy first."""
        copy = torch.arange(count, device=self.x.device)
        nodes, graphs, edges = self.x.size(0), len(self.target), self.num_edges
        return Graphs(
            self.x.repeat(count, 1),
            self.edge_index.repeat(1, count) + (copy * nodes).repeat_interleave(edges),
            self.batch.repeat(count) + (copy * graphs).repeat_interleave(nodes),
            self.target.repeat(count),
        )

    def parts(self, copies: int = 1) -> Iterator[tuple[Graphs, Tensor]]:
        """Split the graphs into parts small enough for one call of a model with some copies of each.

        Args:
            copies: The number of copies; 0 for parts of one graph each.

        Yields:
            The parts in order, each with its columns of ``edge_index``.
        """
        count = len(self.target)
        edges = self.edges.columns_graph.bincount(minlength=count)
        before = edges.cumsum(0) - edges
        part = before * copies // LARGEST_CALL if copies else torch.arange(count, device=self.x.device)
        for number in part.unique():
            graphs = part == number
            yield self._cut(graphs, graphs[self.batch]), graphs[self.edges.columns_graph].nonzero().view(-1)

    def _cut(self, graphs: Tensor, nodes: Tensor) -> Graphs:
        graph_number, node_number = graphs.cumsum(0) - 1, nodes.cumsum(0) - 1
        columns = graphs[self.edges.columns_graph]
        return Graphs(
            self.x[nodes],
            node_number[self.edge_index[:, columns]],
            graph_number[self.batch[nodes]],
            self.target[graphs],
        )

    def seed(self, seed: int) -> int:
        """Return a seed that depends on the graphs, so that every graph has other random numbers.

        It is the same for a graph alone and in a batch.
        """
        checksum = 0
        for tensor in (self.edge_index, self.x):
            checksum = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), checksum)
        return (checksum + 7919 * seed) % 2**32


class EdgeFunction(Module):
    r"""The logits of the target classes as a function of one number per edge.

    The graphs of a batch are disjoint, so the gradient of the *sum* of their logits contains the gradients of all of
    them: one backward pass explains the whole batch.

    Args:
        graphs: The graphs and their classes.
    """

    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.graphs = graphs

    @abstractmethod
    def logits(self, numbers: Tensor) -> Tensor:
        """Return the logits for each of B rows of numbers, ``[B, G, C]`` from ``[B, E]``."""

    def values(self, numbers: Tensor) -> Tensor:
        """Return the logit of each graph's class for each of B rows of numbers, ``[B, G]`` from ``[B, E]``."""
        return self.graphs.of_target(self.logits(numbers))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the sum of the logits for each of B rows of numbers, ``[B]`` from ``[B, E]``."""
        return self.values(numbers).sum(-1)


class MaskedTargets(EdgeFunction):
    """The logits of the target classes as a function of an edge mask.

    Args:
        model: A graph model.
        graphs: The graphs and their classes.
        at: Where the mask enters, as for :class:`~captum_goat.EdgeMaskedModel`.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.explainers.graphs import Graphs, MaskedTargets
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gcn", in_channels=1, hidden_channels=4, num_classes=2).eval()
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> MaskedTargets(model, Graphs.of(data, torch.tensor([1])))(torch.ones(5, 2)).shape  # five masks of two edges
        torch.Size([5])
    """

    def __init__(self, model: Module, graphs: Graphs, at: Literal["message", "adjacency"] = "message") -> None:
        super().__init__(graphs)
        self.masked = EdgeMaskedModel(model, at)

    def logits(self, numbers: Tensor) -> Tensor:
        """Return the logits for each of B masks."""
        logits: Tensor = self.masked(numbers, *self.graphs.inputs)
        return logits.view(len(numbers), len(self.graphs.target), -1)
