"""The search for edge sets wherever a method can be passed."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import run_command
from test_edge_set_search import Textbook, decisive, graph, made, ones
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.explain import Explainer

from captum_goat import CaptumGraphExplainer, EdgeSetSearch, explain_dataset, explain_nodes, load_attributions
from captum_goat.compare import compare
from captum_goat.compare.explainers import EXPLAINERS
from captum_goat.models import GraphClassifier, NodeClassifier


def some_graphs():
    return [graph(seed, nodes=7 + seed) for seed in range(3)]


def direct(model, data, target, **options):
    return EdgeSetSearch(model, **options).attribute(ones(data), target, (data.x, data.edge_index))


@pytest.mark.parametrize("target", ["predicted", "all"])
@pytest.mark.parametrize("name", ["places.pt", "places.parquet"])
@pytest.mark.slow
def test_datasets(target, name, tmp_path):
    model, graphs = made(), some_graphs()
    search, options = EdgeSetSearch(model, 20), {"target": target, "batch_size": 2, "show_progress": False}
    explanations = explain_dataset(search, graphs, **options)
    saved = explain_dataset(search, graphs, out=tmp_path / name, **options)
    for number, (data, explanation) in enumerate(zip(graphs, explanations, strict=True)):
        prediction = model(data.x, data.edge_index)
        classes = range(3) if target == "all" else [int(prediction.argmax())]
        columns = [direct(model, data, label, n_passes=20) for label in classes]
        expected = torch.stack(columns, dim=1) if target == "all" else columns[0]
        assert torch.equal(explanation.edge_mask, expected)
        assert torch.equal(saved[number].attributions, expected)
        assert torch.allclose(explanation.prediction, prediction)
        assert explanation.delta.isnan().all()  # places do not add up to an output
    assert math.isnan(saved.meta["largest_error"])


def test_a_run_does_not_continue_with_other_shares(tmp_path):
    def arguments(batch):
        if int(batch.num_graphs) == 1:
            raise KeyboardInterrupt
        return batch.x, batch.edge_index, batch.batch

    options = {"batch_size": 2, "out": tmp_path / "places.pt", "arguments": arguments, "show_progress": False}
    with pytest.raises(KeyboardInterrupt):
        explain_dataset(EdgeSetSearch(made()), some_graphs(), **options)
    with pytest.raises(ValueError, match="shares"):
        explain_dataset(EdgeSetSearch(made(), shares=(0.2, 0.4)), some_graphs(), **options)


@pytest.mark.slow
def test_nodes_have_the_sets_of_the_edges_around_them(tmp_path):
    torch.manual_seed(0)
    model = decisive(NodeClassifier("gcn", 4, 8, 3, num_layers=2))
    data = graph(4, nodes=30, more=0)
    search = EdgeSetSearch(model, 30, shares=(0.5,))
    explanations = explain_nodes(search, data, [29, 3], target=1, out=tmp_path / "nodes.pt")
    assert len(explanations[0].edges) < data.num_edges
    for number, node in enumerate((29, 3)):
        edges, places = explanations[number]
        near = torch.zeros(data.num_edges, dtype=torch.double).index_fill_(0, edges, 1.0)
        whole = search.attribute(near, (node, 1), (data.x, data.edge_index))
        assert torch.equal(places, whole[edges])
    assert len(load_attributions(tmp_path / "nodes.pt")) == 2
    with pytest.raises(ValueError, match="default starts"):
        explain_nodes(EdgeSetSearch(model, starts=(ones(data),)), data, [0], target=1)


def pyg_explanation(model, data, mode, algorithm, **options):
    config = {"mode": mode, "task_level": "graph", "return_type": "raw"}
    explainer = Explainer(model, algorithm, "phenomenon", config, edge_mask_type="object")
    return explainer(data.x, data.edge_index, **options).edge_mask


@pytest.mark.parametrize("method", [EdgeSetSearch, lambda model, **options: EdgeSetSearch(model, **options)])
@pytest.mark.slow
def test_pyg_explainers_of_several_classes(method):
    torch.manual_seed(0)
    model, algorithm = decisive(Textbook()), CaptumGraphExplainer(method, n_passes=20)
    for seed in range(2):
        data = graph(seed)
        for label in range(3):
            found = pyg_explanation(model, data, "multiclass_classification", algorithm, target=torch.tensor([label]))
            assert torch.equal(found, direct(model, data, label, n_passes=20))


class Negative(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, edge_index, batch=None):
        return -self.model(x, edge_index, batch)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.slow
def test_one_logit_is_the_log_odds_of_class_1(label):
    model = made("textbook", classes=1)
    of_class = model if label else Negative(model).eval()
    for data in some_graphs()[:2]:
        expected = direct(of_class, data, None)
        mode, target = "binary_classification", torch.tensor([label])
        found = pyg_explanation(model, data, mode, CaptumGraphExplainer(EdgeSetSearch), target=target)
        assert torch.equal(found, expected)
        assert torch.equal(2 * EXPLAINERS["edge_set_search"]()(model, data, label), expected)  # shared by directions


def test_pyg_explainers_refuse_what_is_no_probability():
    model, (data, *_), algorithm = made(), some_graphs(), CaptumGraphExplainer(EdgeSetSearch)
    with pytest.raises(ValueError, match="Expected a classifier for EdgeSetSearch"):
        pyg_explanation(made("textbook", classes=1), data, "regression", algorithm, target=torch.zeros(1, 1))
    batch = Batch.from_data_list(some_graphs())
    mode, target = "multiclass_classification", torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"Expected one row of the output .*got 3.*explain_dataset"):
        pyg_explanation(model, batch, mode, algorithm, target=target, batch=batch.batch)


@pytest.mark.slow
def test_comparisons():
    model, graphs = made(), some_graphs()
    comparison = compare(model, graphs, ("goat", "edge_set_search", EdgeSetSearch), show_progress=False)
    assert not comparison.skipped
    assert "edge_set_search" in str(comparison)
    for data, by_name, by_class in zip(
        graphs, comparison.scores["edge_set_search"], comparison.scores["EdgeSetSearch"], strict=True
    ):
        label = int(model(data.x, data.edge_index).argmax())
        assert torch.equal(2 * by_name, direct(model, data, label))
        assert torch.equal(by_name, by_class)


@pytest.mark.slow
def test_command_line(tmp_path, capsys):
    torch.manual_seed(0)
    model, graphs = GraphClassifier("gin", 4, 8, 3).eval(), some_graphs()
    for data in graphs:
        data.x = data.x.float()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    torch.save(graphs, tmp_path / "graphs.pt")
    words = ["explain", "--model", tmp_path / "weights.pt", "--class", "captum_goat.models:GraphClassifier"]
    words += ["--arguments", '["gin", 4, 8, 3]', "--data", tmp_path / "graphs.pt", "--quiet", "--target", "2"]
    words += ["--method", "edge_set_search", "--passes", "20", "--out", tmp_path / "places.pt"]
    assert not run_command([str(word) for word in words])
    assert "completeness" not in capsys.readouterr().out
    saved = load_attributions(tmp_path / "places.pt")
    for number, data in enumerate(graphs):
        search = EdgeSetSearch(model, 20)
        expected = search.attribute(torch.ones(data.num_edges), 2, (data.x, data.edge_index))
        assert torch.equal(saved[number].attributions, expected)
