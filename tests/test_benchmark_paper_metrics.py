"""Embeddings of explanations, discriminability and stability."""

from __future__ import annotations

import sys
from typing import Any

import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool

from benchmarks.paper_metrics import (
    discriminability,
    distinct_embeddings,
    distinct_explanations,
    explanation_embeddings,
    stability,
    top_explanations,
)
from captum_goat.metrics import select_edges
from captum_goat.models import RootClassifier


@pytest.mark.parametrize("nodes", ["stay", "leave"])
def test_embeddings_are_those_of_the_reduced_graphs(nodes: Any) -> None:
    model, graphs = make_gnn("sage_sum"), slow.random_graphs(0)
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 0), 0.5)
    embeddings = explanation_embeddings(model, batch, selected, "hidden", nodes)
    assert embeddings.shape == (8, 8)
    assert not embeddings.requires_grad
    for index, part in enumerate(slow.per_graph(graphs, selected)):
        expected = slow.logits(model, graphs[index], part.tolist(), nodes)
        assert model.out(embeddings[index].relu()).tolist() == pytest.approx(expected)
    assert not model.hidden._forward_hooks, "the hook is gone"


def test_embeddings_of_whole_graphs_and_of_explained_nodes() -> None:
    inner, batch = make_gnn("gcn", pool=None), slow.batched(slow.random_graphs(1))
    everything = torch.ones(batch.num_edges, dtype=torch.bool)
    model = RootClassifier(inner).eval()
    for nodes in ("stay", "leave"):
        embeddings = explanation_embeddings(model, batch, everything, "model.hidden", nodes)  # type: ignore[arg-type]
        expected = inner(batch.x, batch.edge_index)[batch.ptr[:-1]]
        torch.testing.assert_close(inner.out(embeddings.relu()), expected)
        torch.testing.assert_close(explanation_embeddings(model, batch, everything, "model"), expected)


def test_the_last_output_of_a_layer_counts() -> None:
    class Reused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.act(global_add_pool(self.act(x - 1.0), batch) - 2.0)

    data = Data(x=torch.tensor([[1.0, 3.0], [0.0, 5.0]]), edge_index=torch.tensor([[0], [1]]))
    embeddings = explanation_embeddings(Reused().eval(), data, torch.tensor([True]), "act")
    assert embeddings.tolist() == [[0.0, 4.0]]


def test_embeddings_of_wrong_layers() -> None:
    model, graph = make_gnn("gcn"), slow.random_graph("undirected", 0)
    model.spare = nn.Linear(1, 1).eval()
    everything = torch.ones(graph.num_edges, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"one of .*'hidden', 'out'.* \(got 'hiden'\)"):
        explanation_embeddings(model, graph, everything, "hiden")
    with pytest.raises(
        ValueError, match=r"one row for each of 1 graphs \(got \[6, 8\] from 'convs.0'\).*after the pool"
    ):
        explanation_embeddings(model, graph, everything, "convs.0")
    with pytest.raises(ValueError, match="Expected a layer that the model calls \\(got 'spare'"):
        explanation_embeddings(model, graph, everything, "spare")
    with pytest.raises(RuntimeError):
        explanation_embeddings(model, Data(x=graph.x[:, :2], edge_index=graph.edge_index), everything, "hidden")
    assert not model.hidden._forward_hooks, "the hook is gone after an error, too"


def test_discriminability_by_hand() -> None:
    embeddings = torch.tensor([[1.0, 2.0], [4.0, 4.0], [3.0, 4.0], [4.0, 6.0]])
    distances = discriminability(embeddings, torch.tensor([0, 3, 0, 3]))  # means (2, 3) and (4, 5); no class 1, 2
    assert distances[0, 3] == pytest.approx(8**0.5)
    torch.testing.assert_close(distances, distances.t(), equal_nan=True)
    assert distances[[1, 2]].isnan().all()
    assert distances.diagonal()[[0, 3]].tolist() == [0.0, 0.0]
    for classes in (torch.tensor([0, 1]), torch.zeros(4), None):
        with pytest.raises(ValueError, match="one for each of 4 explanations"):
            discriminability(embeddings, classes)  # type: ignore[arg-type]


def undirected(*edges: tuple[int, int], labels: tuple[int, ...]) -> Data:
    half = torch.tensor(edges).t()
    return Data(x=torch.eye(3)[list(labels)], edge_index=torch.cat([half, half.flip(0)], dim=1))


def test_explanations_are_distinct_up_to_isomorphism_with_labels() -> None:
    triangle = undirected((0, 1), (1, 2), (2, 0), labels=(0, 0, 1))
    turned = undirected((2, 1), (1, 3), (3, 2), labels=(2, 1, 0, 0))
    relabelled = undirected((0, 1), (1, 2), (2, 0), labels=(0, 1, 1))
    path = undirected((0, 1), (1, 2), labels=(0, 0, 1))
    other_end = undirected((0, 1), (1, 2), labels=(0, 1, 0))
    batch = Batch.from_data_list([triangle, turned, relabelled, path, other_end, turned])
    everything = torch.ones(batch.num_edges, dtype=torch.bool)
    assert distinct_explanations(batch, everything).tolist() == [0, 0, 1, 2, 3, 0]
    same_labels = torch.zeros(batch.num_nodes, dtype=torch.long)
    assert distinct_explanations(batch, everything, same_labels).tolist() == [0, 0, 0, 1, 1, 0]
    assert distinct_explanations(batch, ~everything).tolist() == [0] * 6


def test_equal_hashes_do_not_make_explanations_equal() -> None:
    """Two triangles and one ring of six nodes have the same Weisfeiler-Lehman colours."""
    triangles = undirected((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), labels=(0,) * 6)
    ring = undirected((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), labels=(0,) * 6)
    batch = Batch.from_data_list([ring, triangles, ring, triangles])
    assert distinct_explanations(batch, torch.ones(48, dtype=torch.bool)).tolist() == [0, 1, 0, 1]


def test_directions_parallel_edges_and_self_loops() -> None:
    x = torch.zeros(3, 1)
    edges = [
        [[0, 1], [1, 2]],  # 0 -> 1 -> 2
        [[2, 0], [0, 1]],  # the same
        [[0, 2], [1, 1]],  # 0 -> 1 <- 2
        [[0, 1, 0], [1, 2, 1]],  # the first once more, with a parallel edge
        [[0, 1, 1], [1, 2, 1]],  # the first with a self-loop
    ]
    batch = Batch.from_data_list([Data(x=x, edge_index=torch.tensor(edge_index)) for edge_index in edges])
    assert distinct_explanations(batch, torch.ones(12, dtype=torch.bool)).tolist() == [0, 0, 1, 0, 2]


def test_distinct_explanations_against_all_permutations() -> None:
    graphs = [slow.random_graph(form, 10 * seed + index) for seed in range(5) for index, form in enumerate(slow.FORMS)]
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 0), k=2)
    parts = [part.tolist() for part in slow.per_graph(graphs, selected)]
    numbers = distinct_explanations(batch, selected).tolist()
    assert 8 < len(set(numbers)) < len(graphs)
    for one in range(len(graphs)):
        for other in range(one):
            same = slow.same_explanation(graphs[one], parts[one], graphs[other], parts[other])
            assert (numbers[one] == numbers[other]) == same


def test_networkx_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    graph = slow.random_graph("undirected", 0)
    with pytest.raises(
        ImportError, match=r"networkx is needed to compare explanations .*distinct_embeddings.*pip install"
    ):
        distinct_explanations(graph, torch.ones(graph.num_edges, dtype=torch.bool))


def test_wrong_labels() -> None:
    graph = slow.random_graph("undirected", 0)
    for labels in (torch.zeros(5, dtype=torch.long), torch.zeros(6)):
        with pytest.raises(ValueError, match="Expected labels as integers, one for each of 6 nodes"):
            distinct_explanations(graph, torch.ones(graph.num_edges, dtype=torch.bool), labels)


def test_distinct_embeddings_by_hand() -> None:
    embeddings = torch.tensor([[3.0, 1.0], [0.0, 1.0], [3.00004, 0.99996], [3.0002, 1.0], [0.0, 1.0]])
    assert distinct_embeddings(embeddings).tolist() == [0, 1, 0, 2, 1]
    assert distinct_embeddings(embeddings, 0.1).tolist() == [0, 1, 0, 0, 1]
    assert distinct_embeddings(embeddings, 1e-6).tolist() == [0, 1, 2, 3, 1]
    with pytest.raises(ValueError, match="Expected a tolerance above 0"):
        distinct_embeddings(embeddings, 0.0)


def test_both_variants_agree_where_a_model_sees_everything() -> None:
    """Isomorphic explanations have equal embeddings if nodes without edges leave and there are no parallel edges."""
    model, forms = make_gnn("gin"), ["directed", "undirected", "no edges"]
    batch = slow.batched([slow.random_graph(form, seed) for form in forms for seed in range(10)])
    selected = select_edges(batch, slow.random_scores(batch, 3), k=1)
    exact = distinct_explanations(batch, selected)
    numbers = distinct_embeddings(explanation_embeddings(model, batch, selected, "hidden", "leave"))
    assert torch.equal(exact, numbers)
    assert 3 < len(exact.unique()) < 20


def test_stability_by_hand() -> None:
    groups = torch.tensor([5, 5, 5, 7, 8, 7, 9, 9])
    classes = torch.tensor([0, 0, 0, 0, 0, 2, 2, 2])
    expected = {1: [3 / 5, 2 / 3], 2: [4 / 5, 1.0], 3: [1.0, 1.0], 100: [1.0, 1.0]}
    for k, coverage in expected.items():
        shares = stability(groups, classes, k)
        assert shares[[0, 2]].tolist() == pytest.approx(coverage)
        assert shares[1].isnan(), "no sample is of class 1"
    assert stability(groups).tolist() == pytest.approx([3 / 8])
    top = top_explanations(groups, classes, 2)
    assert top.group[[0, 2]].tolist() == [[5, 7], [9, 7]], "of equally frequent ones the lower number"
    assert top.example[[0, 2]].tolist() == [[0, 3], [6, 5]]
    assert top_explanations(groups, classes, 3).example[2].tolist() == [6, 5, -1], "class 2 has two explanations"
    with pytest.raises(ValueError, match="Expected k to be 1 or more"):
        stability(groups, classes, 0)
    with pytest.raises(ValueError, match="one for each of 8 explanations"):
        stability(groups, classes[:3])
