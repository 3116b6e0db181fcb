"""The best edges of every graph, and how sparse they are."""

from __future__ import annotations

from itertools import chain

import metrics_oracle as slow
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data

from captum_goat import metrics
from captum_goat.metrics import select_edges, sparsity

SPARSITIES = [0.0, 0.3, 0.5, 0.7, 0.9, 1.0]


def graph(*edges: tuple[int, int], nodes: int = 5) -> Data:
    return Data(edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).t(), num_nodes=nodes)


def chosen(scores: list[float], data: Data, *args: float, **options: object) -> list[bool]:
    return select_edges(data, torch.tensor(scores), *args, **options).tolist()  # type: ignore[arg-type]


PATH = graph((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))


def test_undirected_edges_are_chosen_whole_by_the_sum_of_their_directions() -> None:
    scores = [5.0, -4.0, 1.0, 1.0, 3.0, -3.0]  # sums 1, 2, 0
    assert chosen(scores, PATH, k=1) == [False, False, True, True, False, False]
    assert chosen(scores, PATH, k=2) == [True, True, True, True, False, False]
    assert chosen(scores, PATH, 0.5) == [False, False, True, True, False, False], "rounded down"


def test_one_edge_without_reverse_makes_a_graph_directed() -> None:
    data = graph((0, 1), (1, 0), (1, 2))
    assert chosen([5.0, -4.0, 1.0], data, k=1) == [True, False, False]
    assert sparsity(data, torch.tensor([True, False, False])).tolist() == pytest.approx([2 / 3])


def test_direction_is_a_matter_of_each_graph_of_a_batch() -> None:
    batch = Batch.from_data_list([graph((0, 1), (1, 0)), graph((0, 1), (1, 0), (2, 1)), graph(), graph((1, 1))])
    first = torch.tensor([True, True, True, False, False, True])
    torch.testing.assert_close(sparsity(batch, first), torch.tensor([0, 2 / 3, torch.nan, 0]), equal_nan=True)
    assert chosen([1.0, -1.0, 0.5, 0.0, 1.0, -9.0], batch, k=1) == [True, True, False, False, True, True]


def test_parallel_edges_are_one_edge_and_so_is_a_self_loop() -> None:
    directed = graph((0, 1), (1, 2), (0, 1))
    assert chosen([1.0, 1.5, 1.0], directed, k=1) == [True, False, True]
    undirected = graph((0, 1), (2, 2), (1, 0), (0, 1), (2, 2))
    assert sparsity(undirected, torch.tensor([True, False, True, True, False])).tolist() == [0.5]
    assert chosen([1.0, 1.0, 1.0, 1.0, 1.5], undirected, k=1) == [True, False, True, True, False]
    assert chosen([1.0, 2.0, 1.0, 1.0, 1.5], undirected, k=1) == [False, True, False, False, True]


def test_of_equal_scores_the_first_in_edge_index_is_chosen() -> None:
    data = graph((3, 4), (0, 1), (2, 3), (1, 2))
    assert chosen([1.0, 1.0, 2.0, 1.0], data, k=2) == [True, False, True, False]
    assert chosen([0.0, -0.0, 0.0, 0.0], data, k=3) == [True, True, True, False]
    many = graph(*((node, node + 1) for node in range(500)), nodes=501)
    assert chosen([0.0] * 500, many, k=77) == [True] * 77 + [False] * 423


def test_none_all_and_at_least_one() -> None:
    scores = [1.0, 2.0, 3.0, 4.0, -5.0, -6.0]
    assert not any(chosen(scores, PATH, 1.0))
    assert not any(chosen(scores, PATH, k=0))
    assert all(chosen(scores, PATH, 0.0))
    assert all(chosen(scores, PATH, k=3))
    assert all(chosen(scores, PATH, k=99)), "an edge that speaks against the class comes last, but it comes"
    assert sum(chosen(scores, PATH, 0.99)) == 2, "below sparsity 1 one edge at least"
    assert chosen([], graph(), 0.5) == []


@pytest.mark.parametrize(("level", "edges"), [(0.9, 10), (0.9, 20), (0.8, 10), (0.7, 10), (0.7, 100), (0.95, 100)])
def test_sparsities_mean_their_decimal_numbers(level: float, edges: int) -> None:
    data = graph(*((node, node + 1) for node in range(edges)), nodes=edges + 1)
    assert sum(chosen([0.0] * edges, data, level)) == round((1 - level) * edges)


def test_one_number_per_graph() -> None:
    batch = Batch.from_data_list([PATH, PATH, PATH])
    selected = select_edges(batch, torch.arange(18.0), k=torch.tensor([0, 1, 2]))
    assert selected.view(3, 6).sum(dim=1).tolist() == [0, 2, 4]


def test_sparsity_by_hand() -> None:
    batch = Batch.from_data_list([PATH, graph((0, 1), (1, 2), (2, 3), (0, 1)), graph()])
    selected = torch.tensor([1, 1, 0, 0, 0, 0, 1, 0, 1, 1]).bool()
    torch.testing.assert_close(sparsity(batch, selected), torch.tensor([2 / 3, 1 / 3, torch.nan]), equal_nan=True)


@pytest.mark.parametrize("seed", range(6))
def test_against_the_slow_implementation(seed: int) -> None:
    graphs = slow.random_graphs(seed)
    batch = slow.batched(graphs)
    scores = slow.random_scores(batch, seed)
    single = slow.per_graph(graphs, scores)
    for level in SPARSITIES:
        selected = select_edges(batch, scores, level)
        expected = [
            slow.chosen(graph, mine, slow.budget(graph, level)) for graph, mine in zip(graphs, single, strict=True)
        ]
        assert selected.tolist() == list(chain(*expected))
        mine = torch.tensor([slow.sparsity(graph, part) for graph, part in zip(graphs, expected, strict=True)])
        torch.testing.assert_close(sparsity(batch, selected), mine, equal_nan=True)
    for k in (0, 1, 3, 100):
        expected = [slow.chosen(graph, mine, k) for graph, mine in zip(graphs, single, strict=True)]
        assert select_edges(batch, scores, k=k).tolist() == list(chain(*expected))


def test_other_forms_of_graphs() -> None:
    scores = torch.tensor([5.0, -4.0, 1.0, 1.0, 3.0, -3.0])
    expected = select_edges(PATH, scores, k=1)
    as_edge_index = Data(edge_index=EdgeIndex(PATH.edge_index.contiguous(), sparse_size=(5, 5)), num_nodes=5)
    assert torch.equal(select_edges(as_edge_index, scores, k=1), expected)
    small = Data(edge_index=PATH.edge_index.int(), num_nodes=5)
    assert torch.equal(select_edges(small, scores.half(), k=1), expected)
    with_batch = Data(edge_index=PATH.edge_index, num_nodes=5, batch=torch.tensor([0, 0, 0, 0, 1]))
    assert torch.equal(select_edges(with_batch, scores.requires_grad_(), k=1), expected)


def test_public_names() -> None:
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(hasattr(metrics, name) for name in metrics.__all__)
    assert {"drop_edges", "gaussian_noise", "fidelity_plus", "graph_infidelity"} <= set(metrics.__all__)


def test_wrong_arguments() -> None:
    scores = torch.zeros(6)
    with pytest.raises(ValueError, match=r"Expected either a sparsity or k \(got sparsity=None and k=None\)"):
        select_edges(PATH, scores)
    with pytest.raises(ValueError, match="Expected either a sparsity or k"):
        select_edges(PATH, scores, 0.5, k=2)
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match=f"Expected a sparsity from 0 to 1.*got {wrong}"):
            select_edges(PATH, scores, wrong)
    for number in (-1, torch.tensor([1, 2]), torch.tensor(1.0)):
        with pytest.raises(ValueError, match="Expected k as an integer from 0 on"):
            select_edges(PATH, scores, k=number)
    for wrong_scores in (torch.zeros(5), torch.zeros(6).long(), torch.zeros(1, 6), None):
        with pytest.raises(ValueError, match=r"Expected scores of shape \[6\]"):
            select_edges(PATH, wrong_scores, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 2 of 6 that are infinite or nan"):
        select_edges(PATH, torch.tensor([0.0, torch.nan, torch.inf, 0.0, 0.0, 0.0]), 0.5)
    for selected in (torch.zeros(6), torch.zeros(5).bool()):
        with pytest.raises(ValueError, match=r"Expected selected edges as bool of shape \[6\]"):
            sparsity(PATH, selected)
    with pytest.raises(ValueError, match=r"edge_index is a tensor of shape \[2, num_edges\] \(got \[6, 2\]\)"):
        select_edges(Data(edge_index=PATH.edge_index.t(), num_nodes=5), torch.zeros(2), 0.5)
