"""Computation graphs: the right edges, and the same outputs and attributions as in the whole graph."""

from __future__ import annotations

import time

import networkx
import pytest
import torch
from conftest import random_edges, randomize
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

from benchmarks.datasets import ba_shapes
from benchmarks.paper_models import L2NodeClassifier
from captum_goat import GOAtAttribution
from captum_goat.compare import computation_graphs
from captum_goat.models import NodeClassifier, RootClassifier

MODELS = {
    "gin": {"conv": "gin"},
    "sage": {"conv": "sage"},
    "gcn_plain": {"conv": "gcn", "normalize": False},
    "gcn_l2": {"conv": "gcn", "normalize": False},
}


@pytest.fixture(scope="module")
def data() -> Data:
    """A directed graph with duplicate edges, self-loops and isolated nodes."""
    edge_index = random_edges(40, 90, seed=3)
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(44, 4, generator=generator, dtype=torch.float64),
        edge_index=edge_index,
        y=torch.arange(44) % 3,
        edge_label=torch.rand(90, generator=generator) > 0.5,
    )


def model(kind: str) -> NodeClassifier:
    level = L2NodeClassifier if kind == "gcn_l2" else NodeClassifier
    return randomize(level(in_channels=4, hidden_channels=8, num_classes=3, **MODELS[kind]).double(), seed=1)


def test_edges_are_those_that_reach_the_node_in_time(data: Data) -> None:
    whole = networkx.DiGraph(data.edge_index.t().tolist())
    whole.add_nodes_from(range(44))
    for hops in range(5):
        for node, graph in enumerate(computation_graphs(data, range(44), hops)):
            steps = networkx.single_source_shortest_path_length(whole.reverse(), node)
            expected = [
                edge for edge, target in enumerate(data.edge_index[1].tolist()) if steps.get(target, 99) <= hops - 1
            ]
            assert graph.e_id.tolist() == expected
            assert graph.n_id[0] == node
            assert graph.n_id[1:].tolist() == sorted(other for other, far in steps.items() if 0 < far <= hops)
            assert torch.equal(graph.n_id[graph.edge_index], data.edge_index[:, graph.e_id])


def test_same_as_pyg_says_of_directed_flow(data: Data) -> None:
    for node, graph in enumerate(computation_graphs(data, torch.arange(44), 3)):
        nodes, _, _, edges = k_hop_subgraph(node, 3, data.edge_index, num_nodes=44, directed=True)
        assert graph.n_id.sort().values.tolist() == nodes.tolist()
        assert graph.e_id.tolist() == edges.nonzero().view(-1).tolist()


def test_edges_between_nodes_at_the_border_are_left_out() -> None:
    triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    data = Data(x=torch.ones(3, 1), edge_index=triangle, y=torch.zeros(3, dtype=torch.long))
    (graph,) = computation_graphs(data, [0], 1)
    assert graph.edge_index.t().tolist() == [[1, 0], [2, 0]]
    assert "edge_label" not in graph


def test_contents(data: Data) -> None:
    graphs = computation_graphs(data, [7, 43, 7], 2)
    assert [graph.y.tolist() for graph in graphs] == [[7 % 3], [43 % 3], [7 % 3]]
    assert (graphs[1].num_nodes, graphs[1].num_edges) == (1, 0)  # an isolated node
    for graph in graphs:
        graph.validate()
        assert torch.equal(graph.x, data.x[graph.n_id])
        assert torch.equal(graph.edge_label, data.edge_label[graph.e_id])
    assert computation_graphs(data, [], 2) == []


@pytest.mark.parametrize("kind", MODELS)
def test_first_row_is_the_row_in_the_whole_graph(kind: str, data: Data) -> None:
    classifier = model(kind)
    with torch.no_grad():
        expected = classifier(data.x, data.edge_index)
        graphs = computation_graphs(data, torch.arange(44), 3)
        batch = Batch.from_data_list(graphs)
        together = RootClassifier(classifier)(batch.x, batch.edge_index, batch.batch)
        alone = torch.cat([RootClassifier(classifier)(graph.x, graph.edge_index) for graph in graphs])
    torch.testing.assert_close(together, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alone, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_fewer_hops_than_layers_are_not_enough(kind: str, data: Data) -> None:
    classifier = model(kind)
    batch = Batch.from_data_list(computation_graphs(data, torch.arange(44), 2))
    with torch.no_grad():
        rows = RootClassifier(classifier)(batch.x, batch.edge_index, batch.batch)
        assert not torch.allclose(rows, classifier(data.x, data.edge_index), atol=1e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_attributions_are_those_in_the_whole_graph(kind: str, data: Data) -> None:
    classifier, nodes = model(kind), [0, 5, 43]
    for node, graph in zip(nodes, computation_graphs(data, nodes, 3), strict=True):
        attributions, delta = GOAtAttribution(RootClassifier(classifier)).attribute(
            torch.ones(graph.num_edges, dtype=torch.float64),
            target=1,
            additional_forward_args=(graph.x, graph.edge_index),
            return_convergence_delta=True,
        )
        whole = GOAtAttribution(classifier).attribute(
            torch.ones(data.num_edges, dtype=torch.float64),
            target=(node, 1),
            additional_forward_args=(data.x, data.edge_index),
        )
        expected = torch.zeros_like(whole).index_copy(0, graph.e_id, attributions)
        torch.testing.assert_close(whole, expected, rtol=1e-8, atol=1e-10)
        assert float(delta.abs().max()) < 1e-10


def test_attributions_of_a_batch_are_those_of_single_graphs(data: Data) -> None:
    rooted, graphs = RootClassifier(model("gcn_l2")), computation_graphs(data, [0, 5, 11], 3)
    batch, target = Batch.from_data_list(graphs), torch.tensor([2, 0, 1])

    def attributions(graph: Data, classes: torch.Tensor) -> torch.Tensor:
        arguments = (graph.x, graph.edge_index) if graph.batch is None else (graph.x, graph.edge_index, graph.batch)
        return GOAtAttribution(rooted).attribute(torch.ones(graph.num_edges, dtype=torch.float64), classes, arguments)

    singles = [attributions(graph, target[index : index + 1]) for index, graph in enumerate(graphs)]
    torch.testing.assert_close(attributions(batch, target), torch.cat(singles))


@pytest.mark.slow
def test_all_of_ba_shapes_in_seconds() -> None:
    graph = ba_shapes()
    start = time.perf_counter()
    cut = computation_graphs(graph, torch.arange(700), 3)
    assert time.perf_counter() - start < 10
    assert len(cut) == 700


def test_wrong_arguments(data: Data) -> None:
    with pytest.raises(ValueError, match=r"Expected nodes from 0 to 43 \(got 2 to 44\)"):
        computation_graphs(data, [2, 44], 3)
    with pytest.raises(ValueError, match="got -1 to 2"):
        computation_graphs(data, [2, -1], 3)
    with pytest.raises(ValueError, match=r"to be 0 or more \(got -1\)"):
        computation_graphs(data, [2], -1)
