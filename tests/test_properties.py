"""What must hold for every model and every graph."""

from __future__ import annotations

import pytest
import torch
from conftest import KINDS, combinations, make_gnn, random_edges, randomize
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    GCN,
    GIN,
    ARMAConv,
    ChebConv,
    ClusterGCNConv,
    GCNConv,
    GINEConv,
    GraphConv,
    GraphSAGE,
    LEConv,
    MixHopConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    SSGConv,
    TAGConv,
    global_add_pool,
    global_mean_pool,
)

from captum_goat import EdgeMaskedModel, GOAtAttribution

FIELDS = ("distinct", "repeated")


def features(nodes: int, seed: int = 0) -> Tensor:
    return torch.randn(nodes, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


GRAPHS = {
    "directed, duplicates, loops": (7, random_edges(7, 20, seed=5)),
    "isolated nodes": (8, random_edges(4, 9, seed=6)),
    "a loop at every node": (5, torch.cat([random_edges(5, 6, seed=7), torch.arange(5).repeat(2, 1)], dim=1)),
    "only loops, twice": (3, torch.tensor([[0, 1, 1], [0, 1, 1]])),
    "one edge": (2, torch.tensor([[0], [1]])),
    "no edges": (3, torch.empty(2, 0, dtype=torch.long)),
    "one node, no edges": (1, torch.empty(2, 0, dtype=torch.long)),
}


@pytest.mark.parametrize(("kind", "name", "field"), combinations(KINDS, list(GRAPHS), FIELDS))
def test_completeness(kind: str, name: str, field: str) -> None:
    nodes, edge_index = GRAPHS[name]
    x = features(nodes)
    mask = torch.randn(edge_index.size(1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for pool, target in (("mean", 1), ("sum", 2), (None, (nodes - 1, 0))):
        model = make_gnn(kind, pool=pool)
        goat, masked = GOAtAttribution(model, field=field), EdgeMaskedModel(model)
        attributions, delta = goat.attribute(mask, target, (x, edge_index), return_convergence_delta=True)
        row, column = target if isinstance(target, tuple) else (0, target)
        change = masked(mask, x, edge_index)[row, column] - masked(0 * mask, x, edge_index)[row, column]
        torch.testing.assert_close(attributions.sum(), change, rtol=1e-11, atol=1e-11)
        assert delta.shape == (1,)
        assert float(delta.abs()) < 1e-11
        assert attributions.any() or pool is None or len(edge_index[0]) < 2, (
            "the network is dead, so the test says nothing"
        )


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "model",
    [
        GCN(4, 6, 3, 2, jk="cat", norm="batch_norm"),
        GIN(4, 6, 3, 2, jk="last", norm="batch_norm", train_eps=True),
        GraphSAGE(4, 6, 2, 2, dropout=0.5, act_first=True, norm="batch_norm"),
        GCN(4, 6, 2, 2, act="relu", act_kwargs={"inplace": True}),
    ],
    ids=["GCN, jumping knowledge", "GIN", "GraphSAGE, dropout", "GCN, in-place"],
)
def test_completeness_of_pyg_models(model: nn.Module, field: str) -> None:
    model = randomize(model.double(), seed=1)
    edge_index = random_edges(7, 18, seed=8)
    goat = GOAtAttribution(model, field=field)
    for node in range(7):
        mask = torch.ones(18, dtype=torch.float64)
        _, delta = goat.attribute(mask, (node, 1), (features(7), edge_index), return_convergence_delta=True)
        assert float(delta.abs()) < 1e-11


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", KINDS)
def test_relabelling_nodes_and_reordering_edges(kind: str, field: str) -> None:
    generator = torch.Generator().manual_seed(4)
    x, edge_index = features(7), random_edges(7, 16, seed=9)
    mask = torch.rand(16, generator=generator, dtype=torch.float64)
    names, order = torch.randperm(7, generator=generator), torch.randperm(16, generator=generator)
    for pool, target in (("mean", 1), (None, (2, 0))):
        goat = GOAtAttribution(make_gnn(kind, pool=pool), field=field)
        before = goat.attribute(mask, target, (x, edge_index))
        renamed = (int(names[2]), 0) if pool is None else target
        moved = x.new_zeros(x.shape)
        moved[names] = x
        after = goat.attribute(mask[order], renamed, (moved, names[edge_index][:, order]))
        torch.testing.assert_close(after, _summed_loops(before, edge_index, kind)[order], rtol=1e-11, atol=1e-12)


def _summed_loops(attributions: Tensor, edge_index: Tensor, kind: str) -> Tensor:
    """Return the attributions; the graph has no node with two loops, of which GCN would choose the last."""
    loops = edge_index[0][edge_index[0] == edge_index[1]]
    assert kind != "gcn" or loops.unique().numel() == loops.numel()
    return attributions


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", KINDS)
def test_edges_that_cannot_reach_the_target_get_nothing(kind: str, field: str) -> None:
    path = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 0]])
    goat = GOAtAttribution(make_gnn(kind, pool=None, layers=3), field=field)
    attributions = goat.attribute(torch.ones(7, dtype=torch.float64), (5, 1), (features(7), path))
    # Three layers back from node 5: the edges 4->5, 3->4 and 2->3.
    assert torch.equal(attributions != 0, torch.tensor([False, False, True, True, True, False, False]))


def test_twice_the_output_is_twice_the_attribution_and_outputs_add() -> None:
    x, edge_index = features(6), random_edges(6, 12, seed=2)
    model = make_gnn("gin")
    goat, mask = GOAtAttribution(model), torch.ones(12, dtype=torch.float64)
    first, second = (goat.attribute(mask, target, (x, edge_index)) for target in (0, 1))
    model.out.weight.data[2] = model.out.weight[0] + 2 * model.out.weight[1]
    torch.testing.assert_close(goat.attribute(mask, 2, (x, edge_index)), first + 2 * second)


def test_single_node_graphs_are_not_mistaken_for_nodes() -> None:
    """N equals G: the rows of nodes and of graphs have the same number."""
    x, edge_index = features(4), torch.tensor([[0, 2, 2], [0, 2, 2]])
    goat = GOAtAttribution(make_gnn("sage_sum"))
    mask = torch.ones(3, dtype=torch.float64)
    together = goat.attribute(mask, [0, 1, 2, 0], (x, edge_index, torch.arange(4)))
    loop = torch.zeros(2, 1, dtype=torch.long)
    torch.testing.assert_close(together[:1], goat.attribute(mask[:1], 0, (x[:1], loop)))
    torch.testing.assert_close(together[1:], goat.attribute(mask[:2], 2, (x[2:3], loop.expand(2, 2))))


def test_residuals_and_branches_of_different_depth() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.short, self.out = GCNConv(4, 4), GraphConv(4, 4), nn.Linear(8, 2)
            self.relu = nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            x = torch.relu(x)  # no edge reaches these gates
            deep = x + self.relu(self.shared(x, edge_index))
            deep = deep + self.relu(self.shared(deep, edge_index))
            wide = torch.cat([deep, self.short(x, edge_index).relu()], dim=-1)
            return self.out(global_mean_pool(wide, batch).clamp(min=0))

    model = randomize(Branches().double(), seed=2)
    x, edge_index = features(6), random_edges(6, 12, seed=2)
    for field in FIELDS:
        goat = GOAtAttribution(model, field=field)
        mask = torch.rand(12, dtype=torch.float64)
        attributions, delta = goat.attribute(mask, 1, (x, edge_index), return_convergence_delta=True)
        assert float(delta.abs()) < 1e-12
        assert attributions.count_nonzero() == 12


@pytest.mark.parametrize(
    "layer",
    [
        TAGConv(4, 4), SGConv(4, 4, K=2), SSGConv(4, 4, alpha=0.1, K=2), ChebConv(4, 4, K=3), APPNP(2, 0.1),
        MixHopConv(4, 4), GraphConv(4, 4, aggr="mean"), ClusterGCNConv(4, 4), LEConv(4, 4),
        ARMAConv(4, 4, num_stacks=2),
        GINEConv(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), edge_dim=2), RGCNConv(4, 4, num_relations=2),
    ],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_completeness_of_layers(layer: nn.Module) -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.layer, self.after = GCNConv(4, 4), layer, nn.LazyLinear(2)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None, extra: Tensor | None) -> Tensor:
            x = self.before(x, edge_index).relu()
            x = self.layer(x, edge_index, extra) if extra is not None else self.layer(x, edge_index)
            return self.after(global_mean_pool(x.relu(), batch))

    edge_index, batch = random_edges(6, 14, seed=3), torch.zeros(6, dtype=torch.long)
    extra = None
    if isinstance(layer, GINEConv):
        extra = torch.rand(14, 2, dtype=torch.float64)
    elif isinstance(layer, RGCNConv):
        extra = torch.arange(14) % 2
    model = Between().double()
    model(features(6), edge_index, batch, extra)
    randomize(model, seed=6)
    goat, mask = GOAtAttribution(model), torch.ones(14, dtype=torch.float64)
    attributions, delta = goat.attribute(
        mask, 1, (features(6), edge_index, batch, extra), return_convergence_delta=True
    )
    assert attributions.any()
    assert float(delta.abs()) < 1e-10


def test_rounding_of_a_model_that_sums_over_very_many_nodes_is_no_reason_to_refuse_it() -> None:
    """In single precision the sum of 100,000 equal numbers is off by more than what one rounding explains."""

    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = SAGEConv(1, 4, aggr="sum"), nn.Linear(4, 1)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))

    nodes = 100_000
    edge_index, x, batch = random_edges(nodes, nodes, seed=0), torch.full((nodes, 1), 0.7), torch.zeros(nodes).long()
    attributions, exact = (
        GOAtAttribution(Sums().to(dtype).eval()).attribute(
            torch.ones(nodes, dtype=dtype), 0, (x.to(dtype), edge_index, batch), return_convergence_delta=True
        )
        for dtype in (torch.float32, torch.float64)
    )
    total = exact[0].sum()
    assert abs(attributions[1]) > 1e-5 * abs(total)
    assert abs(exact[1]) < 1e-10 * abs(total)
    torch.testing.assert_close(attributions[0].double().sum(), total, rtol=1e-3, atol=0.0)
