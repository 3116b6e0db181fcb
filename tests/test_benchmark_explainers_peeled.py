"""Peeled explainers of the benchmark: their scores, cost, and that the random one is random."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution
from conftest import make_gnn, random_edges
from metrics_oracle import counted
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from benchmarks.explainers.peeled import PeeledGOAt, PeeledRandom, PeeledUpperHalfGradients
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import precision_at_k
from captum_goat.models import GraphClassifier

TARGET = torch.tensor([2, 0, 1, 0])


class Seen(Attribution):
    """A method that writes down what it is asked for."""

    def __init__(self, method: Attribution) -> None:
        super().__init__(method.forward_func)
        self.attribution_method, self.sizes = method, list[int]()

    def attribute(self, inputs: Tensor, **kwargs: Any) -> Any:
        self.sizes.append(len(inputs))
        return self.attribution_method.attribute(inputs, **kwargs)


def graph(nodes: int, edges: Tensor, seed: int) -> Data:
    x = torch.rand(nodes, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Data(x=x, edge_index=edges)


@pytest.fixture
def graphs() -> Batch:
    """An undirected graph with a self-loop, one without edges, a directed one with double edges, one with one edge."""
    undirected = torch.cat([to_undirected(random_edges(7, 8, seed=1)), torch.tensor([[3], [3]])], dim=1).unique(dim=1)
    return Batch.from_data_list(
        [
            graph(8, undirected, seed=1),
            graph(3, torch.empty(2, 0, dtype=torch.long), seed=2),
            graph(6, random_edges(6, 9, seed=3), seed=3),
            graph(3, torch.tensor([[0, 1], [1, 0]]), seed=4),
        ]
    )


@pytest.mark.parametrize("kind", [PeeledGOAt, PeeledUpperHalfGradients, PeeledRandom])
@pytest.mark.slow
def test_in_the_benchmark(kind: Any, graphs: Batch) -> None:
    """The same scores alone and in a batch, in an order that metrics read as Peeling found it, self-loops included."""
    model, explain = make_gnn("gin"), kind()
    scores = explain(model, graphs, TARGET)
    assert scores.shape == (graphs.num_edges,)
    assert scores.dtype == torch.float64
    assert torch.equal(explain(model, graphs, TARGET), scores)
    alone = [explain(model, single, TARGET[k : k + 1]) for k, single in enumerate(graphs.to_data_list())]
    torch.testing.assert_close(torch.cat(alone), scores, rtol=0, atol=0)
    for single, mine in zip(graphs.to_data_list(), alone, strict=True):  # every place once, from 1 down
        places = sorted(float(mine[columns].sum()) for columns in counted(single))
        assert places == pytest.approx([place / len(places) for place in range(1, len(places) + 1)])


def test_costs_at_most_eight_attributions(graphs: Batch) -> None:
    class Counting(PeeledUpperHalfGradients):
        def method(self, model: nn.Module) -> Attribution:
            self.seen = Seen(super().method(model))
            return self.seen

    explain = Counting()
    explain(make_gnn("gin"), graphs, TARGET)
    assert explain.seen.sizes[0] == graphs.num_edges
    assert len(explain.seen.sizes) <= 8
    assert min(explain.seen.sizes) < graphs.num_edges / 2  # removed edges are cut out


@pytest.mark.slow
def test_random_is_random_in_the_benchmark() -> None:
    graphs = ba_2motifs(100)
    batch, target = Batch.from_data_list(graphs), torch.zeros(100, dtype=torch.long)
    expected = torch.tensor([float(graph.edge_label.float().mean()) for graph in graphs]).mean()
    model = GraphClassifier("gin", 10, 8, 2).eval()
    for seed in (0, 1):
        precision = precision_at_k(batch, PeeledRandom(seed=seed)(model, batch, target))
        assert abs(float(precision.mean() - expected)) < 3 * float(precision.std()) / 10
