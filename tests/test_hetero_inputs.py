"""Node features, wrappers, errors and a trained model of heterogeneous graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hetero import CITES, KNOWS, WRITES, WRITTEN, HeteroGNN, Types, full_masks, hetero_gnn, hetero_graph, total
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, HeteroData
from torch_geometric.explain.algorithm.captum import to_captum_input
from torch_geometric.nn import to_captum_model

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

DATA = hetero_graph()
ARGUMENTS = (DATA.x_dict, DATA.edge_index_dict)
NOTHING = {key: torch.zeros_like(x) for key, x in DATA.x_dict.items()}


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["sage", "graph", "to_hetero"])
@pytest.mark.parametrize(("level", "target"), [("node", (2, 1)), ("node", (5, 0)), ("graph", 2)])
def test_features_of_all_node_types_add_up(kind: str, level: str, target: Any) -> None:
    model = hetero_gnn(kind, level)
    row = target if isinstance(target, tuple) else (0, target)
    attributions, delta = GOAtAttribution(model, mask_type="node").attribute(DATA.x_dict, target, ARGUMENTS[1], True)
    assert_same(total(attributions), model(*ARGUMENTS)[row] - model(NOTHING, ARGUMENTS[1])[row], 1e-9)
    assert delta.abs() < 1e-9
    assert {key: attribution.shape for key, attribution in attributions.items()} == {
        key: x.shape for key, x in DATA.x_dict.items()
    }


def test_forms_of_features() -> None:
    goat = GOAtAttribution(hetero_gnn(level="graph"), mask_type="node")
    features = tuple(DATA.x_dict.values())
    expected = goat.attribute(DATA.x_dict, 2, (DATA.edge_index_dict,))
    assert all(attribution.any() for attribution in expected.values())
    assert_same(goat.attribute(DATA.x_dict, 2, DATA), expected)
    assert_same(goat.attribute(features, 2, DATA), tuple(expected.values()))
    doubled = {key: torch.stack([x, 2 * x]) for key, x in DATA.x_dict.items()}
    many, delta = goat.attribute(doubled, [2, 0], DATA, return_convergence_delta=True)
    assert_same({key: attribution[0] for key, attribution in many.items()}, expected)
    alone = goat.attribute({key: x[1] for key, x in doubled.items()}, 0, DATA)
    assert_same({key: attribution[1] for key, attribution in many.items()}, alone)
    assert delta.shape == (2,)
    assert_same(goat.compute_convergence_delta(many, None, doubled, [2, 0], DATA), delta)


def test_features_of_a_batch() -> None:
    graphs, targets = [hetero_graph(seed) for seed in range(2)], [2, 0]
    batch, goat = Batch.from_data_list(graphs), GOAtAttribution(hetero_gnn(level="graph"), mask_type="node")
    attributions = goat.attribute(batch.x_dict, targets, batch)
    alone = [goat.attribute(graph.x_dict, target, graph) for graph, target in zip(graphs, targets, strict=True)]
    for key, attribution in attributions.items():
        assert_same(attribution, torch.cat([one[key] for one in alone]))


@pytest.mark.parametrize("mask_type", ["edge", "node"])
def test_pygs_wrapper_for_captum(mask_type: Any) -> None:
    """Its metadata say in which order the inputs come."""
    model = hetero_gnn()
    metadata = (["author", "paper"], [KNOWS, WRITTEN, CITES, WRITES])
    x_dict, edges = (
        {key: dictionary[key] for key in keys} for dictionary, keys in zip(ARGUMENTS, metadata, strict=True)
    )
    inputs, arguments = to_captum_input(x_dict, edges, mask_type)
    inputs = tuple(tensor.detach().double() for tensor in inputs)
    wrapper = to_captum_model(model, mask_type, 2, metadata)
    goat = GOAtAttribution(model, mask_type=mask_type)
    named = dict(zip(metadata[mask_type == "edge"], (tensor[0] for tensor in inputs), strict=True))
    expected = goat.attribute(named, (2, 1), arguments)
    for given in (arguments, (*arguments[:-1], dict(reversed(edges.items())))):
        attributions = GOAtAttribution(wrapper).attribute(inputs, 1, given)
        assert [attribution.shape for attribution in attributions] == [tensor.shape for tensor in inputs]
        assert_same(dict(zip(named, (attribution[0] for attribution in attributions), strict=True)), expected)
    inputs, arguments = to_captum_input(x_dict, edges, "node_and_edge")
    inputs = tuple(tensor.detach().double() for tensor in inputs)
    found = GOAtAttribution(to_captum_model(model, "node_and_edge", 2, metadata)).attribute(inputs, 1, arguments)
    both = GOAtAttribution(model, mask_type="node_and_edge")
    features, masks = both.attribute((x_dict, full_masks(DATA)), (2, 1), (edges,))
    expected = [*(features[key] for key in metadata[0]), *(masks[key] for key in metadata[1])]
    assert_same(dict(enumerate(scores[0] for scores in found)), dict(enumerate(expected)))


def test_a_model_may_put_tensors_into_its_dictionaries() -> None:
    class Scaled(HeteroGNN):
        def forward(self, x_dict: Types, edge_index_dict: Types) -> Tensor:  # type: ignore[override]
            x_dict["paper"] = 2 * x_dict["paper"]
            return super().forward(x_dict, edge_index_dict)

    class Overwriting(HeteroGNN):
        def forward(self, x_dict: Types, edge_index_dict: Types) -> Tensor:  # type: ignore[override]
            x_dict["paper"].mul_(2)
            return super().forward(x_dict, edge_index_dict)

    plain, x_dict = hetero_gnn(), dict(DATA.x_dict)
    expected = GOAtAttribution(plain).attribute(
        full_masks(DATA), (2, 1), (x_dict | {"paper": 2 * x_dict["paper"]}, ARGUMENTS[1])
    )
    scaled, overwriting = Scaled().double().eval(), Overwriting().double().eval()
    scaled.gnn = overwriting.gnn = plain.gnn
    assert_same(GOAtAttribution(scaled).attribute(full_masks(DATA), (2, 1), (x_dict, ARGUMENTS[1])), expected)
    assert x_dict["paper"] is DATA["paper"].x
    copies = {key: x.clone() for key, x in x_dict.items()}
    with pytest.raises(UnsupportedModelError, match="changes its argument 'x_dict' in place"):
        GOAtAttribution(overwriting).attribute(full_masks(DATA), (2, 1), (copies, ARGUMENTS[1]))


MASKS = full_masks(DATA)
ORDER = r"\('paper', 'cites', 'paper'\), \('author', 'writes', 'paper'\), \('author', 'knows', 'author'\), .*"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (MASKS[CITES], rf"Expected 4 mask\(s\), one for each of {ORDER} in this order \(got 1 masks\)"),
        (tuple(MASKS.values())[:3], r"\(got 3 masks\)"),
        ({CITES: MASKS[CITES]}, rf"mask for each of {ORDER} \(got masks for \('paper', 'cites', 'paper'\)\)"),
        (MASKS | {("a", "b", "c"): torch.ones(2)}, r"'by', 'author'\) \(got masks for .* \('a', 'b', 'c'\)\)"),
        (MASKS | {WRITES: torch.ones(6)}, r"7 for \('author', 'writes', 'paper'\) \(got 6\)"),
        (MASKS | {WRITES: torch.ones(1, 7)}, r"all \[num_edges\], or all .* \(got \[\[9\], \[1, 7\], \[0\], \[6\]\]\)"),
        (full_masks(DATA, 2) | {WRITES: torch.ones(3, 7)}, r"with the same number of masks \(got \[\[2, 9\], \[3, 7\]"),
        (MASKS | {WRITES: torch.ones(7, dtype=torch.long)}, r"floating point numbers.* \(got torch.int64 \[7\]\)"),
        (MASKS | {WRITES: [1.0]}, r"inputs that are tensors \(got list\)"),
        ((MASKS, MASKS[CITES]), "Expected edge masks as one dictionary, or as tensors"),
        ({}, r"the edge mask \(got 1 inputs\)"),
    ],
)
def test_masks_that_do_not_fit(inputs: Any, message: str) -> None:
    for arguments in (ARGUMENTS, DATA):
        with pytest.raises(ValueError, match=message):
            GOAtAttribution(hetero_gnn()).attribute(inputs, (2, 1), arguments)


@pytest.mark.parametrize(
    ("mask_type", "inputs", "arguments", "message"),
    [
        ("node", tuple(DATA.x_dict.values()), ARGUMENTS[1:], "types as a dictionary, or the rest .* as one HeteroData"),
        ("node", tuple(DATA.x_dict.values())[:1], DATA, r"each of 'paper', 'author' \(got 1 inputs\)"),
        ("node", {"paper": DATA["paper"].x}, DATA, r"each of 'paper', 'author' \(got 'paper'\)"),
        ("node", {"paper": DATA["paper"].x, "author": DATA["author"].x[None]}, DATA, r"all \[B, num_nodes, ...\]"),
        ("node_and_edge", (DATA["paper"].x, MASKS), DATA, "Expected"),
    ],
)
def test_features_that_do_not_fit(mask_type: Any, inputs: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOAtAttribution(hetero_gnn(), mask_type=mask_type).attribute(inputs, (2, 1), arguments)


def test_sparse_matrices_and_models_without_a_graph() -> None:
    sparse = {CITES: torch.eye(6).to_sparse()}
    with pytest.raises(ValueError, match="got another sparse adjacency matrix for 'edge_index_dict'"):
        GOAtAttribution(hetero_gnn()).attribute(MASKS, (2, 1), (DATA.x_dict, sparse))
    with pytest.raises(ValueError, match=r"a model without message passing \(got a dictionary\)"):
        GOAtAttribution(nn.Linear(4, 2).eval()).attribute({"x": DATA["paper"].x}, 1)
    with pytest.raises(ValueError, match=r"Expected tensors for .* the types of the inputs"):
        GOAtAttribution(hetero_gnn()).attribute(MASKS, (2, 1), DATA, feature_mask={CITES: torch.arange(9)})
    with pytest.raises(ValueError, match=r"one start point per input, or one for all \(got 2 for 4\)"):
        GOAtAttribution(hetero_gnn()).compute_convergence_delta(MASKS, (0.0, 0.0), MASKS, (2, 1), DATA)


def _trained() -> tuple[HeteroGNN, HeteroData]:
    """A paper's class is whether its authors' first feature is positive on average; learnt in float32."""
    torch.manual_seed(0)
    data, papers, authors = HeteroData(), 120, 60
    data["paper"].x, data["author"].x = torch.randn(papers, 4), torch.randn(authors, 3)
    writes = torch.stack([torch.randint(0, authors, (300,)), torch.randint(0, papers, (300,))])
    data[WRITES].edge_index, data[WRITTEN].edge_index = writes, writes.flip(0)
    data[CITES].edge_index = torch.randint(0, papers, (2, 200))
    data[KNOWS].edge_index = torch.empty(2, 0, dtype=torch.long)
    first = torch.zeros(papers).index_add(0, writes[1], data["author"].x[writes[0], 0])
    labels, model = (first > 0).long(), HeteroGNN("sage", metadata=data.metadata())
    model(data.x_dict, data.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model(data.x_dict, data.edge_index_dict), labels).backward()
        optimizer.step()
    with torch.no_grad():
        assert (model(data.x_dict, data.edge_index_dict).argmax(dim=1) == labels).float().mean() > 0.9
    return model.eval(), data


@pytest.mark.slow
def test_a_trained_model() -> None:
    """Complete to rounding, and the edges that matter are those from authors to papers."""
    model, data = _trained()
    goat, masks = GOAtAttribution(model), full_masks(data)
    nothing = {key: torch.zeros_like(mask) for key, mask in masks.items()}
    with torch.no_grad():
        whole, without = (EdgeMaskedModel(model)(given, data) for given in (masks, nothing))
    sizes = dict.fromkeys(masks, 0.0)
    for paper in range(0, 120, 12):
        label = int(whole[paper].argmax())
        attributions = goat.attribute(masks, (paper, label), data)
        expected = whole[paper, label] - without[paper, label]
        size = (
            torch.stack([attribution.abs().sum() for attribution in attributions.values()]).sum()
            + whole[paper, label].abs()
        )
        assert (total(attributions) - expected).abs() <= 1e-5 * size
        sizes = {key: sizes[key] + float(attribution.abs().sum()) for key, attribution in attributions.items()}
    assert max(sizes, key=lambda key: sizes[key]) == WRITES
