"""An undirected graph for tests of peeling."""

from __future__ import annotations

import torch
from conftest import random_edges
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


def one_graph() -> Data:
    x = torch.rand(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Data(x=x, edge_index=to_undirected(random_edges(7, 10, seed=2)))
