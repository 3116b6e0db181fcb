"""GOAtExplainer inside PyG's Explainer: the masks' shapes, their completeness, and that they are GOAtAttribution's."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from conftest import combinations
from explainer_subjects import (
    BATCH,
    BINARY,
    EDGE_INDEX,
    GCN,
    KWARGS,
    LEVELS,
    LINKS,
    MULTICLASS,
    NODE_MASK_TYPES,
    SETTINGS,
    X,
    assert_same,
    make,
)
from torch import Tensor

from captum_goat import EdgeMaskedModel, GOAtAttribution, GOAtExplainer

MASK_TYPES = [(None, "object"), *product(NODE_MASK_TYPES, [None, "object"])]


def explained(logits: Tensor, target: Tensor, index: Any, mode: str) -> Tensor:
    """Return the number that is explained, spelled out."""
    total = logits.new_zeros(())
    for row in torch.arange(len(logits))[slice(None) if index is None else index].reshape(-1).tolist():
        number = logits[row, target[row]] if mode == MULTICLASS else logits[row].sum()
        total = total + (-number if mode == BINARY and target[row] == 0 else number)
    return total


@pytest.mark.parametrize(
    ("mode", "return_type", "level", "node_mask_type", "edge_mask_type"), combinations(SETTINGS, LEVELS, MASK_TYPES)
)
def test_masks_have_the_shapes_that_pyg_asks_for(
    mode: str, return_type: str, level: str, node_mask_type: str | None, edge_mask_type: str | None
) -> None:
    node_shape = {None: None, "object": (15, 1), "attributes": (15, 3), "common_attributes": (1, 3)}[node_mask_type]
    shapes = {"node_mask": node_shape, "edge_mask": edge_mask_type and (27,)}
    goat = make(mode, level, return_type, node_mask_type=node_mask_type, edge_mask_type=edge_mask_type)
    for index in (None, 1):
        explanation = goat(X, EDGE_INDEX, index=index, **KWARGS)
        assert explanation.validate()
        for name, shape in shapes.items():
            assert (name in explanation) == (shape is not None)
            assert shape is None or (explanation[name].shape == shape and not explanation[name].requires_grad)


@pytest.mark.parametrize(
    ("mode", "return_type", "level", "explanation_type"), combinations(SETTINGS, LEVELS, ["model", "phenomenon"])
)
def test_edge_masks_add_up_to_the_logits(mode: str, return_type: str, level: str, explanation_type: str) -> None:
    logits = EdgeMaskedModel(GCN(mode, level, "raw"))
    goat = make(mode, level, return_type, explanation_type=explanation_type)
    classes = torch.arange(15 if level == "node" else 3) % (4 if mode == MULTICLASS else 2)
    whole, nothing = (logits(torch.full((27,), mask).double(), X, EDGE_INDEX, **KWARGS) for mask in (1.0, 0.0))
    for index in (None, 1, torch.tensor([0, 2]), torch.tensor([2, 1, 1]), classes % 2 == 0):
        options = {"target": classes} if explanation_type == "phenomenon" else {}
        explanation = goat(X, EDGE_INDEX, index=index, **options, **KWARGS)
        values = [explained(output, explanation.target, index, mode) for output in (whole, nothing)]
        assert_same(explanation.edge_mask.sum(), values[0] - values[1])


@pytest.mark.parametrize(
    ("mode", "return_type", "level", "nodes"), combinations(SETTINGS, LEVELS, [None, "attributes"])
)
def test_several_rows_are_the_sum_of_single_rows(mode: str, return_type: str, level: str, nodes: str | None) -> None:
    goat = make(mode, level, return_type, node_mask_type=nodes, edge_mask_type="object")
    together = goat(X, EDGE_INDEX, index=torch.tensor([2, 0, 0]), **KWARGS)
    first, last = goat(X, EDGE_INDEX, index=0, **KWARGS), goat(X, EDGE_INDEX, index=torch.tensor(2), **KWARGS)
    for mask in together.available_explanations:
        assert_same(together[mask], 2 * first[mask] + last[mask])


@pytest.mark.parametrize("field", ["distinct", "repeated"])
@pytest.mark.parametrize(("level", "target"), [("graph", [1, 3, 0]), ("node", (6, 2)), ("edge", (2, 1))])
def test_equals_goat_attribution(level: str, target: Any, field: Any) -> None:
    arguments = (X, EDGE_INDEX, None, BATCH, LINKS)
    expected = GOAtAttribution(GCN(level=level), field).attribute(torch.ones(27).double(), target, arguments)
    row, classes = (None, target) if level == "graph" else (target[0], [target[1]] * (15 if level == "node" else 3))
    for return_type in ("raw", "probs", "log_probs"):
        same = make(MULTICLASS, level, return_type, field, explanation_type="phenomenon")
        assert_same(same(X, EDGE_INDEX, target=torch.tensor(classes), index=row, **KWARGS).edge_mask, expected)


@pytest.mark.parametrize("options", [{"at": "adjacency"}, {"gates": "proportional"}])
def test_options_are_those_of_goat_attribution(options: dict[str, Any]) -> None:
    arguments, mask = (X, EDGE_INDEX, None, BATCH, LINKS), torch.ones(27).double()
    expected = GOAtAttribution(GCN(level="graph"), **options).attribute(mask, 1, arguments)
    ones = torch.ones(3, dtype=torch.long)
    explanation = make(level="graph", explanation_type="phenomenon", **options)(X, EDGE_INDEX, target=ones, **KWARGS)
    assert_same(explanation.edge_mask, expected)
    plain = make(level="graph", explanation_type="phenomenon")(X, EDGE_INDEX, target=ones, **KWARGS)
    assert (plain.edge_mask - expected).abs().max() > 1e-3


@pytest.mark.parametrize("edge_mask_type", [None, "object"])
def test_node_masks_equal_goat_attribution(edge_mask_type: str | None) -> None:
    goat = GOAtAttribution(GCN(), mask_type="node_and_edge" if edge_mask_type else "node")
    inputs = (X, torch.ones(27).double()) if edge_mask_type else (X,)
    nodes, *edges = goat.attribute(inputs, (6, 2), (EDGE_INDEX,))
    sums = {"attributes": nodes, "object": nodes.sum(1, keepdim=True), "common_attributes": nodes.sum(0, keepdim=True)}
    for name, mask in sums.items():
        same = make(node_mask_type=name, edge_mask_type=edge_mask_type, explanation_type="phenomenon")
        explanation = same(X, EDGE_INDEX, target=torch.full((15,), 2), index=6)
        assert_same(explanation.node_mask, mask)
        assert_same(explanation.get("edge_mask", torch.empty(0)), *edges or [torch.empty(0)])


@pytest.mark.parametrize("nodes", [None, "attributes"])
@pytest.mark.parametrize(("mode", "return_type"), SETTINGS)
def test_edges_of_a_batch_are_explained_for_their_own_graph(mode: str, return_type: str, nodes: str | None) -> None:
    options = {"explanation_type": "phenomenon", "node_mask_type": nodes, "edge_mask_type": "object"}
    goat = make(mode, "graph", return_type, **options)
    target = torch.tensor([1, 0, 1])
    together = goat(X, EDGE_INDEX, target=target, batch=BATCH)
    for number in range(3):
        own = {"node_mask": BATCH.eq(number), "edge_mask": BATCH[EDGE_INDEX[0]].eq(number)}
        alone = goat(X[own["node_mask"]], EDGE_INDEX[:, own["edge_mask"]] - 5 * number, target=target[number])
        for mask in together.available_explanations:
            assert_same(together[mask][own[mask]], alone[mask])


def test_the_model_is_no_option() -> None:
    with pytest.raises(TypeError, match=r"Expected options of GOAt \(got the model, Linear\). Pass the model to PyG's"):
        GOAtExplainer(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
