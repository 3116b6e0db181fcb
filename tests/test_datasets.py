from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from captum_goat.datasets import ba_2motifs


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return ba_2motifs(num_graphs=400, seed=3)


def motif_of(graph: Data) -> networkx.Graph:
    return networkx.Graph(graph.edge_index[:, graph.edge_label].t().tolist())


def base_degrees(graph: Data) -> np.ndarray:
    in_base = (graph.edge_index < 20).all(dim=0)
    return np.bincount(graph.edge_index[0, in_base].numpy(), minlength=20)


def test_sizes_features_and_labels(graphs: list[Data]) -> None:
    for graph in graphs:
        assert torch.equal(graph.x, torch.full((25, 10), 0.1))
        assert graph.edge_index.size(1) == {0: 50, 1: 52}[int(graph.y)]
        assert graph.y.shape == (1,)
        assert graph.y.dtype == torch.int64
        graph.validate()
    assert sum(int(graph.y) for graph in graphs) == 200
    assert np.mean([graph.num_edges for graph in graphs]) == 51  # 50.96 in the published file, with its 40 self-loops


def test_edges_are_sorted_go_both_ways_and_connect_the_graph(graphs: list[Data]) -> None:
    for graph in graphs:
        pairs = graph.edge_index.t().tolist()
        assert pairs == sorted(pairs)
        assert len(set(map(tuple, pairs))) == len(pairs)
        assert {(target, source) for source, target in pairs} == set(map(tuple, pairs))
        assert not graph.has_self_loops()
        assert networkx.is_connected(networkx.Graph(pairs))


def test_motifs_are_cycles_and_houses_in_the_last_five_nodes(graphs: list[Data]) -> None:
    house = networkx.cycle_graph(4)
    house.add_edges_from([(0, 4), (1, 4)])
    expected = {0: networkx.cycle_graph(5), 1: house}
    for graph in graphs:
        motif = motif_of(graph)
        assert set(motif) == {20, 21, 22, 23, 24}
        assert networkx.is_isomorphic(motif, expected[int(graph.y)])
        assert graph.edge_label.dtype == torch.bool


def test_one_edge_joins_motif_and_base(graphs: list[Data]) -> None:
    for graph in graphs:
        crossing = (graph.edge_index[0] < 20) & (graph.edge_index[1] >= 20)
        assert graph.edge_index[:, crossing].t().tolist() == [[0, 20]]


def test_base_is_a_tree_grown_by_preferential_attachment(graphs: list[Data]) -> None:
    degrees = np.stack([base_degrees(graph) for graph in graphs])
    assert (degrees.sum(axis=1) == 2 * 19).all()
    # The published file has mean degrees 4.80, 5.18, 3.31, 2.50 ... 1.00 and a mean largest degree of 7.93.
    # Uniform attachment would give the first node 3.6 and a largest degree of about 5.
    assert degrees.mean(axis=0)[[0, 1, 2, 3, 19]] == pytest.approx([5.0, 5.0, 3.4, 2.5, 1.0], abs=0.4)
    assert degrees.max(axis=1).mean() == pytest.approx(7.93, abs=0.4)


def test_seeds_reproduce_and_differ() -> None:
    first, again, other = (ba_2motifs(num_graphs=6, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(one.edge_index, two.edge_index) for one, two in zip(first, again, strict=True))
    assert not all(torch.equal(one.edge_index, two.edge_index) for one, two in zip(first, other, strict=True))
    assert not torch.equal(first[0].edge_index, first[2].edge_index)


def test_global_random_states_are_neither_changed_nor_read() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = ba_2motifs(num_graphs=4)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    torch.rand(1), np.random.rand()
    assert torch.equal(ba_2motifs(num_graphs=4)[3].edge_index, first[3].edge_index)
