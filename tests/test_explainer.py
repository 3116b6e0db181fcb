"""GOAtExplainer inside PyG's Explainer: settings, masks, completeness, metrics."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import random_edges, randomize
from torch import Tensor, nn
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ExplainerConfig, MaskType, ModelConfig
from torch_geometric.explain.metric import characterization_score, fidelity, unfaithfulness
from torch_geometric.nn import GCNConv, global_add_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError
from captum_goat.explainer import GOAtExplainer

MULTICLASS, BINARY = "multiclass_classification", "binary_classification"
LEVELS = ("graph", "node", "edge")
RETURN_TYPES = {MULTICLASS: ("raw", "probs", "log_probs"), BINARY: ("raw", "probs"), "regression": ("raw",)}
SETTINGS = [(mode, return_type) for mode, return_types in RETURN_TYPES.items() for return_type in return_types]
NODE_MASK_TYPES = ("object", "attributes", "common_attributes")
MASK_TYPES = [(None, "object"), *product(NODE_MASK_TYPES, [None, "object"])]


class GCN(nn.Module):
    """Two layers, one row per graph, node or link, and the return type's last operation."""

    def __init__(self, mode: str = MULTICLASS, level: str = "node", return_type: str = "raw") -> None:
        super().__init__()
        self.mode, self.level, self.return_type = mode, level, return_type
        self.conv1, self.conv2 = GCNConv(3, 6), GCNConv(6, {MULTICLASS: 4, BINARY: 1, "regression": 2}[mode])
        randomize(self.double(), seed=3)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Any = None, batch: Any = None, edge_label_index: Any = None
    ) -> Tensor:
        x = self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)
        if self.level == "graph":
            x = global_add_pool(x, batch)
        elif self.level == "edge":
            x = x[edge_label_index[0]] + 2 * x[edge_label_index[1]]
        if self.return_type == "log_probs":
            return x.log_softmax(dim=-1)
        if self.return_type == "probs":
            return x.softmax(dim=-1) if self.mode == MULTICLASS else x.sigmoid()
        return x


X = torch.randn(15, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
EDGE_INDEX = torch.cat([random_edges(5, 9, seed=1, first=first) for first in (0, 5, 10)], dim=1)
LINKS, BATCH = torch.tensor([[0, 1, 7], [2, 3, 11]]), torch.arange(3).repeat_interleave(5)
KWARGS = {"edge_label_index": LINKS, "batch": BATCH}  # not in the order of GCN.forward, and without edge_weight


def make(
    mode: str = MULTICLASS, level: str = "node", return_type: str = "raw", field: Any = "distinct", **options: Any
) -> Explainer:
    masks = {"edge_mask_type": "object"} if "node_mask_type" not in options else {}
    return Explainer(
        options.pop("model", None) or GCN(mode, level, return_type),
        algorithm=GOAtExplainer(field, **{name: options.pop(name) for name in ("at", "gates") if name in options}),
        model_config={"mode": mode, "task_level": level, "return_type": return_type},
        **{"explanation_type": "model", **masks, **options},
    )


def explained(logits: Tensor, target: Tensor, index: Any, mode: str) -> Tensor:
    """Return the number that is explained, spelled out."""
    total = logits.new_zeros(())
    for row in torch.arange(len(logits))[slice(None) if index is None else index].reshape(-1).tolist():
        number = logits[row, target[row]] if mode == MULTICLASS else logits[row].sum()
        total = total + (-number if mode == BINARY and target[row] == 0 else number)
    return total


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("node_mask_type", "edge_mask_type"), MASK_TYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mode", "return_type"), SETTINGS)
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


@pytest.mark.parametrize("explanation_type", ["model", "phenomenon"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mode", "return_type"), SETTINGS)
def test_edge_masks_add_up_to_the_logits(mode: str, return_type: str, level: str, explanation_type: str) -> None:
    logits = EdgeMaskedModel(GCN(mode, level, "raw"))
    goat = make(mode, level, return_type, explanation_type=explanation_type)
    classes = torch.arange(15 if level == "node" else 3) % (4 if mode == MULTICLASS else 2)
    whole, nothing = (logits(torch.full((27,), mask).double(), X, EDGE_INDEX, **KWARGS) for mask in (1.0, 0.0))
    for index in (None, 1, torch.tensor([0, 2]), torch.tensor([2, 1, 1]), classes % 2 == 0):
        options = {"target": classes} if explanation_type == "phenomenon" else {}
        explanation = goat(X, EDGE_INDEX, index=index, **options, **KWARGS)
        values = [explained(each, explanation.target, index, mode) for each in (whole, nothing)]
        assert_same(explanation.edge_mask.sum(), values[0] - values[1])


@pytest.mark.parametrize("nodes", [None, "attributes"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mode", "return_type"), SETTINGS)
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
    found = make(level="graph", explanation_type="phenomenon", **options)(X, EDGE_INDEX, target=ones, **KWARGS)
    assert_same(found.edge_mask, expected)
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


@pytest.mark.parametrize("claimed", ["probs", "raw"])
def test_a_softmax_at_the_end_is_left_out_whatever_is_claimed(claimed: str) -> None:
    expected = make()(X, EDGE_INDEX).edge_mask
    goat = make(return_type=claimed, model=GCN(return_type="probs"))
    assert_same(goat(X, EDGE_INDEX).edge_mask, expected)


@pytest.mark.parametrize("mode", [MULTICLASS, BINARY])
def test_models_that_return_a_vector_or_a_number(mode: str) -> None:
    class Squeezed(GCN):
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            return super().forward(*args, **kwargs).squeeze()

    graph = X[:5], EDGE_INDEX[:, :9]
    expected = make(mode, "graph")(*graph).edge_mask
    assert_same(make(mode, "graph", model=Squeezed(mode, "graph", "raw"))(*graph).edge_mask, expected)


def test_edge_weights_and_other_arguments_go_by_name() -> None:
    weight = torch.rand(27, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, arguments = GCN(level="graph"), (X, EDGE_INDEX, weight, BATCH)
    expected = GOAtAttribution(model).attribute(torch.ones(27).double(), model(*arguments).argmax(dim=1), arguments)
    for return_type in ("raw", "probs"):
        goat = make(level="graph", return_type=return_type)
        assert_same(goat(X, EDGE_INDEX, edge_weight=weight, **KWARGS).edge_mask, expected)


def test_keyword_only_arguments() -> None:
    class KeywordOnly(GCN):
        def forward(self, x: Tensor, edge_index: Tensor, *, batch: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, edge_index, batch=batch)

    expected = make(level="graph")(X, EDGE_INDEX, **KWARGS).edge_mask
    raw, probs = (KeywordOnly(MULTICLASS, "graph", each) for each in ("raw", "probs"))
    assert_same(make(level="graph", model=raw)(X, EDGE_INDEX, batch=BATCH).edge_mask, expected)
    goat = make(level="graph", return_type="probs", model=probs)
    assert_same(goat(X, EDGE_INDEX, batch=BATCH).edge_mask, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("return_type", ["raw", "probs"])
def test_the_model_comes_back_untouched(return_type: str, training: bool) -> None:
    def state() -> list[Any]:
        modules = [(m.training, *m._forward_hooks, *m._forward_pre_hooks, *vars(m)) for m in model.modules()]
        return [*modules, *((name, value.tolist()) for name, value in model.state_dict().items())]

    model = GCN(return_type=return_type).train(training)
    before = state()
    make(return_type=return_type, model=model)(X, EDGE_INDEX, index=torch.arange(4))
    assert state() == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    class Exponential(GCN):
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            return super().forward(*args, **kwargs).exp().softmax(dim=-1)

    with pytest.raises(UnsupportedModelError, match=r"'exp' in 'model' \(Exponential\)"):
        make(model=Exponential())(X, EDGE_INDEX, index=torch.arange(2))
    algorithm = make().algorithm
    with pytest.raises(ValueError, match="Expected a model in evaluation mode"):
        algorithm(GCN("regression", "node", "raw").train(), X, EDGE_INDEX, target=None)
    with pytest.raises(ValueError, match=r"or dictionaries for both \(got dict and Tensor\)"):
        algorithm(GCN(), {"paper": X}, EDGE_INDEX, target=None)
    with pytest.raises(ValueError, match="Expected field to be 'distinct' or 'repeated'"):
        make(field="other")
    with pytest.raises(ValueError, match="Expected gates to be 'equal' or 'proportional'"):
        make(gates="other")
    with pytest.raises(ValueError, match="Expected at to be"):
        make(at="other")
    with pytest.raises(ValueError, match="not support the given explanation settings"):
        make(at="adjacency", node_mask_type="object")
    assert "with at='adjacency' expects 'edge_mask_type' to be 'object'" in caplog.text
    config = ExplainerConfig("model", edge_mask_type="object")
    config.edge_mask_type = MaskType.attributes  # PyG itself refuses it earlier
    with pytest.raises(ValueError, match="not support the given explanation settings"):
        algorithm.connect(config, ModelConfig("regression", "node"))
    assert "'GOAtExplainer' expects 'edge_mask_type' to be 'None' or 'object' (got 'attributes')" in caplog.text


@pytest.mark.parametrize(
    ("mode", "target", "index", "message"),
    [
        (MULTICLASS, torch.tensor([1]), 3, r"each of the output's 15 row\(s\).* \(got 1 target"),
        (MULTICLASS, torch.full((15,), 4), None, "classes from 0 to 3"),
        (BINARY, torch.full((15,), 2), 3, r"classes from 0 to 1 \(got \[2\]\)"),
        ("regression", torch.zeros(15), torch.empty(0, dtype=torch.long), "at least one row"),
    ],
)
def test_targets_that_do_not_fit(mode: str, target: Tensor, index: Any, message: str) -> None:
    goat = make(mode, explanation_type="phenomenon")
    with pytest.raises(ValueError, match=message):
        goat(X, EDGE_INDEX, target=target, index=index)
    elsewhere = torch.where(torch.arange(15) == 3, 1, -1)  # rows that are not explained need no class
    assert goat(X, EDGE_INDEX, target=elsewhere, index=3).edge_mask.any()


def test_thresholds_and_subgraphs_go_by_sign() -> None:
    explanation = make()(X, EDGE_INDEX, index=torch.arange(8))
    positive, negative = int((explanation.edge_mask > 0).sum()), int((explanation.edge_mask < 0).sum())
    assert min(positive, negative) > 2
    assert explanation.get_explanation_subgraph().num_edges == positive
    assert explanation.get_complement_subgraph().num_edges == 27 - positive - negative
    top = make(threshold_config=("topk", 2))(X, EDGE_INDEX, index=torch.arange(8)).edge_mask
    assert_same(top.sum(), explanation.edge_mask.topk(2).values.sum())
    hard = explanation.threshold("topk_hard", 2)
    assert torch.equal(hard.edge_mask, (top > 0).double())
    assert [hard.get_explanation_subgraph().num_edges, hard.get_complement_subgraph().num_edges] == [2, 25]
    assert torch.equal(explanation.threshold("hard", 0.5).edge_mask, (explanation.edge_mask > 0.5).float())


@pytest.mark.parametrize("explanation_type", ["model", "phenomenon"])
@pytest.mark.parametrize("node_mask_type", [None, *NODE_MASK_TYPES])
def test_metrics_of_thresholded_masks(node_mask_type: str | None, explanation_type: str) -> None:
    options = {"explanation_type": explanation_type, "node_mask_type": node_mask_type, "edge_mask_type": "object"}
    goat = make(level="graph", threshold_config=("topk_hard", 9), **options)
    edge_index = EDGE_INDEX[:, EDGE_INDEX[0] != EDGE_INDEX[1]]  # PyG's edge masks do not reach self-loops
    target = torch.tensor([0, 1, 2]) if explanation_type == "phenomenon" else None
    explanation = goat(X, edge_index, target=target, **KWARGS)
    mask = explanation.edge_mask
    assert set(mask.tolist()) == {0.0, 1.0}
    found = fidelity(goat, explanation)
    if node_mask_type is None and explanation_type == "model":
        for number, part in zip(found, (1 - mask, mask), strict=True):
            predicted = EdgeMaskedModel(goat.model)(part, X, edge_index, **KWARGS).argmax(dim=1)
            assert number == pytest.approx(float((predicted != explanation.target).double().mean()))
    assert 0 <= characterization_score(*map(torch.tensor, found)) <= 1
    assert unfaithfulness(goat, explanation) <= 1


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = make(node_mask_type="attributes", edge_mask_type="object")(X, EDGE_INDEX, index=3)
    explanation.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    assert (tmp_path / "graph.png").stat().st_size > 0
    scores: list[Tensor] = []  # PyG draws them with pandas, which need not be installed
    monkeypatch.setattr("torch_geometric.explain.explanation._visualize_score", lambda score, *_: scores.append(score))
    explanation.visualize_feature_importance(str(tmp_path / "features.png"))
    assert_same(scores[0], explanation.node_mask.sum(dim=0))
