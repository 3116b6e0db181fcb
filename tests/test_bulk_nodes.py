"""Explanations of many nodes: what is chosen, what is returned, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import randomize
from test_bulk_nodes_exact import EXACT, Stack, graph, model
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from captum_goat import GOAtAttribution
from captum_goat.nodes import NodeExplainer, explain_nodes


def test_chosen_nodes_keep_their_order() -> None:
    gcn, data = model("gcn"), graph()
    everything, chosen = explain_nodes(gcn, data), explain_nodes(gcn, data, [9, 2, 9, 43])
    assert chosen.nodes.tolist() == [9, 2, 9, 43]
    for position, node in enumerate([9, 2, 9, 43]):
        torch.testing.assert_close(chosen.edge_mask(position), everything.edge_mask(node))
        torch.testing.assert_close(chosen.outputs[position], gcn(data.x, data.edge_index)[node])
    mask = torch.zeros(44, dtype=torch.bool).index_fill(0, torch.tensor([2, 9]), True)
    assert explain_nodes(gcn, data, mask).nodes.tolist() == [2, 9]
    assert len(chosen[3].edges) == 0  # an isolated node


def test_isolated_nodes_alone() -> None:
    data = graph()
    assert explain_nodes(model("gcn"), data, [41, 42]).edges.numel() == 0
    lonely = Data(x=data.x, edge_index=torch.empty(2, 0, dtype=torch.long))
    found = explain_nodes(model("sage"), lonely)
    assert len(found) == 44
    assert found.edges.numel() == 0
    assert not found.deltas.any()


@pytest.mark.slow
def test_targets() -> None:
    gcn, data = model("gcn"), graph()
    output = gcn(data.x, data.edge_index)
    cases: list[tuple[Any, Tensor]] = [
        ("predicted", output.argmax(dim=1)[:5]),
        ("label", data.y[:5]),
        (2, torch.full((5,), 2)),
        ([0, 1, 2, 0, 1], torch.tensor([0, 1, 2, 0, 1])),
        (torch.tensor([1, 1, 0, 0, 2]), torch.tensor([1, 1, 0, 0, 2])),
    ]
    nodes = list(range(5))
    every = explain_nodes(gcn, data, nodes, target="all")
    assert every.targets is None
    assert every.deltas.shape == (5, 3)
    for target, classes in cases:
        found = explain_nodes(gcn, data, nodes, target=target)
        assert found.targets.tolist() == classes.tolist()
        for node in nodes:
            torch.testing.assert_close(found.edge_mask(node), every.edge_mask(node)[:, classes[node]])


def test_one_number_per_node() -> None:
    single = Stack(GCNConv(4, 6), GCNConv(6, 1), end=lambda x: x.squeeze(-1))
    gcn, data = randomize(single.double(), 0), graph()
    found = explain_nodes(gcn, data, [3], target=None)
    assert found.targets is None
    mask = torch.ones(data.num_edges, dtype=torch.float64)
    expected = GOAtAttribution(gcn).attribute(mask, (3,), data)
    torch.testing.assert_close(found.edge_mask(0), expected, rtol=0, atol=EXACT)


def test_arguments_by_a_function() -> None:
    gcn, data = model("gcn"), graph()
    named = Data(features=data.x, edge_index=data.edge_index, num_nodes=44)
    found = explain_nodes(gcn, named, [3], arguments=lambda cut: (cut.features, cut.edge_index))
    torch.testing.assert_close(found.edge_mask(0), explain_nodes(gcn, data, [3]).edge_mask(0))


def test_explanations_as_pyg_has_them() -> None:
    gcn, data = model("gcn"), graph()
    found = explain_nodes(gcn, data, [5, 11])
    part = found.subgraph(1)
    assert part.target.tolist() == found.targets[1:].tolist()
    assert part.validate()
    assert int(part.n_id[part.index]) == 11
    assert torch.equal(part.n_id[part.edge_index], data.edge_index[:, part.e_id])
    assert torch.equal(part.x, data.x[part.n_id])
    assert torch.equal(part.edge_mask, found[1].attributions)


def test_explainer_is_used_again() -> None:
    explainer, data = NodeExplainer(model("tag"), graph()), graph()
    assert explainer.num_hops == 3
    assert explainer([1]).edges.tolist() == explain_nodes(model("tag"), data, [1]).edges.tolist()
    with pytest.raises(IndexError, match=r"Expected the position of one of 1 explained nodes \(got 1\)"):
        explainer([1])[1]
    assert repr(explainer([41])) == "NodeExplanations(1 nodes, 0 edges)"


def test_the_model_is_left_as_it_was() -> None:
    gcn = model("gcn")
    explain_nodes(gcn, graph(), [1])
    for module in gcn.modules():
        assert not module._forward_pre_hooks
        assert not getattr(module, "_propagate_forward_pre_hooks", None)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"nodes": [44]}, ValueError, "Expected nodes from 0 to 43 (got 44 to 44)"),
        ({"nodes": [0.5]}, ValueError, "Expected nodes as integers or as a mask (got torch.float32)"),
        ({"nodes": []}, ValueError, "Expected one node or more (got none)"),
        ({"target": "best"}, ValueError, "Expected target to be 'predicted', 'label', 'all', a class"),
        ({"target": [1, 2]}, ValueError, "one class for each of 44 nodes"),
        ({"max_edges": 0}, ValueError, "Expected max_edges of at least 1 (got 0)"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        explain_nodes(model("gcn"), graph(), **options)
    assert message in str(raised.value)


def test_wrong_models_and_graphs() -> None:
    data = graph()
    with pytest.raises(ValueError, match="Expected a model in evaluation mode"):
        explain_nodes(model("gcn").train(), data)
    with pytest.raises(ValueError, match="edges of a model with message passing"):
        explain_nodes(nn.Linear(4, 3).eval(), data)
    with pytest.raises(TypeError, match="Expected one homogeneous graph"):
        explain_nodes(model("gcn"), [data])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Expected graphs with x, which Stack\.forward needs"):
        explain_nodes(model("gcn"), Data(edge_index=data.edge_index, num_nodes=44))
    with pytest.raises(ValueError, match="Expected one integer y per node"):
        explain_nodes(model("gcn"), Data(x=data.x, edge_index=data.edge_index), target="label")
    pooled = Stack(GCNConv(4, 3), end=lambda x: x.mean(dim=0, keepdim=True)).double().eval()
    with pytest.raises(ValueError, match="Expected one row of output per node"):
        explain_nodes(pooled, data)
