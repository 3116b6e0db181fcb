"""A ReLU with frozen gates as one operation of autograd.

It does what multiplying by the gates and by their scale does, with fewer passes over memory: on batches of graphs these
multiplications are much of what an explanation costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class FrozenGates(torch.autograd.Function):
    """``value * gates * scale``, with gradients for the value and the scale, of which there is one per row."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, scale: Tensor, gates: Tensor, t: float, everywhere: bool) -> Tensor:
        """Return the input where the gates are open, scaled.

        Args:
            ctx: What the gradients need.
            value: The input of the ReLU.
            scale: The scale of each row, nowhere 0; for rows that are constants 1.
            gates: 1 where the ReLU lets its input pass, else 0.
            t: The scale of rows that are no constants.
            everywhere: Whether that are all rows, and all with that scale.
        """
        factor, number = (gates, t) if everywhere else (gates * scale, 1.0)
        ctx.save_for_backward(value, factor, scale)
        ctx.number = number
        return _scaled(value, factor, number)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor | None, None, None, None]:
        """Return the gradients for the value and for the scale (of constants something that nobody reads)."""
        value, factor, scale = ctx.saved_tensors
        passed = _scaled(gradients[0], factor, ctx.number)
        of_scale = (passed * value).sum_to_size(scale.shape) / scale if ctx.needs_input_grad[1] else None
        return passed, of_scale, None, None, None


def _scaled(value: Tensor, factor: Tensor, number: float) -> Tensor:
    return value * factor if number == 1.0 else torch.addcmul(value.new_zeros(()), value, factor, value=number)
