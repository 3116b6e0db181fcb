"""Scores beside known true edges."""

from __future__ import annotations

import metrics_oracle as slow
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Batch, Data

from captum_goat.metrics import ground_truth_auc, precision_at_k


def directed(scores: list[float], label: list[int]) -> tuple[Data, torch.Tensor]:
    nodes = torch.arange(len(scores) + 1)
    edge_index = torch.stack([nodes[:-1], nodes[1:]])
    data = Data(edge_index=edge_index, edge_label=torch.tensor(label).bool(), num_nodes=len(nodes))
    return data, torch.tensor(scores)


def test_auc_by_hand() -> None:
    assert ground_truth_auc(*directed([3.0, 2.0, 1.0], [1, 1, 0])).tolist() == [1.0]
    assert ground_truth_auc(*directed([3.0, 2.0, 1.0], [0, 0, 1])).tolist() == [0.0]
    assert ground_truth_auc(*directed([1.0, 1.0, 1.0], [0, 1, 0])).tolist() == [0.5]
    assert ground_truth_auc(*directed([4.0, 3.0, 3.0, 1.0], [0, 1, 0, 1])).tolist() == [0.125]  # 0 + 0.5 + 0 + 0 of 4
    for label in ([0, 0], [1, 1]):
        assert ground_truth_auc(*directed([1.0, 2.0], label)).isnan().all()


def test_precision_by_hand() -> None:
    data, scores = directed([4.0, 3.0, 3.0, 1.0], [0, 1, 0, 1])
    assert precision_at_k(data, scores).tolist() == [0.5], "as many as are true"
    for k, expected in ((1, 0.0), (2, 0.5), (3, 1 / 3), (4, 0.5), (9, 0.5)):
        assert precision_at_k(data, scores, k).tolist() == pytest.approx([expected])
    assert precision_at_k(data, scores, 0).isnan().all()


def test_edges_count_once_and_are_true_if_a_direction_is() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 1, 0]])
    label = torch.tensor([True, False, False, False, False])
    data = Data(edge_index=edge_index, edge_label=label, num_nodes=3)
    scores = torch.tensor([-1.0, 3.0, 1.5, 1.0, 1.0])  # edges: 2 (true), 2.5, 1
    assert ground_truth_auc(data, scores).tolist() == [0.5]
    assert precision_at_k(data, scores).tolist() == [0.0]
    assert precision_at_k(data, scores, 2).tolist() == [0.5]


@pytest.mark.parametrize("seed", range(6))
def test_against_the_slow_implementation(seed: int) -> None:
    graphs = slow.random_graphs(seed)
    batch = slow.batched(graphs)
    scores = slow.random_scores(batch, seed)
    parts = list(zip(graphs, slow.per_graph(graphs, scores), strict=True))
    expected = torch.tensor([slow.auc(graph, part) for graph, part in parts], dtype=torch.float64)
    torch.testing.assert_close(ground_truth_auc(batch, scores), expected, equal_nan=True)
    for k in (None, 0, 1, 3, 100):
        expected = torch.tensor([slow.precision(graph, part, k) for graph, part in parts], dtype=torch.float64)
        torch.testing.assert_close(precision_at_k(batch, scores, k), expected, equal_nan=True)
    numbers = torch.arange(len(graphs))
    expected = torch.tensor([slow.precision(*part, k) for k, part in enumerate(parts)], dtype=torch.float64)
    torch.testing.assert_close(precision_at_k(batch, scores, numbers), expected, equal_nan=True)


def test_auc_against_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    cases = []
    for _ in range(20):
        label = torch.randint(0, 2, (30,), generator=generator)
        cases.append(
            directed((torch.randn(30, generator=generator) + label).round(decimals=1).tolist(), label.tolist())
        )
    batch = Batch.from_data_list([data for data, _ in cases])
    areas = ground_truth_auc(batch, torch.cat([scores for _, scores in cases]))
    expected = [roc_auc_score(data.edge_label, scores) for data, scores in cases]
    assert areas.tolist() == pytest.approx(expected)


def test_given_labels_and_wrong_ones() -> None:
    data, scores = directed([3.0, 2.0, 1.0], [1, 1, 0])
    assert ground_truth_auc(data, scores, ~data.edge_label).tolist() == [0.0]
    assert precision_at_k(data, scores, ground_truth=~data.edge_label).tolist() == [0.0]
    for label in (torch.tensor([1, 0, 0]), torch.tensor([True])):
        with pytest.raises(ValueError, match=r"Expected ground_truth, or data.edge_label, as bool of shape \[3\]"):
            ground_truth_auc(data, scores, label)
    del data.edge_label
    with pytest.raises(ValueError, match="got NoneType"):
        precision_at_k(data, scores)
