"""Heterogeneous graphs and models that several tests share."""

from __future__ import annotations

from typing import Any

import torch
from conftest import randomize
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv, SAGEConv, global_add_pool, to_hetero

CITES, WRITES, WRITTEN = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author")
KNOWS = ("author", "knows", "author")
NODES = {"paper": 6, "author": 5}
CHANNELS = {"paper": 4, "author": 3}
Types = dict[Any, Tensor]


def hetero_graph(seed: int = 0, *, dtype: torch.dtype = torch.float64) -> HeteroData:
    """Return papers and authors: loops and double edges, an isolated paper and author, a type without edges."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for kind, size in NODES.items():
        data[kind].x = torch.randn(size, CHANNELS[kind], generator=generator, dtype=dtype)
    for kind, size in {CITES: 9, WRITES: 7, KNOWS: 0, WRITTEN: 6}.items():
        ends = [torch.randint(0, NODES[end] - 1, (size,), generator=generator) for end in (kind[0], kind[-1])]
        data[kind].edge_index = torch.stack(ends)
    return data


class SAGE(nn.Module):
    """Two layers for homogeneous graphs, for `to_hetero`: without annotations, of which torch 2.4 takes no strings."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), 8), SAGEConv((8, 8), 3)

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class HeteroGNN(nn.Module):
    """Two layers, then one row per paper, one per graph or one per link from an author to a paper."""

    def __init__(self, kind: str = "sage", level: str = "node", end: str = "raw", *, metadata: Any = None) -> None:
        super().__init__()
        self.level, self.end = level, end
        node_types, edge_types = metadata or hetero_graph().metadata()
        if kind == "to_hetero":
            self.gnn: nn.Module = to_hetero(SAGE(), (node_types, edge_types), aggr="mean")
        else:
            conv = {"sage": SAGEConv, "graph": GraphConv}[kind]
            self.gnn = nn.ModuleList(
                HeteroConv({edge_type: conv(sizes, out) for edge_type in edge_types})
                for sizes, out in (((-1, -1), 8), ((8, 8), 3))
            )

    def forward(
        self, x_dict: Types, edge_index_dict: Types, batch_dict: Types | None = None, links: Tensor | None = None
    ) -> Tensor:
        if isinstance(self.gnn, nn.ModuleList):
            hidden = {key: rows.relu() for key, rows in self.gnn[0](x_dict, edge_index_dict).items()}
            hidden = self.gnn[1](hidden, edge_index_dict)
        else:
            hidden = self.gnn(x_dict, edge_index_dict)
        if self.level == "graph":
            pooled = [global_add_pool(rows, batch_dict and batch_dict[key]) for key, rows in hidden.items()]
            out = pooled[0] + 2 * pooled[1].relu()
        elif links is not None:
            out = hidden["author"][links[0]] - 2 * hidden["paper"][links[1]]
        else:
            out = hidden["paper"]
        return out if self.end == "raw" else out.softmax(dim=-1)


def hetero_gnn(*args: Any, seed: int = 3, dtype: torch.dtype = torch.float64, **options: Any) -> HeteroGNN:
    """Return a model with random weights, in eval mode."""
    model, data = HeteroGNN(*args, **options), hetero_graph(dtype=torch.float32)
    model(data.x_dict, data.edge_index_dict, None, torch.zeros(2, 1, dtype=torch.long))  # lazy layers find their sizes
    randomize(model.to(dtype), seed)
    return model


def full_masks(data: HeteroData, *rows: int) -> Types:
    """Return masks of ones, one per edge type."""
    return {
        key: torch.ones(*rows, edge_index.size(1)).to(data["paper"].x)
        for key, edge_index in data.edge_index_dict.items()
    }


def random_masks(data: HeteroData, *rows: int, seed: int = 0) -> Types:
    """Return masks of random numbers, one per edge type."""
    generator = torch.Generator().manual_seed(seed)
    return {key: torch.randn(mask.shape, generator=generator).to(mask) for key, mask in full_masks(data, *rows).items()}


def without_edges(data: HeteroData) -> Types:
    """Return edges of all types, of which there are none."""
    return {key: edge_index[:, :0] for key, edge_index in data.edge_index_dict.items()}


def total(attributions: Any) -> Tensor:
    """Return the sum over all inputs."""
    parts = attributions.values() if isinstance(attributions, dict) else attributions
    return torch.stack([part.sum() for part in parts]).sum()
