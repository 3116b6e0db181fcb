"""Guides: cheap attributions that say roughly where Shapley values are large."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor

from captum_goat.inputs.attributed_inputs import flattened
from captum_goat.shapley.values import EdgeValues
from captum_goat.tracking import UnsupportedModelError

_logger = logging.getLogger(__name__)

_PATH_POINTS = 4  # the middles of as many equal parts of the path from no edges to the graph


def default_guides(goats: Callable[[str], Attribution], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return GOAt's attributions and the gradients on four parts of the path of integrated gradients, ``[K, columns]``.

    Where a model does not allow one of them at the adjacency, it is taken at the messages, or left out.

    Args:
        goats: Returns GOAt with masks that enter at a place.
        values: The explained numbers.
        inputs: The edge masks as the user passed them.
        arguments: The model's other arguments.
    """
    places: tuple[str, ...] = ("adjacency", "message")
    try:
        places = ("message",) if values.masking_deletes() else places  # the same, and faster
    except UnsupportedModelError as error:
        _logger.info("Messages cannot be masked: %s", error)
    scales = (torch.arange(_PATH_POINTS, device=values.mask.device) + 0.5) / _PATH_POINTS

    def goat(at: str) -> Tensor:
        return _columns(goats(at).attribute(inputs, values.target, arguments), inputs, values).unsqueeze(0)

    def gradients(at: str) -> Tensor:
        return values.path_gradients(scales.to(values.mask.dtype), at)

    found = [_first_allowed(guide, places) for guide in (goat, gradients)]
    return torch.cat([values.mask.new_empty(0, values.mask.numel()), *(guide for guide in found if guide is not None)])


def own_guides(guides: Sequence[Attribution | Tensor], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return the attributions of the user's own methods, ``[K, columns]``.

    Raises:
        ValueError: If they are not finite numbers of the masks' shape.
    """
    found = [values.mask.new_empty(0, values.mask.numel())]
    for guide in guides:
        attributions: Any = guide
        if isinstance(guide, Attribution):
            given = inputs
            if isinstance(guide, GradientAttribution) and isinstance(inputs, Tensor):
                given = inputs.detach().clone().requires_grad_()  # or Captum warns that it does so itself
            attributions = guide.attribute(given, target=values.target, additional_forward_args=arguments)
        found.append(_columns(attributions, inputs, values).unsqueeze(0))
    return torch.cat(found)


def _first_allowed(guide: Callable[[str], Tensor], places: Sequence[str]) -> Tensor | None:
    """Return a guide at the first place that the model allows; ``None`` if it allows none."""
    for at in places:
        try:
            return guide(at)
        except UnsupportedModelError as error:
            _logger.info("No guide at=%r: %s", at, error)
    return None


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
