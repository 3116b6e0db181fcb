"""Peeling with other methods than GOAt, other forms of arguments, and in the benchmark."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution, FeatureAblation, IntegratedGradients, NoiseTunnel, Saliency
from conftest import make_gnn, random_edges
from test_peeling import TARGET, Seen, arguments_of, ones
from test_peeling import graphs as graphs
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain.algorithm.captum import CaptumModel
from torch_geometric.nn import GraphConv
from torch_geometric.utils import to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution, UpperHalfGradients
from captum_goat.benchmark.explainers.graphs import Graphs
from captum_goat.benchmark.explainers.masks import MaskedTargets
from captum_goat.benchmark.explainers.peeled import (
    PeeledGOAt,
    PeeledRandom,
    PeeledUpperHalfGradients,
)
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import precision_at_k
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.peeling import Peeling
from captum_goat.peeling_order import ORDERS


def one_graph() -> Data:
    x = torch.rand(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Data(x=x, edge_index=to_undirected(random_edges(7, 10, seed=2)))


@pytest.mark.parametrize("removal", ["mask", "cut"])
@pytest.mark.parametrize("whole", [True, False])
def test_integrated_gradients(removal: Any, whole: bool) -> None:
    """Captum's methods take a mask [1, E], with the graph as tensors or in one piece."""
    data, model = one_graph(), make_gnn("gin")
    method = Seen(IntegratedGradients(EdgeMaskedModel(model)))
    arguments = data if whole else (data.x, data.edge_index)
    mask = ones(data).view(1, -1)
    peeling = Peeling(method, 3, removal=removal)
    scores, drops = peeling.attribute(mask, 1, arguments, return_drops=True, n_steps=7)
    assert scores.shape == mask.shape
    assert not scores.requires_grad
    assert len(method.masks) == 3
    assert sorted(set(scores.view(-1).tolist())) == pytest.approx(torch.linspace(0, 1, len(scores.unique()) + 1)[1:])
    nothing = EdgeMaskedModel(model)(0 * mask, data.x, data.edge_index)
    torch.testing.assert_close(
        drops.sum(1), (model(data.x, data.edge_index) - nothing)[:, 1].detach(), atol=1e-9, rtol=0
    )


def test_batches_of_gradients(graphs: Batch) -> None:
    """Methods that take one gradient only, and the upper half, take a mask [E] of a batch."""
    masked = EdgeMaskedModel(make_gnn("gin"))
    for method in (Saliency(masked), UpperHalfGradients(masked)):
        for order in ORDERS:
            peeling = Peeling(method, 4, order)  # type: ignore[arg-type]
            options = {"abs": False} if isinstance(method, Saliency) else {}
            scores, drops = peeling.attribute(ones(graphs), TARGET, graphs, return_drops=True, **options)
            alone = [
                peeling.attribute(ones(each), TARGET[k : k + 1], each, return_drops=True, **options)
                for k, each in enumerate(graphs.to_data_list())
            ]
            assert torch.equal(torch.cat([each for each, _ in alone]), scores)
            torch.testing.assert_close(torch.cat([each for _, each in alone]), drops)


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


def test_wrappers() -> None:
    """NoiseTunnel inside, PyG's wrapper inside, a tuple of one mask, masks that ask for gradients."""
    data, model = one_graph(), make_gnn("gin")
    mask, arguments = ones(data).view(1, -1), (data.x, data.edge_index)
    goat = GOAtAttribution(model)
    expected, drops = Peeling(goat, 3).attribute(mask, 1, arguments, return_drops=True)
    (found,) = Peeling(goat, 3).attribute((mask.clone().requires_grad_(),), 1, arguments)
    assert torch.equal(found, expected)
    tunnel = Peeling(NoiseTunnel(goat), 3)
    smooth, others = tunnel.attribute(mask, 1, arguments, return_drops=True, nt_samples=2, stdevs=0.0)
    assert torch.equal(smooth, expected)
    torch.testing.assert_close(others, drops)
    wrapped = CaptumModel(model, "edge")
    scores, others = Peeling(GOAtAttribution(wrapped), 3).attribute(mask, 1, arguments, return_drops=True)
    assert torch.equal(scores, expected)
    torch.testing.assert_close(others, drops)
    _, others = Peeling(Saliency(wrapped), 3).attribute(mask, 1, arguments, return_drops=True)
    torch.testing.assert_close(others.sum(), drops.sum(), rtol=0, atol=1e-9)


def test_functions(graphs: Batch) -> None:
    """Any function of a mask, that names the graph among its arguments or has it already."""
    data = one_graph()
    masked = EdgeMaskedModel(make_gnn("gin"))

    class Wrapped(nn.Module):
        def forward(self, mask: Tensor, edge_index: Tensor, x: Tensor) -> Tensor:
            return masked(mask, x, edge_index)

    def function(mask: Tensor, edge_index: Tensor, x: Tensor) -> Tensor:
        return masked(mask, x, edge_index)

    mask = ones(data).view(1, -1)
    expected = Peeling(IntegratedGradients(masked), 3).attribute(mask, 1, (data.x, data.edge_index))
    for each in (Wrapped().eval(), function):
        peeling = Peeling(IntegratedGradients(each), 3)
        assert torch.equal(peeling.attribute(mask, 1, (data.edge_index, data.x)), expected)
    known = Graphs.of(graphs, TARGET)
    peeling = Peeling(UpperHalfGradients(MaskedTargets(masked.model, known)), 3)
    scores = peeling.attribute(ones(graphs).view(1, -1), graphs=graphs)
    direct = Peeling(UpperHalfGradients(masked), 3).attribute(ones(graphs), TARGET, graphs)
    assert torch.equal(scores[0], direct)
    with pytest.raises(ValueError, match="Or pass the graph that the mask is of as graphs=data"):
        peeling.attribute(ones(graphs).view(1, -1))


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
        with pytest.raises(ValueError, match="Expected rounds to be a whole number from 1 on"):
            Peeling(goat, rounds)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one of most_important_first, .* \(got 'top'\)"):
        Peeling(goat, order="top")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one of mask, cut \(got 'delete'\)"):
        Peeling(goat, removal="delete")  # type: ignore[arg-type]
    for turns in ((1,), (1, 0), (2.0, 1), (True, 1)):
        with pytest.raises(ValueError, match=r"Expected turns to be two whole numbers from 1 on \(got \("):
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


@pytest.mark.parametrize("kind", [PeeledGOAt, PeeledUpperHalfGradients, PeeledRandom])
def test_in_the_benchmark(kind: Any, graphs: Batch) -> None:
    """The same scores alone and in a batch, in an order that metrics read as Peeling found it, self-loops included."""
    model, explain = make_gnn("gin"), kind()
    scores = explain(model, graphs, TARGET)
    assert scores.shape == (graphs.num_edges,)
    assert scores.dtype == torch.float64
    assert torch.equal(explain(model, graphs, TARGET), scores)
    alone = [explain(model, each, TARGET[k : k + 1]) for k, each in enumerate(graphs.to_data_list())]
    torch.testing.assert_close(torch.cat(alone), scores, rtol=0, atol=0)
    if kind is not PeeledRandom:
        peeling = Peeling(explain.method(model), explain.rounds, explain.order, removal=explain.removal)
        found = peeling.attribute(ones(graphs), TARGET, arguments_of(graphs))
        edges = CountedEdges.of(graphs)
        per_edge = torch.zeros(len(edges.graph), dtype=torch.float64).scatter_(0, edges.number, found)
        torch.testing.assert_close(edges.totals(scores), per_edge)


def test_costs_at_most_eight_attributions(graphs: Batch) -> None:
    class Counting(PeeledUpperHalfGradients):
        def method(self, model: nn.Module) -> Attribution:
            self.seen = Seen(super().method(model))
            return self.seen

    explain = Counting()
    explain(make_gnn("gin"), graphs, TARGET)
    assert len(explain.seen.masks) <= 8


def test_upper_half_is_exact_for_polynomials() -> None:
    weight = torch.tensor([[1.0, 2.0], [0.5, -1.0], [-3.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([0.3, 2.0, -1.0], dtype=torch.float64)
    found = UpperHalfGradients(lambda mask: (mask @ weight).pow(7)).attribute(mask, target=1)
    # The gradient at t is t^6 times that at 1, and the mean of t^6 over [1/2, 1] is 2 (1 - 2^-7) / 7.
    expected = mask * 7 * weight[:, 1] * (mask @ weight)[1] ** 6 * 2 * (1 - 2**-7) / 7
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_random_is_random_in_the_benchmark() -> None:
    graphs = ba_2motifs(100)
    batch, target = Batch.from_data_list(graphs), torch.zeros(100, dtype=torch.long)
    expected = torch.tensor([float(each.edge_label.float().mean()) for each in graphs]).mean()
    model = make_gnn("gin", dtype=torch.float32)
    for seed in (0, 1):
        precision = precision_at_k(PeeledRandom(seed=seed)(model, batch, target), batch)
        assert abs(float(precision.mean() - expected)) < 3 * float(precision.std()) / 10
