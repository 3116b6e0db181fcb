from __future__ import annotations

import numpy as np
import pytest
import torch

from captum_goat.datasets import ba_2motifs
from captum_goat.graph_layout import edge_lines, node_positions, point_on

PATH = np.array([[0, 1], [1, 2], [2, 3]])


def test_path_is_drawn_straight_and_even() -> None:
    points = node_positions(PATH, None, 4)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps == pytest.approx(np.full(3, steps.mean()), rel=1e-2)
    assert np.linalg.norm(points[3] - points[0]) == pytest.approx(steps.sum(), rel=1e-2)
    assert np.ptp(points[:, 0]) == pytest.approx(steps.sum(), rel=1e-2)  # the long side across


def test_house_is_unfolded() -> None:
    house = ba_2motifs(num_graphs=2)[1]
    points = node_positions(house.edge_index.t().numpy(), None, house.num_nodes)
    square, roof = points[20:24], points[24]
    # The roof lies on the other side of the wall 20 - 21 than the floor 22 - 23.
    wall = square[1] - square[0]
    normal = np.array([-wall[1], wall[0]])
    assert ((roof - square[0]) @ normal) * ((square[2] - square[0]) @ normal) < 0


def test_separate_parts_stay_apart() -> None:
    triangle, path = [(0, 1), (1, 2), (0, 2)], [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    points = node_positions(np.array(triangle + path), None, 9)
    lengths = [np.linalg.norm(points[source] - points[target]) for source, target in triangle + path]
    gaps = np.linalg.norm(points[:3, None] - points[None, 3:], axis=-1)
    assert min(lengths) > 0.1
    assert gaps.min() > 2 * max(lengths)


def test_given_positions() -> None:
    points = np.array([[0.0, 1.0], [2.0, 3.0]])
    for pos in (points, torch.from_numpy(points).requires_grad_(), {1: (2, 3), 0: [0, 1]}):
        np.testing.assert_array_equal(node_positions(PATH[:1], pos, 2), points)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("arrows", [False, True])
def test_self_loop_is_a_circle_outside_its_node(arrows: bool, size: float) -> None:
    points = size * np.array([[0.0, 0.0], [1.0, 0.0]])
    *_, loop = edge_lines(np.array([[0, 1], [1, 1]]), points, arrows=arrows)
    assert loop[0] == pytest.approx(points[1])
    assert loop[-1] == pytest.approx(points[1])
    radius = size * (0.075 if arrows else 0.05)  # arrowheads need room
    np.testing.assert_allclose(np.linalg.norm(loop - points[1] - [radius, 0], axis=1), radius)


def test_self_loop_of_a_single_node_goes_up() -> None:
    (loop,) = edge_lines(np.array([[0, 0]]), np.zeros((1, 2)))
    assert loop[12] == pytest.approx([0, 0.1])


def test_point_on_a_line() -> None:
    point, step = point_on(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]]), 0.75)
    assert point.tolist() == [1, 1]
    assert step.tolist() == [0, 2]
