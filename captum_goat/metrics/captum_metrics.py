"""Captum's infidelity for edge scores: perturbations of edge masks, and the metric per graph.

Attributions must be those of single edges, computed without a ``feature_mask``. Reference: Yeh, Hsieh, Suggala, Inouye,
Ravikumar: *On the (In)fidelity and Sensitivity of Explanations*, NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from captum.metrics import infidelity_perturb_func_decorator
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.inputs.arguments import check_masks
from captum_goat.inputs.feature_masks import check_feature_mask
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.metrics.counted_edges import CountedEdges, check_scores
from captum_goat.metrics.fidelity import model_arguments, predicted_logits, signed_logits

# What Captum's infidelity calls: (inputs, baselines if there are any) -> (perturbations,), (perturbed inputs,).
PerturbFunc: TypeAlias = Callable[..., tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]


def drop_edges(
    probability: float = 0.1,
    *,
    feature_mask: Tensor | tuple[Tensor, ...] | None = None,
    multiply_by_inputs: bool = True,
    generator: Generator | None = None,
) -> PerturbFunc:
    """Return a perturbation, for :func:`captum.metrics.infidelity`, that drops every edge with the same probability.

    The mask entry :math:`m_e` of a dropped edge becomes the baseline :math:`b_e`, 0 by default. Then :math:`I_e` is 1
    for a dropped edge (:math:`m_e - b_e` without ``multiply_by_inputs``) and 0 for any other. Edges of one feature of
    ``feature_mask`` ``[E]``, or a tuple for a tuple of masks, are dropped together; see
    :func:`~captum_goat.undirected_feature_mask`. ``multiply_by_inputs`` is whether the attributions have the inputs as
    a factor: not those of saliency.

    Examples:
        >>> from captum.metrics import infidelity
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat import EdgeMaskedModel, GOAtAttribution
        >>> from captum_goat.metrics import drop_edges
        >>> model, mask = SimpleConv().eval(), torch.ones(1, 2)  # adds up the features of the neighbours
        >>> graph = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1], [2, 2]])
        >>> attributions = GOAtAttribution(model).attribute(mask, (2, 0), graph)
        >>> infidelity(EdgeMaskedModel(model), drop_edges(), mask, attributions, None, graph, (2, 0))
        tensor([0.])
    """
    if not 0.0 < probability <= 1.0:
        raise ValueError(f"Expected a probability above 0 and up to 1 (got {probability}).")

    def perturbed(masks: tuple[Tensor, ...], baselines: tuple[Tensor | float, ...]) -> tuple[Tensor, ...]:
        features = _features(masks, feature_mask)
        count = max(int(feature.max()) + 1 if feature.numel() else 0 for feature in features)
        drawn = _random(torch.rand, (*masks[0].shape[:-1], count), masks[0], generator)
        return tuple(
            torch.where((drawn < probability)[..., feature], torch.as_tensor(baseline).to(mask), mask)
            for mask, feature, baseline in zip(masks, features, baselines, strict=True)
        )

    return _perturb_func(perturbed, multiply_by_inputs)


def gaussian_noise(
    std: float = 0.1, *, multiply_by_inputs: bool = True, generator: Generator | None = None
) -> PerturbFunc:
    r"""Return a perturbation that subtracts Gaussian noise from the mask, :math:`I \sim \mathcal{N}(0, \sigma^2)`.

    ``std`` is :math:`\sigma`; the other arguments are those of :func:`drop_edges`. For attributions that have the
    inputs as a factor :math:`I_e` is divided by :math:`m_e - b_e`, mask minus baseline.

    Examples:
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
        changed = perturbed(masks, baselines if isinstance(baselines, tuple) else (baselines,) * len(masks))
        return changed if isinstance(inputs, tuple) else changed[0]

    perturb_func: PerturbFunc = infidelity_perturb_func_decorator(multiply_by_inputs)(checked)
    return perturb_func


def _random(draw: Callable[..., Tensor], shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Return random numbers with the dtype and device of a tensor, wherever the generator is."""
    device = like.device if generator is None else generator.device
    return draw(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


def _features(masks: tuple[Tensor, ...], feature_mask: Tensor | tuple[Tensor, ...] | None) -> list[Tensor]:
    sizes = [mask.size(-1) for mask in masks]
    if feature_mask is None:
        return list(torch.arange(sum(sizes), device=masks[0].device).split(sizes))
    features = feature_mask if isinstance(feature_mask, tuple) else (feature_mask,)
    if len(features) != len(masks):
        raise ValueError(f"Expected one feature mask per mask (got {len(features)} for {len(masks)} masks).")
    for feature, mask in zip(features, masks, strict=True):
        check_feature_mask(feature, mask.reshape(-1, mask.size(-1))[0])
    return [feature.to(mask.device, torch.long) for feature, mask in zip(features, masks, strict=True)]


def graph_infidelity(
    model: Module,
    data: Data | Batch,
    scores: Tensor,
    target: Tensor | int | None = None,
    perturb_func: PerturbFunc | None = None,
    *,
    samples: int = 10,
    normalize: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    r"""Return how badly scores predict the change of the output when edges are dropped, one number per graph ``[G]``.

    .. math:: \mathrm{INFD} = \mathbb{E}_I\left[\left(I^\top \phi - (f(m) - f(m - I))_c\right)^2\right]

    :math:`f` are the model's logits as a function of the edge mask :math:`m = 1`
    (:class:`~captum_goat.EdgeMaskedModel`), :math:`I` is the random perturbation that is subtracted from the mask, and
    :math:`\phi` are the scores. For one graph this is :func:`captum.metrics.infidelity`.

    ``model``, ``data`` and ``target`` are those of :func:`~captum_goat.metrics.fidelity_plus`, but without
    log-probabilities; a single logit is explained for class 1, its negative for class 0. ``scores`` holds one number
    per edge, ``[E]``. ``perturb_func`` perturbs masks ``[B, E]``, ``samples`` times; by default :func:`drop_edges`
    drops edges with probability 0.1, drawn by ``generator``, both directions of an undirected edge together.
    ``normalize`` scales the scores of each graph by the factor that fits best.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat.metrics import graph_infidelity
        >>> from captum_goat.models import RootClassifier
        >>> model = RootClassifier(SimpleConv()).eval()  # the logits are the sum of the features of node 0's neighbours
        >>> data = Data(x=torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), edge_index=torch.tensor([[1, 2], [0, 0]]))
        >>> graph_infidelity(model, data, torch.tensor([0.0, 2.0]), target=1)  # exactly what each edge adds
        tensor([0.])
    """
    if samples < 1:
        raise ValueError(f"Expected one sample or more (got {samples}).")
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    perturb = perturb_func or drop_edges(0.1, feature_mask=edges.number, generator=generator)
    _, classes = predicted_logits(model, data, target)
    masked, arguments = EdgeMaskedModel(model), model_arguments(model, data)

    def values(masks: Tensor) -> Tensor:
        logits = signed_logits(masked(masks, *arguments).view(len(masks), edges.num_graphs, -1))
        return logits.gather(2, classes.view(1, -1, 1).expand(len(masks), -1, 1)).squeeze(2)

    with torch.no_grad():
        mask = scores.new_ones(samples, len(scores))
        (perturbation,), (perturbed,) = perturb(mask)
        change = values(mask[:1]) - values(perturbed)
    predicted = torch.zeros_like(change).index_add_(1, edges.columns_graph, (perturbation * scores).to(change))
    if normalize:
        square = predicted.square().sum(dim=0)
        predicted = predicted * (predicted * change).sum(dim=0) / torch.where(square == 0.0, 1.0, square)
    return (predicted - change).square().mean(dim=0)
