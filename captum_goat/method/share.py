r"""The shares of edges and gates in the output, by exact quadrature.

Theorem 5 of GOAt gives every occurrence of a variable v in a scalar product z the share :math:`z / c(z)`, with c(z)
the number of variable occurrences in z. In the gated replay F, where all variables are scaled by t, a product
becomes :math:`z\,t^{c(z)}`, so

.. math:: I_v = \sum_z \frac{O(v, z)}{c(z)}\,z = \int_0^1 v\,\frac{\partial F}{\partial v}(t)\,dt .

The integrand is a polynomial of degree D - 1, D the largest c(z), and Gauss-Legendre quadrature with
:math:`\lceil D/2 \rceil` points integrates it without error: no product is ever written down.

Where the presence of edges enters degrees (:mod:`captum_goat.adjacency.presence`), the integrand is no polynomial but smooth,
and the number of points is chosen by whether the shares add up.

Frozen factors that are no gates (the scale of a norm, attention) are constants in this. Only a product that has such
factors but no variable is shared among them, in the same way: it changes with the edges, and they are why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.presence import Presence
from captum_goat.method.quadrature import points
from captum_goat.method.replay import ActivationPattern, Replay


class Contributions(NamedTuple):
    """What lands on each variable, before the gates' part is spread over edges and features.

    Attributes:
        edges: The share of each edge, ``[E]``.
        features: The share of each feature, of the shapes of the attributed inputs.
        rows: The share of the gates of each row, summed over channels and calls, by row id.
    """

    edges: Tensor
    features: list[Tensor]
    rows: Tensor


@torch.enable_grad()
def contributions(
    pattern: ActivationPattern,
    selects: Sequence[Callable[[Tensor], Tensor]],
    *,
    inputs: bool = True,
    smooth: int | None = None,
) -> list[Contributions]:
    """Share parts of the output out to the edges, features and gates of a pattern.

    Args:
        pattern: The recorded pattern.
        selects: Each picks something that is explained from the model's output.
        inputs: ``False`` when the edges' and features' own shares are known to be 0, because they are.
        smooth: For a replay that is no polynomial the number of points.

    Returns:
        The shares in each of the selected parts. The model runs as often as for one.
    """
    shares = [no_contributions(pattern) for _ in selects]
    if pattern.rows is None:
        return shares
    for point in points(pattern.rows, inputs=inputs, smooth=smooth):
        replay = pattern.replay(point.t, inputs=inputs and point.frozen is None, frozen=point.frozen)
        _add_point(pattern, selects, replay, point.weight, to=shares)
    for each in shares:
        for share, feature in zip(each.features, pattern.subject.features, strict=True):
            share *= feature
    return [each._replace(edges=each.edges * pattern.subject.mask) for each in shares]


def no_contributions(pattern: ActivationPattern) -> Contributions:
    """Return zeros for all variables of a pattern."""
    mask, dtype = pattern.subject.mask, pattern.sum_dtype
    return Contributions(
        torch.zeros_like(mask, dtype=dtype),
        [torch.zeros_like(each, dtype=dtype) for each in pattern.subject.features],
        mask.new_zeros(pattern.graph.num_rows, dtype=dtype),
    )


def _add_point(
    pattern: ActivationPattern,
    selects: Sequence[Callable[[Tensor], Tensor]],
    replay: Replay,
    weight: float,
    *,
    to: Sequence[Contributions],
) -> None:
    """Add one point of the integral; the shares of edges and features still lack them as a factor."""
    scales = [scale for _, scale in replay.factors]
    inputs = [each for each in (*replay.messages, *replay.features) if each.requires_grad]
    if not (scales or inputs) or not replay.output.requires_grad:
        return
    for number, (select, shares) in enumerate(zip(selects, to, strict=True)):
        explained, more = select(replay.output).sum(), number + 1 < len(selects)
        gradients = torch.autograd.grad(explained, scales + inputs, allow_unused=True, retain_graph=more)
        _add_gradients(pattern, replay, list(gradients), weight, inputs=bool(inputs), to=shares)


def _add_gradients(
    pattern: ActivationPattern,
    replay: Replay,
    gradients: list[Tensor | None],
    weight: float,
    *,
    inputs: bool,
    to: Contributions,
) -> None:
    for each, _ in replay.factors:
        ids = each.rows.ids if each.everywhere else each.rows.ids.masked_fill(~each.variable, -1)
        _scatter(gradients.pop(0), ids, weight, to.rows)
    if inputs:
        for call in pattern.messages:
            gradient = gradients.pop(0)
            if isinstance(call, Presence) and gradient is not None:
                gradient = call.along_path(gradient)
            _scatter(gradient, call.edges, weight, to.edges)
        for share in to.features:
            if (gradient := gradients.pop(0)) is not None:
                share.add_(gradient, alpha=weight)


def _scatter(gradient: Tensor | None, ids: Tensor, weight: float, to: Tensor) -> None:
    """Add a gradient to the entries ``ids`` (-1: constants)."""
    if gradient is not None and to.numel():
        flat, values = ids.reshape(-1), gradient.reshape(-1).to(to.dtype)
        to.index_add_(0, flat.clamp(min=0), values.masked_fill(flat < 0, 0.0), alpha=weight)
