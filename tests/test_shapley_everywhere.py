"""Guided Shapley values wherever a method can be passed."""

from __future__ import annotations

import pytest
import torch
from conftest import run_command
from test_shapley import CYCLE, both_ways, classifier, enumerated, graph, ones
from torch_geometric.data import Data
from torch_geometric.explain import Explainer

from captum_goat import CaptumGraphExplainer, GOAtAttribution, GOAtExplainer, GuidedShapley, explain_dataset
from captum_goat import explain_nodes as explain_many
from captum_goat.compare import compare
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, NodeClassifier
from captum_goat.plot import visualize_graph_attr


def some_graphs():
    return [graph(CYCLE[:, :size], seed=size) for size in (4, 6, 8, 5)]


@pytest.mark.parametrize("target", ["predicted", 1, "all"])
@pytest.mark.slow
def test_datasets(target, tmp_path):
    model, graphs = classifier("gin"), some_graphs()
    shapley = GuidedShapley(model, n_samples=16)
    explanations = explain_dataset(shapley, graphs, target=target, batch_size=3, show_progress=False)
    saved = explain_dataset(
        shapley, graphs, target=target, batch_size=3, out=tmp_path / "values.pt", show_progress=False
    )
    for number, (data, explanation) in enumerate(zip(graphs, explanations, strict=True)):
        prediction = model(data.x, data.edge_index)
        assert torch.allclose(explanation.prediction, prediction)
        classes = range(3) if target == "all" else [int(prediction.argmax()) if target == "predicted" else 1]
        columns = [shapley.attribute(ones(data), label, (data.x, data.edge_index)) for label in classes]
        expected = torch.stack(columns, dim=1) if target == "all" else columns[0]
        assert torch.allclose(explanation.edge_mask, expected, atol=1e-10)
        assert torch.allclose(saved[number].attributions, expected, atol=1e-10)
        assert explanation.delta.abs().max() < 1e-12


def test_a_run_does_not_continue_with_another_number_of_coalitions(tmp_path):
    model, graphs, path = classifier("gin"), some_graphs(), tmp_path / "values.pt"

    def arguments(batch):
        if int(batch.num_graphs) == 1:
            raise KeyboardInterrupt
        return batch.x, batch.edge_index, batch.batch

    options = {"batch_size": 3, "out": path, "arguments": arguments, "show_progress": False}
    with pytest.raises(KeyboardInterrupt):
        explain_dataset(GuidedShapley(model, n_samples=16), graphs, **options)
    with pytest.raises(ValueError, match="n_samples"):
        explain_dataset(GuidedShapley(model, n_samples=32), graphs, **options)


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.slow
def test_nodes_have_the_values_that_they_have_in_the_whole_graph(conv):
    torch.manual_seed(0)
    model = NodeClassifier(conv, 4, 8, 3, num_layers=2).double().eval()
    path = torch.stack([torch.arange(11), torch.arange(1, 12)])  # far nodes do not reach each other
    data = graph(path)
    explanations = explain_many(GuidedShapley(model, n_samples=2**8), data, [5, 0], target=1)

    def value(node):
        def of(kept):
            columns = torch.isin(torch.arange(11).repeat(2), torch.tensor([*kept]))
            with torch.no_grad():
                return float(model(data.x, data.edge_index[:, columns])[node, 1])

        return of

    for number, node in enumerate((5, 0)):
        edges, attributions = explanations[number]
        near = sorted(set((edges % 11).tolist()))
        rest = set(range(11)) - set(near)

        def of_near(kept, near=near, rest=rest, node=node):
            return value(node)({near[place] for place in kept} | rest)

        expected = enumerated(of_near, len(near))
        found = torch.zeros(11, dtype=torch.double).index_add_(0, edges % 11, attributions)
        assert torch.allclose(found[near], expected, rtol=0, atol=1e-8)
        assert abs(value(node)(set(range(11))) - value(node)(rest) - float(attributions.sum())) < 1e-10
        assert abs(value(node)(rest) - value(node)(set())) < 1e-10  # other edges do not matter
    everything = explain_many(GuidedShapley(model, n_samples=16), data, [5, 0], target="all")
    assert everything.attributions.shape == (len(everything.edges), 3)


def test_nodes_take_default_guides_only():
    model, data = NodeClassifier("gin", 4, 8, 3).double().eval(), graph()
    with pytest.raises(ValueError, match="default guides"):
        explain_many(GuidedShapley(model, [ones(data)]), data, [0], target=1)


def pyg_explainer(model, algorithm):
    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )


@pytest.mark.slow
def test_pyg_explainers():
    model, data = classifier(), graph(CYCLE[:, :6])
    algorithm = CaptumGraphExplainer(GuidedShapley, n_samples=128)
    found = pyg_explainer(model, algorithm)(data.x, data.edge_index).edge_mask
    label = int(model(data.x, data.edge_index).argmax())
    expected = GuidedShapley(model, n_samples=128).attribute(ones(data), label, (data.x, data.edge_index))
    assert torch.allclose(found, expected)
    by_class = pyg_explainer(model, CaptumGraphExplainer(GOAtAttribution, at="adjacency"))
    own = pyg_explainer(model, GOAtExplainer(at="adjacency"))
    assert torch.allclose(by_class(data.x, data.edge_index).edge_mask, own(data.x, data.edge_index).edge_mask)
    with pytest.raises(TypeError, match="Expected the class of a method"):
        CaptumGraphExplainer(GuidedShapley(model))


@pytest.mark.slow
def test_comparisons():
    torch.manual_seed(0)
    model, graphs = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(4)
    comparison = compare(model, graphs, ("goat", "guided_shapley"), show_progress=False)
    assert "guided_shapley" in str(comparison)
    assert not comparison.skipped


def test_command_line(tmp_path):
    torch.manual_seed(0)
    model = GraphClassifier("gin", 10, 8, 2).eval()
    graphs = [Data(x=one.x, edge_index=one.edge_index) for one in ba_2motifs(3)]
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    torch.save(graphs, tmp_path / "graphs.pt")
    words = ["explain", "--model", str(tmp_path / "weights.pt"), "--class", "captum_goat.models:GraphClassifier"]
    words += ["--arguments", '["gin", 10, 8, 2]', "--data", str(tmp_path / "graphs.pt"), "--quiet"]
    words += ["--method", "guided_shapley", "--samples", "16", "--out", str(tmp_path / "values.pt")]
    assert run_command(words) == 0
    saved = torch.load(tmp_path / "values.pt")
    own = GuidedShapley(model, n_samples=16)
    expected = [
        own.attribute(torch.ones(one.num_edges), int(model(one.x, one.edge_index).argmax()), (one.x, one.edge_index))
        for one in graphs
    ]
    assert torch.allclose(saved["attributions"], torch.cat(expected), atol=1e-5)


def test_pictures():
    data, model = graph(), classifier()
    values = GuidedShapley(model, n_samples=16).attribute(ones(data), 1, (data.x, data.edge_index))
    figure, _ = visualize_graph_attr(values, both_ways(CYCLE), use_pyplot=False)
    assert figure is not None
