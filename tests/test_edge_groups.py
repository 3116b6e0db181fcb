"""Edges that always go together."""

import pytest
import torch
from conftest import random_edges, record_edges
from torch import Tensor, nn
from torch_geometric.nn import EdgeConv, GCNConv, SAGEConv

from captum_goat import GOAtAttribution
from captum_goat.fields.receptive_field import edge_groups


def groups_of(model: nn.Module, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Return the groups of edges, and with every message for itself."""
    x = torch.rand(int(edge_index.max()) + 1, 3, dtype=torch.double)
    pattern = record_edges(model.double().eval(), x, edge_index, torch.ones(edge_index.size(1), dtype=torch.double))
    messages = [number for number, block in enumerate(pattern.graph.blocks) if block.crosses]
    return tuple(
        edge_groups(pattern.graph, edge_index.size(1), exposed, edge_index.device) for exposed in ([], messages)
    )


class Twice(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return x


def same_partition(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one[:, None] == one, other[:, None] == other)


@pytest.mark.parametrize("layer", [GCNConv(3, 3), SAGEConv(3, 3), EdgeConv(nn.Linear(6, 3), aggr="sum")])
def test_edges_that_end_at_the_same_node_go_together(layer: nn.Module) -> None:
    edge_index = random_edges(8, 30, seed=0)
    together, alone = groups_of(Twice(layer, layer), edge_index)
    loops = edge_index[0] == edge_index[1]
    assert same_partition(together[~loops], edge_index[1][~loops])
    assert alone.unique().numel() == 30


def test_layers_with_other_directions_tell_edges_apart() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [2, 2, 0, 0]])
    backwards = SAGEConv(3, 3, flow="target_to_source")
    together, _ = groups_of(Twice(SAGEConv(3, 3), backwards), edge_index)
    assert together.unique().numel() == 4
    only = groups_of(Twice(backwards, backwards), edge_index)[0]
    assert same_partition(only, edge_index[0])


@pytest.mark.slow
def test_a_hub_with_many_edges() -> None:
    """In a star all leaves see everything; as lists of edges their fields would have 10^10 entries."""
    torch.manual_seed(0)
    leaves = torch.arange(1, 100_001)
    edge_index = torch.stack([torch.cat([leaves, 0 * leaves]), torch.cat([0 * leaves, leaves])])
    goat = GOAtAttribution(Twice(*(SAGEConv(2, 2) for _ in range(4))).double().eval())
    x, mask = torch.rand(100_001, 2, dtype=torch.double), torch.ones(200_000, dtype=torch.double)
    attributions, delta = goat.attribute(mask, (5, 0), (x, edge_index), return_convergence_delta=True)
    assert attributions.isfinite().all()
    assert delta.abs() < 1e-9
