"""Models that take their edges in a Data object, a list, a dictionary, or keep them themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, GINEConv, SAGEConv, global_add_pool

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, EDGE_CHANNELS, Graph, Wild, mlp


def _data(g: Graph, **more: Any) -> Data:
    return Data(x=g.x, edge_index=g.edge_index, edge_attr=g.edge_attr, batch=g.batch, **more)


class TakesData(nn.Module):
    """PyG's examples: ``forward(data)``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINEConv(mlp(C, C), edge_dim=EDGE_CHANNELS), nn.Linear(C, CLASSES)

    def forward(self, data: Data) -> Tensor:
        hidden = self.conv(data.x, data.edge_index, data.edge_attr).relu()
        return self.head(global_add_pool(hidden, data.batch))


class TakesBatch(nn.Module):
    """The same with the name of one of the graph's own attributes: ``forward(batch)``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TakesData()

    def forward(self, batch: Data) -> Tensor:
        return self.inner(batch)


class _GymLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GINConv(mlp(C, C))

    def forward(self, batch: Data) -> Data:
        batch.x = self.conv(batch.x, batch.edge_index).relu()
        return batch


class GraphGym(nn.Module):
    """Layers that change the batch and hand it on; the head returns predictions and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.Sequential(_GymLayer(), _GymLayer()), nn.Linear(C, CLASSES)

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        batch = self.layers(batch)
        return self.head(global_add_pool(batch.x, batch.batch)), batch.y


class SampledLayers(nn.Module):
    """One ``edge_index`` per layer, in a list, as neighbor samplers return them; here the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(C, C, aggr="sum"), SAGEConv(C, CLASSES, aggr="sum")])

    def forward(self, x: Tensor, adjs: list[tuple[Tensor, None, tuple[int, int]]]) -> Tensor:
        for conv, (edge_index, _, size) in zip(self.convs, adjs, strict=True):
            x = conv((x, x[: size[1]]), edge_index).tanh()
        return x


class Relations(nn.Module):
    """DMGI: a list with the edges of each relation, a mask each."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(C, C, normalize=False) for _ in range(2))
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_indices: list[Tensor]) -> Tensor:
        hidden = sum(conv(x, edge_index).relu() for conv, edge_index in zip(self.convs, edge_indices, strict=True))
        return self.head(hidden)


class TakesDictionary(nn.Module):
    """``forward(inputs)`` with a nested dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, inputs: dict[str, Any]) -> Tensor:
        hidden = self.conv(inputs["nodes"]["x"], inputs["graph"]["edge_index"]).relu()
        return self.head(global_add_pool(hidden, inputs["nodes"]["batch"]))


class DictionaryInData(nn.Module):
    """Edges in a dictionary that is an attribute of the Data object."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, data: Data) -> Tensor:
        return self.head(global_add_pool(self.conv(data.x, data.views["bonds"]).relu(), data.batch))


class OtherNames(nn.Module):
    """Arguments by other names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, feats: Tensor, graph_connectivity: Tensor, assignment: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(feats, graph_connectivity).relu(), assignment))


class OwnGraph(nn.Module):
    """A model that keeps the graph: its forward takes nothing but features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)
        self.register_buffer("edge_index", torch.tensor([[0, 1, 2], [1, 2, 3]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x, self.edge_index).relu())


class WeightsBesideEdges(nn.Module):
    """``forward(data, edge_weight)``: a Data object and another argument."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(C, C, normalize=False), nn.Linear(C, CLASSES)

    def forward(self, data: Data, edge_weight: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(data.x, data.edge_index, edge_weight).relu(), data.batch))


CASES = [
    Wild(TakesData, lambda g: (_data(g),), deletes=True),
    Wild(TakesBatch, lambda g: (_data(g),), deletes=True),
    Wild(
        GraphGym, lambda g: (Batch.from_data_list([_data(g, y=torch.zeros(1))]),), target=(0, 1), output=0, deletes=True
    ),
    Wild(SampledLayers, lambda g: (g.x, [(g.edge_index, None, (10, 10))] * 2), target=(1, 1), deletes=True),
    Wild(Relations, lambda g: (g.x, [g.edge_index[:, ::2], g.edge_index[:, 1::2]]), target=(1, 1)),
    Wild(
        TakesDictionary,
        lambda g: ({"nodes": {"x": g.x, "batch": g.batch}, "graph": {"edge_index": g.edge_index}},),
        deletes=True,
    ),
    Wild(DictionaryInData, lambda g: (Data(x=g.x, batch=g.batch, views={"bonds": g.edge_index}),), deletes=True),
    Wild(OtherNames, deletes=True),
    Wild(OwnGraph, lambda g: (g.x,), target=(2, 1), refused="edge"),
    Wild(WeightsBesideEdges, lambda g: (_data(g), g.edge_attr[:, 0].abs()), deletes=True),
]
