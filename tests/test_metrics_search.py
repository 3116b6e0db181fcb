"""The search for the best prefix, and robust fidelity."""

from __future__ import annotations

from typing import Any

import metrics_oracle as slow
import pytest
import torch
from conftest import combinations, make_gnn
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SimpleConv, global_add_pool

from captum_goat.metrics import (
    fidelity_minus,
    fidelity_plus,
    robust_fidelity,
    search_prefix,
    select_edges,
)


class Sums(Module):
    """Every edge adds the features of its source to the logits: a model that is linear in the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.conv(x, edge_index), batch)


SUMS = Sums().eval()


def star(*values: float) -> Data:
    """Return edges that speak for class 0 by these values, each from a node of its own."""
    x = torch.tensor([[0.0, 0.0], *([value, 0.0] for value in values)], dtype=torch.float64)
    count = len(values)
    return Data(x=x, edge_index=torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)]))


def test_search_by_hand() -> None:
    """The best prefix has all edges that speak for the class and none against it, if the budget allows."""
    batch = Batch.from_data_list([star(3.0, 2.0, -1.0, -2.0), star(-1.0, 1.0), star(1.0, 1.0, 1.0, 1.0), star()])
    found = search_prefix(SUMS, batch, batch.x[batch.edge_index[0], 0], sparsity=0.25, target=0)
    assert found.length.tolist() == [2, 1, 3, 0]
    assert found.selected.tolist() == [True, True, False, False, False, True, True, True, True, False]
    inside, outside = torch.tensor([5.0, 1.0, 3.0, 0.0]), torch.tensor([-3.0, -1.0, 1.0, 0.0])
    torch.testing.assert_close(found.gain, (inside.sigmoid() - outside.sigmoid()).double())


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


@pytest.mark.parametrize(
    ("nodes", "shortest", "enough"), combinations(["stay", "leave"], [(1, None), (2, 0.999), (3, 0.1)])
)
def test_search_against_the_slow_implementation(nodes: Any, shortest: int, enough: float | None) -> None:
    for seed, kind in enumerate(["gcn_plain", "gin", "sage_sum"]):
        model, graphs = make_gnn(kind, seed=seed), slow.random_graphs(seed)
        batch = slow.batched(graphs)
        scores = slow.random_scores(batch, seed)
        for level in (0.0, 0.5, 0.9, 1.0):
            found = search_prefix(model, batch, scores, level, batch.y, nodes, shortest=shortest, enough=enough)
            single = slow.per_graph(graphs, scores)
            for index, (graph, mine) in enumerate(zip(graphs, single, strict=True)):
                target, longest = int(graph.y), slow.budget(graph, level)
                length, gain = slow.best_prefix(model, graph, mine, longest, target, nodes, shortest, enough)
                assert float(found.gain[index]) == pytest.approx(gain, abs=1e-10)
                assert int(found.length[index]) == length
            assert torch.equal(found.selected, select_edges(batch, scores, k=found.length))
            fidelities = (f(model, batch, found.selected, batch.y, nodes) for f in (fidelity_plus, fidelity_minus))
            plus, minus = fidelities
            torch.testing.assert_close(found.gain, plus - minus)


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


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("nodes", ["stay", "leave"])
def test_robust_fidelity_has_the_ordinary_one_as_its_limit(nodes: Any) -> None:
    model, batch = make_gnn("gcn"), slow.batched(slow.random_graphs(0))
    selected = select_edges(batch, slow.random_scores(batch, 0), 0.5)
    found = robust_fidelity(model, batch, selected, batch.y, nodes, alpha1=1.0, alpha2=0.0, samples=2)
    torch.testing.assert_close(found.plus, fidelity_plus(model, batch, selected, batch.y, nodes))
    torch.testing.assert_close(found.minus, fidelity_minus(model, batch, selected, batch.y, nodes))
    torch.testing.assert_close(found.delta, found.plus - found.minus)
    nothing = robust_fidelity(model, batch, selected, batch.y, alpha1=0.0, alpha2=1.0, samples=2)
    torch.testing.assert_close(nothing.plus, torch.zeros(8, dtype=torch.float64))
    torch.testing.assert_close(nothing.minus, torch.zeros(8, dtype=torch.float64))


@pytest.mark.slow
def test_robust_fidelity_against_the_exact_expectation() -> None:
    """All subsets of up to seven edges, in graphs of every form."""
    model, graphs = make_gnn("sage_sum", seed=1), slow.random_graphs(1)
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 1), 0.5)
    found = robust_fidelity(model, batch, selected, batch.y, alpha1=0.3, alpha2=0.6, samples=1500, generator=seeded())
    for index, (graph, part) in enumerate(zip(graphs, slow.per_graph(graphs, selected), strict=True)):
        plus, minus = slow.exact_robust_fidelities(model, graph, part.tolist(), int(graph.y), 0.3, 0.6)
        assert float(found.plus[index]) == pytest.approx(plus, abs=0.035)
        assert float(found.minus[index]) == pytest.approx(minus, abs=0.035)


def test_default_draws_are_few_removals_and_both_directions_go_together() -> None:
    """Explanation edges go with probability 0.1, others stay with probability 0.9, and pairs are never torn."""
    seen: list[Tensor] = []

    class Watched(torch.nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            seen.append(edge_index)
            return SUMS(x, edge_index, batch)

    edges = torch.arange(1, 41)
    path = torch.cat([torch.stack([edges - 1, edges]), torch.stack([edges, edges - 1])], dim=1)
    data = Data(x=torch.zeros(41, 2), edge_index=path)
    selected = select_edges(data, torch.arange(80.0), 0.5)
    robust_fidelity(Watched().eval(), data, selected, generator=seeded())
    assert len(seen) == 1 + 2 * 50
    plus, minus = seen[1::2], seen[2::2]
    for kept in seen:
        assert {tuple(edge) for edge in kept.t().tolist()} == {tuple(edge) for edge in kept.flip(0).t().tolist()}
    removed = [1 - (kept.size(1) - 40) / 40 for kept in plus]
    stayed = [(kept.size(1) - 40) / 40 for kept in minus]
    assert sum(removed) / 50 == pytest.approx(0.1, abs=0.03)
    assert sum(stayed) / 50 == pytest.approx(0.9, abs=0.03)
    assert all({tuple(e) for e in path[:, ~selected].t().tolist()} <= {tuple(e) for e in k.t().tolist()} for k in plus)
    assert all({tuple(e) for e in path[:, selected].t().tolist()} <= {tuple(e) for e in k.t().tolist()} for k in minus)


def test_robust_fidelity_is_reproducible() -> None:
    model, batch = make_gnn("gin"), slow.batched(slow.random_graphs(2))
    selected = select_edges(batch, slow.random_scores(batch, 2), 0.5)
    one, same, other = (
        robust_fidelity(model, batch, selected, samples=3, generator=seeded(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(one.plus, same.plus)
    assert torch.equal(one.minus, same.minus)
    assert not torch.equal(one.minus, other.minus)


def test_robust_fidelity_refuses_wrong_arguments() -> None:
    data, selected = star(1.0), torch.tensor([True])
    with pytest.raises(ValueError, match=r"Expected alpha1 to be a probability from 0 to 1 \(got 1\.5\)"):
        robust_fidelity(SUMS, data, selected, alpha1=1.5)
    with pytest.raises(ValueError, match="Expected alpha2 to be a probability"):
        robust_fidelity(SUMS, data, selected, alpha2=-0.5)
    with pytest.raises(ValueError, match="Expected one sample or more"):
        robust_fidelity(SUMS, data, selected, samples=0)
