"""RG-Explainer: how sets of nodes grow, beside a slow reference; what is lost and learned; the ranks that result."""

from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import pytest
import torch
from conftest import random_edges
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import to_undirected

from benchmarks.explainers import ExplainerSkippedError
from benchmarks.explainers.graph_copies import repeat_graphs
from benchmarks.explainers.growth import (
    NEVER,
    Growth,
    Neighbours,
    best,
    grow,
    repeating,
    sampled,
    uniform,
)
from benchmarks.explainers.reinforced import RGExplainer, Scene
from captum_goat.compare.graphs import Graphs
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import ground_truth_auc
from captum_goat.models import GraphClassifier, RootClassifier, train_model

SIZES = (9, 7, 1, 12, 5)


def random_graphs(seed: int) -> Graphs:
    """Return directed graphs with self-loops and double edges, one of a single node."""
    generator = torch.Generator().manual_seed(seed)
    data = [
        Data(x=torch.rand(n, 3, generator=generator), edge_index=random_edges(n, n + n // 2, seed=10 * seed + n))
        for n in SIZES
    ]
    return Graphs.of(Batch.from_data_list(data), torch.zeros(len(data), dtype=torch.long))


def neighbours(graphs: Graphs) -> nx.Graph:
    """Return what is next to what, as networkx has it."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(graphs.x)))
    graph.add_edges_from((u, v) for u, v in graphs.edge_index.t().tolist() if u != v)
    return graph


def first_nodes(graphs: Graphs) -> Tensor:
    return torch.tensor([graphs.batch.tolist().index(graph) for graph in range(len(graphs.target))])


class Table:
    """Logits that depend on the node, on the size of its set, and on the graph."""

    def __init__(self, graphs: Graphs, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.nodes = torch.randn(20, len(graphs.x), generator=generator)
        self.stops = torch.randn(20, len(graphs.target), generator=generator)

    def __call__(self, growth: Growth) -> tuple[Tensor, Tensor]:
        size = growth.sizes[growth.near.batch[growth.boundary]]
        return self.nodes[size, growth.boundary], self.stops[growth.sizes, torch.arange(len(growth.sizes))]

    def grown_slowly(self, graph: nx.Graph, seed: int, number: int, limit: int) -> tuple[list[int], float]:
        """Grow the set of one graph, and return its nodes in order, and the log-probability."""
        inside, total = [seed], 0.0
        while len(inside) < limit:
            logits = {v: float(self.nodes[len(inside), v]) for u in inside for v in graph[u] if v not in inside}
            logits[-1] = float(self.stops[len(inside), number])
            chosen = max(logits, key=lambda node: logits[node])
            total += logits[chosen] - math.log(sum(map(math.exp, logits.values())))
            if chosen == -1:
                break
            inside.append(chosen)
        return inside, total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limit", [1, 4, 20])
def test_growth_beside_a_slow_reference(seed: int, limit: int) -> None:
    graphs = random_graphs(seed)
    near, table, seeds = Neighbours.of(graphs), Table(graphs, seed), first_nodes(graphs)
    grown, log_probability = grow(Growth.at(near, seeds), table, best, limit)
    known = neighbours(graphs)
    for number, start in enumerate(seeds.tolist()):
        nodes, expected = table.grown_slowly(known, start, number, limit)
        assert grown.place[nodes].tolist() == list(range(len(nodes)))
        assert int(grown.sizes[number]) == len(nodes)
        assert float(log_probability[number]) == pytest.approx(expected, abs=1e-4)
        radius = max(nx.single_source_shortest_path_length(known.subgraph(nodes), start).values())
        assert int(grown.radius[number]) == radius
    assert not grown.open.any()
    again, same = grow(Growth.at(near, seeds), table, repeating(grown), limit)
    assert torch.equal(again.place, grown.place)
    torch.testing.assert_close(same, log_probability)


def test_random_growth_stays_connected_until_nothing_is_left() -> None:
    torch.manual_seed(0)
    graphs = random_graphs(3)
    known, seeds = neighbours(graphs), first_nodes(graphs)
    grown, _ = grow(Growth.at(Neighbours.of(graphs), seeds), uniform, sampled, 99)
    for size in range(1, 13):
        early = grown.cut(torch.full((len(SIZES),), size))
        for number, start in enumerate(seeds.tolist()):
            nodes = (early.inside & (graphs.batch == number)).nonzero().view(-1).tolist()
            assert len(nodes) == min(size, len(nx.node_connected_component(known, start)))
            assert nx.is_connected(known.subgraph(nodes))


def test_samples_follow_the_probabilities() -> None:
    """A star whose leaves, and stopping, have known probabilities."""
    star = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 0, 0], [1, 2, 3]]))
    graphs = repeat_graphs(Graphs.of(star, torch.tensor([0])), 20_000)
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()

    def scorer(growth: Growth) -> tuple[Tensor, Tensor]:
        return logits[growth.boundary % 4 - 1], logits[3].expand(20_000)

    torch.manual_seed(1)
    grown, log_probability = grow(Growth.at(Neighbours.of(graphs), torch.arange(20_000) * 4), scorer, sampled, 2)
    shares = grown.inside.view(-1, 4).double().mean(0)
    torch.testing.assert_close(shares, torch.tensor([1.0, 0.1, 0.2, 0.3]).double(), rtol=0, atol=0.015)
    stopped = grown.sizes == 1
    torch.testing.assert_close(log_probability[stopped], logits[3].expand(int(stopped.sum())))


def test_graphs_that_have_stopped_wait_and_may_go_on() -> None:
    """Two paths, one of which stops at once; later its nodes are counted as if it had never stopped."""
    path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    near = Neighbours.of(Graphs.of(Batch.from_data_list([path, path]), torch.tensor([0, 0])))

    def first_stops(growth: Growth) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(growth.boundary)), torch.tensor([5.0, -5.0])

    grown, _ = grow(Growth.at(near, torch.tensor([0, 3])), first_stops, best, 99)
    assert grown.place.tolist() == [0, NEVER, NEVER, 0, 1, 2]
    assert grow(grown, first_stops, best, 99)[0].place.tolist() == grown.place.tolist()
    assert grow(grown.reopened(), uniform, best, 99)[0].place.tolist() == [0, 1, 2, 0, 1, 2]


def test_spread() -> None:
    graphs = random_graphs(5)
    adjacency = torch.tensor(nx.to_numpy_array(neighbours(graphs)), dtype=torch.float32)
    scale = adjacency.sum(0).clamp(min=1).rsqrt().diag()
    expected = graphs.x
    for _ in range(3):
        expected = 0.85 * scale @ adjacency @ scale @ expected + 0.15 * graphs.x
    torch.testing.assert_close(Neighbours.of(graphs).spread(graphs.x, 3, 0.15), expected)


class Sums(nn.Module):
    """Sums up what edges carry, for the nodes or for the graph; the more, the likelier is class 1."""

    def __init__(self, threshold: float, *, pool: bool = True) -> None:
        super().__init__()
        self.conv, self.threshold, self.pool = GCNConv(1, 1, bias=False, normalize=False), threshold, pool
        self.conv.lin.weight.data.fill_(1.0)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        rows = self.conv(x[:, :1], edge_index)
        value = (global_add_pool(rows, batch) if self.pool else rows) - self.threshold
        return torch.cat([torch.zeros_like(value), value], dim=1)


def test_losses_by_hand() -> None:
    """Of the path 0 - 1 - 2 - 3: nodes 1 and 2 where the graph is classified, nodes 0, 1 and 2 where node 0 is."""
    edges = to_undirected(torch.tensor([[0, 1, 2], [1, 2, 3]]))
    graphs = Graphs.of(Data(x=torch.tensor([[1.0], [2.0], [3.0], [4.0]]), edge_index=edges), torch.tensor([1]))
    explainer = RGExplainer(size=0.1, radius=0.02, similarity=0.5)

    model = Sums(4.0).eval()  # messages of the subgraph: 3 + 2; of the graph: 2 + 1 + 3 + 2 + 4 + 3 = 15
    scene = Scene.of(model, graphs)
    growth = replace(Growth.at(scene.near, torch.tensor([1])), place=torch.tensor([NEVER, 0, 1, NEVER]))
    expected = math.log(1 + math.exp(-1.0)) + 0.1 * 2 + 0.02 * 1 + 0.5 * 10 / 15
    assert explainer.losses(model, scene, growth).tolist() == pytest.approx([expected])

    rooted = RootClassifier(Sums(4.0, pool=False)).eval()  # node 0 has the message 2 in both
    scene = Scene.of(rooted, graphs)
    assert scene.may_seed.tolist() == [True, False, False, False]
    growth = replace(Growth.at(scene.near, torch.tensor([0])), place=torch.tensor([0, 1, 2, NEVER]))
    expected = math.log(1 + math.exp(2.0)) + 0.1 * 4 + 0.02 * 2
    assert explainer.losses(rooted, scene, growth).tolist() == pytest.approx([expected])


def marked_tree(seed: int) -> Data:
    """Return a random tree of 12 nodes, three of which, in a row, have a large feature."""
    tree = nx.random_labeled_tree(12, seed=seed)
    middle = max(tree, key=lambda node: tree.degree[node])
    row = [middle, *sorted(tree[middle])[:2]]
    x = torch.zeros(12, 2)
    x[:, 1] = 1.0
    x[row, 0] = 2.0
    edge_index = to_undirected(torch.tensor(list(tree.edges)).t())
    marked = torch.zeros(12, dtype=torch.bool)
    marked[row] = True
    return Data(x=x, edge_index=edge_index, edge_label=marked[edge_index].all(dim=0))


@pytest.mark.slow
def test_learns_where_to_start_what_to_add_and_when_to_stop() -> None:
    """Edges of marked nodes make class 1: policy gradients alone find them, also in graphs that were not learned from.

    Both edges of the row cost 0.4 for their size, 0.13 as class 1 is not certain, and 0.02 to 0.03 else.
    """
    model, graphs = Sums(6.0).eval(), [marked_tree(seed) for seed in range(60)]
    explain, data = RGExplainer(warm_up=0, epochs=60, size=0.1), Batch.from_data_list(graphs[40:])
    explain.fit(model, graphs[:40])
    assert len(explain.rewards) == 60
    assert sum(explain.rewards[:5]) / 5 < -2.0
    assert sum(explain.rewards[-5:]) / 5 > -0.75
    scores = explain(model, data, torch.ones(20, dtype=torch.long))
    assert float(ground_truth_auc(data, scores).mean()) > 0.95
    assert float(((scores > 1) == data.edge_label).double().mean()) > 0.95


@pytest.fixture(scope="module")
def trained() -> tuple[GraphClassifier, list[Data]]:
    """A model that tells the motifs of BA-2Motifs apart."""
    graphs = ba_2motifs(num_graphs=300, seed=1)
    torch.manual_seed(0)
    model = GraphClassifier("gin", 10, 16, 2)
    assert train_model(model, graphs, epochs=30, show_progress=False).test_accuracy > 0.9
    return model, graphs


@pytest.mark.slow
def test_ranks_of_a_trained_model(trained: tuple[GraphClassifier, list[Data]]) -> None:
    """Motifs come first; ranks are those of undirected edges, of any class, and of graphs alone and in a batch."""
    (model, graphs), classes = trained, torch.zeros(20, dtype=torch.long)
    explain, data = RGExplainer(epochs=8, warm_up=20, num_graphs=50), Batch.from_data_list(graphs[100:120])
    explain.fit(model, graphs[:100])
    scores = explain(model, data, classes)
    assert float(ground_truth_auc(data, scores).mean()) > 0.65
    alone = [explain(model, graph, classes[:1]) for graph in graphs[100:120]]
    assert torch.equal(torch.cat(alone), scores)
    assert torch.equal(explain(model, data, 1 - classes), scores)
    assert scores.min() > 0  # every edge was reached
    table = torch.zeros(data.num_nodes, data.num_nodes).index_put_(tuple(data.edge_index), scores)
    assert torch.equal(table, table.t())


@pytest.mark.slow
def test_seeds(trained: tuple[GraphClassifier, list[Data]]) -> None:
    (model, graphs), classes = trained, torch.zeros(20, dtype=torch.long)
    data, runs = Batch.from_data_list(graphs[100:120]), []
    for seed in (0, 0, 1):
        torch.rand(1)
        explain = RGExplainer(epochs=3, warm_up=3, num_graphs=20, seed=seed)
        explain.fit(model, graphs[:100])
        runs.append((explain.rewards, explain(model, data, classes)))
    (first, scores), (second, same), (third, others) = runs
    assert first == second != third
    assert torch.equal(scores, same)
    assert not torch.equal(scores, others)


def test_ranks_where_nodes_are_classified() -> None:
    """Sets grow from the first node of a graph, and edges that cannot be reached from there come last."""
    edges = to_undirected(torch.tensor([[0, 1, 2, 4], [1, 2, 3, 5]]))  # 0 - 1 - 2 - 3, and 4 - 5
    data = Data(x=torch.ones(6, 1), edge_index=edges)
    model, explain = RootClassifier(Sums(0.5, pool=False)).eval(), RGExplainer(epochs=3, warm_up=3, largest=3)
    explain.fit(model, [data] * 4)
    scores = explain(model, Batch.from_data_list([data, data]), torch.tensor([1, 1])).view(2, -1)
    assert torch.equal(scores[0], scores[1])
    by_edge = {tuple(edge): float(score) for edge, score in zip(edges.t().tolist(), scores[0] % 1, strict=True)}
    expected = {(0, 1): 5 / 6, (1, 2): 4 / 6, (2, 3): 3 / 6, (4, 5): 0.0}
    assert by_edge == pytest.approx(expected | {(v, u): score for (u, v), score in expected.items()})
    assert float(scores[0][by_edge[2, 3] == scores[0] % 1].max()) < 1  # four nodes are too large


def test_refuses() -> None:
    model, data = Sums(1.0).eval(), Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match=r"RGExplainer to be fitted. Call fit\(model, graphs\)"):
        RGExplainer()(model, data, torch.tensor([0]))
    with pytest.raises(ValueError, match="graphs with edges"):
        RGExplainer().fit(model, [Data(x=torch.ones(2, 1), edge_index=torch.empty(2, 0, dtype=torch.long))])
    with pytest.raises(ValueError, match="2 rollouts or more"):
        RGExplainer(rollouts=1)

    class NoMessages(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return global_add_pool(x, batch)

    with pytest.raises(ExplainerSkippedError, match="one row for each of 2 nodes"):
        RGExplainer().fit(NoMessages().eval(), [data])
