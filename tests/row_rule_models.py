"""A graph, and a model whose hidden states a body combines, for tests of rules for rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from conftest import random_edges
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

NODES, CHANNELS = 6, 4
EDGES = random_edges(NODES, 14, seed=3)
X = torch.randn(NODES, CHANNELS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.ones(14, dtype=torch.float64)

Body = Callable[[Tensor, Tensor, Tensor], Tensor]


class Model(nn.Module):
    """Two hidden states h1 (one hop) and h2 (two hops) that a body combines to [N, C] or [N]; then one more hop."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.a, self.b, self.c = (GraphConv(CHANNELS, CHANNELS) for _ in range(3))
        self.out = nn.Linear(CHANNELS, 2)
        self.body = body

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.a(x, edge_index).relu()
        second = self.b(first, edge_index)
        combined = self.body(x, first - 0.1, second)
        if combined.dim() == 1:
            combined = combined.unsqueeze(-1).expand(-1, CHANNELS)
        return self.out(self.c(combined, edge_index).relu()).mean(dim=0, keepdim=True)
