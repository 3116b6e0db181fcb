"""Models that pass messages themselves, make their own edges, or run in other ways than by a plain call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    MetaLayer,
    global_add_pool,
)
from torch_geometric.utils import scatter

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, EDGE_CHANNELS, Wild, mlp


class DirectedMPNN(nn.Module):
    """Chemprop: messages on directed bonds, with those that come back taken out; all by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.step = nn.Linear(C + EDGE_CHANNELS, C), nn.Linear(C, C)
        self.end, self.head = nn.Linear(2 * C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        source, target = edge_index
        back = (torch.arange(len(source)) + len(source) // 2) % len(source)  # the opposite bond
        first = self.start(torch.cat([x[source], edge_attr], dim=1))
        message = first.relu()
        for _ in range(2):
            at_node = torch.zeros(len(x), C, dtype=x.dtype).index_add(0, target, message)
            message = (first + self.step(at_node[source] - message[back])).relu()
        at_node = torch.zeros(len(x), C, dtype=x.dtype).index_add(0, target, message)
        return self.head(global_add_pool(self.end(torch.cat([x, at_node], dim=1)).relu(), batch))


class PlainMPNN(DirectedMPNN):
    """Chemprop with messages that may come back: those on bonds read the sums at their sources."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        source, target = edge_index
        first = self.start(torch.cat([x.index_select(0, source), edge_attr], dim=1))
        message = first.relu()
        for _ in range(2):
            at_node = torch.zeros(len(x), C, dtype=x.dtype).index_add(0, target, message)
            message = (first + self.step(at_node[source])).relu()
        at_node = torch.zeros(len(x), C, dtype=x.dtype).index_add(0, target, message)
        return self.head(global_add_pool(self.end(torch.cat([x, at_node], dim=1)).relu(), batch))


class BondSums(nn.Module):
    """Sums of the features of edges, which might be messages or features of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.bonds, self.conv, self.head = nn.Linear(EDGE_CHANNELS, C), GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.bonds(scatter(edge_attr, edge_index[1], 0, dim_size=len(x)))
        return self.head(global_add_pool(self.conv(x, edge_index), batch))


class Equivariant(nn.Module):
    """EGNN: messages of features and distances, which move the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node, self.coord = mlp(2 * C + 1, C, C), mlp(2 * C, C, C), mlp(C, C, 1)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        row, col = edge_index
        for _ in range(2):
            difference = pos[row] - pos[col]
            distance = difference.square().sum(dim=1, keepdim=True)
            message = self.edge(torch.cat([x[row], x[col], distance], dim=1))
            pos = pos + scatter(difference * self.coord(message), row, 0, dim_size=len(x), reduce="mean")
            x = x + self.node(torch.cat([x, scatter(message, row, 0, dim_size=len(x))], dim=1))
        return self.head(global_add_pool(x, batch))


class DenseAdjacency(nn.Module):
    """CF-GNN: a dense matrix times features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        adj = torch.zeros(len(x), len(x), dtype=x.dtype)
        adj[edge_index[1], edge_index[0]] = 1.0
        return self.second(adj @ self.first(adj @ x).relu())


class SparseProduct(nn.Module):
    """``torch.sparse.mm`` with a matrix that is made of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.head = nn.Linear(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        ones = torch.ones(edge_index.size(1), dtype=x.dtype)
        adj = torch.sparse_coo_tensor(edge_index.flip(0), ones, (len(x), len(x)))
        return self.head(torch.sparse.mm(adj, self.lin(x)).relu())


class _EdgeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C + EDGE_CHANNELS, C)

    def forward(self, source: Tensor, target: Tensor, edge_attr: Tensor, u: Any, batch: Any) -> Tensor:
        return self.mlp(torch.cat([source, target, edge_attr], dim=1))


class _NodeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C, C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Any, batch: Any) -> Tensor:
        return self.mlp(torch.cat([x, scatter(edge_attr, edge_index[1], 0, dim_size=len(x))], dim=1))


class Meta(nn.Module):
    """MetaLayer: an edge model, and a node model that sums by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = MetaLayer(_EdgeModel(), _NodeModel())

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.layer(x, edge_index, edge_attr)[0]


class _OwnPropagate(MessagePassing):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def propagate(self, edge_index: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


class OwnPropagate(nn.Module):
    """A layer that overrides ``propagate``, and with it the hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = _OwnPropagate(), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv(x, edge_index).relu())


class NearestNeighbors(nn.Module):
    """Edges made inside: the nearest nodes by position, beside those of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.near, self.head = GraphConv(C, C), GraphConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> Tensor:
        near = torch.cdist(pos, pos).topk(3, largest=False).indices
        made = torch.stack([near.flatten(), torch.arange(len(x)).repeat_interleave(3)])
        return self.head(self.near(self.conv(x, edge_index).relu(), made).relu())


class OnlyNearest(nn.Module):
    """Edges made inside alone, from hidden features that change from layer to layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GraphConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for _ in range(2):
            near = torch.cdist(x, x).topk(3, largest=False).indices
            made = torch.stack([near.flatten(), torch.arange(len(x)).repeat_interleave(3)])
            x = self.conv(x, made).relu()
        return self.head(x)


class Checkpointed(nn.Module):
    """Layers in ``torch.utils.checkpoint``."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.head = GINConv(mlp(C, C)), GINConv(mlp(C, C)), nn.Linear(C, CLASSES)
        self.reentrant = reentrant

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x = checkpoint(self.second, x, edge_index, use_reentrant=self.reentrant)
        return self.head(global_add_pool(x.relu(), batch))


class UpdatedEdges(nn.Module):
    """Attention with edge features that an earlier layer computes, and self-loops of the layer's own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.update = GraphConv(C, C), nn.Linear(2 * C + EDGE_CHANNELS, EDGE_CHANNELS)
        self.second, self.head = GATConv(C, C, edge_dim=EDGE_CHANNELS), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        ends = torch.cat([x[edge_index[0]], x[edge_index[1]], edge_attr], dim=1)
        x = self.second(x, edge_index, self.update(ends).relu())
        return self.head(global_add_pool(x.relu(), batch))


class VirtualNode(nn.Module):
    """The molecule benchmark's GIN: embedded atoms and bonds, and a virtual node."""

    def __init__(self) -> None:
        super().__init__()
        self.atom, self.bond, self.virtual = nn.Embedding(4, C), nn.Embedding(3, C), nn.Embedding(1, C)
        self.convs = nn.ModuleList(GINEConv(mlp(C, 2 * C, C), train_eps=True) for _ in range(2))
        self.between, self.head = mlp(C, C, C), nn.Linear(C, CLASSES)

    def forward(self, kind: Tensor, edge_index: Tensor, bond: Tensor, batch: Tensor) -> Tensor:
        x, bond = self.atom(kind), self.bond(bond)
        virtual = self.virtual(batch.new_zeros(int(batch.max()) + 1))
        for conv in self.convs:
            x = x + virtual[batch]
            virtual = virtual + self.between(global_add_pool(x, batch) + virtual)
            x = conv(x, edge_index, bond).relu()
        return self.head(global_add_pool(x, batch))


class Recommender(nn.Module):
    """Embeddings by node number and layers without weights; the score of a pair of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(10, C), GCNConv(C, C, bias=False)

    def forward(self, edge_index: Tensor, pairs: Tensor) -> Tensor:
        x = layers = self.table.weight
        for _ in range(2):
            x = self.conv(x, edge_index)
            layers = layers + x
        return (layers[pairs[0]] * layers[pairs[1]]).sum(dim=-1)


class GivenMatrix(nn.Module):
    """A dense matrix as an argument: there are no edges to mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.second(adj @ self.first(adj @ x).relu())


class WithoutGradients(nn.Module):
    """A forward that switches gradients off."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GINConv(mlp(C, C)), GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    @torch.no_grad()
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(self.head.weight.sum() * x, edge_index).relu(), edge_index)
        return self.head(global_add_pool(x.relu(), batch))


class Scripted(nn.Module):
    """A part in TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), torch.jit.script(nn.Sequential(nn.Linear(C, CLASSES), nn.ReLU()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv(x, edge_index))


class Squared(nn.Module):
    """An operation that is neither linear nor known."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(torch.sin(self.conv(x, edge_index)))


_NODES = {"arguments": lambda g: (g.x, g.edge_index), "target": (3, 1)}
_POSITIONS = {"arguments": lambda g: (g.x, g.pos, g.edge_index), "target": (3, 1)}
CASES = [
    Wild(DirectedMPNN, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch), refused="by hand"),
    Wild(PlainMPNN, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch), deletes=True),
    Wild(Equivariant, lambda g: (g.x, g.pos, g.edge_index, g.batch)),
    Wild(BondSums, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch), refused="by hand .*features of edges alone"),
    Wild(DenseAdjacency, **_NODES, refused="by hand"),
    Wild(
        GivenMatrix,
        lambda g: (g.x, torch.ones(10, 10)),
        target=(3, 1),
        refused="no layer that derives",
    ),
    Wild(SparseProduct, **_NODES, refused="by hand"),
    Wild(Meta, lambda g: (g.x, g.edge_index, g.edge_attr), target=(3, 1), deletes=True),
    Wild(OwnPropagate, **_NODES, refused="by hand .*_OwnPropagate"),
    Wild(NearestNeighbors, **_POSITIONS, refused="edges"),
    Wild(OnlyNearest, **_NODES, refused="edges"),
    Wild(WithoutGradients, deletes=True),
    Wild(lambda: Checkpointed(True), deletes=True),
    Wild(lambda: Checkpointed(False), deletes=True),
    Wild(UpdatedEdges, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch)),
    Wild(VirtualNode, lambda g: (g.kind, g.edge_index, g.bond, g.batch), deletes=True),
    Wild(Recommender, lambda g: (g.edge_index, torch.tensor([[0, 1], [2, 4]])), target=(1,)),
    Wild(Scripted, **_NODES, refused="TorchScript"),
    Wild(Squared, **_NODES, refused="'sin'"),
]
