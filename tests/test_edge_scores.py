from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex

from captum_goat.plot.edge_scores import edge_scores, magnitude_scale, node_count, strongest, with_sign

# A path 0 - 1 - 2 - 3 in both directions, its first edge twice.
EDGE_INDEX = torch.tensor([[3, 1, 1, 2, 2, 0, 0], [2, 0, 2, 1, 3, 1, 1]])
ATTRIBUTIONS = torch.tensor([2.0, 1.0, -3.0, 2.0, 1.0, -1.0, 4.0])
MARKS = torch.tensor([False, False, False, True, False, False, False])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.long])
def test_directions_and_repeated_edges_add_up(dtype: torch.dtype) -> None:
    edges, scores, marked = edge_scores(ATTRIBUTIONS.to(dtype), EDGE_INDEX, MARKS)
    assert edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert scores.tolist() == [4, -1, 3]
    assert marked.tolist() == [False, True, False]


def test_directions_stay_apart_in_directed_graphs() -> None:
    edges, scores, marked = edge_scores(ATTRIBUTIONS.clone().requires_grad_(), EDGE_INDEX, MARKS, directed=True)
    assert edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]
    assert scores.tolist() == [3, 1, -3, 2, 1, 2]
    assert marked.tolist() == [False, False, False, True, False, False]


def test_the_sum_of_a_feature_is_shared_among_its_edges() -> None:
    """2 - 3 and 1 -> 2 are one feature of sum 6, 0 - 1 is one of sum 4; 2 -> 1 is alone."""
    feature_mask = torch.tensor([1, 0, 1, 2, 1, 0, 0])
    summed = torch.tensor([6.0, 4.0, 6.0, 3.0, 6.0, 4.0, 4.0])
    for directed, expected in ((False, [4, 5, 4]), (True, [8 / 3, 4 / 3, 2, 3, 2, 2])):
        _, scores, _ = edge_scores(summed, EDGE_INDEX, directed=directed, feature_mask=feature_mask)
        assert scores.tolist() == pytest.approx(expected)
        assert scores.sum() == pytest.approx(4 + 6 + 3)
    empty = torch.empty(2, 0, dtype=torch.long)
    assert not edge_scores(torch.empty(0), empty, feature_mask=empty[0])[1].size


@pytest.mark.parametrize("directed", [False, True])
def test_edge_index_of_pyg(directed: bool) -> None:
    for one, other in zip(
        edge_scores(ATTRIBUTIONS, EdgeIndex(EDGE_INDEX, sparse_size=(4, 4)), directed=directed),
        edge_scores(ATTRIBUTIONS, EDGE_INDEX, directed=directed),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("sign", "expected"),
    [("all", [2, -3, 0]), ("positive", [2, 0, 0]), ("negative", [0, -3, 0]), ("absolute_value", [2, 3, 0])],
)
def test_sign(sign: Any, expected: list[float]) -> None:
    assert with_sign(np.array([2.0, -3.0, 0.0]), sign).tolist() == expected


def test_strongest_takes_the_first_of_equal_ones() -> None:
    assert np.flatnonzero(strongest(np.array([1.0, -2.0, 0.0, 2.0, -2.0]), 2)).tolist() == [1, 3]
    assert strongest(np.array([0.0, 1.0]), None).all()


@pytest.mark.parametrize(
    ("outlier_perc", "expected"), [(0, 4), (2, 4), (39.9, 4), (40, 3), (69.9, 3), (71, 2), (100, 1)]
)
def test_scale_cuts_off_a_share_of_the_sum(outlier_perc: float, expected: float) -> None:
    assert magnitude_scale(np.array([3.0, -1.0, 0.0, -4.0, 2.0]), outlier_perc) == expected
    assert magnitude_scale(np.zeros(3), outlier_perc) == magnitude_scale(np.zeros(0), outlier_perc) == 0


def test_number_of_nodes() -> None:
    edges = np.array([[0, 3]])
    assert node_count(edges) == 4
    assert node_count(edges, 6, pos=None, node_labels="abcdef") == 6
    assert node_count(np.empty((0, 2), dtype=int)) == 0
    with pytest.raises(
        ValueError, match=r"num_nodes and pos and node_labels to agree .* at least 4 .* \(got \[5, 6\]\)"
    ):
        node_count(edges, 6, pos=None, node_labels="abcde")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attributions": torch.ones(2, 7)}, r"\(got \[2, 7\]\). Draw one row at a time"),
        ({"attributions": ATTRIBUTIONS.log()}, r"finite attributions \(got 2 of 7 .* Check the model"),
        ({"edge_index": EDGE_INDEX - 1}, r"integers from 0 \(got torch.int64 from -1\)"),
        ({"edge_index": EDGE_INDEX + 0.0}, r"integers from 0 \(got torch.float32 from 0.0\)"),
        ({"attributions": torch.ones(5)}, r"attributions of shape \[7\], one per edge \(got \[5\]\)"),
        ({"ground_truth": torch.ones(3)}, r"ground_truth of shape \[7\], one per edge \(got \[3\]\)"),
        (
            {"feature_mask": torch.tensor([0, 0, 1, 1, 2, 2, 2])},
            "equal within a feature .* Leave feature_mask out",
        ),
        ({"feature_mask": torch.arange(6)}, r"feature mask that fits attributions of shape .* \(got \[6\]\)"),
        ({"edge_index": torch.ones(3, 7)}, r"edge_index of shape \[2, num_edges\] \(got \[3, 7\]\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edge_scores(**({"attributions": ATTRIBUTIONS, "edge_index": EDGE_INDEX} | options))
