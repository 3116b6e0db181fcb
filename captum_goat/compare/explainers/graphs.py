"""Graphs side by side, and the class of each that is to be explained: what every explainer works on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import CountedEdges, edges_of, graph_of_nodes, number_of_graphs, sums

# How many edges a model is given at once, copies counted: enough to be fast, and little enough for any memory.
LARGEST_CALL = 400_000


@dataclass(frozen=True)
class Graphs:
    """One graph, or several side by side as PyG batches them, each with the class that is asked for.

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
        >>> graphs.edges.number, graphs.place
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
        """The edges as they are counted: both directions are one edge where every edge has its reverse."""
        return CountedEdges.of(Data(x=self.x, edge_index=self.edge_index, batch=self.batch))

    @cached_property
    def place(self) -> Tensor:
        """The place of each counted edge among those of its graph, ``[M]``, from 0 on."""
        graph = self.edges.graph
        order = torch.sort(graph, stable=True).indices
        counts = self.edges.counts
        place = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[graph[order]]
        return torch.empty_like(place).scatter_(0, order, place)

    @property
    def most_edges(self) -> int:
        """The number of counted edges of the graph that has most."""
        counts = self.edges.counts
        return int(counts.max()) if counts.numel() else 0

    def shared(self, totals: Tensor) -> Tensor:
        """Share the score of each counted edge ``[M]`` equally among its columns ``[E]``."""
        columns = sums(torch.ones_like(self.edges.number), self.edges.number, len(totals))
        return (totals / columns)[self.edges.number]

    def by_place(self, values: Tensor) -> Tensor:
        """Return the value of each counted edge ``[M]`` from a table with its place and graph ``[places, G]``."""
        found: Tensor = values[self.place, self.edges.graph]
        return found

    def of_target(self, logits: Tensor) -> Tensor:
        """Pick the asked class: ``[..., G]`` from logits ``[..., G, C]``."""
        index = self.target.view(-1, 1).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, index).squeeze(-1)

    def values(self, model: Module) -> Tensor:
        """Return the model's logit of each graph's class, ``[G]``."""
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
        """Cut the graphs into parts of which a model can take some copies at once.

        Returns:
            The parts in order, each with the columns of ``edge_index`` that are its own. The parts are single graphs
            where ``copies`` is 0.
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
