"""Integrated gradients on the half of the path that is near the graph."""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import GradientAttribution
from torch import Tensor

from captum_goat.inputs.targets import find_target
from captum_goat.method.share import gauss_legendre
from captum_goat.peeling.call import as_tuple


class UpperHalfGradients(GradientAttribution):
    r"""Integrated gradients, upper half: the mean gradient on the second half of the way from no messages to all.

    .. math:: m_e \cdot 2 \int_{1/2}^1 \frac{\partial f}{\partial m_e}(t\, m)\, dt

    Near the whole graph a model does what it was trained for, near no messages it may do anything. It does not add up,
    but with :class:`~captum_goat.Peeling` it finds sets of edges that count, for a few passes.

    Args:
        forward_func: A function of a mask, such as :class:`~captum_goat.EdgeMaskedModel`.
        points: The number of Gauss-Legendre points.

    Examples::

        >>> import torch
        >>> from captum_goat import UpperHalfGradients
        >>> UpperHalfGradients(lambda mask: (mask**2).sum()).attribute(torch.tensor([1.0, 2.0]))  # 2 m * 0.75 m
        tensor([1.5000, 6.0000])
    """

    def __init__(self, forward_func: Any, points: int = 4) -> None:
        super().__init__(forward_func)
        self.points = points

    def attribute(self, inputs: Tensor, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        """Attribute the sum of the targets' outputs to the mask, one point after the other.

        Args:
            inputs: The mask, of any shape that the function takes; ``[E]`` for a whole batch of graphs.
            target: The class of every graph or mask, as for :class:`~captum_goat.GOAtAttribution`.
            additional_forward_args: The function's other arguments.

        Returns:
            The attributions, of the shape of ``inputs``.
        """
        found = torch.zeros_like(inputs)
        for point, weight in gauss_legendre(2 * self.points):
            mask = (inputs.detach() * (1.0 + point) / 2.0).requires_grad_()
            output = self.forward_func(mask, *as_tuple(additional_forward_args))
            output = output.view(1) if output.dim() == 0 else output
            (gradient,) = torch.autograd.grad(find_target(output, target)(output).sum(), mask)
            found += weight * gradient
        return (found * inputs).detach()
