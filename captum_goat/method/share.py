r"""Equal shares of edges, features and gates in the output, by exact quadrature.

Theorem 5 of GOAt gives every occurrence of a variable v in a scalar product z the share :math:`z / c(z)`, with c(z)
the number of variable occurrences in z. In the gated replay F, where all variables are scaled by t, a product
becomes :math:`z\,t^{c(z)}`, so

.. math:: I_v = \sum_z \frac{O(v, z)}{c(z)}\,z = \int_0^1 v\,\frac{\partial F}{\partial v}(t)\,dt .

The integrand is a polynomial of degree D - 1, D the largest c(z), and Gauss-Legendre quadrature with
:math:`\lceil D/2 \rceil` points integrates it without error: no product is ever written down.

Recurrent networks have products of hundreds of gates, of which those with many factors hardly count. There, and where
masks count in degrees (:mod:`captum_goat.adjacency.presence`), so that the integrand is smooth but not a polynomial,
the number of points is increased until the shares add up.

Frozen factors that are not gates (the scale of a norm, attention) are constants. Only a product of such factors without
any variable is shared among them, in the same way, because it changes with the edges through these factors.

There are two ways to run the points. :class:`Replicas` run all of them in one pass: the first is the model itself, the
second the model without edges, and the others take their frozen values from these two. That is fast on small graphs. On
large ones it needs much memory: there :func:`contributions` runs one point after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.deletion import nearly_equal
from captum_goat.inputs.targets import Target
from captum_goat.method.replay import FAILURES, ActivationPattern
from captum_goat.rules.operations import input_of
from captum_goat.rules.quadrature import EXACT_POINTS, Point, quadrature, replicas_of
from captum_goat.rules.registry import Factors
from captum_goat.rules.replicas import Replicas, plan_of
from captum_goat.rules.scaled_leaves import Buffers
from captum_goat.tracking import Messages, Rows
from captum_goat.tracking.replicated_calls import ReplicatedCalls
from captum_goat.tracking.tape import Step

_logger = logging.getLogger(__name__)

MOST_NUMBERS = 2**15  # entries in the largest frozen tensor of all replicas; with more, single points are faster


def is_exact(rows: Rows | None) -> bool:
    """Return whether no more than :data:`EXACT_POINTS` points are exact for an output."""
    return rows is None or max(rows.degree, rows.gates, rows.frozen) <= 2 * EXACT_POINTS


class Contributions(NamedTuple):
    """The share of each variable, before the gates' shares are spread over edges and features."""

    edges: Tensor  # the share of each edge, ``[E]``
    features: list[Tensor]  # the share of each feature, of the shapes of the attributed inputs
    rows: Tensor  # the share of the gates of each row, summed over channels and calls, by row id

    @classmethod
    def zeros(cls, pattern: ActivationPattern) -> Contributions:
        """Return zeros for all variables of a pattern."""
        mask, dtype = pattern.subject.mask, pattern.sum_dtype
        features = [torch.zeros_like(feature, dtype=dtype) for feature in pattern.subject.features]
        rows = mask.new_zeros(pattern.graph.num_rows, dtype=dtype)
        return cls(torch.zeros_like(mask, dtype=dtype), features, rows)


class Shares(NamedTuple):
    """The outputs and the shares of all variables in them."""

    output: Tensor  # the model's output
    base: Tensor  # its output without edges
    contributions: list[Contributions]  # the shares of edges, features and gates in each target
    calibrations: list[Tensor]  # the shares of gates without edges, by row id


@torch.enable_grad()
def contributions(
    pattern: ActivationPattern,
    selects: Sequence[Callable[[Tensor], Tensor]],
    *,
    inputs: bool = True,
    smooth: int | None = None,
    most: int = EXACT_POINTS,
) -> list[Contributions]:
    """Return the shares of edges, features and gates in each selected part of the output, by the same replays."""
    totals = [Contributions.zeros(pattern) for _ in selects]
    if (rows := pattern.rows) is None:
        return totals
    points = quadrature(rows.degree if inputs else rows.gates, rows.frozen, smooth, most)
    buffers = Buffers(pattern.tape)
    for over_frozen, group in groupby(points, lambda point: point.frozen is not None):
        sums: list[list[Tensor | None]] = [[] for _ in selects]  # of each leaf, over the points
        for point in group:
            scaled, by_results = _add_point(pattern, point, selects, sums, buffers, inputs=inputs and not over_frozen)
        for total, of_leaves in zip(totals, sums, strict=True):
            remaining = iter(of_leaves)
            for factors, share in zip(scaled, remaining, strict=False):
                _scatter(share, factors.rows.ids.masked_fill(~factors.variable, -1), total.rows)
            for site, share in zip(pattern.sites.sites, remaining, strict=False):
                _scatter(site.along_path(share), site.edges, total.edges)
            if not (over_frozen or by_results):
                total.edges.mul_(pattern.subject.mask)
            for features, share in zip(total.features, remaining, strict=False):
                features += 0.0 if share is None else share
    for total in totals:
        for share, feature in zip(total.features, pattern.subject.features, strict=True):
            share *= feature
    return totals


def _add_point(
    pattern: ActivationPattern,
    point: Point,
    selects: Sequence[Callable[[Tensor], Tensor]],
    sums: list[list[Tensor | None]],
    buffers: Buffers,
    *,
    inputs: bool,
) -> tuple[list[Factors], bool]:
    """Add the shares at a point to the sums of leaves, and return the frozen values and whether masks are results.

    When this returns, the memory of the replay and of its gradients is free for those of the next point.
    """
    replay = pattern.replay(point.t, inputs=inputs, frozen=point.frozen, overwritable=buffers.overwritable)
    for number, select in enumerate(selects):
        gradients = replay.gradients(select(replay.output).sum(), retain_graph=number + 1 < len(selects))
        parts = zip(sums[number] or [None] * len(gradients), gradients, replay.leaves, strict=True)
        sums[number] = [buffers.add_share(*part, point.weight, pattern.sum_dtype) for part in parts]
    return [factors for factors, _ in replay.factors], replay.by_results


def _scatter(share: Tensor | None, ids: Tensor, to: Tensor) -> None:
    """Add shares to the entries ``ids`` (-1: constants)."""
    if share is not None and to.numel():
        flat = ids.reshape(-1)
        to.index_add_(0, flat.clamp(min=0), share.reshape(-1).masked_fill(flat < 0, 0.0))


def fits_replicas(pattern: ActivationPattern) -> bool:
    """Return whether to run all points of a pattern in one pass."""
    rows = pattern.rows
    if rows is None or pattern.tape is None or pattern.chooses or not is_exact(rows):
        return False
    if torch.finfo(pattern.output.dtype).bits < 32:  # batched operations round differently, which flips gates
        return False
    largest = max([factors.values.numel() for factors in pattern.factors] + [pattern.subject.mask.numel()])
    return 0 < largest * len(replicas_of(rows.degree, rows.gates, rows.frozen)) <= MOST_NUMBERS


@torch.enable_grad()
def share_in_replicas(pattern: ActivationPattern, targets: list[Target]) -> Shares | None:
    """Return the shares by one pass of replicas; ``None`` if it is too large, or fails."""
    rows, subject = pattern.rows, pattern.subject
    if not fits_replicas(pattern) or rows is None or pattern.tape is None:
        return None
    plan = plan_of(replicas_of(rows.degree, rows.gates, rows.frozen), pattern.sum_dtype, subject.mask.device)
    num_features = sum(map(Tensor.numel, subject.features))
    replicas = Replicas(plan, subject.mask, num_features, pattern.graph.num_rows)
    sites = [replicas.add_site(site) for site in pattern.sites.sites if isinstance(site, Messages)]
    features = [replicas.add_feature(feature) for feature in subject.features]
    calls = ReplicatedCalls(replicas.count)

    def call(step: Step, values: Mapping[int, Tensor]) -> Any:
        number = step.number
        if number is None:
            return calls(step, values)
        if step.masks:
            return step.first(values) * sites[number]
        if number == pattern.left_out:
            return values[input_of(step.args, step.kwargs).number]
        frozen = pattern.calls[number]
        if frozen is None:
            return calls(step, values)
        if frozen.rule.is_relu and isinstance(gates := frozen.kept[0], Factors):
            return replicas.gated(gates, values[input_of(step.args, step.kwargs).number])
        return calls.one_by_one(replicas.rewritten(frozen, step.function), step, values)

    try:
        outputs = pattern.tape.run(features, call)
    except FAILURES as error:
        _logger.debug("Replicas of %s failed, so it runs once per point: %r", type(subject.model).__name__, error)
        return None
    if not nearly_equal(outputs[0].detach(), pattern.output):
        _logger.debug("The first replica of %s is not the model itself.", type(subject.model).__name__)
        return None
    own, calibrations = list[Contributions](), list[Tensor]()
    for number, target in enumerate(targets):
        explained, leaves = target(outputs.movedim(0, -1)).sum(), [leaf.values for leaf in replicas.leaves]
        more = number + 1 < len(targets)
        gradients = torch.autograd.grad(explained, leaves, allow_unused=True, retain_graph=more)
        own_total, base_total = replicas.totals(gradients)
        sizes = [pattern.graph.num_rows, subject.mask.numel(), *(feature.numel() for feature in subject.features)]
        of_rows, edges, *features = own_total.split(sizes)
        features = [share.view_as(value) for share, value in zip(features, subject.features, strict=True)]
        own.append(Contributions(edges, features, of_rows))
        calibrations.append(base_total[: sizes[0]])
    return Shares(outputs[0].detach(), outputs[1].detach(), own, calibrations)
