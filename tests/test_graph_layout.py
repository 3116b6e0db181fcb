from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from captum_goat.datasets import ba_2motifs
from captum_goat.plot import graph as layouts
from captum_goat.plot.graph import edge_lines, given_points, node_positions

PATH = np.array([[0, 1], [1, 2], [2, 3]])


def test_path_is_drawn_straight_and_even() -> None:
    points = node_positions(PATH, 4)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps == pytest.approx(np.full(3, steps.mean()), rel=1e-2)
    assert np.linalg.norm(points[3] - points[0]) == pytest.approx(steps.sum(), rel=1e-2)
    assert np.ptp(points[:, 0]) == pytest.approx(steps.sum(), rel=1e-2)  # the long side across


def test_house_is_unfolded() -> None:
    house = ba_2motifs(num_graphs=2)[1]
    points = node_positions(house.edge_index.t().numpy(), house.num_nodes)
    square, roof = points[20:24], points[24]
    # The roof lies on the other side of the wall 20 - 21 than the floor 22 - 23.
    wall = square[1] - square[0]
    normal = np.array([-wall[1], wall[0]])
    assert ((roof - square[0]) @ normal) * ((square[2] - square[0]) @ normal) < 0


def boxes_overlap(points: np.ndarray, first: list[int], second: list[int]) -> bool:
    low = [points[part].min(axis=0) for part in (first, second)]
    high = [points[part].max(axis=0) for part in (first, second)]
    return bool(((low[0] < high[1]) & (low[1] < high[0])).all())


@pytest.mark.parametrize("large", [1, 500])  # laid out by springs, and by Kamada and Kawai
def test_parts_lie_side_by_side_with_edges_of_one_length(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "LARGE", large)
    triangle, path = [(0, 1), (1, 2), (0, 2)], [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    points = node_positions(np.array(triangle + path), 12)  # three nodes are on their own
    parts = [[0, 1, 2], [3, 4, 5, 6, 7, 8], [9], [10], [11]]
    assert np.isfinite(points).all()
    for first, second in combinations(parts, 2):
        assert not boxes_overlap(points, first, second)
        gaps = np.linalg.norm(points[first][:, None] - points[second][None], axis=-1)
        assert gaps.min() > 1
    for edges in (triangle, path):
        lengths = [np.linalg.norm(points[source] - points[target]) for source, target in edges]
        assert np.mean(lengths) == pytest.approx(1)


def test_many_parts_fill_a_page() -> None:
    edges = np.array([(2 * pair, 2 * pair + 1) for pair in range(50)])
    width, height = np.ptp(node_positions(edges, 120), axis=0)
    assert 0.8 < width / height < 2.2


@pytest.mark.parametrize("large", [1, 500])
def test_layouts_are_the_same_every_time(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "LARGE", large)
    house = ba_2motifs(num_graphs=2)[1]
    edges = house.edge_index.t().numpy()
    np.random.seed(1)
    points = node_positions(edges, house.num_nodes)
    np.random.seed(2)
    np.testing.assert_array_equal(points, node_positions(edges, house.num_nodes))


def test_large_graphs_are_laid_out_by_springs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.setattr(layouts, "LARGE", 20)
    path = np.stack([np.arange(24), np.arange(1, 25)], axis=1)
    springs, small = node_positions(path, 25), node_positions(path[:10], 25)
    monkeypatch.setattr(layouts, "LARGE", 500)
    assert not np.allclose(springs, node_positions(path, 25))
    np.testing.assert_array_equal(small, node_positions(path[:10], 25))  # no part is large


@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_graphs_without_edges(num_nodes: int) -> None:
    points = node_positions(np.zeros((0, 2), dtype=int), num_nodes)
    assert points.shape == (num_nodes, 2)
    assert len(np.unique(points, axis=0)) == num_nodes


def test_layouts_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match=r"layout to be the nodes' positions \(got 'spring'\)"):
        given_points("spring", 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"finite positions \(got infinite or nan"):
        given_points(np.full((4, 2), np.nan), 4)


def test_given_positions() -> None:
    points = np.array([[0.0, 1.0], [2.0, 3.0]])
    for pos in (points, torch.from_numpy(points).requires_grad_(), {1: (2, 3), 0: [0, 1]}):
        np.testing.assert_array_equal(given_points(pos, 2), points)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_self_loop_is_a_circle_outside_its_node(size: float) -> None:
    points = size * np.array([[0.0, 0.0], [1.0, 0.0]])
    *_, loop = edge_lines(np.array([[0, 1], [1, 1]]), points)
    assert loop[0] == pytest.approx(points[1])
    assert loop[-1] == pytest.approx(points[1])
    radius = size * 0.06
    np.testing.assert_allclose(np.linalg.norm(loop - points[1] - [radius, 0], axis=1), radius)


def test_self_loop_of_a_single_node_goes_up() -> None:
    (loop,) = edge_lines(np.array([[0, 0]]), np.zeros((1, 2)))
    assert loop[12] == pytest.approx([0, 0.12])
