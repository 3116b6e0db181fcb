r"""Perturbations of edge masks for Captum's infidelity.

The infidelity of attributions :math:`\phi` is how badly they foretell what a perturbation does to the output,

.. math:: \mathrm{INFD} = \mathbb{E}_I\left[\left(I^\top \phi - (f(m) - f(m - I))\right)^2\right],

where :math:`m` is the edge mask and :math:`I` the random perturbation that is taken from it. Captum has the metric,
:func:`captum.metrics.infidelity`; here are perturbations that mean something on a graph. The two lines are

.. code-block:: python

    attributions = GOAtAttribution(model).attribute(masks, target=1, additional_forward_args=data)
    infidelity(EdgeMaskedModel(model), drop_edges(), masks, attributions, additional_forward_args=data, target=1)

for ``masks`` of shape ``[B, E]``, one number per mask; or a tuple of such masks, one per edge type or set of edges. The
attributions must be those of single edges: with a ``feature_mask`` every edge would count for its whole feature.

Reference: Yeh, Hsieh, Suggala, Inouye, Ravikumar: *On the (In)fidelity and Sensitivity of Explanations*, NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from captum.metrics import infidelity_perturb_func_decorator
from torch import Generator, Tensor

from captum_goat.inputs.edge_masks import check_masks

# What Captum's infidelity calls: (inputs, baselines if there are any) -> (perturbations,), (perturbed inputs,).
PerturbFunc: TypeAlias = Callable[..., tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]


def drop_edges(
    probability: float = 0.1,
    *,
    feature_mask: Tensor | tuple[Tensor, ...] | None = None,
    multiply_by_inputs: bool = True,
    generator: Generator | None = None,
) -> PerturbFunc:
    r"""Return a perturbation that takes edges away at random.

    Every edge is dropped with the same probability, independently: its mask entry :math:`m_e` becomes the baseline
    :math:`b_e`, which is 0 if none is given. Then :math:`I_e` is 1 for a dropped edge and 0 for any other (or
    :math:`m_e - b_e` and 0, see ``multiply_by_inputs``).

    Args:
        probability: How likely an edge is to be dropped.
        feature_mask: The feature of each edge, ``[E]``, as whole numbers from 0 on: edges with the same number are
            dropped together. :func:`~captum_goat.undirected_feature_mask` gives the two directions of an edge one. For
            a tuple of masks a tuple of them.
        multiply_by_inputs: Whether the attributions have the inputs as a factor, which is what their method's
            ``multiplies_by_inputs`` says: true for GOAt and integrated gradients, false for saliency.
        generator: Where the random numbers come from; PyTorch's default generator if ``None``.

    Returns:
        A ``perturb_func`` for :func:`captum.metrics.infidelity`.

    Examples::

        >>> import torch
        >>> from captum.metrics import infidelity
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat import EdgeMaskedModel, GOAtAttribution
        >>> from captum_goat.metrics import drop_edges
        >>> drop_edges(probability=1.0)(torch.tensor([[1.0, 0.5]]))
        ((tensor([[1., 1.]]),), (tensor([[0., 0.]]),))
        >>> model, mask = SimpleConv().eval(), torch.ones(1, 2)  # adds up the features of the neighbours
        >>> graph = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1], [2, 2]])
        >>> attributions = GOAtAttribution(model).attribute(mask, (2, 0), graph)
        >>> attributions
        tensor([[ 1., 10.]])
        >>> infidelity(EdgeMaskedModel(model), drop_edges(), mask, attributions, None, graph, (2, 0))
        tensor([0.])
    """
    if not 0.0 < probability <= 1.0:
        raise ValueError(f"Expected a probability above 0 and up to 1 (got {probability}).")

    def perturbed(masks: tuple[Tensor, ...], baselines: tuple[Tensor | float, ...]) -> tuple[Tensor, ...]:
        features = _features(masks, feature_mask)
        count = max(int(each.max()) + 1 if each.numel() else 0 for each in features)
        drawn = _random(torch.rand, (*masks[0].shape[:-1], count), masks[0], generator)
        return tuple(
            torch.where((drawn < probability)[..., feature], torch.as_tensor(baseline).to(mask), mask)
            for mask, feature, baseline in zip(masks, features, baselines, strict=True)
        )

    return _perturb_func(perturbed, multiply_by_inputs)


def gaussian_noise(
    std: float = 0.1, *, multiply_by_inputs: bool = True, generator: Generator | None = None
) -> PerturbFunc:
    r"""Return a perturbation that takes Gaussian noise from the mask, :math:`I \sim \mathcal{N}(0, \sigma^2)`.

    For attributions that have the inputs as a factor :math:`I_e` is divided by :math:`m_e - b_e`, mask minus baseline.

    Args:
        std: The noise's standard deviation.
        multiply_by_inputs: As for :func:`drop_edges`.
        generator: As for :func:`drop_edges`.

    Returns:
        A ``perturb_func`` for :func:`captum.metrics.infidelity`.

    Examples::

        >>> import torch
        >>> from captum_goat.metrics import gaussian_noise
        >>> (noise,), (perturbed,) = gaussian_noise(std=0.1)(torch.ones(2, 3))
        >>> torch.allclose(noise, 1.0 - perturbed)
        True
    """
    if std <= 0.0:
        raise ValueError(f"Expected a standard deviation above 0 (got {std}).")

    def perturbed(masks: tuple[Tensor, ...], baselines: tuple[Tensor | float, ...]) -> tuple[Tensor, ...]:
        return tuple(mask - std * _random(torch.randn, mask.shape, mask, generator) for mask in masks)

    return _perturb_func(perturbed, multiply_by_inputs)


def _perturb_func(perturbed: Callable[..., tuple[Tensor, ...]], multiply_by_inputs: bool) -> PerturbFunc:
    def checked(inputs: Any, baselines: Any = 0.0) -> Any:
        masks = inputs if isinstance(inputs, tuple) else (inputs,)
        check_masks(masks)
        found = perturbed(masks, baselines if isinstance(baselines, tuple) else (baselines,) * len(masks))
        return found if isinstance(inputs, tuple) else found[0]

    perturb_func: PerturbFunc = infidelity_perturb_func_decorator(multiply_by_inputs)(checked)
    return perturb_func


def _random(draw: Callable[..., Tensor], shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Return random numbers of a tensor's dtype and on its device, wherever the generator is."""
    device = like.device if generator is None else generator.device
    return draw(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


def _features(masks: tuple[Tensor, ...], feature_mask: Tensor | tuple[Tensor, ...] | None) -> list[Tensor]:
    """Return the feature of each edge, for each mask."""
    sizes = [mask.size(-1) for mask in masks]
    if feature_mask is None:
        return list(torch.arange(sum(sizes), device=masks[0].device).split(sizes))
    given = feature_mask if isinstance(feature_mask, tuple) else (feature_mask,)
    if len(given) != len(masks):
        raise ValueError(f"Expected one feature mask per mask (got {len(given)} for {len(masks)} masks).")
    for each, edges in zip(given, sizes, strict=True):
        if each.shape != (edges,) or each.is_floating_point() or bool((each < 0).any()):
            raise ValueError(
                f"Expected a feature mask of whole numbers from 0 on, one for each of {edges} edges (got "
                f"{each.dtype} {list(each.shape)})."
            )
    return [each.to(mask.device, torch.long) for each, mask in zip(given, masks, strict=True)]
