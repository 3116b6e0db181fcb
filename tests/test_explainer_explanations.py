"""What PyG makes of GOAtExplainer's explanations: thresholds, subgraphs, metrics, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from explainer_subjects import EDGE_INDEX, KWARGS, NODE_MASK_TYPES, X, assert_same, make
from torch import Tensor
from torch_geometric.explain.metric import characterization_score, fidelity, unfaithfulness

from captum_goat import EdgeMaskedModel


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
    fidelities = fidelity(goat, explanation)
    if node_mask_type is None and explanation_type == "model":
        for number, part in zip(fidelities, (1 - mask, mask), strict=True):
            predicted = EdgeMaskedModel(goat.model)(part, X, edge_index, **KWARGS).argmax(dim=1)
            assert number == pytest.approx(float((predicted != explanation.target).double().mean()))
    assert 0 <= characterization_score(*map(torch.tensor, fidelities)) <= 1
    assert unfaithfulness(goat, explanation) <= 1


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = make(node_mask_type="attributes", edge_mask_type="object")(X, EDGE_INDEX, index=3)
    explanation.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    assert (tmp_path / "graph.png").stat().st_size > 0
    scores: list[Tensor] = []  # PyG draws them with pandas, which need not be installed
    monkeypatch.setattr("torch_geometric.explain.explanation._visualize_score", lambda score, *_: scores.append(score))
    explanation.visualize_feature_importance(str(tmp_path / "features.png"))
    assert_same(scores[0], explanation.node_mask.sum(dim=0))
