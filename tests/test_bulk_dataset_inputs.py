"""explain_dataset: kinds of datasets and models that it takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bulk_dataset_subjects import NUM_GRAPHS, assert_same, one_by_one
from bulk_dataset_subjects import graphs as graphs
from bulk_models import numbered_graphs, watched_model
from conftest import randomize
from torch import Tensor, nn
from torch.utils.data import Subset
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool

from captum_goat.bulk import explain_dataset


@pytest.mark.parametrize("kind", ["dataset", "subset", "loader"])
def test_kinds_of_data_sets(kind: str, graphs: list[Data]) -> None:
    model, dataset = watched_model(), InMemoryDataset()
    dataset.data, dataset.slices = InMemoryDataset.collate(graphs)
    given = {
        "dataset": dataset,
        "subset": Subset(graphs, range(NUM_GRAPHS)),  # type: ignore[arg-type]
        "loader": DataLoader(graphs, batch_size=3),
    }[kind]
    found = explain_dataset(model, given, show_progress=False)
    expected = explain_dataset(model, graphs, batch_size=4, show_progress=False)
    assert_same([each.edge_mask for each in found], [each.edge_mask for each in expected])
    assert_same([each.edge_index for each in found], [graph.edge_index for graph in graphs])


class Weighted(nn.Module):
    """Takes more than the usual arguments, under names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(4, 3)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor, graph: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edges, weight).relu(), graph)


class OfGraphs(Weighted):
    def forward(self, data: Data) -> Tensor:
        return super().forward(data.x, data.edge_index, data.edge_weight, data.batch)


class ByName(Weighted):
    def forward(self, x: Tensor, edge_weight: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return super().forward(x, edge_index, edge_weight, batch)


@pytest.fixture
def weighted_graphs(graphs: list[Data]) -> list[Data]:
    return [Data(**graph.to_dict(), edge_weight=torch.rand(graph.num_edges)) for graph in graphs]


def test_arguments_of_models(weighted_graphs: list[Data]) -> None:
    models = [model().eval() for model in (Weighted, OfGraphs, ByName)]
    for model in models:
        randomize(model, seed=0)
    first, second, third = (
        explain_dataset(model, weighted_graphs, arguments=arguments, show_progress=False)
        for model, arguments in zip(
            models, [lambda batch: (batch.x, batch.edge_index, batch.edge_weight, batch.batch), None, None], strict=True
        )
    )
    assert_same([each.edge_mask for each in first], [each.edge_mask for each in second])
    assert_same([each.edge_mask for each in first], [each.edge_mask for each in third])
    with pytest.raises(ValueError, match=r"Expected graphs with edges, weight, graph, which Weighted.forward needs"):
        explain_dataset(models[0], weighted_graphs, show_progress=False)


@pytest.mark.slow
def test_models_of_single_graphs_need_batches_of_one(graphs: list[Data]) -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = watched_model()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.inner(x, edge_index)

    model = Single().eval()
    found = explain_dataset(model, graphs, target=1, batch_size=1, show_progress=False)
    assert_same([each.edge_mask for each in found], one_by_one(watched_model(), graphs, [1] * NUM_GRAPHS))
    with pytest.raises(ValueError, match=r"one row of output per graph \(got output \[1, 3\] for 11 graphs\)"):
        explain_dataset(model, graphs, show_progress=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dataset": []}, "at least one graph"),
        ({"dataset": Data()}, r"Expected a dataset, a list of graphs or a DataLoader.*\(got Data\)"),
        ({"dataset": [HeteroData()]}, r"Expected graphs that are .*Data \(got HeteroData as graph 0 of the dataset\)"),
        ({"dataset": [Data(x=torch.ones(2, 4))]}, "with an edge_index"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"target": "best"}, r"'predicted', 'label', 'all'.*\(got 'best'\)"),
        ({"target": 1.5}, "got 1.5"),
        ({"target": [0, 1]}, r"one class for each of 11 graphs, all integers.* \(got torch.int64 \[2\]\)"),
        ({"out": "attributions.csv"}, r"ends in .pt or .parquet \(got attributions.csv\)"),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str, graphs: list[Data]) -> None:
    options = {"dataset": graphs, "show_progress": False} | wrong
    with pytest.raises((ValueError, TypeError), match=message):
        explain_dataset(watched_model(), **options)


def test_labels_are_needed_for_labels(graphs: list[Data]) -> None:
    unlabelled = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    with pytest.raises(ValueError, match=r"one integer y per graph.*\(got none\)"):
        explain_dataset(watched_model(), unlabelled, target="label", show_progress=False)


def test_graphs_with_differing_attributes() -> None:
    graphs = numbered_graphs(4)
    graphs[2].edge_attr = torch.ones(graphs[2].num_edges, 2)
    with pytest.raises(
        ValueError, match=r"same attributes .*got graph 0 .* graph 2, .* only one of them has edge_attr"
    ):
        explain_dataset(watched_model(), graphs, show_progress=False)
