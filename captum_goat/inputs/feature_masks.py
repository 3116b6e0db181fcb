"""Edges that count as one feature: Captum's ``feature_mask`` for graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def undirected_feature_mask(edge_index: Tensor) -> Tensor:
    """Return a feature mask in which the two directions of an edge are one feature.

    Attributions made with it have the feature's sum in both directions. Pass it to the plots, too, which add up
    directions: they then count the sum once.

    Args:
        edge_index: The edges, ``[2, E]``.

    Returns:
        The number of each edge's feature, ``[E]``; parallel edges share it, too.

    Examples:
        >>> import torch
        >>> from captum_goat import undirected_feature_mask
        >>> undirected_feature_mask(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        tensor([0, 0, 1, 1])
    """
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        got = f"{edge_index.dtype} {list(edge_index.shape)}"
        raise ValueError(f"Expected integers of shape [2, num_edges] (got {got}).")
    if edge_index.size(1) == 0:
        return edge_index[0]
    feature: Tensor = torch.unique(edge_index.sort(dim=0).values, dim=1, return_inverse=True)[1]
    return feature


def average_features(attributions: Tensor, feature_mask: Tensor) -> Tensor:
    """Give every edge the mean over its feature, as the authors' code does for the two directions of an edge.

    Args:
        attributions: One number per edge, ``[E]`` or ``[B, E]``, without a feature mask applied.
        feature_mask: The feature of each edge, ``[E]``.

    Returns:
        The means, of the shape of ``attributions``. They add up to what the attributions add up to.

    Examples:
        >>> import torch
        >>> from captum_goat import average_features
        >>> average_features(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
        tensor([2., 2., 5.])
    """
    rows = attributions if attributions.dim() > 1 else attributions.unsqueeze(0)
    (sums,) = sum_features([rows], [feature_mask])
    (sizes,) = sum_features([torch.ones_like(rows)], [feature_mask])
    return (sums / sizes).view_as(attributions)


def sum_features(attributions: Sequence[Tensor], feature_masks: Sequence[Tensor]) -> list[Tensor]:
    """Give every entry the sum over its feature, which may span several tensors; dimension 0 counts examples."""
    examples, sizes = len(attributions[0]), [values.shape[1:].numel() for values in attributions]
    for values, mask in zip(attributions, feature_masks, strict=True):
        check_feature_mask(mask, values)
    pairs = zip(feature_masks, attributions, sizes, strict=True)
    features = torch.cat([mask.expand(values.shape).reshape(examples, size) for mask, values, size in pairs], dim=1)
    entries = torch.cat([values.reshape(examples, size) for values, size in zip(attributions, sizes, strict=True)], 1)
    count = int(features.max()) + 1 if features.numel() else 0
    totals = entries.new_zeros(examples, count).scatter_add(1, features, entries).gather(1, features)
    results = zip(totals.split(sizes, dim=1), attributions, strict=True)
    return [total.reshape(values.shape).to(values.dtype) for total, values in results]


def check_feature_mask(mask: Tensor, attributions: Tensor) -> None:
    """Raise ValueError if a mask does not give every entry a feature."""
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.dtype == torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"Expected a feature mask that is a tensor of integers (got {kind}).")
    if mask.numel() and int(mask.min()) < 0:
        raise ValueError(f"Expected a feature mask of integers from 0 on (got {int(mask.min())}).")
    try:
        mask.expand(attributions.shape)
    except RuntimeError as error:
        shapes = f"{list(attributions.shape)} (got {list(mask.shape)})"
        raise ValueError(f"Expected a feature mask that fits attributions of shape {shapes}.") from error
