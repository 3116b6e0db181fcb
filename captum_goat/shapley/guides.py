"""Guides: cheap attributions that say roughly where Shapley values are large."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor

from captum_goat.inputs.request import flattened
from captum_goat.shapley.values import EdgeValues
from captum_goat.tracking import UnsupportedModelError

_logger = logging.getLogger(__name__)


class PathGradients(NamedTuple):
    """Gradients at points of the path from no edges to the graph, times the masks."""

    gradients: Tensor  # one row per point, ``[K, columns]``
    at: str  # where masks entered
    deletes: bool  # whether a mask of zeros and ones there is the same as the removal of edges


def path_gradients(values: EdgeValues, points: int) -> PathGradients:
    """Return the gradients in the middles of equal parts of the path of integrated gradients.

    They are taken at the adjacency where the model allows that, else at the messages.

    Raises:
        UnsupportedModelError: If the model allows no masks.
    """
    scales = (torch.arange(points, device=values.mask.device) + 0.5) / points
    factors, places = scales.view(-1, 1).expand(-1, values.mask.numel()), _places(values)
    for at in places[:-1]:
        try:
            return PathGradients(values.with_gradients(factors, at)[1], at, True)
        except UnsupportedModelError as error:
            _logger.info("No gradients at=%r: %s", at, error)
    return PathGradients(values.with_gradients(factors, places[-1])[1], places[-1], len(places) == 1)


def _places(values: EdgeValues) -> tuple[str, ...]:
    """Return where masks may enter; in the first place, masks of zeros and ones are what removed edges are."""
    try:
        return ("message",) if values.masking_deletes() else ("adjacency", "message")
    except UnsupportedModelError as error:
        _logger.info("Messages cannot be masked: %s", error)
        return ("adjacency",)


def check_guides(name: str, guides: Sequence[Any]) -> None:
    """Raise TypeError unless guides are attribution methods or attributions."""
    if not all(isinstance(guide, Attribution | Tensor) for guide in guides):
        got = ", ".join(type(guide).__name__ for guide in guides)
        raise TypeError(f"Expected {name} that are captum Attributions or tensors (got {got}).")


def own_guides(guides: Sequence[Attribution | Tensor], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return the attributions of the user's own methods, ``[K, columns]``.

    Raises:
        ValueError: If they are not finite numbers of the masks' shape.
    """
    rows = [values.mask.new_empty(0, values.mask.numel())]
    for guide in guides:
        attributions: Any = guide
        if isinstance(guide, Attribution):
            given = inputs
            if isinstance(guide, GradientAttribution) and isinstance(inputs, Tensor):
                given = inputs.detach().clone().requires_grad_()  # or Captum warns that it does so itself
            attributions = guide.attribute(given, target=values.target, additional_forward_args=arguments)
        rows.append(_columns(attributions, inputs, values).unsqueeze(0))
    return torch.cat(rows)


def _columns(attributions: Any, inputs: Any, values: EdgeValues) -> Tensor:
    """Return attributions as one number per column, ``[columns]``."""
    parts, masks = flattened(attributions, inputs), flattened(inputs)
    shapes = [list(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
    if shapes != [list(mask.shape) for mask in masks]:
        raise ValueError(f"Expected guides of the masks' shapes {[list(mask.shape) for mask in masks]} (got {shapes}).")
    columns = torch.cat([part.detach().reshape(len(values.mask), -1) for part in parts], dim=1).view(-1)
    if not bool(columns.isfinite().all()):
        wrong = int((~columns.isfinite()).sum())
        raise ValueError(f"Expected finite guides (got {wrong} numbers that are infinite or nan).")
    return columns.to(values.mask)
