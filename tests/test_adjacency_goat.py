"""GOAtAttribution(at="adjacency"): edges share by their presence, in degrees, too, and the shares add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import KINDS, make_gnn, random_edges, randomize, slow_unless
from hetero import full_masks, hetero_gnn, hetero_graph, total, without_edges
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import degree

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError, explain_dataset, explain_nodes

NODES = 7
X = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EDGES = random_edges(NODES, 16, seed=1)


def ones(edges: Tensor = EDGES) -> Tensor:
    return torch.ones(edges.size(1), dtype=torch.float64)


class Net(nn.Module):
    """Two layers with ReLUs, the second one's pooled."""

    def __init__(self, make: Callable[[int], nn.Module], width: int = 4, pool: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.out = make(4), make(4), nn.Linear(width, 2)
        self.mix, self.pool = nn.Linear(width, 4), pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = F.relu(self.mix(F.relu(self.first(x, edge_index))))
        x = self.second(x, edge_index)
        out: Tensor = self.out(global_add_pool(x.relu(), batch) if self.pool else x)
        return out


def net(make: Callable[[int], nn.Module], width: int = 4, pool: bool = True) -> Net:
    model = Net(make, width, pool).double()
    randomize(model, 3)
    return model


class DegreeByHand(gnn.MessagePassing):  # type: ignore[misc]
    """A layer that adds 1 to the degree, and divides what a node keeps of itself by it, too."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr="sum")
        self.lin = nn.Linear(channels, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x, size = self.lin(x), 1 + degree(edge_index[1], x.size(0), x.dtype).view(-1, 1)
        out: Tensor = self.propagate(edge_index, x=x) / size + x / size
        return out


LAYERS: dict[str, tuple[Callable[[int], nn.Module], int]] = {
    "gcn": (lambda c: gnn.GCNConv(c, 4), 4),
    "gcn_without_loops": (lambda c: gnn.GCNConv(c, 4, add_self_loops=False), 4),
    "sage_mean": (lambda c: gnn.SAGEConv(c, 4), 4),
    "graph_conv_mean": (lambda c: gnn.GraphConv(c, 4, aggr="mean"), 4),
    "cheb": (lambda c: gnn.ChebConv(c, 4, K=2), 4),
    "tag": (lambda c: gnn.TAGConv(c, 4, K=2), 4),
    "appnp": (lambda c: gnn.APPNP(2, 0.1), 4),
    "sg": (lambda c: gnn.SGConv(c, 4, K=2), 4),
    "arma": (lambda c: gnn.ARMAConv(c, 4), 4),
    "cluster_gcn": (lambda c: gnn.ClusterGCNConv(c, 4), 4),
    "gat": (lambda c: gnn.GATConv(c, 4, heads=2), 8),
    "gat_without_loops": (lambda c: gnn.GATConv(c, 4, heads=2, add_self_loops=False), 8),
    "gatv2": (lambda c: gnn.GATv2Conv(c, 4), 4),
    "transformer": (lambda c: gnn.TransformerConv(c, 4), 4),
    "gen": (lambda c: gnn.GENConv(c, 4), 4),
    "degree_by_hand": (DegreeByHand, 4),
}


LEVELS = [(name, pool) for name in LAYERS for pool in (True, False)]
OTHERS = [case for number, case in enumerate(LEVELS) if number % 4 in (1, 2)]  # every layer has one level


@pytest.mark.parametrize(("name", "pool"), slow_unless(lambda case: case in LEVELS[::5], LEVELS, OTHERS))
def test_attributions_add_up_to_what_deleting_all_edges_does(name: str, pool: bool) -> None:
    model, edges = net(*LAYERS[name], pool), torch.cat([EDGES, torch.tensor([[2, 3], [2, 3]])], dim=1)
    mask = 0.3 + torch.rand(edges.size(1), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    target, row = (1, 0) if pool else ((2, 1), 2)
    for edge_mask in (torch.ones_like(mask), mask):
        attributions, delta = GOAtAttribution(model, at="adjacency").attribute(
            edge_mask, target, (X, edges), return_convergence_delta=True
        )
        value = EdgeMaskedModel(model, at="adjacency")(edge_mask, X, edges)[row, 1]
        assert abs(float(delta)) < (1e-9 if name != "cluster_gcn" else 1e-5)  # it counts in single precision
        torch.testing.assert_close(attributions.sum(), value - model(X, edges[:, :0])[row, 1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["gcn_plain", "gin", "sage_sum"])
def test_without_normalisation_there_is_no_difference(kind: str) -> None:
    model = make_gnn(kind)
    by_message, by_adjacency = (
        GOAtAttribution(model, at=at).attribute(ones(), 1, (X, EDGES))
        for at in ("message", "adjacency")  # type: ignore[arg-type]
    )
    torch.testing.assert_close(by_adjacency, by_message)


def test_hubs_need_more_points() -> None:
    leaves = torch.arange(1, 301)
    edges = torch.cat([torch.stack([leaves, torch.zeros_like(leaves)]), torch.tensor([[0], [1]])], dim=1)
    x = torch.randn(301, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, delta = GOAtAttribution(net(lambda c: gnn.GCNConv(c, 4)), at="adjacency").attribute(
        ones(edges), 1, (x, edges), return_convergence_delta=True
    )
    assert abs(float(delta)) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_explained_graph_by_graph(kind: str, batch_of_graphs: tuple[Tensor, Tensor, Tensor]) -> None:
    x, edges, batch = batch_of_graphs
    goat = GOAtAttribution(make_gnn(kind), at="adjacency")
    attributions, delta = goat.attribute(ones(edges), [0, 1, 2, 0], (x, edges, batch), return_convergence_delta=True)
    assert delta.abs().max() < 1e-9
    alone = goat.attribute(ones(edges[:, :14]), 0, (x[:6], edges[:, :14]))
    torch.testing.assert_close(attributions[:14], alone, rtol=1e-7, atol=1e-9)


def test_edges_that_reach_an_output_by_degrees_alone_belong_to_it() -> None:
    """Of a chain 0 -> 1 -> 2, one layer of GCN at node 2 sees the first edge in the degree of node 1 only."""

    class LastOfEach(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GCNConv(4, 2).double()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv(x, edge_index)[2::3]
            return out

    model, chains = LastOfEach().eval(), torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
    attributions, delta = GOAtAttribution(model, at="adjacency").attribute(
        ones(chains), 0, (X[:6], chains), return_convergence_delta=True
    )
    assert delta.abs().max() < 1e-9
    assert (attributions.abs() > 1e-6).all()


@pytest.mark.slow
def test_masks_side_by_side_single_precision_and_several_targets() -> None:
    model = net(lambda c: gnn.GCNConv(c, 4))
    goat = GOAtAttribution(EdgeMaskedModel(model, at="adjacency"))
    masks = torch.rand(3, EDGES.size(1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    attributions = goat.attribute(masks, 1, (X, EDGES))
    torch.testing.assert_close(attributions[1], goat.attribute(masks[1], 1, (X, EDGES)), rtol=1e-7, atol=1e-9)
    every = goat.attribute_all(masks[1], None, (X, EDGES))
    torch.testing.assert_close(every[:, 1], attributions[1], rtol=1e-7, atol=1e-9)
    single, delta = GOAtAttribution(model.float(), at="adjacency").attribute(
        masks[1].float(), 1, (X.float(), EDGES), return_convergence_delta=True
    )
    assert abs(float(delta)) < 1e-4
    torch.testing.assert_close(single.double(), attributions[1], rtol=1e-3, atol=1e-4)


def test_features_and_edges_together() -> None:
    model = net(lambda c: gnn.GCNConv(c, 4))
    goat = GOAtAttribution(model, mask_type="node_and_edge", at="adjacency")
    (features, edges), delta = goat.attribute((X, ones()), 1, EDGES, return_convergence_delta=True)
    assert abs(float(delta)) < 1e-9
    difference = model(X, EDGES)[0, 1] - model(0 * X, EDGES[:, :0])[0, 1]
    torch.testing.assert_close(features.sum() + edges.sum(), difference)


def test_heterogeneous_graphs() -> None:
    data, model = hetero_graph(), hetero_gnn()
    attributions = GOAtAttribution(model, at="adjacency").attribute(full_masks(data), (0, 1), data)
    bare = model(data.x_dict, without_edges(data))
    torch.testing.assert_close(total(attributions), (model(data.x_dict, data.edge_index_dict) - bare)[0, 1])


def test_attention_over_nodes_is_frozen_as_ever() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.out = gnn.GCNConv(4, 4), nn.Linear(4, 2)
            self.pool = gnn.AttentionalAggregation(nn.Linear(4, 1))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = self.conv(x, edge_index).relu()
            out: Tensor = self.out(self.pool(x, torch.zeros(len(x), dtype=torch.long)))
            return out

    model = randomize(Pooled().double(), 1)
    attributions = GOAtAttribution(model, at="adjacency").attribute(ones(), 1, (X, EDGES))
    torch.testing.assert_close(attributions.sum(), (model(X, EDGES) - model(X, EDGES[:, :0]))[0, 1])


def test_masks_of_zero_and_delta_of_other_attributions() -> None:
    model = net(lambda c: gnn.SAGEConv(c, 4))
    goat, mask = GOAtAttribution(model, at="adjacency"), ones()
    mask[:7] = 0
    attributions, delta = goat.attribute(mask, 1, (X, EDGES), return_convergence_delta=True)
    assert abs(float(delta)) < 1e-9
    again = goat.compute_convergence_delta(attributions, None, mask, 1, (X, EDGES))
    assert abs(float(again)) < 1e-9
    other = goat.compute_convergence_delta(torch.zeros_like(attributions), None, mask, 1, (X, EDGES))
    expected = model(X, EDGES[:, :0]) - model(X, EDGES[:, mask > 0])
    torch.testing.assert_close(other, expected[:, 1])


@pytest.mark.slow
def test_what_cannot_be_shared_is_refused() -> None:
    """Gates that no message reaches change with the degrees of the Laplacian: nobody is there to take their shares."""

    class Laplacian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.out = gnn.ChebConv(4, 4, K=2, normalization=None), nn.Linear(4, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = self.conv(x, edge_index, lambda_max=torch.tensor(2.0, dtype=x.dtype)).relu()
            out: Tensor = self.out(x.sum(dim=0, keepdim=True))
            return out

    model, edges = randomize(Laplacian().double(), 1), torch.tensor([[0, 0, 0, 5, 6], [1, 2, 3, 1, 2]])
    with pytest.raises(UnsupportedModelError, match="degrees change more than the weights of messages"):
        GOAtAttribution(model, at="adjacency").attribute(ones(edges), 1, (X, edges))


def test_data_sets_and_nodes() -> None:
    masked = EdgeMaskedModel(make_gnn("gcn"), at="adjacency")
    graph = Data(x=X, edge_index=EDGES)
    (explanation,) = explain_dataset(masked, [graph], target=[1], show_progress=False)
    expected = GOAtAttribution(masked).attribute(ones(), 1, (X, EDGES))
    torch.testing.assert_close(explanation.edge_mask, expected, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="what is cut out around a node lacks edges that count in degrees"):
        explain_nodes(EdgeMaskedModel(make_gnn("gcn", pool=None), at="adjacency"), graph)


def test_options_must_fit() -> None:
    model = make_gnn()
    with pytest.raises(ValueError, match="Expected at='adjacency', as that of the EdgeMaskedModel"):
        GOAtAttribution(EdgeMaskedModel(model, at="adjacency"), at="message")
    with pytest.raises(ValueError, match="Expected at='message' where no edges are attributed"):
        GOAtAttribution(model, mask_type="node", at="adjacency")
    with pytest.raises(ValueError, match="Expected at to be"):
        GOAtAttribution(model, at="edges")  # type: ignore[arg-type]
