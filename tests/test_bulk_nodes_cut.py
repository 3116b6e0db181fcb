"""Cutting computation graphs out of a graph, and which way of cutting models need."""

from __future__ import annotations

import pytest
import torch
from conftest import random_edges, randomize
from test_bulk_nodes_exact import MODELS, graph, model
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GraphNorm, SAGEConv

import captum_goat.nodes.checked_cuts as cut_check
from benchmarks.datasets import ba_shapes
from captum_goat import GOAtAttribution, UnsupportedModelError
from captum_goat.compare import computation_graphs
from captum_goat.metrics.counted_edges import edges_of
from captum_goat.nodes import NodeExplainer
from captum_goat.nodes.checked_cuts import CheckedCuts, Direction, NeighborIndex, cut_graphs


def sparse_graph(num_nodes: int = 20_000, *, seed: int = 0) -> Data:
    """Return a large graph in which nodes have three incoming edges on average."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=random_edges(num_nodes, 3 * num_nodes, seed=seed))


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_edges_at_nodes(direction: Direction) -> None:
    edges = random_edges(10, 30, seed=0)
    index = NeighborIndex(edges_of(Data(edge_index=edges.int(), num_nodes=12)), 12, direction)
    nodes = torch.tensor([3, 11, 0, 3])
    found = index.edges_at(nodes)
    assert torch.equal(torch.bincount(found.position, minlength=4), index.degree(nodes))
    ends = {"in": [(1, 0)], "out": [(0, 1)], "both": [(1, 0), (0, 1)]}[direction]
    for position, node in enumerate(nodes.tolist()):
        here = found.position == position
        expected = [(int(e), int(edges[b, e])) for a, b in ends for e in (edges[a] == node).nonzero()]
        assert list(zip(found.edge[here].tolist(), found.neighbor[here].tolist(), strict=True)) == expected


def test_wrong_edges() -> None:
    x, net = torch.ones(3, 4), SAGEConv(4, 2).eval()
    with pytest.raises(ValueError, match=r"edge_index is a tensor of shape \[2, num_edges\] \(got \[3, 2\]\)"):
        CheckedCuts(net, Data(x=x, edge_index=torch.zeros(3, 2, dtype=torch.long)))
    with pytest.raises(ValueError, match=r"Expected edges between nodes 0 to 2 \(got nodes 0 to 3\)"):
        CheckedCuts(net, Data(x=x, edge_index=EdgeIndex([[0, 1], [3, 2]])))


@pytest.mark.parametrize("num_hops", [1, 2, 3])
def test_cut_edges_are_those_of_computation_graphs(num_hops: int) -> None:
    data = graph()
    index, roots = NeighborIndex(data.edge_index, 44), torch.tensor([3, 17, 3, 40, 8])
    expected = computation_graphs(data, roots, num_hops)
    for margin in (0, 1):
        cut = cut_graphs(index, roots, num_hops, margin)
        own = len(cut.owner)
        assert torch.equal(cut.nodes[cut.roots], roots)
        assert torch.equal(cut.nodes[cut.edge_index[:, :own]], data.edge_index[:, cut.edges[:own]])
        assert torch.equal(cut.nodes[cut.edge_index[1]], data.edge_index[1, cut.edges])
        for position, each in enumerate(expected):
            assert torch.equal(cut.edges[:own][cut.owner == position], each.e_id)
        received = torch.bincount(cut.edge_index[1], minlength=len(cut.nodes))
        degree = torch.bincount(data.edge_index[1], minlength=44)[cut.nodes]
        inside = cut.distance < num_hops
        assert torch.equal(received[inside], degree[inside])
        assert torch.equal(received[~inside], margin * degree[~inside])
        assert cut.nodes[~inside].unique().numel() == int((~inside).sum())  # one copy serves all roots


def test_distances() -> None:
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    cut = cut_graphs(NeighborIndex(path, 5), torch.tensor([4]), num_hops=3)
    assert dict(zip(cut.nodes.tolist(), cut.distance.tolist(), strict=True)) == {4: 0, 3: 1, 2: 2, 1: 3}
    cut = cut_graphs(NeighborIndex(path, 5, "both"), torch.tensor([2]), num_hops=1, margin=1)
    assert dict(zip(cut.nodes.tolist(), cut.distance.tolist(), strict=True)) == {2: 0, 1: 1, 3: 1, 0: 2, 4: 2}
    assert cut.edges.tolist() == [0, 1, 2, 3]


def test_as_many_roots_as_fit() -> None:
    data = sparse_graph(2000)
    index, roots = NeighborIndex(data.edge_index, 2000), torch.arange(200)
    sizes = torch.bincount(cut_graphs(index, roots, 2).owner, minlength=200)
    for limit in (1, 100, 1000):
        cut = cut_graphs(index, roots, 2, max_edges=limit)
        fitting = int((sizes.cumsum(0) <= limit).sum())
        assert 1 <= len(cut.roots) == max(fitting, 1)
        assert torch.equal(torch.bincount(cut.owner, minlength=len(cut.roots)), sizes[: len(cut.roots)])
    hub = torch.stack([torch.arange(1, 2000), torch.zeros(1999, dtype=torch.long)])
    spokes = torch.stack([torch.zeros(9, dtype=torch.long), torch.arange(1, 10)])
    index = NeighborIndex(torch.cat([hub, spokes], dim=1), 2000)
    assert len(cut_graphs(index, torch.arange(1, 10), 1, margin=1, max_edges=100).roots) == 1  # the hub's edges count


def test_no_root_if_none_fits() -> None:
    data = sparse_graph(2000)
    index, roots = NeighborIndex(data.edge_index, 2000, "both"), torch.tensor([5, 900])
    size = int((cut_graphs(index, roots, 3).owner == 0).sum())
    assert cut_graphs(index, roots, 3, max_edges=size // 2, at_least=0).roots.numel() == 0
    assert cut_graphs(index, roots, 3, max_edges=size // 2).roots.numel() == 1
    assert cut_graphs(index, roots, 3, max_edges=2 * size, at_least=0).roots.numel() >= 1


@pytest.mark.parametrize("margin", [0, 1])
def test_rows_of_one_root_each(margin: int) -> None:
    data, roots = graph(), torch.tensor([3, 17, 3, 40, 8])
    index = NeighborIndex(data.edge_index, 44)
    shared, own = (cut_graphs(index, roots, 2, margin, shared=shared) for shared in (True, False))
    assert torch.equal(own.edges[: len(own.owner)], shared.edges[: len(shared.owner)])
    assert torch.equal(own.row_owner[own.edge_index[:, : len(own.owner)]], own.owner.expand(2, -1))
    assert (shared.row_owner < 0).any()
    degree = torch.bincount(data.edge_index[1], minlength=44)[own.nodes]
    received = torch.bincount(own.edge_index[1], minlength=len(own.nodes))
    assert torch.equal(received, degree.where(own.distance < 2, margin * degree))


WAYS = {
    "gcn": ("in", 1),
    "sage": ("in", 0),
    "gin": ("in", 0),
    "gat": ("in", 0),
    "appnp": ("in", 1),
    "against_edges": ("out", 1),
    "two_ways": ("both", 1),
    "outward": ("both", 1),
    "directed": ("both", 1),
}


@pytest.mark.parametrize("check", [True, None], ids=["whole graph", "samples"])
@pytest.mark.parametrize("name", WAYS)
def test_models_are_cut_as_they_need(name: str, check: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_check, "MOST_COMPARED", 1000)
    cuts = CheckedCuts(model(name), sparse_graph(2000), check=check)
    cuts.cut(torch.arange(64))
    assert cuts.options[:2] == WAYS[name]


class Seen(nn.Module):
    """Notes how many nodes a model is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.sizes, self.training = inner, list[int](), False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.sizes.append(len(x))
        out: Tensor = self.inner(x, edge_index)
        return out


@pytest.mark.parametrize("name", [pytest.param("gcn", marks=pytest.mark.slow), "sage"])
@pytest.mark.slow
def test_large_graphs_are_never_run_as_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_check, "MOST_COMPARED", 10_000)
    data, seen = sparse_graph(), Seen(model(name))
    explainer = NodeExplainer(seen, data)
    assert max(seen.sizes) < data.num_nodes
    seen.sizes.clear()
    found = explainer([7, 12_345])
    assert max(seen.sizes) < 1000
    mask = torch.ones(data.num_edges, dtype=torch.float64)
    for position, node in enumerate([7, 12_345]):
        target = (node, int(found.targets[position]))
        expected = GOAtAttribution(model(name)).attribute(mask, target, (data.x, data.edge_index))
        torch.testing.assert_close(found.edge_mask(position), expected, rtol=0, atol=1e-9)


def test_large_graphs_are_refused_to_models_that_look_at_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_check, "MOST_COMPARED", 1000)

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = SAGEConv(4, 3), GraphNorm(3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.norm(self.conv(x, edge_index))
            return out

    with pytest.raises(UnsupportedModelError, match="another output when it is cut out"):
        NodeExplainer(randomize(Normed().double(), 0), sparse_graph(2000))


@pytest.mark.slow
def test_samples_that_say_nothing_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of nodes, which need no margin, beside a part in which degrees matter, but too large to look at."""
    monkeypatch.setattr(cut_check, "MOST_COMPARED", 0)
    monkeypatch.setattr(cut_check, "_MOST_AROUND", 50)
    large, pairs = random_edges(100, 600, seed=0), 100 + torch.arange(4000).view(2, -1)
    data = Data(x=torch.randn(4100, 4, dtype=torch.float64), edge_index=torch.cat([large, pairs], dim=1))
    found = NodeExplainer(model("gcn"), data)([2100, 7])
    mask = torch.ones(data.num_edges, dtype=torch.float64)
    expected = GOAtAttribution(model("gcn")).attribute(mask, (7, int(found.targets[1])), (data.x, data.edge_index))
    torch.testing.assert_close(found.edge_mask(1), expected, rtol=0, atol=1e-9)


def test_dense_graphs_are_run_as_a_whole_if_there_is_no_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_check, "MOST_COMPARED", 0)
    monkeypatch.setattr(cut_check, "_MOST_AROUND", 1)
    seen = Seen(model("gcn"))
    NodeExplainer(seen, graph(undirected=True))
    assert max(seen.sizes) == 44


@pytest.mark.slow
def test_ba_shapes_takes_few_passes() -> None:
    torch.manual_seed(0)
    data, seen = ba_shapes(), Seen(MODELS["gcn"]().eval())
    data.x = data.x[:, :4]
    found = NodeExplainer(seen, data)()
    assert len(found) == 700
    assert len(seen.sizes) < 60
    mask = torch.ones(data.num_edges)
    for node in (0, 350, 699):
        target = (node, int(found.targets[node]))
        expected = GOAtAttribution(seen.inner).attribute(mask, target, (data.x, data.edge_index))
        torch.testing.assert_close(found.edge_mask(node), expected, rtol=0, atol=1e-6)
