"""Peeled explainers of the benchmark: their scores, cost, and that the random one is random."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution
from conftest import make_gnn
from test_peeling import TARGET, Seen, arguments_of, ones
from test_peeling import graphs as graphs
from torch import nn
from torch_geometric.data import Batch

from benchmarks.explainers.peeled import PeeledGOAt, PeeledRandom, PeeledUpperHalfGradients
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import precision_at_k
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.peeling import Peeling


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
    if kind is not PeeledRandom:
        peeling = Peeling(explain.method(model), explain.rounds, explain.order, removal=explain.removal)
        attributions = peeling.attribute(ones(graphs), TARGET, arguments_of(graphs))
        edges = CountedEdges.of(graphs)
        per_edge = torch.zeros(len(edges.graph), dtype=torch.float64).scatter_(0, edges.number, attributions)
        torch.testing.assert_close(edges.totals(scores), per_edge)


def test_costs_at_most_eight_attributions(graphs: Batch) -> None:
    class Counting(PeeledUpperHalfGradients):
        def method(self, model: nn.Module) -> Attribution:
            self.seen = Seen(super().method(model))
            return self.seen

    explain = Counting()
    explain(make_gnn("gin"), graphs, TARGET)
    assert len(explain.seen.masks) <= 8


@pytest.mark.slow
def test_random_is_random_in_the_benchmark() -> None:
    graphs = ba_2motifs(100)
    batch, target = Batch.from_data_list(graphs), torch.zeros(100, dtype=torch.long)
    expected = torch.tensor([float(graph.edge_label.float().mean()) for graph in graphs]).mean()
    model = make_gnn("gin", dtype=torch.float32)
    for seed in (0, 1):
        precision = precision_at_k(batch, PeeledRandom(seed=seed)(model, batch, target))
        assert abs(float(precision.mean() - expected)) < 3 * float(precision.std()) / 10
