"""A graph that is bound to the masked model beforehand, so that the mask is the only argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients, NoiseTunnel, Saliency
from conftest import make_gnn
from hetero import hetero_gnn, hetero_graph
from torch import Tensor
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel, GOAtAttribution

Graphs = tuple[Tensor, Tensor, Tensor]


def graph_of(batch_of_graphs: Graphs) -> Data:
    x, edge_index, _ = batch_of_graphs
    return Data(x=x[:6], edge_index=edge_index[:, :14])


@pytest.mark.parametrize("at", ["message", "adjacency"])
@pytest.mark.parametrize("shape", [(14,), pytest.param((1, 14), marks=pytest.mark.slow), (3, 14)])
@pytest.mark.slow
def test_the_mask_is_the_only_argument(at: Any, shape: tuple[int, ...], batch_of_graphs: Graphs) -> None:
    model, data = make_gnn("gcn"), graph_of(batch_of_graphs)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    masked, unbound = EdgeMaskedModel(model, at=at, data=data), EdgeMaskedModel(model, at=at)
    torch.testing.assert_close(masked(mask), unbound(mask, data))
    expected = GOAtAttribution(unbound).attribute(mask, target=1, additional_forward_args=data)
    goat = GOAtAttribution(masked)
    attributions, delta = goat.attribute(mask, target=1, return_convergence_delta=True)
    assert torch.equal(attributions, expected)
    assert float(delta.abs().max()) < 1e-9
    assert torch.equal(goat.attribute_all(mask)[..., 1], expected)
    assert float(goat.compute_convergence_delta(attributions, None, mask, target=1).abs().max()) < 1e-9


@pytest.mark.parametrize("method", [IntegratedGradients, Saliency, lambda masked: NoiseTunnel(Saliency(masked))])
def test_methods_of_captum_need_no_further_arguments(method: Any, batch_of_graphs: Graphs) -> None:
    model, data = make_gnn("gcn"), graph_of(batch_of_graphs)
    mask = torch.ones(2, 14, dtype=torch.float64).requires_grad_()
    torch.manual_seed(0)
    attributions = method(EdgeMaskedModel(model, data=data)).attribute(mask, target=1)
    torch.manual_seed(0)
    expected = method(EdgeMaskedModel(model)).attribute(mask, target=1, additional_forward_args=data)
    torch.testing.assert_close(attributions, expected)


def test_a_tuple_of_arguments(batch_of_graphs: Graphs) -> None:
    model, mask = make_gnn("gcn"), torch.ones(batch_of_graphs[1].size(1), dtype=torch.float64)
    goat = GOAtAttribution(EdgeMaskedModel(model, data=batch_of_graphs))
    expected = GOAtAttribution(model).attribute(mask, [0, 1, 2, 0], batch_of_graphs)
    assert torch.equal(goat.attribute(mask, target=[0, 1, 2, 0]), expected)


def test_a_batch(batch_of_graphs: Graphs) -> None:
    model, data = make_gnn("sage_mean"), graph_of(batch_of_graphs)
    batch = Batch.from_data_list([data, data])
    mask = torch.ones(28, dtype=torch.float64)
    attributions = GOAtAttribution(EdgeMaskedModel(model, data=batch)).attribute(mask, target=[0, 1])
    expected = GOAtAttribution(model).attribute(mask, [0, 1], (batch.x, batch.edge_index, batch.batch))
    assert torch.equal(attributions, expected)


def test_a_heterogeneous_graph() -> None:
    data, model = hetero_graph(), hetero_gnn(level="graph")
    masks = {kind: torch.ones(data[kind].num_edges, dtype=torch.float64) for kind in data.edge_types}
    masked = EdgeMaskedModel(model, data=data)
    expected = GOAtAttribution(model).attribute(masks, 1, data)
    for inputs in (masks, tuple(masks.values())):
        attributions = GOAtAttribution(masked).attribute(inputs, target=1)
        values = attributions.values() if isinstance(attributions, dict) else attributions
        assert all(map(torch.equal, values, expected.values()))
    torch.testing.assert_close(masked(masks), EdgeMaskedModel(model)(masks, data))
    torch.testing.assert_close(masked(*masks.values()), masked(masks))
    several = tuple(mask.repeat(2, 1) for mask in masks.values())
    gradients = IntegratedGradients(masked).attribute(several, target=1)
    torch.testing.assert_close([value[0] for value in gradients], [value[1] for value in gradients])


def test_further_arguments_are_refused(batch_of_graphs: Graphs) -> None:
    data, mask = graph_of(batch_of_graphs), torch.ones(14, dtype=torch.float64)
    masked = EdgeMaskedModel(make_gnn("gcn"), data=data)
    with pytest.raises(ValueError, match=r"has its graph already \(got 2\)"):
        masked(mask, data.x, data.edge_index)
    with pytest.raises(ValueError, match=r"has its graph already \(got 1\)"):
        GOAtAttribution(masked).attribute(mask, 1, data)
    with pytest.raises(TypeError, match=r"Expected data to be a torch_geometric Data.*got Tensor"):
        EdgeMaskedModel(make_gnn("gcn"), data=data.x)  # type: ignore[arg-type]
