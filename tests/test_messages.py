"""What users are told about mistakes that are easily made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import captum.attr
import pytest
import torch
from conftest import make_gnn
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explanation

from captum_goat import EdgeMaskedModel, GOAtAttribution, GOAtExplainer, check
from captum_goat.bulk import DatasetExplanations, edge_table
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import fidelity_plus, select_edges
from captum_goat.models import GraphClassifier
from captum_goat.report import explain_smiles, write_report

GRAPHS = ba_2motifs(2)
DATA = Batch.from_data_list(GRAPHS[:1])
MODEL = GraphClassifier("gcn", 10, 8, 2).eval()
ARGUMENTS = (DATA.x, DATA.edge_index, DATA.batch)
MASK = torch.ones(DATA.num_edges)
GOAT, MASKED, BOUND = GOAtAttribution(MODEL), EdgeMaskedModel(MODEL), EdgeMaskedModel(MODEL, data=DATA)
NAN = DATA.x.clone()
NAN[3, 2] = torch.nan
EXPLAINED = Explanation(edge_index=DATA.edge_index, edge_mask=MASK, num_nodes=25)
UNSQUEEZE = "ass mask.unsqueeze(0)"


def by(method: Any, model: nn.Module = BOUND) -> Callable[[], Any]:
    return lambda: method(model).attribute(MASK.clone().requires_grad_(), target=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (by(captum.attr.IntegratedGradients), UNSQUEEZE),
        (by(captum.attr.FeatureAblation), UNSQUEEZE),
        (by(captum.attr.ShapleyValueSampling), UNSQUEEZE),
        (by(captum.attr.Lime), UNSQUEEZE),
        (lambda: captum.attr.NoiseTunnel(GOAtAttribution(BOUND)).attribute(MASK, target=1), UNSQUEEZE),
        (by(captum.attr.Saliency, MASKED), "Pass additional_forward_args=(x, edge_index, ...)"),
        (lambda: GOAT.attribute(MASK, 1), "Pass additional_forward_args=(x, edge_index, ...)"),
        (lambda: GOAT.attribute(MASK, 1, (NAN, *ARGUMENTS[1:])), "(got infinite or nan entries in 'x')"),
        (
            lambda: captum.attr.IntegratedGradients(MASKED).attribute(
                MASK.unsqueeze(0).requires_grad_(), target=1, additional_forward_args=(NAN, *ARGUMENTS[1:])
            ),
            "Expected finite numbers (got nan entries in 'x')",
        ),
        (lambda: GOAT.attribute(MASK.numpy(), 1, ARGUMENTS), "Expected inputs that are tensors (got ndarray)"),
        (lambda: select_edges(DATA, MASK.numpy(), 0.5), "Convert them by torch.as_tensor(scores)"),  # type: ignore
        (lambda: GOAT.attribute_all(MASK, 1, ARGUMENTS), "or None for every class (got 1). Pass [1]"),  # type: ignore
        (lambda: GOAtExplainer(MODEL), "Pass the model to PyG's Explainer"),  # type: ignore
        (lambda: fidelity_plus(MODEL, GRAPHS, MASK > 0), "Batch.from_data_list(graphs) makes a batch"),  # type: ignore
        (lambda: EdgeMaskedModel([MODEL]), "Expected a model, torch.nn.Module (got list)"),  # type: ignore
        (lambda: MASKED(MASK, GRAPHS), "(got a list of 2 graphs). Batch.from_data_list(graphs) makes"),
        (lambda: GOAT.attribute(MASK, 1, GRAPHS), "(got a list of 2 graphs). Batch.from_data_list(graphs) makes"),
        (lambda: GOAT.attribute(MASK, None, ARGUMENTS), "from an output of shape [1, 2]: an int"),
        (lambda: GOAT.attribute(MASK, 1, (DATA.x.numpy(), *ARGUMENTS[1:])), "Convert it by torch.as_tensor(x)"),
        (lambda: GOAT.attribute(MASK, 1, (DATA.x, DATA.edge_index.t(), DATA.batch)), "pass edge_index.t()"),
        (lambda: fidelity_plus(MODEL, DATA, MASK > 0, target="house"), "a class below 2"),  # type: ignore
        (lambda: check(MODEL, GRAPHS), "with edge_index (got list)"),  # type: ignore
        (lambda: check(MODEL, Data(x=DATA.x)), "with edge_index (got one without)"),
        (lambda: edge_table(MASK, None), "with edge_index (got NoneType)"),
        (lambda: edge_table(MASK, DATA, node_names=["a"]), "up to node 24 (got 1 names)"),
        (lambda: DatasetExplanations([EXPLAINED]).to_table(node_names=["a"]), "per graph (got 'a' for graph 0)"),
        (lambda: DatasetExplanations([EXPLAINED]).to_table(node_names=[]), "per graph (got none for graph 0)"),
        (lambda: write_report("page.html", None), "as explain_dataset, explain_nodes and PyG's Explainer return"),
        (lambda: write_report("page.html", MASK), "(got Tensor)"),
        (lambda: write_report("page.html", []), "Expected one or more explanations, as many of each method (got none)"),
        (lambda: write_report("page.html", {"a": [EXPLAINED] * 2, "b": [EXPLAINED]}), "(got {'a': 2, 'b': 1})"),
        (lambda: write_report("page.html", EXPLAINED, classnames=["a"]), "options of write_report (got classnames)"),
        (lambda: write_report("page.html", EXPLAINED, class_names="ab"), "a list of names (got the string 'ab')"),
        (lambda: write_report("page.html", EXPLAINED, graph_names=[]), "graph_names for 1 graphs (got 0)"),
        (lambda: explain_smiles(MODEL, ""), "Expected valid SMILES (got '')"),
        (lambda: explain_smiles(MODEL, []), "Expected one or more SMILES (got none)"),
        (lambda: explain_smiles(MODEL, None), "a list of strings (got NoneType)"),  # type: ignore
        (lambda: explain_smiles(MODEL, "CCO"), "a model of the 9 features that torch_geometric.utils.from_smiles"),
    ],
)
def test_messages(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


@pytest.mark.slow
def test_one_mask_in_a_function_of_ones_own_is_no_mistake() -> None:
    """Captum's method is given masks [B, E] here, and the function takes them apart."""

    def forward(masks: torch.Tensor) -> torch.Tensor:
        return torch.cat([BOUND(mask) for mask in masks])

    masks = MASK.unsqueeze(0)
    expected = captum.attr.FeatureAblation(BOUND).attribute(masks, target=1)
    assert torch.equal(captum.attr.FeatureAblation(forward).attribute(masks, target=1), expected)


def test_an_output_of_one_column_needs_no_target() -> None:
    model = make_gnn("gcn", dtype=torch.float32)
    model.out = nn.Linear(8, 1).eval()
    graph = (torch.randn(4, 4), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.zeros(4, dtype=torch.long))
    goat = GOAtAttribution(model)
    assert torch.equal(goat.attribute(torch.ones(3), None, graph), goat.attribute(torch.ones(3), 0, graph))
