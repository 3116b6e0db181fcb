"""A model with something between and after its layers, and checks that its attributions are complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from conftest import random_edges
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, global_mean_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution

BATCH = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
EDGES = torch.cat([random_edges(5, 12, seed=1), random_edges(3, 5, seed=2, first=5)], dim=1)  # node 8 is isolated
X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.rand(17, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5


class Model(nn.Module):
    """Two layers, something between them and something after them."""

    def __init__(self, between: Callable[..., Tensor], after: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.first, self.second, self.head = GraphConv(4, 6), GraphConv(6, 6), nn.Linear(6, 3)
        self.between, self.after = between, between if after is None else after

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.between(self.first(x, edge_index))
        return self.head(global_mean_pool(self.after(self.second(x, edge_index)), batch))


class Transformer(nn.Module):
    """Attention of each node of a graph to all others."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        self.need_weights = False

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.zeros(2, 5, 6, dtype=x.dtype)
        padded[0], padded[1, :4] = x[:5], x[5:]
        missing = torch.tensor([[False] * 5, [False] * 4 + [True]])
        out, _ = self.attention(padded, padded, padded, key_padding_mask=missing, need_weights=self.need_weights)
        return torch.cat([out[0], out[1, :4]])


def check_complete(model: nn.Module, *arguments: Any) -> Tensor:
    """Check the sum by a way of its own, and that the replay is the model; return the attributions."""
    arguments = arguments or (X, EDGES, BATCH)
    attributions, delta = GOAtAttribution(model).attribute(MASK, [1, 2], arguments, return_convergence_delta=True)
    masked = EdgeMaskedModel(model)
    change = masked(MASK, *arguments) - masked(torch.zeros_like(MASK), *arguments)
    first = EDGES[0] < 5
    sums = torch.stack([attributions[first].sum(), attributions[~first].sum()])
    torch.testing.assert_close(sums, change[[0, 1], [1, 2]].detach(), rtol=1e-9, atol=1e-9)
    assert float(delta.abs().max()) < 1e-9
    assert attributions.any()
    return attributions


def check_complete_alone(model: nn.Module) -> None:
    single = torch.zeros_like(BATCH)
    attributions = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, single))
    masked = EdgeMaskedModel(model)
    change = masked(MASK, X, EDGES, single) - masked(torch.zeros_like(MASK), X, EDGES, single)
    torch.testing.assert_close(attributions.sum(), change[0, 1].detach(), rtol=1e-9, atol=1e-9)
