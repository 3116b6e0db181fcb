"""How far attributions, by whatever method, are from adding up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captum_goat.hooks.global_state import restores_state, switch_off_autocast
from captum_goat.inputs.attributed_inputs import flattened, restored
from captum_goat.inputs.targets import Choice
from captum_goat.method.request import Request
from captum_goat.wrapped_model import ExplainedModel


@restores_state
def completeness_error(
    explained: ExplainedModel, attributions: Any, points: tuple[Any, Any], choice: Choice, arguments: Any
) -> Tensor:
    """Return ``sum(attributions) - (f(end_point) - f(start_point))``, one number per graph or per mask.

    Args:
        explained: The model.
        attributions: The attributions, in the form of the end point.
        points: The start point, ``None`` for 0, and the end point.
        choice: What is explained.
        arguments: The model's other arguments.
    """
    start_point, end_point = points
    ends, scores = flattened(end_point), flattened(attributions, end_point)
    if [each.shape for each in scores] != [each.shape for each in ends]:
        raise ValueError(
            f"Expected attributions of the inputs' shapes {[list(each.shape) for each in ends]} (got "
            f"{[list(each.shape) for each in scores]})."
        )
    given = flattened(start_point, end_point)
    if len(given) not in (1, len(ends)):
        raise ValueError(f"Expected one start point per input, or one for all (got {len(given)} for {len(ends)}).")
    starts = [
        torch.as_tensor(0.0 if start is None else start, device=end.device).to(end.dtype).expand(end.shape)
        for start, end in zip(given * (len(ends) // len(given)), ends, strict=True)
    ]
    pairs = end_point, restored(end_point, starts)
    last, first = (Request.of(explained, point, arguments) for point in pairs)
    switch_off_autocast(last.device)
    found = last.explanations(choice)
    sums = [each.sums(*part) for each, part in zip(found, last.parts(scores, len(found)), strict=True)]
    end_value = torch.cat([each.values() for each in found])
    start_value = torch.cat([each.values() for each in first.explanations(choice)])
    return torch.cat(sums) - (end_value - start_value)
