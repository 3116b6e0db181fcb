r"""Equal shares of edges, features and gates in the output, by exact quadrature.

Theorem 5 of GOAt gives every occurrence of a variable v in a scalar product z the share :math:`z / c(z)`, with c(z)
the number of variable occurrences in z. In the gated replay F, where all variables are scaled by t, a product
becomes :math:`z\,t^{c(z)}`, so

.. math:: I_v = \sum_z \frac{O(v, z)}{c(z)}\,z = \int_0^1 v\,\frac{\partial F}{\partial v}(t)\,dt .

The integrand is a polynomial of degree D - 1, D the largest c(z), and Gauss-Legendre quadrature with
:math:`\lceil D/2 \rceil` points integrates it without error: no product is ever written down.

Recurrent networks have products of hundreds of gates, of which those with many factors hardly count. There, and where
masks count in degrees (:mod:`captum_goat.adjacency.presence`), so
that the integrand is smooth but not a polynomial, the number of points is increased until the shares add up.

Frozen factors that are not gates (the scale of a norm, attention) are constants. Only a product of such factors without
any variable is shared among them, in the same way, because it changes with the edges through these factors.

There are two ways to run the points. :class:`Replicas` run all of them in one pass under ``torch.vmap``: the first is
the model itself, the second the model without edges, and the others take their frozen values from these two. That is
fast on small graphs. On large ones it needs much memory: there :func:`contributions` runs one point after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.hooks.global_state import restores_state
from captum_goat.hooks.replicas import CANNOT_BATCH, batched, is_batched, with_replicas
from captum_goat.inputs.targets import Target
from captum_goat.method.replay import ActivationPattern, Replay, Subject
from captum_goat.rules.recorded_calls import Factors
from captum_goat.tracking import Messages, Rows

_logger = logging.getLogger(__name__)

MOST_NUMBERS = 2**15  # entries in the largest frozen tensor of all replicas; with more, single points are faster

EXACT_POINTS = 16  # with more points, for recurrent networks, they are doubled until the shares add up

# The number of explanations since replicas of a model failed, counted from 1.
_since_failure: WeakKeyDictionary[Module, int] = WeakKeyDictionary()


class Point(NamedTuple):
    """One point of an integral."""

    t: float  # the scale of edges, features and gates
    frozen: float | None  # the scale of frozen factors that are not gates, if they are the variables; else ``None``
    weight: float  # the point's weight


def quadrature(rows: Rows, *, inputs: bool, smooth: int | None = None, most: int = EXACT_POINTS) -> list[Point]:
    """Return the points for an output.

    There are ``smooth`` of them if it is not a polynomial of its variables, else as many as are exact, or ``most``.
    """
    pairs = gauss_legendre(min(rows.degree if inputs else rows.gates, 2 * most)) if smooth is None else squares(smooth)
    of_variables = [Point(t, None, weight) for t, weight in pairs]
    return of_variables + [Point(0.0, s, weight) for s, weight in gauss_legendre(min(max(rows.frozen, 0), 2 * most))]


def is_exact(rows: Rows | None) -> bool:
    """Return whether no more than :data:`EXACT_POINTS` points are exact for an output."""
    return rows is None or max(rows.degree, rows.gates, rows.frozen) <= 2 * EXACT_POINTS


@cache
def gauss_legendre(degree: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] that are exact for the derivative of a polynomial of this degree."""
    if degree == 0:
        return []
    points, weights = np.polynomial.legendre.leggauss((degree + 1) // 2)
    return [(float(t), float(w)) for t, w in zip((points + 1) / 2, weights / 2, strict=True)]


@cache
def squares(count: int) -> list[tuple[float, float]]:
    """Return points and weights on [0, 1] for smooth functions that change fast near 0, such as 1 / (1 + t * degree).

    The variable of integration is the square root of t, in which such a function changes more slowly.
    """
    return [(t * t, 2 * t * weight) for t, weight in gauss_legendre(2 * count)]


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
    targets: list[Target]  # the explained outputs
    contributions: list[Contributions]  # the shares of edges, features and gates in each target
    calibrations: list[Contributions]  # the same without edges


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
    if pattern.rows is None:
        return totals
    for point in quadrature(pattern.rows, inputs=inputs, smooth=smooth, most=most):
        replay = pattern.replay(point.t, inputs=inputs and point.frozen is None, frozen=point.frozen)
        _add_point(pattern, selects, replay, point.weight, to=totals)
    for total in totals:
        for share, feature in zip(total.features, pattern.subject.features, strict=True):
            share *= feature
    return [total._replace(edges=total.edges * pattern.subject.mask) for total in totals]


def _add_point(
    pattern: ActivationPattern,
    selects: Sequence[Callable[[Tensor], Tensor]],
    replay: Replay,
    weight: float,
    *,
    to: Sequence[Contributions],
) -> None:
    """Add one point of the integral; the sums for edges and features are multiplied by their values later."""
    scales = [scale for _, scale in replay.factors]
    inputs = [leaf for leaf in (*replay.masks, *replay.features) if leaf.requires_grad]
    if not (scales or inputs) or not replay.output.requires_grad:
        return
    for number, (select, total) in enumerate(zip(selects, to, strict=True)):
        explained, more = select(replay.output).sum(), number + 1 < len(selects)
        gradients = torch.autograd.grad(explained, scales + inputs, allow_unused=True, retain_graph=more)
        remaining = iter(gradients)
        for factors, _ in replay.factors:
            ids = factors.rows.ids if factors.everywhere else factors.rows.ids.masked_fill(~factors.variable, -1)
            _scatter(next(remaining), ids, weight, total.rows)
        for site in pattern.sites.sites if inputs else ():
            _scatter(site.along_path(next(remaining)), site.edges, weight, total.edges)
        for share, gradient in zip(total.features, remaining, strict=False):
            if gradient is not None:
                share.add_(gradient, alpha=weight)


def _scatter(gradient: Tensor | None, ids: Tensor, weight: float, to: Tensor) -> None:
    """Add a gradient to the entries ``ids`` (-1: constants)."""
    if gradient is not None and to.numel():
        flat, values = ids.reshape(-1), gradient.reshape(-1).to(to.dtype)
        to.index_add_(0, flat.clamp(min=0), values.masked_fill(flat < 0, 0.0), alpha=weight)


class Replicas:
    """Replicas of a model in one pass: the model itself (0), the model without edges (1), and the points of integrals.

    The scales of edges, features and frozen values in the replicas are leaves of the pass, made one by one.
    """

    def __init__(self, subject: Subject, rows: Rows, dtype: torch.dtype) -> None:
        numbers, points = zip(*replicas_of(rows), strict=True)
        device = subject.mask.device
        self.count, self._subject = len(points), subject
        self.nowhere_zero = all(point.t != 0.0 for point in points)  # whether no replica has gates with scale 0
        # The pattern of each replica, 0 or 1: the replica from which it takes its frozen values.
        self._which = torch.tensor(numbers, device=device)
        t = torch.tensor([point.t for point in points], dtype=dtype, device=device)
        s = t.new_tensor([1.0 if point.frozen is None else point.frozen for point in points])
        weights = t.new_tensor([point.weight for point in points])
        over_frozen = torch.tensor([point.frozen is not None for point in points], device=device)
        of_pattern = self._which == torch.arange(2, device=device).view(2, 1)
        self._weights = weights * of_pattern * ~over_frozen, weights * of_pattern * over_frozen
        self._own, self._t, self._s = t * of_pattern[0], t, s
        self._masks: dict[torch.dtype, Tensor] = {}  # the mask in every replica, with a 1 for constants behind it
        # By the id() of `Factors.variable`, which is kept alive beside the scales and ids of its rows.
        self._scales: dict[tuple[int, torch.dtype, bool], tuple[Tensor, Tensor, Tensor]] = {}
        self.leaves: list[Tensor] = []  # all scales, with the replicas as their first dimension
        self._edges: list[tuple[Tensor, Tensor]] = []  # scales of masks, and their edges
        self._features: list[Tensor] = []
        self._rows: list[tuple[Tensor, Tensor, bool]] = []  # scales of frozen values, their rows, whether gates

    def add_site(self, site: Messages) -> Tensor:
        """Return the factors of the mask at a site."""
        mask, places = self._subject.mask, _places(site.edges, self._subject.mask.numel())
        if site.dtype not in self._masks:
            scaled = torch.outer(self._own.to(site.dtype), mask.to(site.dtype))
            self._masks[site.dtype] = torch.cat([scaled, scaled.new_ones(len(scaled), 1)], dim=1)
        scale = self._leaf(self._masks[site.dtype].index_select(1, places).view(self.count, *site.shape))
        self._edges.append((scale, places))
        return scale

    def add_feature(self, feature: Tensor) -> Tensor:
        """Return the scaled values of an attributed input."""
        scale = self._leaf(_between(torch.zeros_like(feature), feature, self._own))
        self._features.append(scale)
        return scale

    def add_factors(self, factors: Factors) -> Tensor:
        """Return the scales of the rows of frozen values."""
        kind = id(factors.variable), factors.values.dtype, factors.gates
        if kind not in self._scales:
            scales = self._t if factors.gates else self._s
            between = _between(factors.scale(0.0), factors.scale(1.0), scales)
            ids = factors.rows.ids.where(factors.variable, -1).reshape(-1)
            self._scales[kind] = factors.variable, between, ids
        _, between, ids = self._scales[kind]
        scale = self._leaf(between)
        self._rows.append((scale, ids, factors.gates))
        return scale

    def _leaf(self, values: Tensor) -> Tensor:
        self.leaves.append(values.detach().requires_grad_())
        return self.leaves[-1]

    def frozen(self, values: Tensor) -> Tensor:
        """Return for every replica the values of the first or the second, whichever has its pattern."""
        return with_replicas(lambda every: every.index_select(0, self._which), values)

    def gated(self, scales: Tensor, value: Tensor) -> Tensor:
        """Return for every replica the output of a ReLU with the gates of the first or the second replica."""
        return with_replicas(partial(self._gated, scales), value)

    def _gated(self, scales: Tensor, values: Tensor) -> Tensor:
        gates = (values.detach()[:2] > 0).to(values.dtype).index_select(0, self._which)
        return values * (gates * scales.view(len(scales), *[1] * (values.dim() - scales.dim()), *scales.shape[1:]))

    def share(
        self, outputs: Tensor, choose: Callable[[Tensor], list[Target]], none: Callable[[], Contributions]
    ) -> Shares:
        """Return the shares in the outputs of all replicas; ``none`` makes zeros."""
        output, base = outputs[0].detach(), outputs[1].detach()
        targets, totals = choose(output), []
        for number, target in enumerate(targets):
            explained, more = target(outputs.movedim(0, -1)).sum(), number + 1 < len(targets)
            gradients = torch.autograd.grad(explained, self.leaves, allow_unused=True, retain_graph=more)
            by_leaf = {id(leaf): gradient for leaf, gradient in zip(self.leaves, gradients, strict=True)}
            totals.append(self._totals(by_leaf, none()))
        return Shares(output, base, targets, *map(list, zip(*totals, strict=True)))

    def _totals(
        self, gradients: Mapping[int, Tensor | None], none: Contributions
    ) -> tuple[Contributions, Contributions]:
        """Return the weighted sums of the gradients of each pattern's replicas."""
        weights, subject = self._weights, self._subject
        edges, rows = none.edges.new_zeros(2, none.edges.numel() + 1), none.rows.new_zeros(2, none.rows.numel() + 1)
        for scale, places in self._edges:
            _add_totals(gradients[id(scale)], weights[0], places, edges)
        features = []
        for scale, feature, zeros in zip(self._features, subject.features, none.features, strict=True):
            gradient = gradients[id(scale)]
            total = zeros if gradient is None else zeros + _total(gradient, weights[0][0]).view_as(zeros)
            features.append(total * feature)
        for scale, ids, gates in self._rows:
            _add_totals(gradients[id(scale)], weights[0 if gates else 1], _places(ids, none.rows.numel()), rows)
        own = Contributions(edges[0, :-1] * subject.mask, features, rows[0, :-1])
        return own, none._replace(rows=rows[1, :-1])


def replicas_of(rows: Rows) -> list[tuple[int, Point]]:
    """Return the replicas, each with the number of its pattern: 0 with edges, 1 without."""
    points = [(number, point) for number in (0, 1) for point in quadrature(rows, inputs=number == 0)]
    whole = Point(1.0, None, 0.0)
    return [(0, whole), (1, whole), *points]


def _between(zero: Tensor, one: Tensor, scales: Tensor) -> Tensor:
    """Interpolate linearly for each replica: ``zero`` at scale 0 and ``one`` at scale 1."""
    return zero + scales.to(zero.dtype).view(-1, *[1] * zero.dim()) * (one - zero)


def _places(ids: Tensor, count: int) -> Tensor:
    flat = ids.reshape(-1)
    return flat.where(flat >= 0, count)


def _total(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over replicas, one row of sums for each row of weights."""
    return weights @ gradient.reshape(weights.size(-1), -1).to(weights.dtype)


def _add_totals(gradient: Tensor | None, weights: Tensor, places: Tensor, to: Tensor) -> None:
    """Add weighted sums of gradients to places; the last place collects those of constants."""
    if gradient is not None:
        to.index_add_(1, places, _total(gradient, weights))


def fits_replicas(pattern: ActivationPattern) -> bool:
    """Return whether to run all points of a pattern in one pass."""
    if pattern.rows is None or not pattern.subject.entry.can_batch or not is_exact(pattern.rows):
        return False
    if pattern.chooses:
        return False
    if torch.finfo(pattern.output.dtype).bits < 32:  # batched operations round differently, which flips gates
        return False
    largest = max([factors.values.numel() for factors in pattern.factors] + [pattern.subject.mask.numel()])
    return 0 < largest * len(replicas_of(pattern.rows)) <= MOST_NUMBERS


def share_in_replicas(pattern: ActivationPattern, targets: list[Target]) -> Shares | None:
    """Return the shares by one pass of replicas; ``None`` if torch cannot batch the model."""
    model = pattern.subject.model
    if not _is_tried(model):
        return None
    try:
        shares = _share_in_replicas(pattern, targets)
    except CANNOT_BATCH as error:  # an error of the model itself is raised again without replicas
        _logger.debug("Replicas of %s failed, so it runs once per point: %r", type(model).__name__, error)
        _since_failure.setdefault(model, 1)
        return None
    _since_failure.pop(model, None)
    return shares


def _is_tried(model: Module) -> bool:
    """Return whether to try replicas: after a failure only in the first, second, fourth, ... explanation."""
    count = _since_failure.get(model, 0)
    if count:
        _since_failure[model] = count + 1
    return count & (count - 1) == 0


@restores_state
def _share_in_replicas(pattern: ActivationPattern, targets: list[Target]) -> Shares:
    assert pattern.rows is not None
    subject = pattern.subject
    replicas = Replicas(subject, pattern.rows, pattern.sum_dtype)
    sites = [replicas.add_site(site) for site in pattern.sites.sites if isinstance(site, Messages)]
    inputs = [replicas.add_feature(feature) for feature in subject.features]
    all_scales = [replicas.add_factors(factors) for factors in pattern.factors]

    def run(masks: list[Tensor], features: list[Tensor], scales: list[Tensor]) -> Tensor:
        remaining = iter(zip(scales, all_scales, strict=True))

        def keep(known: Factors | None, compute: Callable[[], Tensor]) -> Tensor:
            if known is None:
                return compute()
            with torch.no_grad():
                values = compute()
                values = replicas.frozen(values) if is_batched(values) else values
            return values * next(remaining)[0]

        def gate(_: Factors, value: Tensor) -> Tensor:
            scale, every_scale = next(remaining)
            if not is_batched(value):
                return value * (value > 0).to(value.dtype) * scale
            return replicas.gated(every_scale, value)

        return pattern.run(keep, masks, features, gate if replicas.nowhere_zero else None)

    torch._C._set_grad_enabled(True)
    outputs = batched(run, replicas.count, sites, inputs, all_scales)
    return replicas.share(outputs, lambda _: targets, lambda: Contributions.zeros(pattern))
