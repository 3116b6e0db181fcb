"""Models that divide, take softmax by hand, standard deviations, powers; and attention in other spellings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    EGConv,
    GENConv,
    GPSConv,
    GraphConv,
    GroupAddRev,
    MessagePassing,
    PNAConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.nn.aggr import PowerMeanAggregation
from torch_geometric.nn.models import NeuralFingerprint, Polynormer
from torch_geometric.utils import scatter, to_dense_batch

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, EDGE_CHANNELS, Wild, mlp


class _HandSoftmaxConv(MessagePassing):
    """Attention with exponentials and a division in ``aggregate``."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.att = nn.Linear(C, C, bias=False), nn.Linear(2 * C, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        self.weight = torch.exp(torch.nn.functional.leaky_relu(self.att(torch.cat([x_i, x_j], dim=-1))))
        return self.weight * x_j

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        total = scatter(self.weight, index, dim=0, dim_size=dim_size)
        return scatter(inputs, index, dim=0, dim_size=dim_size) / (total + 1e-16)


class HandSoftmax(nn.Module):
    """Two such layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = _HandSoftmaxConv(), _HandSoftmaxConv(), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.head(global_add_pool(x, batch))


class _GatedGCNLayer(MessagePassing):
    """The gated layer of graph benchmarks: gates of edges, normalised by their sum."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.a, self.b, self.d, self.e = (nn.Linear(C, C) for _ in range(4))
        self.c = nn.Linear(C, C)
        self.norm_x, self.norm_e = nn.BatchNorm1d(C), nn.BatchNorm1d(C)

    def forward(self, x: Tensor, edge_index: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
        out = self.propagate(edge_index, b=self.b(x), d=self.d(x), e=self.e(x), c=self.c(edge), a=self.a(x))
        return x + self.norm_x(out).relu(), edge + self.norm_e(self.edge).relu()

    def message(self, d_i: Tensor, e_j: Tensor, c: Tensor) -> Tensor:
        self.edge = d_i + e_j + c
        return torch.sigmoid(self.edge)

    def aggregate(self, inputs: Tensor, index: Tensor, b_j: Tensor, b: Tensor) -> Tensor:
        above = scatter(inputs * b_j, index, 0, dim_size=b.size(0))
        return above / (scatter(inputs, index, 0, dim_size=b.size(0)) + 1e-6)

    def update(self, aggr_out: Tensor, a: Tensor) -> Tensor:
        return a + aggr_out


class GatedGCN(nn.Module):
    """Two such layers, whose edges have features that change."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = nn.Linear(EDGE_CHANNELS, C), nn.ModuleList(_GatedGCNLayer() for _ in range(2))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        edge = self.embed(edge_attr)
        for layer in self.layers:
            x, edge = layer(x, edge_index, edge)
        return self.head(global_mean_pool(x, batch))


class LinearAttention(nn.Module):
    """A convolution beside attention with exponential features over all nodes of a graph: Performer by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.key, self.query, self.value = GraphConv(C, C), *(nn.Linear(C, C) for _ in range(3))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        dense, mask = to_dense_batch(x, batch)
        key, query = (torch.exp(lin(dense) / 2) * mask.unsqueeze(-1) for lin in (self.key, self.query))
        context = torch.einsum("bnd,bne->bde", key, self.value(dense))
        scale = 1 / (torch.einsum("bnd,bd->bn", query, key.sum(dim=1)) + 1e-6)
        out = torch.einsum("bnd,bde,bn->bne", query, context, scale)
        return self.head(global_add_pool((x + out[mask]).relu(), batch))


class SimplifiedTransformer(nn.Module):
    """Linear attention with normalised keys and queries, as SGFormer has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.key, self.query, self.value = GraphConv(C, C), *(nn.Linear(C, C) for _ in range(3))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        key, query, value = self.key(x), self.query(x), self.value(x)
        key, query = key / torch.norm(key, p=2), query / torch.norm(query, p=2)
        above = query @ (key.t() @ value) + len(x) * value
        below = (query * key.sum(dim=0)).sum(dim=1, keepdim=True) + len(x)
        return self.head((above / below).relu())


class Principal(nn.Module):
    """Principal neighborhood aggregation with a standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        options = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification"]}
        self.convs = nn.ModuleList(PNAConv(C, C, deg=torch.tensor([1, 2, 4]), **options) for _ in range(2))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


class EfficientStd(nn.Module):
    """EGConv with a standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConv(C, 8), EGConv(8, 8, aggregators=["std", "sum"], num_heads=2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.second(self.first(x, edge_index).relu(), edge_index).relu(), batch))


class StdByHand(nn.Module):
    """The standard deviation over the nodes of one graph, as torch computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GraphConv(C, C), nn.Linear(2 * C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        return self.head(torch.cat([x.std(dim=0), x.mean(dim=0)]).unsqueeze(0))


class PowerMean(nn.Module):
    """A power mean with a power that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = SAGEConv(C, C, aggr=PowerMeanAggregation(learn=True)), nn.Linear(C, CLASSES)
        self.first = GraphConv(C, C)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = torch.sigmoid(self.first(x, edge_index))
        return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))


class Reversible(nn.Module):
    """Reversible layers, which detach what they can compute again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = GraphConv(C, C), GroupAddRev(GraphConv(C // 2, C // 2), num_groups=2)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.layer(self.first(x, edge_index).relu(), edge_index)
        return self.head(global_add_pool(x.relu(), batch))


class GeneralPowerful(nn.Module):
    """GPS layers: a convolution beside attention over all nodes of a graph."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GPSConv(C, GENConv(C, C, aggr="softmax"), heads=2, attn_type=attention) for _ in range(2)
        )
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        return self.head(global_add_pool(x, batch))


class GraphTransformer(nn.Module):
    """Transformer convolutions with edge features, then an encoder layer over each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = TransformerConv(C, C, edge_dim=EDGE_CHANNELS)
        self.layer = nn.TransformerEncoderLayer(C, 2, 2 * C, batch_first=True)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        dense, mask = to_dense_batch(self.conv(x, edge_index, edge_attr).relu(), batch)
        return self.head((self.layer(dense, src_key_padding_mask=~mask) * mask.unsqueeze(-1)).sum(dim=1))


class Polynomial(nn.Module):
    """Polynormer with its global attention."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Polynormer(C, C, C, local_layers=2)
        self.net._global = True

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.net(x, edge_index, batch)


class Fingerprints(nn.Module):
    """Neural fingerprints: an output that is a sum of softmaxes has no edge in its products."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = NeuralFingerprint(C, C, C, num_layers=2), mlp(C, C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.net(x, edge_index, batch))


class Contrast(nn.Module):
    """Cosine similarity of two nodes, as in link prediction and contrastive learning."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        return torch.nn.functional.cosine_similarity(x[:3], x[3:6], dim=-1)


_WITH_ATTRIBUTES = {"arguments": lambda g: (g.x, g.edge_index, g.edge_attr, g.batch)}
CASES = [
    Wild(HandSoftmax),
    Wild(GatedGCN, **_WITH_ATTRIBUTES),
    Wild(LinearAttention, deletes=True),
    Wild(SimplifiedTransformer, lambda g: (g.x, g.edge_index), target=(2, 1), deletes=True),
    Wild(Principal),
    Wild(EfficientStd),
    Wild(StdByHand, lambda g: (g.x, g.edge_index), deletes=True),
    Wild(PowerMean),
    Wild(Reversible, deletes=True),
    Wild(lambda: GeneralPowerful("multihead")),
    Wild(lambda: GeneralPowerful("performer")),
    Wild(GraphTransformer, **_WITH_ATTRIBUTES),
    Wild(Polynomial, target=(2, 1)),
    Wild(Fingerprints),
    Wild(Contrast, lambda g: (g.x, g.edge_index), target=(1,), deletes=True),
]
