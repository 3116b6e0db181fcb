"""Comparisons of models with other arguments and outputs, and explainers of other kinds."""

from __future__ import annotations

import captum.attr
import pytest
import torch
import torch_geometric.explain as pyg
from comparison_subjects import GRAPHS, MODEL, compared
from conftest import randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, global_add_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, GOAtExplainer
from captum_goat.compare.explainers import EXPLAINERS
from captum_goat.metrics import fidelity_curve


class GINE(nn.Module):
    """A model with edge features; ``outputs`` of 1 is one logit for two classes."""

    def __init__(self, outputs: int = 3, pool: bool = True) -> None:
        super().__init__()
        self.conv = GINEConv(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), edge_dim=2)
        self.out, self.pool = nn.Linear(8, outputs), pool
        randomize(self, seed=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index, edge_attr)
        return self.out(global_add_pool(x, batch) if self.pool else x)


class FlatGIN(GINE):
    """The same with an output ``[G]``."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_attr, batch).squeeze(1)


class OfGraph(nn.Module):
    """The first, called with the graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Data) -> Tensor:
        return self.model(data.x, data.edge_index, data.edge_attr, data.batch)


def with_attributes(graph: Data) -> Data:
    random = torch.Generator().manual_seed(graph.num_edges)
    graph = graph.clone()
    graph.edge_attr = torch.randn(graph.num_edges, 2, generator=random)
    return graph


EDGED = [with_attributes(graph) for graph in GRAPHS]
INSTALLED = ("goat", "guided_shapley", "integrated_gradients", "saliency", "occlusion", "random")


@pytest.mark.parametrize("kind", ["named", "of graph"])
@pytest.mark.slow
def test_edge_attributes(kind: str) -> None:
    model = GINE().eval()
    given = model if kind == "named" else OfGraph(model).eval()
    comparison = compared(*INSTALLED, model=given, graphs=EDGED, target=1)
    assert not comparison.failed
    assert not comparison.skipped
    assert comparison.get("goat", "largest_completeness_error").value < 1e-4  # type: ignore[union-attr]
    batch = Batch.from_data_list(EDGED)
    arguments = (batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    expected = GOAtAttribution(model).attribute(torch.ones(batch.num_edges), [1] * 5, arguments)
    scores = torch.cat(comparison.scores["goat"])
    torch.testing.assert_close(scores, expected)
    curve = fidelity_curve(model, batch, scores, target=1)
    torch.testing.assert_close(comparison.values["goat"]["fidelity_plus", "0.7"], curve.plus[2])


@pytest.mark.parametrize("kind", ["named", "of graph"])
def test_edge_attributes_of_nodes(kind: str) -> None:
    model = GINE(pool=False).eval()
    given = model if kind == "named" else OfGraph(model).eval()
    data = EDGED[4]
    nodes = data.edge_index[1].unique()[:2]
    comparison = compared("goat", "saliency", model=given, graphs=data, nodes=nodes, num_hops=1, target=2)
    assert not comparison.notes
    arguments = (data.x, data.edge_index, data.edge_attr)
    for node, scores in zip(nodes.tolist(), comparison.scores["goat"], strict=True):
        whole = GOAtAttribution(model).attribute(torch.ones(data.num_edges), (node, 2), arguments)
        torch.testing.assert_close(scores, whole[data.edge_index[1] == node])


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.slow
def test_one_logit_explains_class_1_and_its_negative_class_0(flat: bool) -> None:
    model = (FlatGIN if flat else GINE)(1).eval()
    target = [1, 0, 1, 0, 0]
    comparison = compared(*INSTALLED, "gnn_explainer", model=model, graphs=EDGED, target=target)
    assert not comparison.failed
    for name in ("goat", "guided_shapley"):
        assert comparison.get(name, "largest_completeness_error").value < 1e-4  # type: ignore[union-attr]
    for graph, label, scores in zip(EDGED, target, comparison.scores["goat"], strict=True):
        arguments = (graph.x, graph.edge_index, graph.edge_attr)
        of_logit = GOAtAttribution(model).attribute(torch.ones(graph.num_edges), None if flat else 0, arguments)
        torch.testing.assert_close(scores, of_logit if label else -of_logit)


def test_int_targets_and_their_refusals() -> None:
    batch = Batch.from_data_list(GRAPHS)
    explain = EXPLAINERS["goat"]()
    torch.testing.assert_close(explain(MODEL, batch, 1), explain(MODEL, batch, torch.ones(5, dtype=torch.long)))
    assert torch.equal(explain(MODEL, GRAPHS[0], 1), explain(MODEL, GRAPHS[0], [1]))
    for wrong in (3, -1, [0, 1], 0.5, True):
        with pytest.raises(ValueError, match="Expected target to be a class"):
            explain(MODEL, batch, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"or a Batch \(got list\)"):
        explain(MODEL, GRAPHS, 1)  # type: ignore[arg-type]


def test_parts_of_a_batch_have_their_own_attributes() -> None:
    model, batch = GINE().eval(), Batch.from_data_list(EDGED)
    scores = EXPLAINERS["gnn_explainer"](epochs=2)(model, batch, 1)  # type: ignore[call-arg]
    alone = [EXPLAINERS["gnn_explainer"](epochs=2)(model, graph, 1) for graph in EDGED]  # type: ignore[call-arg]
    torch.testing.assert_close(scores, torch.cat(alone))


@pytest.mark.slow
def test_functions_classes_and_algorithms() -> None:
    def first_feature(model: nn.Module, data: Data, target: Tensor) -> Tensor:
        assert target.shape == (1,)
        return data.x[data.edge_index[0], 0]

    methods = (captum.attr.InputXGradient, captum.attr.FeatureAblation, GOAtAttribution)
    algorithms = (pyg.GNNExplainer(epochs=3), GOAtExplainer())
    comparison = compared("goat", first_feature, *methods, *algorithms)
    assert not comparison.failed
    names = ["first_feature", "InputXGradient", "FeatureAblation", "GOAtAttribution", "GNNExplainer", "GOAtExplainer"]
    assert list(comparison.scores) == ["goat", *names]
    for name in ("GOAtAttribution", "GOAtExplainer"):
        torch.testing.assert_close(torch.cat(comparison.scores[name]), torch.cat(comparison.scores["goat"]))
    graph, target = GRAPHS[0], MODEL(GRAPHS[0].x, GRAPHS[0].edge_index).argmax(dim=1)
    masked, mask = EdgeMaskedModel(MODEL, data=graph), torch.ones(1, graph.num_edges)
    ablated = captum.attr.FeatureAblation(masked).attribute(mask, target=target)[0]
    torch.testing.assert_close(comparison.scores["FeatureAblation"][0], ablated)
    assert torch.equal(comparison.scores["first_feature"][0], graph.x[graph.edge_index[0], 0])
