"""Guides: cheap attributions that say roughly where Shapley values are large."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor

from captum_goat.inputs.attributed_inputs import flattened
from captum_goat.shapley.values import EdgeValues
from captum_goat.tracking import UnsupportedModelError

_logger = logging.getLogger(__name__)

PATH_POINTS = 4  # the middles of as many equal parts of the path from no edges to the graph


class PathGradients(NamedTuple):
    """Gradients at points of the path from no edges to the graph, times the masks."""

    gradients: Tensor  # one row per point, ``[K, columns]``
    at: str  # where masks entered
    deletes: bool  # whether a mask of zeros and ones there is the same as the removal of edges


def default_guides(goats: Callable[[str], Attribution], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return GOAt's attributions and the gradients on four parts of the path of integrated gradients, ``[K, columns]``.

    Where a model does not allow one of them at the adjacency, it is taken at the messages, or left out.

    Args:
        goats: Returns GOAt with masks that enter at a place.
        values: The explained numbers.
        inputs: The edge masks as the user passed them.
        arguments: The model's other arguments.
    """
    places = _places(values)

    def goat(at: str) -> Tensor:
        return _columns(goats(at).attribute(inputs, values.target, arguments), inputs, values).unsqueeze(0)

    rows = [values.mask.new_empty(0, values.mask.numel())]
    for guide in (goat, partial(_gradients, values)):
        with suppress(UnsupportedModelError):
            rows.append(_first_allowed(guide, places)[0])
    return torch.cat(rows)


def path_gradients(values: EdgeValues) -> PathGradients:
    """Return the gradients on four parts of the path of integrated gradients.

    Raises:
        UnsupportedModelError: If the model allows no masks.
    """
    places = _places(values)
    gradients, at = _first_allowed(partial(_gradients, values), places)
    return PathGradients(gradients, at, at == places[0])


def _places(values: EdgeValues) -> tuple[str, ...]:
    """Return where masks may enter; in the first place, masks of zeros and ones are what removed edges are."""
    try:
        return ("message",) if values.masking_deletes() else ("adjacency", "message")
    except UnsupportedModelError as error:
        _logger.info("Messages cannot be masked: %s", error)
        return ("adjacency",)


def _gradients(values: EdgeValues, at: str) -> Tensor:
    scales = (torch.arange(PATH_POINTS, device=values.mask.device) + 0.5) / PATH_POINTS
    return values.with_gradients(scales.view(-1, 1).expand(-1, values.mask.numel()), at)[1]


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


def _first_allowed(guide: Callable[[str], Tensor], places: Sequence[str]) -> tuple[Tensor, str]:
    """Return a guide at the first place that the model allows, and the place; raise UnsupportedModelError if none."""
    for number, at in enumerate(places, start=1):
        try:
            return guide(at), at
        except UnsupportedModelError as error:
            _logger.info("No guide at=%r: %s", at, error)
            if number == len(places):
                raise
    raise AssertionError("there is at least one place")


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
