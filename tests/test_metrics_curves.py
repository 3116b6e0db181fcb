"""Curves of fidelities over sparsities, their areas, and the characterization score."""

from __future__ import annotations

import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn
from torch_geometric.explain.metric import characterization_score as pyg_characterization_score

from captum_goat.metrics import (
    area_under_curve,
    characterization_score,
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
    select_edges,
)


def test_curves_and_areas() -> None:
    model, batch = make_gnn("sage_sum"), slow.batched(slow.random_graphs(2))
    scores, levels = slow.random_scores(batch, 2), [0.0, 0.25, 0.5, 1.0]
    curve = fidelity_curve(model, batch, scores, levels, batch.y, "leave")
    assert curve.plus.shape == curve.minus.shape == (4, 8)
    for row, level in enumerate(levels):
        selected = select_edges(batch, scores, level)
        torch.testing.assert_close(curve.plus[row], fidelity_plus(model, batch, selected, batch.y, "leave"))
        torch.testing.assert_close(curve.minus[row], fidelity_minus(model, batch, selected, batch.y, "leave"))
    area = area_under_curve(curve.plus, curve.sparsities)
    p = curve.plus
    torch.testing.assert_close(area, 0.125 * (p[0] + p[1]) + 0.125 * (p[1] + p[2]) + 0.25 * (p[2] + p[3]))
    torch.testing.assert_close(
        area_under_curve(p[:3], curve.sparsities[:3], normalize=True) * 0.5,
        area_under_curve(p[:3], curve.sparsities[:3]),
    )
    height = area_under_curve(torch.full((3,), 0.7), torch.tensor([0.5, 0.6, 0.9]), normalize=True)
    torch.testing.assert_close(height, torch.tensor(0.7))


def test_characterization_by_hand_and_by_pyg() -> None:
    plus, minus = torch.tensor([0.2, 0.5, 1.0, 0.9]), torch.tensor([0.6, 0.0, 0.0, -0.3])
    by_hand = torch.tensor([2 / (1 / 0.2 + 1 / 0.4), 2 / (1 / 0.5 + 1), 1.0, 2 / (1 / 0.9 + 1 / 1.3)])
    torch.testing.assert_close(characterization_score(plus, minus), by_hand)
    torch.testing.assert_close(characterization_score(plus, minus), pyg_characterization_score(plus, minus))
    weighted = characterization_score(plus, minus, 0.3, 0.7)
    torch.testing.assert_close(weighted, pyg_characterization_score(plus, minus, 0.3, 0.7))
    torch.testing.assert_close(characterization_score(plus, minus, 3, 7), weighted)
    none = characterization_score(torch.tensor([0.0, -0.5, 0.5, 0.5]), torch.tensor([0.0, 0.0, 1.0, 1.5]))
    assert torch.equal(none, torch.zeros(4)), "no harmonic mean of what is not above 0"


def test_wrong_arguments() -> None:
    graph = slow.random_graph("undirected", 0)
    with pytest.raises(ValueError, match="Expected one sparsity or more"):
        fidelity_curve(make_gnn("gcn"), graph, torch.zeros(graph.num_edges), [])
    for levels in ([0.5], [0.5, 0.5, 0.6], [0.5, 0.4, 0.6]):
        with pytest.raises(ValueError, match="in ascending order"):
            area_under_curve(torch.zeros(3), torch.tensor(levels))
    with pytest.raises(ValueError, match="Expected weights above 0"):
        characterization_score(torch.ones(1), torch.zeros(1), 0.0, 1.0)
