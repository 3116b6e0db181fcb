"""Edges, features and inputs that count as one: feature masks, and their means."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_gnn, random_edges, randomize
from torch import Tensor, nn

from captum_goat import GOAtAttribution, average_features, undirected_feature_mask

EDGES = torch.tensor([[0, 1, 1, 2, 3, 0, 0, 4], [1, 0, 2, 1, 3, 3, 1, 2]])  # a loop, a parallel edge, single directions


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sums(attributions: Tensor, mask: Tensor) -> Tensor:
    """Add up, entry by entry, whatever has the same number."""
    rows = [[sum(x for x, n in zip(row, mask, strict=True) if n == number) for number in mask] for row in attributions]
    return torch.tensor(rows, dtype=torch.float64)


def test_undirected_edges_are_one_feature() -> None:
    assert undirected_feature_mask(EDGES).tolist() == [0, 0, 2, 2, 4, 1, 0, 3]  # in the order of the pairs' nodes
    assert undirected_feature_mask(EDGES[:, :0]).shape == (0,)
    flipped, order = undirected_feature_mask(EDGES.flip(0)), torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    assert torch.equal(flipped, undirected_feature_mask(EDGES))
    assert torch.equal(undirected_feature_mask(EDGES[:, order]), flipped[order])


@pytest.mark.parametrize("nodes", [4, 40])
def test_undirected_features_equal_pairs_of_nodes(nodes: int) -> None:
    edge_index = random_edges(nodes, 60, seed=3)
    mask = undirected_feature_mask(edge_index)
    pairs = [frozenset(pair) for pair in edge_index.t().tolist()]
    assert [[a == b for b in pairs] for a in pairs] == (mask[:, None] == mask).tolist()
    assert sorted(set(mask.tolist())) == list(range(len(set(pairs))))  # numbered without gaps


@pytest.mark.parametrize(
    "bad", [torch.tensor([0, 1]), torch.zeros(3, 4, dtype=torch.long), torch.zeros(1, 2, 2).long()]
)
def test_edges_of_another_shape_are_refused(bad: Tensor) -> None:
    with pytest.raises(ValueError, match=r"integers of shape \[2, num_edges\]"):
        undirected_feature_mask(bad)


def test_means_are_half_the_sum_of_two_directions_and_keep_the_total() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    mask, attributions = undirected_feature_mask(edge_index), normal(6)
    partner = torch.tensor([1, 0, 3, 2, 5, 4])
    expected = (attributions + attributions[partner]) / 2
    torch.testing.assert_close(average_features(attributions, mask), expected, rtol=1e-12, atol=1e-12)
    many = normal(3, 6, seed=1)
    torch.testing.assert_close(average_features(many, mask), (many + many[:, partner]) / 2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(average_features(many, mask).sum(1), many.sum(1), rtol=1e-12, atol=1e-12)


def test_means_of_other_groups() -> None:
    """Single edges stay, numbers may have gaps, and the given tensors stay as they are."""
    attributions, mask = torch.tensor([1.0, 3.0, 5.0, 9.0]), torch.tensor([7, 0, 7, 3])
    assert average_features(attributions, mask).tolist() == [3.0, 3.0, 3.0, 9.0]
    assert attributions.tolist() == [1.0, 3.0, 5.0, 9.0]
    assert average_features(attributions, torch.zeros(4, dtype=torch.long)).tolist() == [4.5] * 4
    assert average_features(attributions.float(), mask).dtype == torch.float32
    assert torch.equal(average_features(attributions, torch.arange(4)), attributions)


@pytest.mark.parametrize("mask", [torch.tensor([0.0, 1.0, 1.0]), torch.tensor([-1, 0, 0])])
def test_masks_that_do_not_number_features(mask: Tensor) -> None:
    with pytest.raises(ValueError, match="Expected a feature mask"):
        average_features(torch.ones(3), mask)


@pytest.mark.parametrize("pool", ["mean", None])
def test_edges(pool: str | None) -> None:
    """[E] and [B, E], with one feature mask for all examples or one per example."""
    goat, x, target = GOAtAttribution(make_gnn(pool=pool)), normal(5, 4), 1 if pool else (1, 1)
    masks, groups = normal(3, 8, seed=1), undirected_feature_mask(EDGES)
    plain = goat.attribute(masks, [target] * 3, (x, EDGES))
    one, delta = goat.attribute(masks[0], target, (x, EDGES), return_convergence_delta=True, feature_mask=groups)
    torch.testing.assert_close(one, sums(plain[:1], groups)[0], rtol=1e-10, atol=1e-12)
    assert float(delta.abs()) < 1e-10  # the delta is that of the attributions before they are added up
    for shared in (groups, groups[None]):
        many = goat.attribute(masks, [target] * 3, (x, EDGES), feature_mask=shared)
        torch.testing.assert_close(many, sums(plain, groups), rtol=1e-10, atol=1e-12)
    own = torch.stack([groups, torch.arange(8), torch.zeros(8, dtype=torch.long)])
    many = goat.attribute(masks, [target] * 3, (x, EDGES), feature_mask=own)
    expected = [sums(row[None], group)[0] for row, group in zip(plain, own, strict=True)]
    torch.testing.assert_close(many, torch.stack(expected), rtol=1e-10, atol=1e-12)


def test_means_follow_from_sums() -> None:
    goat, x, groups = GOAtAttribution(make_gnn()), normal(5, 4), undirected_feature_mask(EDGES)
    plain = goat.attribute(torch.ones(8).double(), 1, (x, EDGES))
    added = goat.attribute(torch.ones(8).double(), 1, (x, EDGES), feature_mask=groups)
    members = (groups[:, None] == groups).sum(1)
    torch.testing.assert_close(average_features(plain, groups), added / members, rtol=1e-12, atol=1e-12)


def test_a_batch_of_graphs() -> None:
    """Edges of different graphs are different pairs of nodes, hence different features."""
    edge_index, batch = torch.cat([EDGES, EDGES + 5], dim=1), torch.arange(2).repeat_interleave(5)
    goat, x, ones = GOAtAttribution(make_gnn()), normal(10, 4), torch.ones(16).double()
    groups = undirected_feature_mask(edge_index)
    together = goat.attribute(ones, [0, 2], (x, edge_index, batch), feature_mask=groups)
    for graph, target in enumerate([0, 2]):
        alone = goat.attribute(
            ones[:8], target, (x[batch == graph], EDGES), feature_mask=undirected_feature_mask(EDGES)
        )
        torch.testing.assert_close(together[8 * graph : 8 * graph + 8], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("several", [False, True])
def test_features_and_edges_may_be_one_feature(several: bool) -> None:
    """A node's features and the edges into it are one feature; with several examples, in each for itself."""
    xs, masks, goat = normal(2, 5, 4), normal(2, 8, seed=1), GOAtAttribution(make_gnn(), mask_type="node_and_edge")
    groups = torch.arange(5)[:, None], EDGES[1]
    if several:
        groups = groups[0][None], groups[1][None]
    inputs, target = ((xs, masks), [1, 2]) if several else ((xs[0], masks[0]), 1)
    plain_x, plain_edges = goat.attribute(inputs, target, (EDGES,))
    added_x, added_edges = goat.attribute(inputs, target, (EDGES,), feature_mask=groups)
    for row in range(1 + several):
        x, edges = (plain_x[row], plain_edges[row]) if several else (plain_x, plain_edges)
        expected = torch.stack([x[node].sum() + edges[EDGES[1] == node].sum() for node in range(5)])
        actual_x, actual_edges = (added_x[row], added_edges[row]) if several else (added_x, added_edges)
        torch.testing.assert_close(actual_x, expected[:, None].expand(5, 4), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(actual_edges, expected[EDGES[1]], rtol=1e-10, atol=1e-12)


def test_inputs_of_an_mlp_are_added_up_per_example() -> None:
    model = randomize(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double(), seed=1)
    goat, x, targets = GOAtAttribution(model), normal(3, 4), [0, 2, 1]
    plain, groups = goat.attribute(x, targets), torch.tensor([0, 1, 0, 2])
    for shared in (groups, groups[None]):
        actual, delta = goat.attribute(x, targets, feature_mask=shared, return_convergence_delta=True)
        torch.testing.assert_close(actual, sums(plain, groups), rtol=1e-10, atol=1e-12)
        assert float(delta.abs().max()) < 1e-12
    (actual,) = goat.attribute((x,), targets, feature_mask=(groups,))
    torch.testing.assert_close(actual, sums(plain, groups), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("feature_mask", "message"),
    [
        (torch.zeros(8), "tensor of integers"),
        (torch.zeros(7, dtype=torch.long), "fits attributions of shape"),
        (torch.arange(8) - 1, "feature mask of integers from 0 on"),
        ((torch.arange(8), torch.arange(8)), r"one feature mask per input \(got 2 for 1 inputs\)"),
    ],
)
def test_errors(feature_mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOAtAttribution(make_gnn()).attribute(
            torch.ones(8).double(), 1, (normal(5, 4), EDGES), feature_mask=feature_mask
        )


def test_a_tuple_of_inputs_needs_a_tuple_of_masks() -> None:
    goat = GOAtAttribution(make_gnn(), mask_type="node_and_edge")
    with pytest.raises(ValueError, match=r"one feature mask per input \(got 1 for 2 inputs\)"):
        goat.attribute((normal(5, 4), torch.ones(8).double()), 1, (EDGES,), feature_mask=torch.arange(8))
