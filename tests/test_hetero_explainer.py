"""GOAtExplainer inside PyG's Explainer on heterogeneous graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import combinations
from hetero import CHANNELS, CITES, NODES, WRITES, HeteroGNN, full_masks, hetero_gnn, hetero_graph, total, without_edges
from torch_geometric.data import Batch
from torch_geometric.explain import Explainer, HeteroExplanation

from captum_goat import GOAtAttribution, GOAtExplainer

LEVELS = ("graph", "node", "edge")
MASK_TYPES = [(None, "object"), ("object", None), ("attributes", None), ("common_attributes", None)]
DATA = Batch.from_data_list([hetero_graph(seed) for seed in range(3)])
LINKS = torch.tensor([[0, 7, 12], [1, 7, 14]])
KWARGS: dict[str, dict[str, Any]] = {"graph": {"batch_dict": DATA.batch_dict}, "node": {}, "edge": {"links": LINKS}}


def make(level: str = "node", end: str = "raw", model: Any = None, **options: Any) -> Explainer:
    masks = {"edge_mask_type": "object"} if "node_mask_type" not in options else {}
    return Explainer(
        model or hetero_gnn("sage", level, end),
        algorithm=GOAtExplainer(),
        model_config={"mode": "multiclass_classification", "task_level": level, "return_type": end},
        **{"explanation_type": "model", **masks, **options},
    )


def explain(goat: Explainer, level: str, **options: Any) -> HeteroExplanation:
    return goat(DATA.x_dict, DATA.edge_index_dict, **KWARGS[level], **options)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("level", "end", "node_mask_type", "edge_mask_type"), combinations(LEVELS, ["raw", "probs"], MASK_TYPES)
)
def test_masks_of_all_types_add_up(level: str, end: str, node_mask_type: Any, edge_mask_type: Any) -> None:
    goat = make(level, end, node_mask_type=node_mask_type, edge_mask_type=edge_mask_type)
    model, name = hetero_gnn("sage", level), "node_mask" if node_mask_type else "edge_mask"
    nothing = {key: torch.zeros_like(x) for key, x in DATA.x_dict.items()}
    base = (nothing, DATA.edge_index_dict) if node_mask_type else (DATA.x_dict, without_edges(DATA))
    change = model(DATA.x_dict, DATA.edge_index_dict, **KWARGS[level]) - model(*base, **KWARGS[level])
    for index in (None, 1, torch.tensor([2, 0])):
        explanation = explain(goat, level, index=index)
        assert isinstance(explanation, HeteroExplanation)
        assert explanation.validate()
        assert explanation.available_explanations == [name]
        masks = explanation.collect(name)
        values = change.gather(1, explanation.target.unsqueeze(1)).squeeze(1)
        assert_same(total(masks), values[slice(None) if index is None else index].sum())
        assert not any(mask.requires_grad for mask in masks.values())
        if node_mask_type:
            rows = {key: 1 if node_mask_type == "common_attributes" else 3 * size for key, size in NODES.items()}
            columns = {key: 1 if node_mask_type == "object" else size for key, size in CHANNELS.items()}
            assert {key: mask.shape for key, mask in masks.items()} == {key: (rows[key], columns[key]) for key in NODES}


@pytest.mark.parametrize("end", ["raw", "probs"])
def test_equals_goat_attribution(end: str) -> None:
    explanation = explain(make("graph", end), "graph")
    goat = GOAtAttribution(hetero_gnn("sage", "graph"))
    assert_same(explanation.collect("edge_mask"), goat.attribute(full_masks(DATA), explanation.target, DATA))
    row = explain(make("node", end), "node", index=7)
    target = (7, int(row.target[7]))
    assert_same(row.collect("edge_mask"), GOAtAttribution(hetero_gnn()).attribute(full_masks(DATA), target, DATA))
    nodes = explain(make("node", end, node_mask_type="attributes"), "node", index=7)
    features = GOAtAttribution(hetero_gnn(), mask_type="node").attribute(DATA.x_dict, target, DATA)
    assert_same(nodes.collect("node_mask"), features)


def test_graphs_of_a_batch_that_are_not_explained_have_no_part() -> None:
    for end in ("raw", "probs"):
        edge_masks = explain(make("graph", end), "graph", index=torch.tensor([0, 2])).collect("edge_mask")
        whole = explain(make("graph", end), "graph").collect("edge_mask")
        for key, edge_mask in edge_masks.items():
            outside = DATA[key[0]].batch[DATA[key].edge_index[0]] == 1
            assert not edge_mask[outside].any()
            assert_same(edge_mask[~outside], whole[key][~outside])


def test_subgraphs_and_thresholds() -> None:
    explanation = explain(make(), "node", index=torch.arange(6))
    masks = explanation.collect("edge_mask")
    subgraph, complement = explanation.get_explanation_subgraph(), explanation.get_complement_subgraph()
    for key, mask in masks.items():
        assert torch.equal(subgraph[key].edge_index, DATA[key].edge_index[:, mask > 0])
        assert complement[key].num_edges == int((mask == 0).sum())
    assert all((masks[key] < 0).any() for key in (CITES, WRITES))
    hard = explanation.threshold("topk_hard", 2)
    assert [int(edge_mask.sum()) for edge_mask in hard.collect("edge_mask").values()] == [2, 2, 0, 2]
    nodes = explain(make(node_mask_type="object"), "node", index=torch.arange(6))
    subgraph = nodes.get_explanation_subgraph()
    for key, mask in nodes.collect("node_mask").items():
        assert subgraph[key].num_nodes == int((mask > 0).sum())


@pytest.mark.skipif(not hasattr(HeteroExplanation, "visualize_graph"), reason="PyG cannot draw it yet")
def test_pictures(tmp_path: Path) -> None:
    explanation = explain(make(edge_mask_type="object"), "node", index=3)
    explanation.visualize_graph(str(tmp_path / "graph.png"))
    assert (tmp_path / "graph.png").stat().st_size > 0


def test_edges_and_features_at_once() -> None:
    explanation = explain(make(node_mask_type="attributes", edge_mask_type="object"), "node", index=3)
    masks = [explanation[key].node_mask for key in NODES] + [explanation[key].edge_mask for key in DATA.edge_types]
    model = hetero_gnn("sage", "node")
    nothing = model({key: 0 * x for key, x in DATA.x_dict.items()}, without_edges(DATA))
    chosen = 3, explanation.target[3]
    assert_same(total(masks), (model(DATA.x_dict, DATA.edge_index_dict) - nothing)[chosen])
    likes = ("paper", "likes", "paper")
    edges = {CITES: DATA[CITES].edge_index, likes: DATA[CITES].edge_index.flip(0)}
    model = HeteroGNN("sage", metadata=(["paper"], list(edges))).double().eval()
    x_dict = {"paper": DATA["paper"].x}
    model(x_dict, edges)
    for return_type in ("raw", "probs"):
        explanation = make("node", return_type, model, node_mask_type="attributes", edge_mask_type="object")(
            x_dict, edges, index=3
        )
        masks = [explanation["paper"].node_mask, *(explanation[key].edge_mask for key in edges)]
        nothing = model({"paper": 0 * x_dict["paper"]}, {key: edge_index[:, :0] for key, edge_index in edges.items()})
        assert_same(total(masks), (model(x_dict, edges) - nothing)[3, explanation.target[3]])
