"""What a test of a model needs: how it is built and called, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CHANNELS, EDGE_CHANNELS, CLASSES = 4, 3, 2


class Graph(NamedTuple):
    """Two small graphs side by side, in double precision, and everything that models ask for."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    batch: Tensor
    pos: Tensor
    kind: Tensor  # an integer per node
    bond: Tensor  # an integer per edge

    def without(self, edge: int) -> Graph:
        """Return the graph without one edge."""
        kept = torch.arange(self.edge_index.size(1)) != edge
        return self._replace(edge_index=self.edge_index[:, kept], edge_attr=self.edge_attr[kept], bond=self.bond[kept])


def graph() -> Graph:
    """Return a ring of five nodes with a chord, a star of four nodes, and a lone node."""
    half = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3), (5, 6), (5, 7), (5, 8)]
    edge_index = torch.tensor([*half, *((b, a) for a, b in half)]).t().contiguous()
    random = torch.Generator().manual_seed(5)
    real: Any = {"generator": random, "dtype": torch.float64}
    nodes, edges = 10, edge_index.size(1)
    return Graph(
        torch.randn(nodes, CHANNELS, **real),
        edge_index,
        torch.randn(edges, EDGE_CHANNELS, **real),
        torch.tensor([0] * 5 + [1] * 5),
        torch.randn(nodes, 3, **real),
        torch.randint(0, 4, (nodes,), generator=random),
        torch.randint(0, 3, (edges,), generator=random),
    )


class Wild(NamedTuple):
    """One model class, how it is called, and what is expected.

    Attributes:
        build: Makes the model.
        arguments: Returns the model's arguments for a graph.
        target: What is explained, as for ``attribute``.
        output: Which part of the model's output is explained, if it is not a tensor.
        deletes: Whether an edge with mask 0 is an edge that is not there: the model has no degrees and no attention.
        refused: What the refusal says; ``None`` if the model is explained exactly.
        error: The kind of the refusal.
    """

    build: Callable[[], nn.Module]
    arguments: Callable[[Graph], Any] = lambda g: (g.x, g.edge_index, g.batch)
    target: Any = 1
    output: Any = None
    deletes: bool = False
    refused: str | None = None


def randomized(model: nn.Module) -> nn.Module:
    """Return a model in double precision and evaluation mode, every parameter and statistic with a random value."""
    random = torch.Generator().manual_seed(3)
    for name, tensor in [*model.double().named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            value = torch.randn(tensor.shape, generator=random, dtype=tensor.dtype)
            value *= tensor.size(-1) ** -0.5 if tensor.dim() > 1 else 0.5
            with torch.no_grad():
                tensor.copy_(value.abs() + 0.5 if "running_var" in name else value)
    return model.eval()


def mlp(*sizes: int) -> nn.Sequential:
    """Return linear layers with ReLUs between them."""
    layers: Iterator[nn.Module] = (layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU()))
    return nn.Sequential(*list(layers)[:-1])
