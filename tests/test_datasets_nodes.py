"""BA-Shapes, BA-Community and Tree-Grid: their statistics beside those of the published files, and the ground truth."""

from __future__ import annotations

from collections.abc import Callable

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from benchmarks.datasets import ba_community, ba_shapes, tree_grid
from benchmarks.datasets.node_motifs import GRID, barabasi_albert, binary_tree
from captum_goat.datasets import ba_2motifs

GENERATORS = (ba_shapes, ba_community, tree_grid)


def degrees(data: Data, below: int | None = None) -> np.ndarray:
    """Return the degree of each node, in the graph or among the first nodes."""
    nodes = data.num_nodes if below is None else below
    inside = (data.edge_index < nodes).all(dim=0)
    return np.bincount(data.edge_index[0, inside].numpy(), minlength=nodes)


def histogram(data: Data, length: int) -> np.ndarray:
    return np.bincount(degrees(data), minlength=length)[:length]


def motifs(data: Data) -> list[networkx.Graph]:
    whole = networkx.Graph(data.edge_index[:, data.edge_label].t().tolist())
    return [whole.subgraph(nodes) for nodes in networkx.connected_components(whole)]


@pytest.mark.parametrize(
    ("generate", "nodes", "edges", "motif_edges", "labels"),
    [
        (ba_shapes, 700, 4110, 960, [300, 160, 160, 80]),
        (ba_community, 1400, 8920, 1920, [300, 160, 160, 80] * 2),
        (tree_grid, 1231, 3130, 1920, [511, 720]),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_sizes_are_those_of_the_published_files(
    generate: Callable[..., Data], nodes: int, edges: int, motif_edges: int, labels: list[int], seed: int
) -> None:
    data = generate(seed=seed)
    data.validate()
    assert (data.num_nodes, data.num_edges, int(data.edge_label.sum())) == (nodes, edges, motif_edges)
    assert data.y.bincount().tolist() == labels
    assert data.x.shape == (nodes, 10)
    assert data.x.dtype == torch.float32
    pairs = data.edge_index.t().tolist()
    assert pairs == sorted(pairs)
    assert len(set(map(tuple, pairs))) == len(pairs)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert networkx.is_connected(networkx.Graph(pairs))


@pytest.mark.parametrize("generate", GENERATORS)
def test_splits_are_80_10_10_without_overlap_and_of_all_classes(generate: Callable[..., Data]) -> None:
    data = generate()
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert torch.equal(masks.sum(dim=0), torch.ones(data.num_nodes, dtype=torch.long))
    # As many as in the published files: 560, 70, 70 and 1120, 140, 140 and 984, 123, 124.
    sizes = {700: [560, 70, 70], 1400: [1120, 140, 140], 1231: [984, 123, 124]}[data.num_nodes]
    assert masks.sum(dim=1).tolist() == sizes
    for mask in masks:
        assert len(data.y[mask].unique()) == len(data.y.unique())


HOUSE = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)]


@pytest.mark.parametrize(
    ("generate", "number", "edges"), [(ba_shapes, 80, HOUSE), (ba_community, 160, HOUSE), (tree_grid, 80, GRID)]
)
def test_ground_truth_is_every_motif(generate: Callable[..., Data], number: int, edges: list[tuple[int, int]]) -> None:
    data = generate(seed=2)
    expected, components = networkx.Graph(edges), motifs(data)
    assert data.edge_label.dtype == torch.bool
    assert len(components) == number
    assert all(networkx.is_isomorphic(motif, expected) for motif in components)
    of_motifs = sorted(node for motif in components for node in motif)
    base_labels = {0, 4} if len(data.y.unique()) == 8 else {0}
    assert of_motifs == [node for node, label in enumerate(data.y.tolist()) if label not in base_labels]


def test_motifs_by_hand() -> None:
    (cycle,), (house,) = (motifs(data) for data in ba_2motifs(2))
    assert networkx.is_isomorphic(cycle, networkx.cycle_graph(5))
    assert networkx.is_isomorphic(networkx.Graph(GRID), networkx.grid_graph([3, 3]))
    assert dict(house.degree) == {20: 3, 21: 3, 22: 2, 23: 2, 24: 2}


def test_labels_are_places_in_the_house() -> None:
    data = ba_shapes()
    for motif in motifs(data):
        roof = [node for node in motif if data.y[node] == 3]
        middle = [node for node in motif if data.y[node] == 1]
        bottom = [node for node in motif if data.y[node] == 2]
        assert set(motif[roof[0]]) == set(middle)  # the roof stands on the middle
        assert len(middle) == len(bottom) == 2
        assert motif.has_edge(*middle)
        assert motif.has_edge(*bottom)


def test_degrees_of_ba_shapes() -> None:
    graphs = [ba_shapes(seed=seed) for seed in range(5)]
    base = np.stack([degrees(graph, below=300) for graph in graphs])
    # The published base has a largest degree of 64, 90 nodes of degree 5, and a mean of 34.4 over the first 20 nodes.
    assert base[:, 5:].min() == 5  # the first five only get what later nodes bring
    assert base.max(axis=1).mean() == pytest.approx(64, abs=15)
    assert (base == 5).sum(axis=1).mean() == pytest.approx(90, abs=12)
    assert base[:, :20].mean() == pytest.approx(34.4, abs=3)
    # Of all its nodes 223, 94, 79, 73, 53 and 41 have the degrees 2 to 7.
    whole = np.mean([histogram(graph, 8) for graph in graphs], axis=0)
    assert whole == pytest.approx([0, 0, 223, 94, 79, 73, 53, 41], abs=12)


def test_degrees_of_ba_community_and_tree_grid() -> None:
    community = np.mean([histogram(ba_community(seed=seed), 8) for seed in range(4)], axis=0)
    assert community == pytest.approx([0, 0, 262, 273, 167, 153, 126, 103], abs=32)
    grid = np.mean([histogram(tree_grid(seed=seed), 5) for seed in range(4)], axis=0)
    assert grid == pytest.approx([0, 213, 271, 613, 134], abs=25)


def test_motifs_hang_at_regular_distances_by_their_first_node() -> None:
    data = ba_shapes()
    edges = set(map(tuple, data.edge_index.t().tolist()))
    assert all((3 * index, 300 + 5 * index) in edges for index in range(80))
    data = tree_grid()
    edges = set(map(tuple, data.edge_index.t().tolist()))
    assert all((6 * index, 511 + 9 * index) in edges for index in range(80))
    assert all(((node - 1) // 2, node) in edges for node in range(1, 511))


def test_noise_is_one_edge_per_hundred() -> None:
    data, edges = tree_grid(), 510 + 80 * 12 + 80
    structure = {frozenset(edge) for edge in binary_tree(8)}
    structure |= {frozenset((6 * index, 511 + 9 * index)) for index in range(80)}
    structure |= {frozenset(edge) for edge in data.edge_index[:, data.edge_label].t().tolist()}
    assert len(structure) == edges
    noise = {frozenset(edge) for edge in data.edge_index.t().tolist()} - structure
    assert len(noise) == edges // 100


def test_features() -> None:
    assert torch.equal(ba_shapes().x, torch.ones(700, 10))
    assert torch.equal(tree_grid().x, torch.ones(1231, 10))
    x = ba_community(seed=1).x
    for community, mean in ((x[:700], -1.0), (x[700:], 1.0)):
        assert community.mean(dim=0).tolist() == pytest.approx([mean] * 2 + [0.0] * 8, abs=0.15)
        # In the published file they are 0.73, 0.69, 0.98 ... and 0.72, 0.71, 0.97 ...
        assert community.std(dim=0).tolist() == pytest.approx([0.71] * 2 + [1.0] * 8, abs=0.1)


def test_communities_are_joined_by_350_edges() -> None:
    data = ba_community()
    community = data.edge_index >= 700
    assert int((community[0] != community[1]).sum()) == 700  # both directions
    assert int((~community).all(dim=0).sum()) == int(community.all(dim=0).sum()) == 4110


@pytest.mark.parametrize("generate", GENERATORS)
def test_seeds_reproduce_and_differ(generate: Callable[..., Data]) -> None:
    first, again, other = generate(seed=0), generate(seed=0), generate(seed=1)
    for name in first.keys():  # noqa: SIM118
        assert torch.equal(first[name], again[name])
    assert not torch.equal(first.edge_index, other.edge_index)
    assert not torch.equal(first.test_mask, other.test_mask)


@pytest.mark.parametrize("generate", GENERATORS)
def test_global_random_states_stay(generate: Callable[..., Data]) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    generate()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_small_ones() -> None:
    data = ba_shapes(num_base=20, num_motifs=4)
    assert data.num_nodes == 40
    assert data.num_edges == 2 * (15 * 5 + 4 * 6 + 4 + 1)  # one random edge for 103
    assert tree_grid(height=2, num_motifs=7).num_nodes == 7 + 63


@pytest.mark.parametrize("number", [0, 21])
def test_too_many_or_no_motifs(number: int) -> None:
    with pytest.raises(ValueError, match=rf"Expected 1 to 20 motifs.*\(got {number}\)"):
        ba_shapes(num_base=20, num_motifs=number)


def test_too_few_nodes_for_a_random_graph() -> None:
    with pytest.raises(ValueError, match=r"more nodes than edges per node \(got 5 and 5\)"):
        barabasi_albert(5, 5, np.random.default_rng(0))
