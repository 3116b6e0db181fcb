r"""The shares of edges and gates in the output, by exact quadrature.

Theorem 5 of GOAt gives every occurrence of a variable v in a scalar product z the share :math:`z / c(z)`, with c(z)
the number of variable occurrences in z. In the gated replay F, where all variables are scaled by t, a product
becomes :math:`z\,t^{c(z)}`, so

.. math:: I_v = \sum_z \frac{O(v, z)}{c(z)}\,z = \int_0^1 v\,\frac{\partial F}{\partial v}(t)\,dt .

The integrand is a polynomial of degree D - 1, D the largest c(z), and Gauss-Legendre quadrature with
:math:`\lceil D/2 \rceil` points integrates it without error: no product is ever written down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_goat.activation_pattern import ActivationPattern


class Contributions(NamedTuple):
    """What lands on each variable, before the gates' part is spread over edges.

    Attributes:
        edges: The share of each edge, ``[E]``.
        rows: The share of the gates of each row, summed over channels and calls, by row id.
    """

    edges: Tensor
    rows: Tensor


def contributions(
    pattern: ActivationPattern, select: Callable[[Tensor], Tensor], *, edges: bool = True
) -> Contributions:
    """Share the selected output out to the edges and gates of a pattern.

    Args:
        pattern: The recorded pattern.
        select: Picks what is explained from the model's output.
        edges: ``False`` when the edges' own shares are known to be 0, because their mask is.
    """
    mask, rows = pattern.mask, pattern.rows
    shares = Contributions(torch.zeros_like(mask), mask.new_zeros(pattern.graph.num_rows))
    if rows is None:
        return shares
    for t, weight in _gauss_legendre(rows.degree if edges else rows.gates):
        _add_point(pattern, select, t, weight, edges=edges, to=shares)
    return shares._replace(edges=shares.edges * mask)


@torch.enable_grad()
def _add_point(
    pattern: ActivationPattern,
    select: Callable[[Tensor], Tensor],
    t: float,
    weight: float,
    *,
    edges: bool,
    to: Contributions,
) -> None:
    """Add one point of the integral; the edges' shares still lack their factor, the mask."""
    output, factors, scales = pattern.replay(t, edges=edges)
    variables = [
        (gates.rows.ids, scale)
        for gates, scale in zip(pattern.gates, scales, strict=True)
        if gates is not None and scale is not None
    ]
    targets = [to.rows] * len(variables)
    if edges:
        variables += [(call.edges, factor) for call, factor in zip(pattern.messages, factors, strict=True)]
        targets += [to.edges] * len(factors)
    explained = select(output).sum()
    if not variables or not explained.requires_grad:
        return
    gradients = torch.autograd.grad(explained, [leaf for _, leaf in variables], allow_unused=True)
    for target, (ids, _), gradient in zip(targets, variables, gradients, strict=True):
        if gradient is not None:
            kept = ids >= 0
            target.index_add_(0, ids[kept], gradient.view_as(ids)[kept].to(target.dtype), alpha=weight)


@cache
def _gauss_legendre(degree: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] that are exact for the derivative of a polynomial of this degree."""
    if degree == 0:
        return []
    points, weights = np.polynomial.legendre.leggauss((degree + 1) // 2)
    return [(float(t), float(w)) for t, w in zip((points + 1) / 2, weights / 2, strict=True)]
