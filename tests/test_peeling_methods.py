"""Peeling with other methods than GOAt: Captum's, wrapped ones, and of any function of a mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients, NoiseTunnel, Saliency
from conftest import make_gnn
from peeling_graphs import one_graph
from test_peeling import TARGET, Seen, ones
from test_peeling import graphs as graphs
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat import EdgeMaskedModel, GOAtAttribution, UpperHalfGradients
from captum_goat.compare.explainers.graphs import Graphs, MaskedTargets
from captum_goat.peeling import Peeling
from captum_goat.peeling.order import ORDERS


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


@pytest.mark.slow
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


@pytest.mark.parametrize("tunnel", [False, True])
@pytest.mark.parametrize("removal", ["mask", "cut"])
def test_drops_are_those_of_the_function_that_the_method_explains(removal: Any, tunnel: bool) -> None:
    """At the adjacency they sum to what deleting all edges does, which masked messages of a GCN do not."""
    data, model = one_graph(), make_gnn("gcn")
    goat = GOAtAttribution(model, at="adjacency")
    method = NoiseTunnel(goat) if tunnel else goat
    options = {"nt_samples": 1, "stdevs": 0.0} if tunnel else {}
    mask, arguments = ones(data).view(1, -1), (data.x, data.edge_index)
    _, drops = Peeling(method, 3, removal=removal).attribute(mask, 1, arguments, return_drops=True, **options)
    deleted = (model(data.x, data.edge_index) - model(data.x, data.edge_index[:, :0]))[0, 1].detach()
    assert abs(deleted - (model(data.x, data.edge_index) - EdgeMaskedModel(model)(0 * mask, *arguments))[0, 1]) > 1e-3
    torch.testing.assert_close(drops.sum(), deleted, rtol=0, atol=1e-6)


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
    with pytest.raises(ValueError, match="Or pass the graph of the mask as graphs=data"):
        peeling.attribute(ones(graphs).view(1, -1))


@pytest.mark.parametrize("at", ["message", "adjacency"])
def test_upper_half_is_twice_integrated_gradients_from_half_the_mask(at: Any) -> None:
    """On one graph: Captum takes no batch with a target per graph."""
    data, masked = one_graph(), EdgeMaskedModel(make_gnn("gcn"), at=at)
    mask, arguments = ones(data).view(1, -1), (data.x, data.edge_index)
    expected = 2 * IntegratedGradients(masked).attribute(
        mask, mask / 2, 1, arguments, n_steps=4, method="gausslegendre"
    )
    found = UpperHalfGradients(masked, n_steps=4).attribute(mask[0], 1, arguments)
    torch.testing.assert_close(found, expected[0].detach(), rtol=0, atol=1e-7)


def test_upper_half_is_exact_for_polynomials() -> None:
    weight = torch.tensor([[1.0, 2.0], [0.5, -1.0], [-3.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([0.3, 2.0, -1.0], dtype=torch.float64)
    found = UpperHalfGradients(lambda mask: (mask @ weight).pow(7)).attribute(mask, target=1)
    # The gradient at t is t^6 times that at 1, and the mean of t^6 over [1/2, 1] is 2 (1 - 2^-7) / 7.
    expected = mask * 7 * weight[:, 1] * (mask @ weight)[1] ** 6 * 2 * (1 - 2**-7) / 7
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
