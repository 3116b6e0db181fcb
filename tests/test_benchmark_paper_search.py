"""The search for the best prefix."""

from __future__ import annotations

from typing import Any

import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn
from metrics_subjects import SUMS, star
from torch_geometric.data import Batch

from benchmarks.paper_metrics import search_prefix
from captum_goat.metrics import fidelity_minus, fidelity_plus, select_edges


def test_search_by_hand() -> None:
    """The best prefix has all edges that speak for the class and none against it, if the budget allows."""
    batch = Batch.from_data_list([star(3.0, 2.0, -1.0, -2.0), star(-1.0, 1.0), star(1.0, 1.0, 1.0, 1.0), star()])
    prefix = search_prefix(SUMS, batch, batch.x[batch.edge_index[0], 0], sparsity=0.25, target=0)
    assert prefix.length.tolist() == [2, 1, 3, 0]
    assert prefix.selected.tolist() == [True, True, False, False, False, True, True, True, True, False]
    inside, outside = torch.tensor([5.0, 1.0, 3.0, 0.0]), torch.tensor([-3.0, -1.0, 1.0, 0.0])
    torch.testing.assert_close(prefix.gain, (inside.sigmoid() - outside.sigmoid()).double())


def test_of_equal_prefixes_the_shortest_is_taken() -> None:
    data = star(1.0, 0.0, 0.0, 0.0)
    assert search_prefix(SUMS, data, torch.tensor([4.0, 3.0, 2.0, 1.0]), 0.0, target=0).length.tolist() == [1]


def test_shortest_and_enough() -> None:
    batch = Batch.from_data_list([star(2.0, -3.0, 1.0, 5.0), star(9.0, 1.0, 1.0, 1.0), star(1.0)])
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0] * 2 + [1.0])
    assert search_prefix(SUMS, batch, scores, 0.0, 0).length.tolist() == [4, 4, 1]
    assert search_prefix(SUMS, batch, scores, 0.25, 0).length.tolist() == [1, 3, 1]
    assert search_prefix(SUMS, batch, scores, 0.25, 0, shortest=2).length.tolist() == [3, 3, 1]
    assert search_prefix(SUMS, batch, scores, 0.25, 0, shortest=9).length.tolist() == [3, 3, 1]
    first = fidelity_plus(SUMS, batch, select_edges(batch, scores, k=1), 0)
    first = first - fidelity_minus(SUMS, batch, select_edges(batch, scores, k=1), 0)
    assert search_prefix(SUMS, batch, scores, 0.0, 0, enough=float(first[1]) - 1e-6).length.tolist() == [4, 1, 1]


@pytest.mark.parametrize("nodes", ["stay", "leave"])
@pytest.mark.parametrize(("shortest", "enough"), [(1, None), (2, 0.999), (3, 0.1)])
@pytest.mark.slow
def test_search_against_the_slow_implementation(nodes: Any, shortest: int, enough: float | None) -> None:
    for seed, kind in enumerate(["gcn_plain", "gin", "sage_sum"]):
        model, graphs = make_gnn(kind, seed=seed), slow.random_graphs(seed)
        batch = slow.batched(graphs)
        scores = slow.random_scores(batch, seed)
        for level in (0.0, 0.5, 0.9, 1.0):
            prefix = search_prefix(model, batch, scores, level, batch.y, nodes, shortest=shortest, enough=enough)
            single = slow.per_graph(graphs, scores)
            for index, (graph, mine) in enumerate(zip(graphs, single, strict=True)):
                target, longest = int(graph.y), slow.budget(graph, level)
                length, gain = slow.best_prefix(model, graph, mine, longest, target, nodes, shortest, enough)
                assert float(prefix.gain[index]) == pytest.approx(gain, abs=1e-10)
                assert int(prefix.length[index]) == length
            assert torch.equal(prefix.selected, select_edges(batch, scores, k=prefix.length))
            fidelities = (f(model, batch, prefix.selected, batch.y, nodes) for f in (fidelity_plus, fidelity_minus))
            plus, minus = fidelities
            torch.testing.assert_close(prefix.gain, plus - minus)


def test_search_calls_the_model_twice_per_length_for_all_graphs_together() -> None:
    model = make_gnn("gin")
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    batch = Batch.from_data_list([star(*range(1, 11)) for _ in range(50)])
    batch.x = torch.cat([batch.x, batch.x], dim=1)
    search_prefix(model, batch, torch.rand(500), 0.5)
    assert len(calls) == 1 + 2 * 5


def test_search_refuses_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="the shortest prefix to have one edge or more"):
        search_prefix(SUMS, star(1.0), torch.ones(1), 0.5, shortest=0)
    with pytest.raises(ValueError, match="Expected a sparsity from 0 to 1"):
        search_prefix(SUMS, star(1.0), torch.ones(1), 1.5)
