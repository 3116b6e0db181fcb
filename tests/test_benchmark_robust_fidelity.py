"""Robust fidelity."""

from __future__ import annotations

from typing import Any

import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn
from metrics_subjects import SUMS, star
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.paper_metrics import robust_fidelity
from captum_goat.metrics import fidelity_minus, fidelity_plus, select_edges


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("nodes", ["stay", "leave"])
def test_robust_fidelity_has_the_ordinary_one_as_its_limit(nodes: Any) -> None:
    model, batch = make_gnn("gcn"), slow.batched(slow.random_graphs(0))
    selected = select_edges(batch, slow.random_scores(batch, 0), 0.5)
    robust = robust_fidelity(model, batch, selected, batch.y, nodes, alpha1=1.0, alpha2=0.0, samples=2)
    torch.testing.assert_close(robust.plus, fidelity_plus(model, batch, selected, batch.y, nodes))
    torch.testing.assert_close(robust.minus, fidelity_minus(model, batch, selected, batch.y, nodes))
    torch.testing.assert_close(robust.delta, robust.plus - robust.minus)
    nothing = robust_fidelity(model, batch, selected, batch.y, alpha1=0.0, alpha2=1.0, samples=2)
    torch.testing.assert_close(nothing.plus, torch.zeros(8, dtype=torch.float64))
    torch.testing.assert_close(nothing.minus, torch.zeros(8, dtype=torch.float64))


@pytest.mark.slow
def test_robust_fidelity_against_the_exact_expectation() -> None:
    """All subsets of up to seven edges, in graphs of every form."""
    model, graphs = make_gnn("sage_sum", seed=1), slow.random_graphs(1)
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 1), 0.5)
    robust = robust_fidelity(model, batch, selected, batch.y, alpha1=0.3, alpha2=0.6, samples=1500, generator=seeded())
    for index, (graph, part) in enumerate(zip(graphs, slow.per_graph(graphs, selected), strict=True)):
        plus, minus = slow.exact_robust_fidelities(model, graph, part.tolist(), int(graph.y), 0.3, 0.6)
        assert float(robust.plus[index]) == pytest.approx(plus, abs=0.035)
        assert float(robust.minus[index]) == pytest.approx(minus, abs=0.035)


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
