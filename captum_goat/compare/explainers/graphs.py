"""What explainers work on: graphs side by side with their target classes, and logits as functions of edge masks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel
from captum_goat.metrics.counted_edges import CountedEdges, description, edges_of, graph_of_nodes, number_of_graphs

# The largest number of edges in one call of a model, copies included: enough to be fast, few enough for any memory.
LARGEST_CALL = 400_000


@dataclass(frozen=True)
class Graphs:
    """One graph, or several side by side as in a PyG batch, each with the class to explain."""

    x: Tensor  # [N, F]
    edge_index: Tensor  # [2, E]
    batch: Tensor  # the graph of each node, [N]
    target: Tensor  # the class of each graph, [G]

    @classmethod
    def of(cls, data: Data | Batch, target: Tensor) -> Graphs:
        """Read a graph or a batch of graphs; raise ValueError unless there is one class per graph."""
        count = number_of_graphs(data)
        if not isinstance(target, Tensor) or target.shape != (count,) or target.is_floating_point():
            raise ValueError(
                f"Expected a tensor of {count} classes as target, one per graph (got {description(target)})."
            )
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

    def shared(self, totals: Tensor) -> Tensor:
        """Share the score of each counted edge ``[M]`` equally among its columns ``[E]``."""
        return (totals / self.edges.number.bincount(minlength=len(totals)))[self.edges.number]

    def of_target(self, logits: Tensor) -> Tensor:
        """Select the target class: ``[..., G]`` from logits ``[..., G, C]``."""
        index = self.target.view(-1, 1).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, index).squeeze(-1)

    def values(self, model: Module) -> Tensor:
        """Return the model's logit of each graph's target class, ``[G]``."""
        return self.of_target(model(*self.inputs))

    def parts(self, copies: int = 1) -> Iterator[tuple[Graphs, Tensor]]:
        """Yield parts small enough for one call with some copies (0 for single graphs), with their columns of edges."""
        graph_of_column, count = self.edges.columns_graph, len(self.target)
        sizes = graph_of_column.bincount(minlength=count)
        before = sizes.cumsum(0) - sizes
        part = before * copies // LARGEST_CALL if copies else torch.arange(count, device=self.x.device)
        for number in part.unique():
            graphs = part == number
            nodes, columns = graphs[self.batch], graphs[graph_of_column]
            new_graph, new_node = graphs.cumsum(0) - 1, nodes.cumsum(0) - 1
            edge_index = new_node[self.edge_index[:, columns]]
            cut = Graphs(self.x[nodes], edge_index, new_graph[self.batch[nodes]], self.target[graphs])
            yield cut, columns.nonzero().view(-1)

    def seed(self, seed: int) -> int:
        """Return a seed that depends on the graphs, so that every graph has other random numbers."""
        checksum = 0
        for tensor in (self.edge_index, self.x):
            checksum = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), checksum)
        return (checksum + 7919 * seed) % 2**32


class MaskedTargets(Module):
    """The logits of the target classes as a function of an edge mask.

    Graphs of a batch are disjoint: the gradient of the *sum* of their logits has the gradients of all of them.
    """

    def __init__(self, model: Module, graphs: Graphs, at: Literal["message", "adjacency"] = "message") -> None:
        super().__init__()
        self.graphs = graphs
        self.masked = EdgeMaskedModel(model, at)

    def logits(self, masks: Tensor) -> Tensor:
        """Return the logits for each of B masks, ``[B, G, C]`` from ``[B, E]``."""
        logits: Tensor = self.masked(masks, *self.graphs.inputs)
        return logits.view(len(masks), len(self.graphs.target), -1)

    def values(self, masks: Tensor) -> Tensor:
        """Return the logit of each graph's class for each of B masks, ``[B, G]`` from ``[B, E]``."""
        return self.graphs.of_target(self.logits(masks))

    def forward(self, masks: Tensor) -> Tensor:
        """Return the sum of these logits for each of B masks, ``[B]`` from ``[B, E]``."""
        return self.values(masks).sum(-1)
