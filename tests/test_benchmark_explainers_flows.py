"""Message flows and receptive fields, against values computed by hand and by literal definitions."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from math import comb

import pytest
import torch
from conftest import make_gnn, randomize
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SimpleConv, global_add_pool
from torch_geometric.utils import to_undirected

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.explainers.flows import FlowXMarginals, message_flows
from benchmarks.explainers.receptive_fields import GraphSHAPIQ, moebius, receptive_fields
from captum_goat.compare.graphs import Graphs
from captum_goat.models import GraphClassifier, RootClassifier

ZERO, ONE = torch.tensor([0]), torch.tensor([1])
PATH = torch.tensor([[2, 1], [1, 0]])  # edge 0 from node 2 to node 1, edge 1 from there to node 0


class Sums(nn.Module):
    """Two layers in which a node adds up its neighbours and itself; there are no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(SimpleConv(aggr="sum", combine_root="sum") for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


class LinearReadout(nn.Module):
    """Two convolutions with ReLU; the logits are sums over nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(3, 4), GraphConv(4, 2)])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return global_add_pool(x, batch)


def path_graph() -> Data:
    return Data(x=torch.tensor([[5.0], [3.0], [2.0]]), edge_index=PATH)


def random_graph(nodes: int, edges: list[tuple[int, int]], features: int = 3) -> Data:
    x = torch.rand(nodes, features, generator=torch.Generator().manual_seed(nodes), dtype=torch.double)
    return Data(x=x, edge_index=to_undirected(torch.tensor(edges).T))


def test_flows_of_a_path_by_hand() -> None:
    r"""Four flows reach node 0: 5 stays, 3 comes by edge 1 in either layer, 2 by edge 0 and then by edge 1.

    Edge 1 in the first layer has one flow, with 3. The other two layer edges share a flow: if edge 0 goes first, that
    flow has 2, and 3 is left for the other; else both have (2 + 3) / 2.
    """
    model = RootClassifier(Sums().eval())
    assert message_flows(Graphs.of(path_graph(), ZERO), 2, at_root=True).tolist() == [[0, 1], [1, 2], [2, 2], [3, 1]]
    for seed in range(5):
        first, second = FlowXMarginals(orders=1, seed=seed)(model, path_graph(), ONE).tolist()
        assert first in (pytest.approx(2.0), pytest.approx(2.5))
        assert second == pytest.approx(3.0 + 3.0 + 2.0)
    many = FlowXMarginals(orders=2000)(model, path_graph(), ONE)
    torch.testing.assert_close(many, torch.tensor([2.25, 8.0]), rtol=0.0, atol=0.02)


def flows_by_definition(graph: Data, layers: int) -> list[list[tuple[int, int]]]:
    """Return the layer edges of every walk, found by trying all combinations of steps."""
    steps = [(*ends, number) for number, ends in enumerate(graph.edge_index.T.tolist())]
    steps += [(node, node, -1) for node in range(graph.num_nodes)]
    walks = product(steps, repeat=layers)
    return [
        [(layer, number) for layer, (_, _, number) in enumerate(walk) if number >= 0]
        for walk in walks
        if all(before[1] == after[0] for before, after in pairwise(walk))
    ]


def dense_logits(model: LinearReadout, graph: Data, present: set[tuple[int, int]]) -> Tensor:
    """Return the logits with some layer edges, with one adjacency matrix per layer."""
    h = graph.x
    for layer, conv in enumerate(model.convs):
        adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=h.dtype)
        for number, (source, target) in enumerate(graph.edge_index.T.tolist()):
            adjacency[target, source] += float((layer, number) in present)
        h = (conv.lin_rel(adjacency @ h) + conv.lin_root(h)).relu()
    return h.sum(dim=0).detach()


@pytest.mark.parametrize("steps", [100, 5])
def test_marginal_contributions_by_definition(steps: int) -> None:
    """The same orders, with one layer edge (or several) removed after the other and all flows listed."""
    graph = random_graph(4, [(0, 1), (1, 2), (1, 3)])
    model, layers = randomize(LinearReadout().double(), seed=5), 2
    flows, count = flows_by_definition(graph, layers), graph.num_edges
    used = sorted({layer_edge for flow in flows for layer_edge in flow})
    random = torch.Generator().manual_seed(Graphs.of(graph, ZERO).seed(0))
    shares = [0.0] * len(flows)
    for _ in range(3):
        places = (torch.randperm(len(used), generator=random) * min(steps, len(used)) // len(used)).tolist()
        present, before = set(used), dense_logits(model, graph, set(used))[0]
        for step in range(min(steps, len(used))):
            gone = {layer_edge for layer_edge, place in zip(used, places, strict=True) if place == step}
            hit = [number for number, flow in enumerate(flows) if set(flow) <= present and set(flow) & gone]
            present -= gone
            after = dense_logits(model, graph, present)[0]
            for number in hit:
                shares[number] += float(before - after) / len(hit) / 3
            before = after
    expected = [
        sum(share * sum(number == edge for _, number in flow) for flow, share in zip(flows, shares, strict=True))
        for edge in range(count)
    ]
    scores = FlowXMarginals(orders=3, steps=steps)(model, graph, ZERO)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.double))
    lost = dense_logits(model, graph, set(used))[0] - dense_logits(model, graph, set())[0]
    assert sum(shares) == pytest.approx(float(lost))  # flows share all that messages do


def test_flows_through_self_loops_that_a_layer_adds() -> None:
    """A textbook GCN adds self-loops as messages of its own, which stay."""
    graph = random_graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)], features=4)
    scores = FlowXMarginals(orders=2)(make_gnn("gcn"), graph, ZERO)
    assert scores.isfinite().all()
    assert (scores != 0).any()


def shapley_by_definition(model: nn.Module, graph: Data, target: int) -> list[float]:
    """Return the Shapley values of nodes from all coalitions; others have the mean features."""
    nodes = range(graph.num_nodes)

    def value(coalition: tuple[int, ...]) -> float:
        x = graph.x.mean(dim=0).repeat(len(nodes), 1)
        x[list(coalition)] = graph.x[list(coalition)]
        return float(model(x, graph.edge_index)[0, target].detach())

    values = []
    for node in nodes:
        others = [other for other in nodes if other != node]
        total = 0.0
        for size in range(len(nodes)):
            gains = [value((*some, node)) - value(some) for some in combinations(others, size)]
            total += sum(gains) / comb(len(others), size) / len(nodes)
        values.append(total)
    return values


def test_node_values_by_definition() -> None:
    """On a path of seven nodes no receptive field has more than five, and the values are those of all coalitions."""
    graph = random_graph(7, [(node, node + 1) for node in range(6)])
    model = randomize(LinearReadout().double(), seed=3)
    fields = receptive_fields(model, Graphs.of(graph, ZERO))
    assert fields.sum(dim=1).tolist() == [3, 4, 5, 5, 5, 4, 3]
    expected = torch.tensor(shapley_by_definition(model, graph, 1), dtype=torch.double)
    values = GraphSHAPIQ().node_values(model, Graphs.of(graph, torch.tensor([1])))
    torch.testing.assert_close(values, expected)
    scores = EXPLAINERS["graph_shap_iq"]()(model, graph, torch.tensor([1]))
    torch.testing.assert_close(scores, expected[graph.edge_index].mean(dim=0))


def test_node_values_by_hand() -> None:
    """The sums are linear: a node's value is its feature, minus the mean, times the number of its flows to node 0."""
    values = GraphSHAPIQ().node_values(RootClassifier(Sums().eval()), Graphs.of(path_graph(), ONE))
    mean = 10 / 3
    assert values.tolist() == pytest.approx([5 - mean, 2 * (3 - mean), 2 - mean], abs=1e-5)


def test_coefficients_of_two_and_three_players_by_hand() -> None:
    """v = 2a + 3ab + 5abc has the coefficients 2, 3 and 5."""
    members = torch.tensor(list(product([False, True], repeat=3)))
    a, b, c = members.double().T
    coefficients = moebius(members, 2 * a + 3 * a * b + 5 * a * b * c)
    found = {
        tuple(row.nonzero().view(-1).tolist()): float(value) for row, value in zip(members, coefficients, strict=True)
    }
    assert {key: value for key, value in found.items() if value} == {(0,): 2, (0, 1): 3, (0, 1, 2): 5}


def test_other_readouts_and_large_fields_are_skipped() -> None:
    long = random_graph(12, [(node, node + 1) for node in range(11)])
    classifier = GraphClassifier("gin", 3, 8, 2).double().eval()
    with pytest.raises(ExplainerSkippedError, match="linear readout"):
        GraphSHAPIQ()(randomize(classifier, seed=1), long, ZERO)
    star = random_graph(20, [(0, leaf) for leaf in range(1, 20)])
    with pytest.raises(ExplainerSkippedError, match="at most 14 nodes"):
        GraphSHAPIQ()(randomize(LinearReadout().double(), seed=3), star, ZERO)
