"""Curves of fidelities over sparsities, and their areas."""

from __future__ import annotations

import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn

from captum_goat.metrics import (
    area_under_curve,
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


def test_wrong_arguments() -> None:
    graph = slow.random_graph("undirected", 0)
    with pytest.raises(ValueError, match="Expected one sparsity or more"):
        fidelity_curve(make_gnn("gcn"), graph, torch.zeros(graph.num_edges), [])
    for levels in ([0.5], [0.5, 0.5, 0.6], [0.5, 0.4, 0.6]):
        with pytest.raises(ValueError, match="in ascending order"):
            area_under_curve(torch.zeros(3), torch.tensor(levels))
