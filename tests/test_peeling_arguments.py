"""Peeling of several masks, nodes, edge weights, no edges and logits, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution, FeatureAblation, Saliency
from conftest import make_gnn
from peeling_graphs import one_graph
from test_peeling import arguments_of, ones
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphConv

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.compare.explainers.graphs import Graphs, MaskedTargets
from captum_goat.peeling import Peeling
from captum_goat.peeling.order import ORDERS


def test_several_masks() -> None:
    data, goat = one_graph(), GOAtAttribution(make_gnn("gcn"))
    masks = torch.rand(3, data.num_edges, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for order in ORDERS:
        peeling = Peeling(goat, 4, order)  # type: ignore[arg-type]
        scores, drops = peeling.attribute(masks, [0, 1, 2], (data.x, data.edge_index), return_drops=True)
        for number in range(3):
            alone, drop = peeling.attribute(masks[number], number, (data.x, data.edge_index), return_drops=True)
            assert torch.equal(scores[number], alone)
            torch.testing.assert_close(drops[number], drop[0])


def test_nodes() -> None:
    data, model = one_graph(), make_gnn("gcn", pool=None)
    for method, mask in (
        (GOAtAttribution(model), ones(data)),
        (FeatureAblation(EdgeMaskedModel(model)), ones(data).view(1, -1)),
    ):
        peeling = Peeling(method, 3)
        scores, drops = peeling.attribute(mask, (2, 1), (data.x, data.edge_index), return_drops=True)
        assert scores.shape == mask.shape
        nothing = EdgeMaskedModel(model)(0 * ones(data), data.x, data.edge_index)
        expected = (model(data.x, data.edge_index) - nothing)[2, 1].detach()
        torch.testing.assert_close(drops.sum(), expected, rtol=0, atol=1e-9)


def test_cut_weights() -> None:
    """What belongs to edges goes with them."""

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GraphConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.conv(x, edge_index, edge_weight).relu().sum(dim=0, keepdim=True)

    torch.manual_seed(0)
    data, model = one_graph(), Weighted().double().eval()
    data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    arguments = data.x, data.edge_index, data.edge_weight
    goat = GOAtAttribution(model)
    masked, cut = (Peeling(goat, 1, removal=each).attribute(ones(data), 1, arguments) for each in ("mask", "cut"))
    assert torch.equal(masked, cut)
    peeling = Peeling(goat, 3, removal="cut")
    scores, drops = peeling.attribute(ones(data), 1, arguments, return_drops=True)
    assert torch.equal(peeling.attribute(ones(data), 1, data), scores)
    difference = model(*arguments) - model(data.x, data.edge_index[:, :0], data.edge_weight[:0])
    torch.testing.assert_close(drops.sum(), difference[0, 1].detach(), rtol=0, atol=1e-9)


def test_graphs_without_edges() -> None:
    data = Data(x=torch.rand(3, 4, dtype=torch.float64), edge_index=torch.empty(2, 0, dtype=torch.long))
    scores, drops = Peeling(GOAtAttribution(make_gnn())).attribute(ones(data), 0, data, return_drops=True)
    assert scores.shape == (0,)
    assert drops.tolist() == [[0.0] * 5]


def test_softmax_is_left_out() -> None:
    """GOAt attributes logits, so the drops are those of logits."""

    class Probabilities(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = make_gnn("gin")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.logits(x, edge_index).softmax(dim=-1)

    data, model = one_graph(), Probabilities().eval()
    for each in (model, model.logits):
        _, drops = Peeling(GOAtAttribution(each), 3).attribute(ones(data), 1, arguments_of(data)[:2], return_drops=True)
        nothing = EdgeMaskedModel(model.logits)(0 * ones(data), data.x, data.edge_index)
        expected = (model.logits(data.x, data.edge_index) - nothing)[0, 1].detach()
        torch.testing.assert_close(drops.sum(), expected, rtol=0, atol=1e-9)


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    data, peeling = one_graph(), Peeling(GOAtAttribution(make_gnn()), 2)
    for shown in (None, False, True):
        peeling.attribute(ones(data), 1, data, show_progress=shown)
        assert ("2/2" in capsys.readouterr().err) is (shown is True)


class Broken(Attribution):
    def __init__(self, forward_func: Any, result: Any) -> None:
        super().__init__(forward_func)
        self.result = result

    def attribute(self, inputs: Tensor, **_: Any) -> Any:
        return self.result


def test_refuses() -> None:
    data, goat = one_graph(), GOAtAttribution(make_gnn())
    with pytest.raises(TypeError, match=r"Expected a captum Attribution to peel with \(got GNN\)"):
        Peeling(make_gnn())  # type: ignore[arg-type]
    for rounds in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="Expected rounds to be an integer from 1 on"):
            Peeling(goat, rounds)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one of most_important_first, .* \(got 'top'\)"):
        Peeling(goat, order="top")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one of mask, cut \(got 'delete'\)"):
        Peeling(goat, removal="delete")  # type: ignore[arg-type]
    for turns in ((1,), (1, 0), (2.0, 1), (True, 1)):
        with pytest.raises(ValueError, match=r"Expected turns to be two integers from 1 on \(got \("):
            Peeling(goat, order="both", turns=turns)  # type: ignore[arg-type]
    peeling = Peeling(goat)
    with pytest.raises(ValueError, match=r"Expected one edge mask.*\(got 2 inputs\)"):
        peeling.attribute((ones(data), ones(data)), 1, data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(got a dictionary\)"):
        peeling.attribute({"edges": ones(data)}, 1, data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Expected an edge mask of floating point numbers.*int64"):
        peeling.attribute(ones(data).long(), 1, data)
    with pytest.raises(ValueError, match="return_drops=True"):
        peeling.attribute(ones(data), 1, data, return_convergence_delta=True)
    with pytest.raises(ValueError, match=f"Expected a mask of {data.num_edges} edges"):
        peeling.attribute(ones(data)[1:], 1, data)
    with pytest.raises(ValueError, match=r"Data or Batch \(got HeteroData\)"):
        peeling.attribute(ones(data), 1, data, graphs=HeteroData())
    with pytest.raises(ValueError, match=r"Expected one mask for removal='cut'.*\(got 2\)"):
        Peeling(goat, removal="cut").attribute(ones(data).expand(2, -1), 1, data)
    known = MaskedTargets(make_gnn(), Graphs.of(data, torch.tensor([1])))
    with pytest.raises(ValueError, match=r"Expected edges to cut out.*\(got no arguments\)"):
        Peeling(Saliency(known), removal="cut").attribute(ones(data).view(1, -1), graphs=data)
    for result, message in (
        (ones(data)[1:], "mask's shape"),
        ((ones(data), 0), r"\(got tuple\)"),
        (ones(data) / 0, "infinite or nan"),
    ):
        with pytest.raises(ValueError, match=message):
            Peeling(Broken(goat.forward_func, result)).attribute(ones(data), graphs=data)
    assert not peeling.has_convergence_delta()
