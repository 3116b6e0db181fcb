"""What explainers work on: graphs side by side with their target classes, and logits as functions of edge masks."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.metrics.counted_edges import CountedEdges, edges_of, graph_of_nodes, number_of_graphs
from captum_goat.metrics.fidelity import model_arguments, signed_logits

# The largest number of edges in one call of a model, copies included: enough to be fast, few enough for any memory.
LARGEST_CALL = 400_000


@dataclass(frozen=True)
class Graphs:
    """One graph, or several side by side as in a PyG batch, each with the class to explain."""

    data: Data  # with x, edge_index and batch
    target: Tensor  # the class of each graph, [G]
    model: Module | None = None  # whose arguments are ``inputs``; None for one called as model(x, edge_index, batch)
    x: Tensor = field(init=False)  #: The node features, ``[N, F]``.
    edge_index: Tensor = field(init=False)  #: The edges, ``[2, E]``.
    batch: Tensor = field(init=False)  #: The graph of each node, ``[N]``.

    def __post_init__(self) -> None:
        for name in ("x", "edge_index", "batch"):
            object.__setattr__(self, name, self.data[name])

    @classmethod
    def of(cls, data: Data | Batch, target: Any, model: Module | None = None) -> Graphs:
        """Read a graph or a batch of graphs; ``target`` is the class of all graphs, or one per graph."""
        edge_index, count = edges_of(data), number_of_graphs(data)
        classes = torch.as_tensor(target, dtype=torch.long, device=data.x.device).reshape(-1).expand(count)
        data = copy(data)
        data.edge_index, data.batch = edge_index, graph_of_nodes(data)
        return cls(data, classes, model)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of the model."""
        return (self.x, self.edge_index, self.batch) if self.model is None else model_arguments(self.model, self.data)

    @property
    def num_edges(self) -> int:
        """E, the number of columns of ``edge_index``."""
        return self.edge_index.size(1)

    @property
    def mask(self) -> Tensor:
        """An edge mask of ones, ``[E]``."""
        return self.x.new_ones(self.num_edges)

    @cached_property
    def edges(self) -> CountedEdges:
        """The edges as they are counted: both directions are one edge if every edge has its reverse."""
        return CountedEdges.of(self.data)

    def changed(self, **attributes: Tensor) -> Graphs:
        """Return the graphs with other features, edges, or other attributes."""
        return replace(self, data=copy(self.data).update(attributes))

    def shared(self, totals: Tensor) -> Tensor:
        """Share the score of each counted edge ``[M]`` equally among its columns ``[E]``."""
        return (totals / self.edges.number.bincount(minlength=len(totals)))[self.edges.number]

    def of_target(self, logits: Tensor) -> Tensor:
        """Select the target class: ``[..., G]`` from logits ``[..., G, C]``; of a single logit, it or its negative."""
        logits = signed_logits(logits)
        index = self.target.view(-1, 1).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, index).squeeze(-1)

    def values(self, model: Module) -> Tensor:
        """Return the model's logit of each graph's target class, ``[G]``."""
        return self.of_target(model(*self.inputs).view(len(self.target), -1))

    def parts(self, copies: int = 1) -> Iterator[tuple[Graphs, Tensor]]:
        """Yield parts small enough for one call with some copies (0 for single graphs), with their columns of edges."""
        graph_of_column, count = self.edges.columns_graph, len(self.target)
        sizes = graph_of_column.bincount(minlength=count)
        before = sizes.cumsum(0) - sizes
        part = before * copies // LARGEST_CALL if copies else torch.arange(count, device=self.x.device)
        numbers = part.unique()
        if len(numbers) == 1:
            yield self, torch.arange(self.num_edges, device=self.x.device)
            return
        whole = Data.from_dict({name: value for name, value in self.data.to_dict().items() if name != "ptr"})
        for number in numbers:
            graphs = part == number
            cut = whole.subgraph(graphs[self.batch])
            cut.batch = (graphs.cumsum(0) - 1)[cut.batch]
            for name, value in whole:
                is_of_graphs = isinstance(value, Tensor) and value.dim() > 0 and len(value) == count
                if is_of_graphs and not (whole.is_node_attr(name) or whole.is_edge_attr(name)):
                    cut[name] = value[graphs]
            yield replace(self, data=cut, target=self.target[graphs]), graphs[graph_of_column].nonzero().view(-1)

    def seed(self, seed: int) -> int:
        """Return a seed that depends on the graphs, so that every graph has other random numbers."""
        checksum = 0
        for tensor in (self.edge_index, self.x):
            checksum = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), checksum)
        return (checksum + 7919 * seed) % 2**32


class MaskedTargets(Module):
    """The sum of the logits of the target classes, ``[B]``, as a function of edge masks ``[B, E]``.

    Graphs of a batch are disjoint: the gradient of the sum of their logits has the gradients of all of them.
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

    def forward(self, masks: Tensor) -> Tensor:  # noqa: D102
        return self.values(masks).sum(-1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers of Python, NumPy and torch, and restore their states afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
