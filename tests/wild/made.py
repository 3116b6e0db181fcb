"""Models that make their edges themselves, and twins that are given the same edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import EdgeConv, GCNConv, MessagePassing, global_add_pool, global_mean_pool

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, mlp


def near(x: Tensor, batch: Tensor, k: int = 2) -> Tensor:
    """Return the edges from the ``k`` nearest other nodes of its graph to each node."""
    distances = torch.cdist(x, x).masked_fill(batch != batch.view(-1, 1), torch.inf).fill_diagonal_(torch.inf)
    chosen = distances.topk(k, largest=False)
    target = torch.arange(len(x)).view(-1, 1).expand_as(chosen.indices)
    return torch.stack([chosen.indices, target])[:, chosen.values.isfinite()]


def within(pos: Tensor, batch: Tensor, radius: float = 2.0) -> Tensor:
    """Return the edges between nodes of one graph within a radius."""
    return ((torch.cdist(pos, pos) < radius) & (batch == batch.view(-1, 1))).fill_diagonal_(False).nonzero().t()


class Points(nn.Module):
    """DGCNN: the neighbours of the second layer are near in its features; ``given`` edges are those of a twin."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = EdgeConv(mlp(6, C, C)), EdgeConv(mlp(2 * C, C, C), aggr="mean")
        self.head = nn.Linear(2 * C, CLASSES)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        return self.given(pos, batch, None, None)

    def given(self, pos: Tensor, batch: Tensor, first: Tensor | None, second: Tensor | None) -> Tensor:
        one = self.first(pos, near(pos, batch) if first is None else first).relu()
        two = self.second(one, near(one, batch, k=3) if second is None else second).relu()
        return self.head(global_mean_pool(torch.cat([one, two], dim=1), batch))


class GivenPoints(nn.Module):
    """The same with edges as arguments."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self.points = points

    def forward(self, pos: Tensor, batch: Tensor, edge_index_1: Tensor, edge_index_2: Tensor) -> Tensor:
        return self.points.given(pos, batch, edge_index_1, edge_index_2)


class Neighbours(nn.Module):
    """The edges within a radius, and their lengths."""

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        edge_index = within(pos, batch)
        return edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)


class _Filtered(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.lin, self.filter = nn.Linear(C, C), mlp(5, C, C)

    def forward(self, x: Tensor, edge_index: Tensor, length: Tensor) -> Tensor:
        shells = torch.exp(-((length.view(-1, 1) - torch.linspace(0, 2, 5)) ** 2))
        return self.propagate(edge_index, x=self.lin(x), weight=self.filter(shells))

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return x_j * weight


class Molecule(nn.Module):
    """SchNet: filters of the lengths of edges between atoms within a radius."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.embedding = Neighbours(), nn.Embedding(4, C)
        self.layers, self.head = nn.ModuleList([_Filtered(), _Filtered()]), mlp(C, C, CLASSES)

    def forward(self, z: Tensor, pos: Tensor, batch: Tensor | None = None) -> Tensor:
        batch = torch.zeros_like(z) if batch is None else batch
        x, (edge_index, length) = self.embedding(z), self.graph(pos, batch)
        for layer in self.layers:
            x = x + nn.functional.silu(layer(x, edge_index, length))
        return global_add_pool(self.head(x), batch)


class GivenMolecule(nn.Module):
    """The same with edges as an argument."""

    def __init__(self, molecule: Molecule) -> None:
        super().__init__()
        self.molecule = molecule

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x, length = self.molecule.embedding(z), (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)
        for layer in self.molecule.layers:
            x = x + nn.functional.silu(layer(x, edge_index, length))
        return global_add_pool(self.molecule.head(x), batch)


def pairs(pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return near edges, and the numbers of the first and second edges of all paths of two that do not turn round."""
    edge_index = within(pos, batch)
    (source, target), reverse = edge_index, edge_index.flip(0)
    follows = (target.view(-1, 1) == source) & (edge_index.t().unsqueeze(1) != reverse.t()).any(dim=2)
    first, second = follows.nonzero().unbind(dim=1)
    return edge_index, first, second


class Directional(nn.Module):
    """DimeNet: edges pass messages on to the edges behind them, with angles; ``reversed`` to those before them."""

    def __init__(self, reversed: bool = False) -> None:
        super().__init__()
        self.embedding, self.reversed = nn.Embedding(4, C), reversed
        self.first, self.own, self.pass_on = mlp(2 * C + 1, C, C), nn.Linear(C, C), nn.Linear(C, C)
        self.angle, self.head = nn.Linear(2, C), mlp(C, C, CLASSES)

    def forward(self, z: Tensor, pos: Tensor, batch: Tensor) -> Tensor:
        return self.masked(z, pos, batch, pairs(pos, batch), None)

    def masked(self, z: Tensor, pos: Tensor, batch: Tensor, made: tuple[Tensor, ...], mask: Tensor | None) -> Tensor:
        """Return the output, with a mask by hand in a model without the package."""
        edge_index, first, second = made
        first, second = (second, first) if self.reversed else (first, second)
        weight = 1.0 if mask is None else mask.view(-1, 1)
        (source, target), x = edge_index, self.embedding(z)
        line = pos[target] - pos[source]
        h = self.first(torch.cat([x[source], x[target], line.norm(dim=1, keepdim=True)], dim=1)).relu()
        out = torch.zeros_like(x).index_add(0, target, weight * h)
        cosine = (line[first] * line[second]).sum(dim=1, keepdim=True) / line[first].norm(dim=1, keepdim=True)
        angles = self.angle(torch.cat([cosine, line[second].norm(dim=1, keepdim=True)], dim=1))
        passed = self.pass_on(h).relu()[first] * angles
        passed = passed if mask is None else passed * mask[first].view(-1, 1)
        h = self.own(h).relu() + torch.zeros_like(h).index_add(0, second, passed)
        out = out + torch.zeros_like(x).index_add(0, target, weight * h)
        return global_add_pool(self.head(out), batch)


class Bonds(nn.Module):
    """A model with bonds as edges that connects near atoms, too; its method makes the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.bonds, self.contacts, self.head = GCNConv(C, C), GCNConv(C, C), nn.Linear(C, CLASSES)

    def connect(self, pos: Tensor, batch: Tensor) -> Tensor:
        return within(pos, batch).flip([0])

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor, batch: Tensor) -> Tensor:
        x = self.bonds(x, edge_index).relu()
        return self.head(global_mean_pool(self.contacts(x, self.connect(pos, batch)).relu(), batch))


class FromData(nn.Module):
    """Takes a whole graph; with ``bonds`` it uses the edges of that, too."""

    def __init__(self, bonds: bool = False) -> None:
        super().__init__()
        self.conv, self.head, self.bonds = GCNConv(3, C), nn.Linear(C, CLASSES), bonds

    def forward(self, data: Any) -> Tensor:
        edges = near(data.pos, data.batch)
        edges = torch.cat([edges, data.edge_index], dim=1) if self.bonds else edges
        return self.head(global_mean_pool(self.conv(data.pos, edges).relu(), data.batch))


def cloud(seed: int = 0, first: int = 7, second: int = 5) -> Data:
    """Return two clouds of points side by side."""
    random = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(first + second, C, generator=random, dtype=torch.float64),
        z=torch.randint(0, 4, (first + second,), generator=random),
        pos=torch.randn(first + second, 3, generator=random, dtype=torch.float64),
        batch=torch.tensor([0] * first + [1] * second),
    )
