"""Models with caches, sparse matrices and other forms of edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, GINConv, GraphConv, SAGEConv, SGConv, global_add_pool
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, Graph, Wild, mlp


class CachedGCN(nn.Module):
    """The full-batch GCN of node classification benchmarks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = GCNConv(C, C, cached=True), nn.BatchNorm1d(C)
        self.second = GCNConv(C, CLASSES, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index)).relu()
        return self.second(x, edge_index).log_softmax(dim=-1)


class CachedSGC(nn.Module):
    """Simplified graph convolution, whose cache is the propagated features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SGConv(C, CLASSES, K=2, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class CachedPageRank(nn.Module):
    """An MLP, then personalised page rank with a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.prop = mlp(C, C, CLASSES), APPNP(K=3, alpha=0.2, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.prop(self.mlp(x), edge_index)


class Transposed(nn.Module):
    """``forward(x, adj_t)`` as in benchmarks with sparse matrices."""

    def __init__(self, conv: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = conv(C, C), conv(C, CLASSES)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.second(self.first(x, adj_t).relu(), adj_t)


class TransposedInData(nn.Module):
    """``forward(data)`` with ``data.adj_t``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, data: Data) -> Tensor:
        return self.head(global_add_pool(self.conv(data.x, data.adj_t).relu(), data.batch))


class Indexed(nn.Module):
    """PyG's EdgeIndex."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GraphConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))


def _csr(g: Graph) -> Tensor:
    return to_torch_csr_tensor(g.edge_index.flip(0), size=(10, 10))


def _coo(g: Graph) -> Tensor:
    weights = torch.linspace(0.5, 2.0, g.edge_index.size(1), dtype=torch.float64)
    return to_torch_coo_tensor(g.edge_index.flip(0), weights, size=(10, 10))


_NODES = {"arguments": lambda g: (g.x, g.edge_index), "target": (3, 1)}
CASES = [
    Wild(CachedGCN, **_NODES),
    Wild(CachedSGC, **_NODES),
    Wild(CachedPageRank, **_NODES),
    Wild(lambda: Transposed(GraphConv), lambda g: (g.x, _csr(g).double()), target=(3, 1)),
    Wild(lambda: Transposed(GCNConv), lambda g: (g.x, _coo(g)), target=(3, 1)),
    Wild(lambda: Transposed(GCNConv), lambda g: (g.x, _csr(g).double()), target=(3, 1)),
    Wild(lambda: Transposed(SAGEConv), lambda g: (g.x, _csr(g).double()), target=(3, 1)),
    Wild(TransposedInData, lambda g: (Data(x=g.x, adj_t=_csr(g).double(), batch=g.batch),)),
    Wild(Indexed, lambda g: (g.x, EdgeIndex(g.edge_index, sparse_size=(10, 10)), g.batch)),
]
