"""Perturbations of edge masks, and the infidelity that Captum makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients, Saliency
from captum.metrics import infidelity
from torch import Tensor
from torch_geometric.nn import SimpleConv

from captum_goat import EdgeMaskedModel, GOAtAttribution, undirected_feature_mask
from captum_goat.metrics import drop_edges, gaussian_noise

# One layer that adds up the features of the neighbours: the output of node 2 is m_0 + 10 m_1, and m_2 is idle.
MODEL = SimpleConv().eval()
GRAPH = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1, 2], [2, 2, 0]])
GIVEN = {"target": (2, 0), "additional_forward_args": GRAPH}
WEIGHTS = torch.tensor([1.0, 10.0, 0.0])
MASKS = torch.tensor([[1.0, 1.0, 1.0], [0.5, -2.0, 1.0]])
PERTURBATIONS = [drop_edges, gaussian_noise]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def infidelity_of(attributions: Tensor, perturb_func: Callable[..., Any], **options: Any) -> Tensor:
    return infidelity(EdgeMaskedModel(MODEL), perturb_func, MASKS, attributions, **GIVEN, **options)


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("method", [GOAtAttribution, IntegratedGradients])
def test_exact_attributions_of_a_linear_model_are_faithful(method: Any, perturbation: Any) -> None:
    attributions = method(EdgeMaskedModel(MODEL)).attribute(MASKS.clone().requires_grad_(), **GIVEN).detach()
    torch.testing.assert_close(attributions, MASKS * WEIGHTS)
    errors = infidelity_of(attributions, perturbation(0.5), n_perturb_samples=30)
    torch.testing.assert_close(errors, torch.zeros(2), rtol=0, atol=1e-6)
    assert (infidelity_of(attributions.flip(-1), perturbation(0.5), n_perturb_samples=30) > 1e-3).all()


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_attributions_without_the_inputs_as_a_factor(perturbation: Any) -> None:
    """Saliency is the gradient's absolute value, here the gradient: faithful, too, if not multiplied by inputs."""
    saliency = Saliency(EdgeMaskedModel(MODEL))
    attributions = saliency.attribute(MASKS.clone().requires_grad_(), **GIVEN)
    perturb_func = perturbation(0.5, multiply_by_inputs=saliency.multiplies_by_inputs)
    torch.testing.assert_close(infidelity_of(attributions, perturb_func), torch.zeros(2), rtol=0, atol=1e-6)
    assert infidelity_of(attributions, perturbation(0.5), n_perturb_samples=30)[1] > 1e-3


def test_infidelity_by_hand() -> None:
    """All edges dropped: the attributions add up to a, the output falls by m_0 + 10 m_1; (a - that)^2."""
    attributions = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.5]])
    errors = infidelity_of(attributions, drop_edges(probability=1.0))
    torch.testing.assert_close(errors, torch.tensor([(6.0 - 11.0) ** 2, (0.5 + 19.5) ** 2]))


def test_infidelity_of_random_drops_by_hand() -> None:
    """The same draws twice; I is 1 where an edge is dropped."""
    attributions = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.5]])
    errors = infidelity_of(attributions, drop_edges(0.4, generator=seeded()), n_perturb_samples=7)
    repeated = MASKS.repeat_interleave(7, dim=0)
    (dropped,), _ = drop_edges(0.4, generator=seeded())(repeated)
    error = (dropped * (attributions.repeat_interleave(7, dim=0) - repeated * WEIGHTS)).sum(dim=1)
    torch.testing.assert_close(errors, error.pow(2).view(2, 7).mean(dim=1))


def test_edges_are_dropped_as_often_as_asked_and_independently() -> None:
    masks = torch.full((20_000, 4), 2.0)
    (perturbation,), (perturbed,) = drop_edges(0.3, generator=seeded())(masks)
    assert torch.equal(perturbed, torch.where(perturbation == 1.0, 0.0, 2.0))
    assert torch.equal(perturbation.unique(), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(perturbation.mean(dim=0), torch.full((4,), 0.3), rtol=0, atol=0.015)
    torch.testing.assert_close(perturbation.t().corrcoef(), torch.eye(4), rtol=0, atol=0.03)


def test_both_directions_are_dropped_together() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    feature_mask = undirected_feature_mask(edge_index)
    (dropped,), _ = drop_edges(0.5, feature_mask=feature_mask, generator=seeded())(torch.ones(500, 5))
    assert torch.equal(dropped[:, 0], dropped[:, 1])
    assert torch.equal(dropped[:, 2], dropped[:, 3])
    assert len(dropped[:, [0, 2, 4]].unique(dim=0)) == 8, "different edges are independent"


def test_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    masks = torch.full((20_000, 2), 2.0, dtype=torch.float64)
    (noise,), (perturbed,) = gaussian_noise(0.3, multiply_by_inputs=False, generator=seeded())(masks)
    torch.testing.assert_close(masks - noise, perturbed)
    assert noise.mean().abs() < 0.01
    assert (noise.std() - 0.3).abs() < 0.01
    (relative,), _ = gaussian_noise(0.3, generator=seeded())(masks)
    torch.testing.assert_close(relative, noise / 2.0)


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_generators_make_it_reproducible(perturbation: Any, dtype: torch.dtype) -> None:
    masks = torch.ones(3, 50, dtype=dtype)
    one, same, other = (perturbation(0.5, generator=seeded(seed))(masks)[1][0] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.dtype == dtype
    state = torch.get_rng_state()
    perturbation(0.5, generator=seeded())(masks)
    assert torch.equal(torch.get_rng_state(), state), "the default generator is left alone"
    torch.manual_seed(3)
    first = perturbation(0.5)(masks)[1][0]
    torch.manual_seed(3)
    assert torch.equal(first, perturbation(0.5)(masks)[1][0])
    assert torch.equal(masks, torch.ones_like(masks)), "the inputs are left alone"


def test_dropped_edges_become_the_baseline() -> None:
    baselines = torch.tensor([[0.5, 0.25, 0.0]])
    (perturbation,), (perturbed,) = drop_edges(1.0)(MASKS, baselines)
    assert torch.equal(perturbed, baselines.expand(2, -1))
    assert torch.equal(perturbation, torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])), (
        "no change where nothing changed"
    )
    for baseline in (baselines, 0.25):
        attributions = (MASKS - baseline) * WEIGHTS
        errors = infidelity_of(attributions, drop_edges(0.5), baselines=baseline)
        torch.testing.assert_close(errors, torch.zeros(2), rtol=0, atol=1e-6)


def test_graphs_without_edges() -> None:
    for perturbation in PERTURBATIONS:
        assert perturbation(0.5)(torch.ones(2, 0))[1][0].shape == (2, 0)


def test_wrong_arguments() -> None:
    for probability in (0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=f"a probability above 0 and up to 1 \\(got {probability}\\)"):
            drop_edges(probability)
    with pytest.raises(ValueError, match="Expected a standard deviation above 0"):
        gaussian_noise(0.0)
    for feature_mask in (torch.zeros(2, dtype=torch.long), torch.zeros(3), torch.tensor([0, 1, -1])):
        with pytest.raises(ValueError, match="Expected a feature mask"):
            drop_edges(feature_mask=feature_mask)(MASKS)
    for perturbation in PERTURBATIONS:
        with pytest.raises(ValueError, match="Expected an edge mask of floating point numbers"):
            perturbation()((MASKS, None))
