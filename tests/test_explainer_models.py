"""GOAtExplainer: models, arguments and targets that it takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from explainer_subjects import BATCH, BINARY, EDGE_INDEX, GCN, KWARGS, MULTICLASS, X, assert_same, make
from torch import Tensor
from torch_geometric.explain.config import ExplainerConfig, MaskType, ModelConfig

from captum_goat import GOAtAttribution, UnsupportedModelError


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
    raw, probs = (KeywordOnly(MULTICLASS, "graph", return_type) for return_type in ("raw", "probs"))
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
