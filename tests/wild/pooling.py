"""Models that select nodes, sort them or merge them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import (
    ASAPooling,
    DenseGCNConv,
    DMoNPooling,
    EdgePooling,
    GCNConv,
    GINConv,
    GraphConv,
    GraphUNet,
    MemPooling,
    SAGPooling,
    SortAggregation,
    TopKPooling,
    dense_diff_pool,
    dense_mincut_pool,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import subgraph, to_dense_adj, to_dense_batch

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, Wild, mlp


class Hierarchical(nn.Module):
    """Convolution, selection, readout, and again: TopK networks and SAGPool's hierarchical one."""

    def __init__(self, pooling: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GraphConv(C, C) for _ in range(2))
        self.pools = nn.ModuleList(pooling(C, ratio=0.6, **options) for _ in range(2))
        self.head = nn.Linear(2 * C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        readouts = []
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = conv(x, edge_index).relu()
            x, edge_index, _, batch, *_ = pool(x, edge_index, None, batch)
            readouts.append(torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], dim=1))
        return self.head(readouts[0] + readouts[1])


class GlobalSAGPool(nn.Module):
    """SAGPool after all convolutions, on what they say together."""

    def __init__(self) -> None:
        super().__init__()
        self.convs, self.pool = (
            nn.ModuleList(GCNConv(C, C) for _ in range(2)),
            SAGPooling(2 * C, ratio=0.5, GNN=GCNConv),
        )
        self.head = nn.Linear(2 * C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        layers = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            layers.append(x)
        x, _, _, batch, _, _ = self.pool(torch.cat(layers, dim=1), edge_index, None, batch)
        return self.head(global_add_pool(x, batch))


class ASAP(nn.Module):
    """Adaptive structure aware pooling between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.second = GraphConv(C, C), ASAPooling(C, ratio=0.6), GraphConv(C, C)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x, edge_index, weight, batch, _ = self.pool(x, edge_index, None, batch)
        return self.head(global_add_pool(self.second(x, edge_index, weight).relu(), batch))


class EdgeContraction(nn.Module):
    """Edge pooling between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.second = GraphConv(C, C), EdgePooling(C), GraphConv(C, C)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x, edge_index, batch, _ = self.pool(x, edge_index, batch)
        return self.head(global_add_pool(self.second(x, edge_index).relu(), batch))


class DGCNN(nn.Module):
    """Sorted nodes as a sequence, with convolutions over it and a maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(C, C), GCNConv(C, 1)])
        self.sort, width = SortAggregation(k=4), C + 1
        self.over_channels, self.pool = nn.Conv1d(1, 3, width, width), nn.MaxPool1d(2, 2)
        self.over_nodes, self.head = nn.Conv1d(3, 2, 2), mlp(2, C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        layers = []
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
            layers.append(x)
        x = self.sort(torch.cat(layers, dim=-1), batch).unsqueeze(1)
        x = self.over_nodes(self.pool(self.over_channels(x).relu())).relu()
        return self.head(x.flatten(1))


class UNet(nn.Module):
    """Graph U-Net, as PyG has it."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = GraphUNet(C, C, C, depth=2, pool_ratios=0.6), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.net(x, edge_index, batch), batch))


class TopKByHand(nn.Module):
    """Scores, ``topk`` and ``subgraph(relabel_nodes=True)`` for one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.score, self.second = GINConv(mlp(C, C)), nn.Linear(C, 1), GINConv(mlp(C, C))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        score = self.score(x).squeeze(-1)
        chosen = torch.topk(score, 6).indices.sort().values
        edge_index, _ = subgraph(chosen, edge_index, relabel_nodes=True, num_nodes=x.size(0))
        x = x[chosen] * torch.sigmoid(score[chosen]).unsqueeze(-1)
        return self.head(self.second(x, edge_index).relu().sum(dim=0, keepdim=True))


class Relabelled(nn.Module):
    """The nodes in another order, the edges with their new numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)
        self.register_buffer("order", torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7]))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        new_number = torch.empty_like(self.order)
        new_number[self.order] = torch.arange(len(self.order))
        hidden = self.conv(x[self.order], new_number[edge_index]).relu()
        return self.head(global_add_pool(hidden, batch[self.order]))


class DiffPool(nn.Module):
    """A convolution, then dense clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.assign, self.dense = GCNConv(C, C), nn.Linear(C, 3), DenseGCNConv(C, C)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, mask = to_dense_batch(self.front(x, edge_index).relu(), batch)
        adj = to_dense_adj(edge_index, batch)
        x, adj, _, _ = dense_diff_pool(x, adj, self.assign(x), mask)
        return self.head(self.dense(x, adj).relu().sum(dim=1))


class MinCut(nn.Module):
    """The same by minimal cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.assign, self.dense = GCNConv(C, C), nn.Linear(C, 3), DenseGCNConv(C, C)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, mask = to_dense_batch(self.front(x, edge_index).relu(), batch)
        x, adj, _, _ = dense_mincut_pool(x, to_dense_adj(edge_index, batch), self.assign(x), mask)
        return self.head(self.dense(x, adj).relu().sum(dim=1))


class DMoN(nn.Module):
    """Clusters by modularity; the adjacency is used for the loss and the next layer."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.pool, self.dense = GCNConv(C, C), DMoNPooling(C, 3), DenseGCNConv(C, C)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, mask = to_dense_batch(self.front(x, edge_index).relu(), batch)
        _, x, adj, *_ = self.pool(x, to_dense_adj(edge_index, batch), mask)
        return self.head(self.dense(x, adj).relu().sum(dim=1))


class DenseOnly(nn.Module):
    """Dense layers alone: there are no messages to mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = DenseGCNConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, mask = to_dense_batch(x, batch)
        return self.head(self.conv(x, to_dense_adj(edge_index, batch), mask).relu().sum(dim=1))


class Memory(nn.Module):
    """Memory pooling: distances to keys."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.pool, self.head = (
            GCNConv(C, C),
            MemPooling(C, C, heads=2, num_clusters=2),
            nn.Linear(C, CLASSES),
        )

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, _ = self.pool(self.front(x, edge_index).relu(), batch)
        return self.head(F.elu(x).sum(dim=1))


CASES = [
    Wild(lambda: Hierarchical(TopKPooling)),
    Wild(lambda: Hierarchical(SAGPooling)),
    Wild(lambda: Hierarchical(SAGPooling, GNN=GCNConv)),
    Wild(GlobalSAGPool),
    Wild(ASAP, refused="edges that do not come from the given edge_index"),
    Wild(EdgeContraction, refused="EdgePooling"),
    Wild(DGCNN),
    Wild(UNet, refused="net.down_convs.1' .*do not come from the given edge_index"),
    Wild(TopKByHand, lambda g: (g.x, g.edge_index)),
    Wild(Relabelled, deletes=True),
    Wild(DiffPool, refused="by hand"),
    Wild(MinCut, refused="by hand"),
    Wild(DMoN, refused="by hand"),
    Wild(DenseOnly, refused="by hand"),
    Wild(Memory),
]
