"""The number of quadrature points, and that it is enough and not too many."""

from __future__ import annotations

import pytest
import torch
from conftest import make_gnn, random_edges, record_edges

from captum_goat.method.replay import ActivationPattern
from captum_goat.method.share import Contributions, contributions
from captum_goat.rules.quadrature import gauss_legendre, gauss_radau


def pattern_of(kind: str) -> ActivationPattern:
    model = make_gnn(kind)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    edge_index = random_edges(6, 12, seed=2)
    return record_edges(model, x, edge_index, torch.ones(12, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "degree", "gates"), [("gcn", 7, 4), ("sage_mean", 7, 4), ("gin", 10, 7)])
def test_degree_is_the_longest_product(kind: str, degree: int, gates: int) -> None:
    """Three layers and a classifier: 3 edges and 4 gates in a product; GIN has 3 gates more."""
    rows = pattern_of(kind).rows
    assert rows is not None
    assert (rows.degree, rows.gates) == (degree, gates)


def with_points(pattern: ActivationPattern, degree: int) -> Contributions:
    rows = pattern.rows
    assert rows is not None
    changed = ActivationPattern(**{**vars(pattern), "rows": rows._replace(degree=degree)})
    return contributions(changed, [lambda output: output[:, 1]])[0]


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_more_points_change_nothing_and_fewer_do(kind: str) -> None:
    pattern = pattern_of(kind)
    assert pattern.rows is not None
    exact, more = with_points(pattern, pattern.rows.degree), with_points(pattern, pattern.rows.degree + 6)
    fewer = with_points(pattern, pattern.rows.degree - 2)
    torch.testing.assert_close(exact.edges, more.edges, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(exact.rows, more.rows, rtol=1e-11, atol=1e-12)
    assert not torch.allclose(exact.edges, fewer.edges, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", range(1, 12))
def test_points_integrate_polynomials_exactly(degree: int) -> None:
    points = gauss_legendre(degree)
    assert len(points) == (degree + 1) // 2
    for power in range(degree):
        assert sum(w * t**power for t, w in points) == pytest.approx(1 / (power + 1), rel=1e-13)
    assert gauss_legendre(0) == []


@pytest.mark.parametrize("degree", range(1, 34))
def test_points_with_the_end_integrate_polynomials_exactly(degree: int) -> None:
    points = gauss_radau(degree)
    assert points[-1][0] == 1
    assert len(points) - 1 == degree // 2
    for power in range(degree):
        assert sum(w * t**power for t, w in points) == pytest.approx(1 / (power + 1), rel=1e-12)
    assert gauss_radau(0) == []
