"""Explanations of many nodes: the same as those on the whole graph, for all kinds of models and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import random_edges, randomize, slow_unless
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    DirGNNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    GraphNorm,
    LayerNorm,
    MessagePassing,
    PairNorm,
    SAGEConv,
    SGConv,
    TAGConv,
    TransformerConv,
    global_mean_pool,
)
from torch_geometric.utils import coalesce, degree, to_undirected

from captum_goat import GOAtAttribution, UnsupportedModelError, explain_nodes

EXACT = 1e-9


class Stack(nn.Module):
    """Layers with ReLUs between them, and one row per node."""

    def __init__(self, *layers: nn.Module, end: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.layers, self.end = nn.ModuleList(layers), end

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = x if number == 0 else F.relu(x)
            extra = [each for each in (edge_weight, edge_attr) if each is not None]
            x = layer(x, edge_index, *extra) if isinstance(layer, MessagePassing | DirGNNConv) else layer(x)
        return x if self.end is None else self.end(x)


class Outward(MessagePassing):
    """Messages are divided by the number of edges of the node that they come from."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(aggr="add")
        self.linear = nn.Linear(before, after)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        sent = degree(edge_index[0], x.size(0), x.dtype).clamp(min=1)
        out: Tensor = self.propagate(edge_index, x=self.linear(x) / sent.view(-1, 1))
        return out


class TwoWays(nn.Module):
    """Messages against the edges, then along them."""

    def __init__(self) -> None:
        super().__init__()
        self.back, self.forth = GCNConv(4, 6, flow="target_to_source"), SAGEConv(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.forth(F.relu(self.back(x, edge_index)), edge_index)
        return out


class Undirected(nn.Module):
    """Makes the graph undirected itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Stack(SAGEConv(4, 6), SAGEConv(6, 3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.inner(x, to_undirected(edge_index, num_nodes=x.size(0)))
        return out


class Jumping(nn.Module):
    """Adds up what the nodes are after every layer; one of the layers is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.out = GCNConv(4, 6), GCNConv(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        one = F.relu(self.first(x, edge_index))
        two = F.relu(self.again(one, edge_index))
        three = F.relu(self.again(two, edge_index))
        out: Tensor = self.out(one + two + three)
        return out


class OfGraph(nn.Module):
    """Takes the graph as one argument."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Stack(GCNConv(4, 6), GCNConv(6, 3))

    def forward(self, graph: Data) -> Tensor:
        out: Tensor = self.inner(graph.x, graph.edge_index)
        return out


def gin(before: int, after: int) -> GINConv:
    return GINConv(nn.Sequential(nn.Linear(before, 6), nn.ReLU(), nn.Linear(6, after)), train_eps=True)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: Stack(GCNConv(4, 6), GCNConv(6, 6), GCNConv(6, 3)),
    "sage": lambda: Stack(SAGEConv(4, 6), SAGEConv(6, 6), SAGEConv(6, 3)),
    "sage_max": lambda: Stack(SAGEConv(4, 6, aggr="max"), SAGEConv(6, 3, aggr="max")),
    "gin": lambda: Stack(gin(4, 6), gin(6, 3)),
    "gat": lambda: Stack(GATConv(4, 3, heads=2), GATConv(6, 3)),
    "transformer": lambda: Stack(TransformerConv(4, 6), TransformerConv(6, 3)),
    "appnp": lambda: Stack(nn.Linear(4, 6), nn.Linear(6, 3), APPNP(K=3, alpha=0.2)),
    "tag": lambda: Stack(TAGConv(4, 6, K=2), TAGConv(6, 3, K=1)),
    "sgc": lambda: Stack(SGConv(4, 6, K=2), nn.Linear(6, 3)),
    "layer_norm": lambda: Stack(GCNConv(4, 6), LayerNorm(6, mode="node"), GCNConv(6, 3)),
    "batch_norm": lambda: Stack(SAGEConv(4, 6), nn.BatchNorm1d(6), SAGEConv(6, 3)),
    "softmax": lambda: Stack(GCNConv(4, 6), GCNConv(6, 3), end=lambda x: x.log_softmax(dim=-1)),
    "against_edges": lambda: Stack(GCNConv(4, 6, flow="target_to_source"), GCNConv(6, 3, flow="target_to_source")),
    "directed": lambda: Stack(GCNConv(4, 6), DirGNNConv(SAGEConv(6, 3))),
    "jumping": Jumping,
    "two_ways": TwoWays,
    "outward": lambda: Stack(Outward(4, 6), Outward(6, 3)),
    "undirected": Undirected,
    "of_graph": OfGraph,
}


def graph(*, undirected: bool = False, **more: Any) -> Data:
    """Return a graph with isolated nodes, duplicates and self-loops; its self-loops among the edges."""
    edge_index = torch.cat([random_edges(40, 70, seed=1), torch.tensor([[0, 3, 3, 7], [0, 3, 3, 7]])], dim=1)
    edge_index = to_undirected(edge_index, num_nodes=44) if undirected else edge_index
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(44, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=edge_index, y=torch.arange(44) % 3, **more)


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return randomize(MODELS[name]().double(), seed=1)


def on_whole_graph(method: GOAtAttribution, data: Data, node: int, target: int) -> Tensor:
    mask = torch.ones(data.num_edges, dtype=torch.float64)
    found: Tensor = method.attribute(mask, target=(node, target), additional_forward_args=data)
    return found


def check_all(method: nn.Module | GOAtAttribution, data: Data, *, step: int = 1, **options: Any) -> None:
    """Check that all nodes have the attributions that they have in the whole graph."""
    goat = method if isinstance(method, GOAtAttribution) else GOAtAttribution(method)
    found = explain_nodes(method, data, **options)
    assert len(found) == data.num_nodes
    assert found.targets is not None
    assert float(found.deltas.abs().max()) < EXACT
    for node in range(0, len(found), step):
        expected = on_whole_graph(goat, data, node, int(found.targets[node]))
        torch.testing.assert_close(found.edge_mask(node), expected, rtol=0, atol=EXACT)


GRAPHS = [(name, undirected) for name in MODELS for undirected in (False, True)]
OTHERS = [case for number, case in enumerate(GRAPHS) if number % 4 in (1, 2)]  # of each model one kind of graph


@pytest.mark.parametrize(("name", "undirected"), slow_unless(lambda case: case in GRAPHS[::5], GRAPHS, OTHERS))
def test_attributions_are_those_on_the_whole_graph(name: str, undirected: bool) -> None:
    data = graph(undirected=undirected)
    if name == "undirected":  # it merges duplicates, and which of them are left is not said
        data.edge_index = coalesce(data.edge_index)
    check_all(model(name), data, step=3)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("options", [{"field": "repeated"}, {"gates": "proportional"}])
def test_options_of_the_method(name: str, options: dict[str, Any]) -> None:
    check_all(GOAtAttribution(model(name), **options), graph(undirected=True), step=3)


@pytest.mark.parametrize("options", [{"max_edges": 100}, {"check": False}], ids=str)
@pytest.mark.slow
def test_however_they_are_cut(options: dict[str, Any]) -> None:
    check_all(model("gcn"), graph(undirected=True), step=4, **options)


FEATURES = ["gcn", "outward", "sage_max", "gat", "tag", "against_edges", "directed", "jumping", "undirected"]


@pytest.mark.parametrize("name", slow_unless(lambda name: name in FEATURES[:2], FEATURES))
def test_features(name: str) -> None:
    data = graph(undirected=name == "gat")
    data.x[::3, 1] = 0
    if name == "undirected":
        data.edge_index = coalesce(data.edge_index)
    gates: Any = "proportional" if name == "sage_max" else "equal"
    goat, nodes = GOAtAttribution(model(name), mask_type="node_and_edge", gates=gates), [0, 3, 17, 43]
    mask = torch.ones(1, data.num_edges, dtype=torch.float64)
    found = explain_nodes(goat, data, nodes)
    for position, node in enumerate(nodes):
        target = (node, int(found.targets[position]))
        features, edges = goat.attribute((data.x.unsqueeze(0), mask), target, (data.edge_index,))
        torch.testing.assert_close(found.node_mask(position), features[0], rtol=0, atol=EXACT)
        torch.testing.assert_close(found.edge_mask(position), edges[0], rtol=0, atol=EXACT)
        assert found.node_mask(position).any() or node == 43
        part = found.subgraph(position)
        assert torch.equal(part.node_mask, found.node_mask(position)[part.n_id])
    every = explain_nodes(goat, data, nodes, target="all")
    for position, target in enumerate(found.targets.tolist()):
        torch.testing.assert_close(every.node_mask(position)[..., target], found.node_mask(position))


def test_features_that_were_not_attributed() -> None:
    with pytest.raises(ValueError, match=r"Expected attributions of features \(got none\)"):
        explain_nodes(model("gcn"), graph(), [1]).node_mask(0)
    with pytest.raises(ValueError, match=r"first argument are node features, to attribute them \(got Data\)"):
        explain_nodes(GOAtAttribution(model("of_graph"), mask_type="node_and_edge"), graph(), [1])


@pytest.mark.slow
def test_edge_weights_and_attributes_are_cut_along() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(74, generator=generator, dtype=torch.float64)
    for layers in [(GCNConv(4, 6), GCNConv(6, 3)), (GraphConv(4, 6), GraphConv(6, 3))]:
        check_all(randomize(Stack(*layers).double(), 0), graph(edge_weight=weights), step=4)
    attributes = torch.randn(74, 2, generator=generator, dtype=torch.float64)
    mlp = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6))
    for layers in [
        (GATv2Conv(4, 6, edge_dim=2), GATv2Conv(6, 3, edge_dim=2)),
        (GINEConv(mlp, edge_dim=2), TransformerConv(6, 3, edge_dim=2)),
    ]:
        check_all(randomize(Stack(*layers).double(), 0), graph(edge_attr=attributes), step=4)


@pytest.mark.slow
def test_ties_are_broken_as_in_the_whole_graph() -> None:
    data = graph(undirected=True)
    data.x = torch.ones_like(data.x)
    check_all(model("sage_max"), data, step=2)


def test_single_precision() -> None:
    gcn, data = model("gcn").float(), graph(undirected=True)
    data.x = data.x.float()
    found = explain_nodes(gcn, data)
    assert found.attributions.dtype == torch.float32
    for node in range(0, 44, 5):
        target = (node, int(found.targets[node]))
        expected = GOAtAttribution(gcn).attribute(torch.ones(data.num_edges), target, data)
        torch.testing.assert_close(found.edge_mask(node), expected, rtol=0, atol=1e-6)


def test_a_softmax_does_not_hide_differences() -> None:
    sure = Stack(GCNConv(4, 6), GCNConv(6, 3), end=lambda x: (1e3 * x).softmax(dim=-1))
    check_all(randomize(sure.double(), 0), graph(undirected=True), step=4)


class Pooled(nn.Module):
    """Adds the mean of all nodes to every node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        out: Tensor = x + global_mean_pool(x, x.new_zeros(len(x), dtype=torch.long))
        return out


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Stack(GCNConv(4, 6), GraphNorm(6), GCNConv(6, 3)),
        lambda: Stack(SAGEConv(4, 6), PairNorm(), SAGEConv(6, 3)),
        Pooled,
    ],
    ids=["graph_norm", "pair_norm", "pooled"],
)
def test_models_that_look_at_the_whole_graph_are_refused(refused: Callable[[], nn.Module]) -> None:
    with pytest.raises(UnsupportedModelError, match=r"depend on the \d hop"):
        explain_nodes(randomize(refused().double(), 0), graph(undirected=True))
