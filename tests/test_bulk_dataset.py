"""explain_dataset: graphs in batches have the attributions that they have one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulk_dataset_subjects import NUM_GRAPHS, Column, assert_same, one_by_one
from bulk_dataset_subjects import graphs as graphs
from bulk_models import watched_model
from captum.attr import IntegratedGradients
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Data

from captum_goat import EdgeMaskedModel, GOAtAttribution, average_features, undirected_feature_mask
from captum_goat.bulk import explain_dataset


def predictions(model: nn.Module, graphs: list[Data]) -> list[int]:
    with torch.no_grad():
        return [int(model(graph.x, graph.edge_index).argmax()) for graph in graphs]


def test_predicted_classes_are_explained_as_one_by_one(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, batch_size=4, show_progress=False)
    targets = predictions(model, graphs)
    assert [int(each.target) for each in found] == targets
    assert len(set(targets)) > 1
    assert_same([each.edge_mask for each in found], one_by_one(model, graphs, targets))
    for graph, each in zip(graphs, found, strict=True):
        assert each.validate()
        assert each.x is graph.x
        assert each.edge_index is graph.edge_index
        torch.testing.assert_close(each.prediction, model(graph.x, graph.edge_index).detach(), rtol=1e-4, atol=1e-5)
        assert each.delta.shape == (1,)
        assert each.delta.abs() < 1e-4


@pytest.mark.parametrize("kind", ["label", "int", "numpy", "list", "tensor"])
def test_chosen_classes(kind: str, graphs: list[Data]) -> None:
    model, chosen = watched_model(), [(3 * number) % 5 % 3 for number in range(NUM_GRAPHS)]
    targets = {"label": "label", "int": 2, "numpy": np.int64(2), "list": chosen, "tensor": torch.tensor(chosen)}
    expected = {"label": [int(graph.y) for graph in graphs]}.get(kind, chosen if kind[0] in "lt" else [2] * NUM_GRAPHS)
    found = explain_dataset(model, graphs, target=targets[kind], batch_size=4, show_progress=False)
    assert [int(each.target) for each in found] == expected
    assert_same([each.edge_mask for each in found], one_by_one(model, graphs, expected))


@pytest.mark.slow
def test_all_classes(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, target="all", batch_size=4, show_progress=False)
    assert all("target" not in each for each in found)
    assert all(each.delta.shape == (1, 3) for each in found)
    for target in range(3):
        expected = one_by_one(model, graphs, [target] * NUM_GRAPHS)
        assert_same([each.edge_mask[:, target] for each in found], expected)


@pytest.mark.parametrize("target", [None, "predicted"])
def test_one_number_per_graph(target: Any, graphs: list[Data]) -> None:
    found = explain_dataset(Column(), graphs, target=target, show_progress=False)
    assert found[0].prediction.shape == (1,)
    assert "target" not in found[0]
    assert_same([each.edge_mask for each in found], one_by_one(watched_model(), graphs, [1] * NUM_GRAPHS))


@pytest.mark.slow
def test_both_directions_of_edges(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, target="all", undirected=True, batch_size=4, show_progress=False)
    for graph, each in zip(graphs, found, strict=True):
        mask = undirected_feature_mask(graph.edge_index)
        with torch.no_grad():
            difference = model(graph.x, graph.edge_index) - EdgeMaskedModel(model)(
                torch.zeros(graph.num_edges), graph.x, graph.edge_index
            )
        torch.testing.assert_close(each.edge_mask.sum(dim=0), difference[0], rtol=1e-4, atol=1e-4)
        for target in range(3):
            (expected,) = one_by_one(model, [graph], [target])
            torch.testing.assert_close(
                each.edge_mask[:, target], average_features(expected, mask), rtol=1e-4, atol=1e-5
            )


def test_random_numbers_are_left_alone(graphs: list[Data], tmp_path: Path) -> None:
    def state() -> list[Any]:
        return [torch.get_rng_state().tolist(), random.getstate(), *map(str, np.random.get_state())]

    model = watched_model()
    before = state()
    explain_dataset(model, graphs, batch_size=4, show_progress=False)
    explain_dataset(model, graphs, batch_size=4, show_progress=False, out=tmp_path / "attributions.pt")
    assert state() == before


@pytest.mark.parametrize("options", [{"field": "repeated"}, {"at": "adjacency"}, {"gates": "proportional"}], ids=str)
@pytest.mark.slow
def test_options_of_the_method(options: dict[str, Any], graphs: list[Data]) -> None:
    method = GOAtAttribution(make_gnn("gcn", dtype=torch.float32), **options)
    found, default = (
        torch.cat([graph.edge_mask for graph in explain_dataset(given, graphs, target=1, show_progress=False)])
        for given in (method, method.model)
    )
    expected = [method.attribute(torch.ones(graph.num_edges), 1, (graph.x, graph.edge_index)) for graph in graphs]
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, default)


def test_methods_that_attribute_something_else(graphs: list[Data]) -> None:
    with pytest.raises(ValueError, match=r"Expected a method that attributes the edges .* mask_type 'node'"):
        explain_dataset(GOAtAttribution(watched_model(), mask_type="node"), graphs)
    with pytest.raises(TypeError, match="got IntegratedGradients"):
        explain_dataset(IntegratedGradients(watched_model()), graphs)


def test_graphs_without_any_edges() -> None:
    graphs = [Data(x=torch.randn(2, 4), edge_index=torch.empty(2, 0, dtype=torch.long)) for _ in range(3)]
    found = explain_dataset(watched_model(), graphs, show_progress=False)
    assert [each.edge_mask.shape for each in found] == [(0,)] * 3


def test_device_moves_the_model(graphs: list[Data]) -> None:
    model = watched_model()
    assert explain_dataset(model, graphs, device="cpu", show_progress=False)[0].edge_mask.device.type == "cpu"


def test_doubles_stay_doubles(graphs: list[Data]) -> None:
    doubles = [Data(x=graph.x.double(), edge_index=graph.edge_index) for graph in graphs]
    found = explain_dataset(make_gnn("gin"), doubles, show_progress=False)
    assert found[0].edge_mask.dtype == torch.float64
    assert max(float(each.delta.abs()) for each in found) < 1e-9


def test_logits_stand_for_probabilities(graphs: list[Data]) -> None:
    class Probabilities(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = watched_model()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.inner(x, edge_index, batch).softmax(dim=-1)

    for target in ("predicted", "label", "all"):
        found = explain_dataset(Probabilities().eval(), graphs, target=target, show_progress=False)
        expected = explain_dataset(watched_model(), graphs, target=target, show_progress=False)
        assert_same([each.prediction for each in found], [each.prediction for each in expected])
        assert_same([each.edge_mask for each in found], [each.edge_mask for each in expected])


def test_progress_bar(graphs: list[Data], capsys: pytest.CaptureFixture[str]) -> None:
    explain_dataset(watched_model(), graphs, show_progress=True)
    assert "11/11" in capsys.readouterr().err
    explain_dataset(watched_model(), graphs, show_progress=False)
    assert not capsys.readouterr().err
