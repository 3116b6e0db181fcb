"""GOAtAttribution(at="adjacency") against integrals over layers that are written out, with very many points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import torch
from conftest import randomize
from torch import Tensor, nn
from torch_geometric import nn as gnn

from captum_goat import GOAtAttribution

NODES = 7
X = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(100)


class Net(nn.Module):
    """Two layers with ReLUs, another ReLU between them, and a sum over all nodes."""

    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.mix, self.second, self.out = make(4, 4), nn.Linear(4, 4), make(4, 4), nn.Linear(4, 2)
        randomize(self.double(), 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.mix(self.first(x, edge_index).relu()).relu()
        out: Tensor = self.out(self.second(x, edge_index).relu().sum(dim=0, keepdim=True))
        return out


# Two layers by hand: a function of presences in messages, presences in degrees, and gates.
Layer = Callable[[Tensor, nn.Module, Tensor, Tensor, Tensor], Tensor]


def gcn(x: Tensor, conv: nn.Module, edges: Tensor, messages: Tensor, degrees: Tensor) -> Tensor:
    size = torch.ones(NODES, dtype=torch.float64).index_add(0, edges[1], degrees)
    weight = messages / (size[edges[0]] * size[edges[1]]).sqrt()
    h = x @ conv.lin.weight.t()
    return (h / size[:, None]).index_add(0, edges[1], weight[:, None] * h[edges[0]]) + conv.bias


def sage(x: Tensor, conv: nn.Module, edges: Tensor, messages: Tensor, degrees: Tensor) -> Tensor:
    count = torch.zeros(NODES, dtype=torch.float64).index_add(0, edges[1], degrees).clamp(min=1)
    sums = torch.zeros(NODES, x.size(1), dtype=torch.float64).index_add(0, edges[1], messages[:, None] * x[edges[0]])
    return conv.lin_l(sums / count[:, None]) + conv.lin_r(x)


def literal(model: Any, layer: Layer, edges: Tensor, mask: Tensor, starts: Tensor) -> Tensor:
    """Integrate over all variables with very many points, and spread the gates over fields found by the oracle."""
    total = torch.zeros_like(mask)
    for sign, present in ((1, mask), (-1, torch.zeros_like(mask))):
        first = layer(X, model.first, edges, present, present)
        mixed = model.mix(first.relu())
        second = layer(mixed.relu(), model.second, edges, present, present)
        gates = [(values > 0).double() for values in (first, mixed, second)]
        for point, weight in zip((POINTS + 1) / 2, WEIGHTS / 2, strict=True):
            messages = (point * present).requires_grad_()
            degrees = (present * (starts + point * (1 - starts))).requires_grad_()
            scaled = [(point * gate).requires_grad_() for gate in gates]
            h = layer(X, model.first, edges, messages, degrees) * scaled[0]
            h = layer(model.mix(h) * scaled[1], model.second, edges, messages, degrees) * scaled[2]
            output = model.out(h.sum(dim=0))[1]
            gradients = torch.autograd.grad(output, [messages, degrees, *scaled])
            total += sign * weight * present * (gradients[0] + gradients[1] * (1 - starts))
            for depth, gate, gradient in zip((1, 1, 2), gates, gradients[2:], strict=True):
                for node in range(NODES):
                    field = oracle.receptive_field(edges.t().tolist(), node, depth, "distinct")
                    total[field] += sign * weight * float((gate * gradient)[node].sum()) / len(field)
    return total


# Every node has an edge into it, no loops.
RING = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 2, 5, 1, 1], [1, 2, 3, 4, 5, 6, 0, 3, 0, 0, 0, 3]])


def test_shares_of_gcn_are_those_of_a_literal_integral() -> None:
    model, mask = Net(gnn.GCNConv), 0.5 + torch.rand(RING.size(1), dtype=torch.float64)
    attributions = GOAtAttribution(model, at="adjacency").attribute(mask, 1, (X, RING))
    torch.testing.assert_close(
        attributions, literal(model, gcn, RING, mask, torch.zeros_like(mask)), rtol=1e-9, atol=1e-11
    )


def test_shares_of_a_mean_are_those_of_a_literal_integral() -> None:
    """The count of a mean starts at 1: presence counts in it as 1 / count at first."""
    model = Net(gnn.SAGEConv)
    starts = 1 / torch.bincount(RING[1])[RING[1]].double()
    attributions = GOAtAttribution(model, at="adjacency").attribute(
        torch.ones(RING.size(1), dtype=torch.float64), 1, (X, RING)
    )
    torch.testing.assert_close(
        attributions,
        literal(model, sage, RING, torch.ones(RING.size(1), dtype=torch.float64), starts),
        rtol=1e-9,
        atol=1e-11,
    )
