"""Replicas of a model in one pass: what replaces masks, attributed inputs and operations with a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.quadrature import Point
from captum_goat.rules.registry import Factors, FrozenCall
from captum_goat.tracking import Messages


class Plan(NamedTuple):
    """What is the same for all outputs of one degree; entry k is that of replica k."""

    patterns: tuple[int, ...]  # 0 or 1: the replica from which it takes its frozen values
    which: Tensor  # the same
    t: Tensor  # the scale of gates
    s: Tensor  # the scale of frozen factors that are not gates
    own: Tensor  # the scale of edges and features
    # for both patterns, ``[2, replicas]``: of points over gates, edges and features, by t; of points over others, by s
    weights: tuple[Tensor, Tensor]


@cache
def plan_of(replicas: tuple[tuple[int, Point], ...], dtype: torch.dtype, device: torch.device) -> Plan:
    """Return the plan of replicas, given the number of the pattern of each, and its point."""
    numbers, points = zip(*replicas, strict=True)
    t = torch.tensor([point.t for point in points], dtype=dtype, device=device)
    s = t.new_tensor([1.0 if point.frozen is None else point.frozen for point in points])
    weights = t.new_tensor([point.weight for point in points])
    over_frozen = torch.tensor([point.frozen is not None for point in points], device=device)
    which = torch.tensor(numbers, device=device)
    weights = weights * (which == torch.arange(2, device=device).view(2, 1))
    own, others = weights * ~over_frozen / t.where(t != 0, 1), weights * over_frozen / s
    return Plan(numbers, which, t, s, t * (which == 0), (own, others))


class Leaf(NamedTuple):
    """A tensor of the pass whose gradient, times the tensor itself and by the scale of the replica, is a share."""

    values: Tensor  # scaled variables, or the result of a ReLU, with the replicas as first dimension
    places: Tensor  # where each entry of a replica's share is added to
    frozen: bool = False  # whether the scale is that of frozen factors that are not gates
    shape: torch.Size | None = None  # of the scales of a ReLU's gates, if its result stands for them


class Replicas:
    """Replicas of a model in one pass: the model itself (0), the model without edges (1), and the points of integrals.

    The scales of edges, features and frozen values in the replicas are leaves of the pass, made one by one. Their
    shares are those of rows, edges and features one after the other.
    """

    def __init__(self, plan: Plan, mask: Tensor, num_features: int, num_rows: int) -> None:
        self.count, self.plan, self._mask = len(plan.patterns), plan, mask
        # By the id() of the ids of rows, which are kept alive beside scales and places.
        self._scales: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}
        self._sites: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}  # by the id() of edges, which are kept alive
        self._first_edge, self._next_feature = num_rows, num_rows + mask.numel()
        self._end = self._next_feature + num_features  # the place for constants
        self.leaves: list[Leaf] = []

    def _leaf(self, values: Tensor, places: Tensor, *, frozen: bool = False) -> Tensor:
        self.leaves.append(Leaf(values.detach().requires_grad_(), places, frozen))
        return self.leaves[-1].values

    def add_site(self, site: Messages) -> Tensor:
        """Return the factors of the mask at a site."""
        edges, dtype = site.edges, site.mask_dtype(self._mask)
        if (kind := (id(edges), dtype)) not in self._sites:
            factors = torch.outer(self.plan.own.to(dtype), self._mask.to(dtype))
            places = edges + self._first_edge
            if edges is not site.whole:  # the edge -1 is the last entry
                factors = torch.cat([factors, factors.new_ones(self.count, 1)], dim=1)[:, edges]
                places = places.where(edges >= 0, self._end)
            self._sites[kind] = edges, factors, places
        _, factors, places = self._sites[kind]
        return self._leaf(factors.view(self.count, *site.shape), places)

    def add_feature(self, feature: Tensor) -> Tensor:
        """Return the scaled values of an attributed input."""
        first, self._next_feature = self._next_feature, self._next_feature + feature.numel()
        places = torch.arange(first, self._next_feature, device=feature.device)
        return self._leaf(_by_replica(self.plan.own, feature.dtype, feature.dim()) * feature, places)

    def _scales_of(self, factors: Factors) -> tuple[Tensor, Tensor]:
        """Return the scales of the rows of frozen values, or one for all rows of a replica, and their places."""
        ids, variable, dtype = factors.rows.ids, factors.variable, factors.values.dtype
        kind = id(ids), dtype, factors.gates
        if kind not in self._scales:
            scales = _by_replica(self.plan.t if factors.gates else self.plan.s, dtype, variable.dim())
            places = ids if factors.full else ids.where(variable, self._end)
            scales = scales if factors.full else torch.where(variable, scales, 1.0)
            self._scales[kind] = ids, scales, places.reshape(-1)
        return self._scales[kind][1:]

    def _expanded(self, factors: Factors) -> tuple[Tensor, Tensor]:
        """Return the scales of all rows, and their places."""
        scales, places = self._scales_of(factors)
        return scales.expand(self.count, *factors.variable.shape), places

    def gated(self, factors: Factors, values: Tensor) -> Tensor:
        """Return for every replica the output of a ReLU with the gates of the first or the second replica.

        The derivative with respect to the scale of a row is that with respect to the output, times the output, by t.
        """
        scales, places = self._scales_of(factors)
        shape = torch.Size([self.count, *[1] * (values.dim() - scales.dim()), *factors.variable.shape])
        if values.dim() != scales.dim():
            scales = scales.view(self.count, *[1] * (values.dim() - scales.dim()), *scales.shape[1:])
        of_patterns = values.detach().index_select(0, self.plan.which)
        # the scales where the pattern's replica is above 0, else 0
        out: Tensor = values * torch.ops.aten.threshold_backward(scales, of_patterns, 0)
        if out.requires_grad:
            self.leaves.append(Leaf(out, places, shape=shape))
        return out

    def totals(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Return the shares of all variables for both patterns, ``[2, variables]``."""
        totals = self.plan.t.new_zeros(2, self._end + 1)
        used = [pair for pair in zip(self.leaves, gradients, strict=True) if pair[1] is not None]
        for frozen, weights in enumerate(self.plan.weights):
            shares, places = list[Tensor](), list[Tensor]()
            for leaf, gradient in used:
                if leaf.frozen == frozen and gradient is not None:
                    share = gradient * leaf.values.detach()
                    if leaf.shape is not None and leaf.shape != share.shape:
                        share = share.sum_to_size(leaf.shape)
                    shares.append(share.reshape(self.count, -1))
                    places.append(leaf.places)
            if shares:
                totals.index_add_(1, torch.cat(places), weights @ torch.cat(shares, dim=1).to(weights.dtype))
        return totals[:, :-1]

    def rewritten(
        self, call: FrozenCall, func: Callable[..., Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any], int], Any]:
        """Return what makes a rewritten call for one replica after the other."""
        scales = [
            self._leaf(*self._expanded(kept), frozen=not kept.gates) if isinstance(kept, Factors) else None
            for kept in call.kept
        ]
        kept: dict[tuple[int, int], Tensor] = {}  # by the number of the pattern, and which of the values

        def rewrite(args: tuple[Any, ...], kwargs: dict[str, Any], replica: int) -> Any:
            remaining = iter(enumerate(scales))

            def keep(values: Callable[[], Tensor], **_: Any) -> Tensor:
                which, scale = next(remaining)
                if scale is None:
                    return values()
                if replica < 2:
                    with torch.no_grad():
                        kept[replica, which] = values()
                return kept[self.plan.patterns[replica], which] * scale[replica]

            return call.rewrite(keep, func, args, kwargs)

        return rewrite


def _by_replica(scales: Tensor, dtype: torch.dtype, dims: int) -> Tensor:
    """Return scales, one per replica, that broadcast to tensors with ``dims`` dimensions."""
    return scales.to(dtype).view(-1, *[1] * dims)
