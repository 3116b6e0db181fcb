"""Which edge of the user's graph is behind a message, where the model changes its edges before it passes messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GraphConv, HeteroConv
from torch_geometric.utils import add_remaining_self_loops, coalesce, to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution

Prepare = Callable[[Tensor], Tensor]


class Prepared(nn.Module):
    """A layer that is given other edges than the model."""

    def __init__(self, layer: nn.Module, prepare: Prepare) -> None:
        super().__init__()
        self.layer, self.prepare = layer, prepare
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, self.prepare(edge_index))


def both_ways(edge_index: Tensor) -> Tensor:
    return torch.cat([edge_index, edge_index.flip(0)], dim=1)


# What each of these makes of one edge does not depend on the others: without an edge, just its messages are missing.
APART: dict[str, Prepare] = {
    "both ways": both_ways,
    "both ways, in pairs": lambda e: torch.stack([e, e.flip(0)], dim=-1).flatten(1),
    "from the smaller number": lambda e: torch.where(e[:1] < e[1:], e, e.flip(0)),
    "some turned": lambda e: torch.where(e[:1] % 2 == 0, e, e.flip(0)),
    "all turned": lambda e: e.flip(0),
    "the turned half": lambda e: both_ways(e)[:, torch.arange(2 * e.size(1)) >= e.size(1)],
    "sorted": lambda e: e[:, (e[0] * 100 + e[1]).argsort(descending=True)],
}


@pytest.mark.parametrize("name", APART)
def test_messages_belong_to_the_edges_that_they_were_made_of(name: str) -> None:
    edges = random_edges(6, 18, seed=4)
    edges = torch.cat([edges, edges[:, :6].flip(0)], dim=1)  # many reciprocal, some double, some loops
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Prepared(make_gnn("sage_sum", pool=None), APART[name])
    keep = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(1)) < 0.6
    expected = model(x, edges[:, keep])
    torch.testing.assert_close(EdgeMaskedModel(model)(keep.double(), x, edges), expected)
    mask = torch.ones(edges.size(1), dtype=torch.float64)
    attributions = [
        GOAtAttribution(model, at=at).attribute(mask, (2, 1), (x, edges)) for at in ("message", "adjacency")
    ]
    torch.testing.assert_close(attributions[0], attributions[1])  # there is nothing but sums of messages


def test_reversed_edges_by_hand() -> None:
    conv = GraphConv(1, 1, bias=False)
    nn.init.ones_(conv.lin_rel.weight)
    nn.init.zeros_(conv.lin_root.weight)
    model = Prepared(conv, both_ways)
    x, edges = torch.tensor([[1.0], [10.0]]), torch.tensor([[0, 1], [1, 0]])
    assert EdgeMaskedModel(model)(torch.tensor([0.0, 1.0]), x, edges).view(-1).tolist() == [10.0, 1.0]
    assert GOAtAttribution(model).attribute(torch.ones(2), (0, 0), (x, edges)).tolist() == [10.0, 10.0]
    assert GOAtAttribution(model).attribute(torch.ones(2), (1, 0), (x, edges)).tolist() == [1.0, 1.0]


def coalesced(order: Tensor) -> Prepare:
    """Return what merges equal edges after both directions were brought into some order."""
    return lambda edge_index: coalesce(both_ways(edge_index)[:, order])


def test_of_merged_edges_the_first_in_the_direction_of_the_message_stands_for_all() -> None:
    edges = random_edges(6, 18, seed=4)
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    double = torch.cat([edges, edges[:, :5]], dim=1)  # the second copies are merged into the first ones
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.rand(double.size(1), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    plain = GOAtAttribution(make_gnn("sage_sum", pool=None)).attribute(mask[: edges.size(1)], (2, 1), (x, edges))
    expected = torch.cat([plain, plain.new_zeros(5)])
    for seed in range(4):
        order = torch.randperm(2 * double.size(1), generator=torch.Generator().manual_seed(seed))
        for prepare in (coalesced(order), to_undirected):
            model = Prepared(make_gnn("sage_sum", pool=None), prepare)
            torch.testing.assert_close(GOAtAttribution(model).attribute(mask, (2, 1), (x, double)), expected)


def test_a_turned_edge_that_is_merged_with_none_stays_itself() -> None:
    """The edges 0 -> 1 (twice), 1 -> 2 and 2 -> 1: only the turned ones of the first stand for an edge of their own."""
    edges = torch.tensor([[0, 0, 1, 2], [1, 1, 2, 1]])
    conv = GraphConv(1, 1, bias=False)
    nn.init.ones_(conv.lin_rel.weight)
    nn.init.zeros_(conv.lin_root.weight)
    x = torch.tensor([[1.0], [10.0], [100.0]])
    model = Prepared(conv, to_undirected)
    attributions = [
        GOAtAttribution(model).attribute(torch.ones(4), (node, 0), (x, edges)).tolist() for node in range(3)
    ]
    assert attributions == [[10.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 100.0], [0.0, 0.0, 10.0, 0.0]]


LOOPED = torch.tensor([[0, 1, 1, 2, 2], [1, 1, 2, 2, 0]])  # loops at the nodes 1 and 2, none at 0


@pytest.mark.parametrize("layer", [GCNConv, GATConv])
def test_a_loop_masked_by_the_user_sends_nothing_whoever_has_put_it_there(layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    inside = layer(3, 2).double().eval()
    outside = layer(3, 2, add_self_loops=False).double().eval()
    outside.load_state_dict(inside.state_dict())
    model = Prepared(outside, lambda e: add_remaining_self_loops(e, num_nodes=3)[0])
    x = torch.randn(3, 3, dtype=torch.float64)
    mask = torch.tensor([1.0, 0.0, 0.3, 0.5, 1.0], dtype=torch.float64)
    for edge_mask in (mask, torch.ones_like(mask)):
        torch.testing.assert_close(
            EdgeMaskedModel(model)(edge_mask, x, LOOPED), EdgeMaskedModel(inside)(edge_mask, x, LOOPED)
        )
        attributions = [GOAtAttribution(m).attribute(edge_mask, (2, 1), (x, LOOPED)) for m in (model, inside)]
        torch.testing.assert_close(attributions[0], attributions[1])
    assert attributions[0][3] != 0


def test_loops_that_the_model_weighs_are_edges_too() -> None:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(3, 2, add_self_loops=False, normalize=False)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.conv(x, *add_remaining_self_loops(edge_index, edge_weight, 0.1, num_nodes=3))

    torch.manual_seed(0)
    model, x = Weighed().double().eval(), torch.randn(3, 3, dtype=torch.float64)
    weight = torch.tensor([0.5, 2.0, 1.0, 3.0, 1.5], dtype=torch.float64)
    mask = torch.tensor([1.0, 0.0, 0.3, 0.5, 1.0], dtype=torch.float64)
    # Without degrees in the way a masked message is a smaller weight; node 0 keeps the loop that the model adds.
    expected = model(x, LOOPED, weight * mask)
    torch.testing.assert_close(EdgeMaskedModel(model)(mask, x, LOOPED, weight), expected)


def test_loops_of_another_edge_type_are_left_alone() -> None:
    """A loop that the model adds to edges of one type stands for none of another type with the same number."""
    types = [("a", "to", "a"), ("b", "to", "b")]

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = HeteroConv({edge_type: GraphConv(2, 2) for edge_type in types})

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
            first, second = (edge_index_dict[edge_type] for edge_type in types)
            edges = {types[0]: add_remaining_self_loops(first, num_nodes=3)[0], types[1]: second}
            return self.convs(x_dict, edges)["a"]

    torch.manual_seed(0)
    model = Two().double().eval()
    x = {kind: torch.randn(3, 2, dtype=torch.float64) for kind in "ab"}
    edges = {types[0]: torch.tensor([[0, 1, 1], [1, 1, 2]]), types[1]: torch.tensor([[2, 0], [2, 1]])}
    masks = {kind: torch.ones(edge_index.size(1), dtype=torch.float64) for kind, edge_index in edges.items()}
    attributions = GOAtAttribution(model).attribute(masks, (2, 0), (x, edges))
    assert attributions[types[1]].tolist() == [0.0, 0.0]
    assert GOAtAttribution(model).attribute(masks, (1, 0), (x, edges))[types[0]][1] != 0
