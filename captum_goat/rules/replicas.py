"""Replicas of a model in one pass: what replaces masks, attributed inputs and operations with a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.frozen_calls import FrozenCall
from captum_goat.rules.recorded_calls import Factors
from captum_goat.tracking import Messages


class Plan(NamedTuple):
    """What is the same for all outputs of one degree; entry k is that of replica k."""

    patterns: tuple[int, ...]  # 0 or 1: the replica from which it takes its frozen values
    which: Tensor  # the same
    t: Tensor  # the scale of gates
    s: Tensor  # the scale of frozen factors that are not gates
    own: Tensor  # the scale of edges and features
    weights: tuple[Tensor, Tensor]  # for both patterns, of points over gates, edges and features, and over others


class Replicas:
    """Replicas of a model in one pass: the model itself (0), the model without edges (1), and the points of integrals.

    The scales of edges, features and frozen values in the replicas are leaves of the pass, made one by one.
    """

    def __init__(self, plan: Plan, mask: Tensor) -> None:
        self.count, self.plan, self._mask = len(plan.patterns), plan, mask
        self._masks: dict[torch.dtype, Tensor] = {}  # the mask in every replica, with a 1 for constants behind it
        # By the id() of `Factors.variable`, which is kept alive beside the scales and ids of its rows.
        self._scales: dict[tuple[int, torch.dtype, bool], tuple[Tensor, Tensor, Tensor]] = {}
        self.leaves: list[Tensor] = []  # all scales, with the replicas as their first dimension
        self.edges: list[tuple[Tensor, Tensor]] = []  # scales of masks, and their edges
        self.features: list[Tensor] = []
        self.rows: list[tuple[Tensor, Tensor, bool]] = []  # scales of frozen values, their rows, whether gates
        self.gates: list[tuple[Tensor, torch.Size, Tensor]] = []  # results of ReLUs, the shape of scales, their rows

    def add_site(self, site: Messages) -> Tensor:
        """Return the factors of the mask at a site."""
        places = places_of(site.edges, self._mask.numel())
        dtype = site.mask_dtype(self._mask)
        if dtype not in self._masks:
            scaled = torch.outer(self.plan.own.to(dtype), self._mask.to(dtype))
            self._masks[dtype] = torch.cat([scaled, scaled.new_ones(len(scaled), 1)], dim=1)
        scale = self._leaf(self._masks[dtype].index_select(1, places).view(self.count, *site.shape))
        self.edges.append((scale, places))
        return scale

    def add_feature(self, feature: Tensor) -> Tensor:
        """Return the scaled values of an attributed input."""
        scale = self._leaf(_between(torch.zeros_like(feature), feature, self.plan.own))
        self.features.append(scale)
        return scale

    def add_factors(self, factors: Factors) -> Tensor:
        """Return the scales of the rows of frozen values, as variables."""
        between, ids = self._scales_of(factors)
        scale = self._leaf(between)
        self.rows.append((scale, ids, factors.gates))
        return scale

    def _scales_of(self, factors: Factors) -> tuple[Tensor, Tensor]:
        """Return the scales of the rows of frozen values, and their rows."""
        kind = id(factors.variable), factors.values.dtype, factors.gates
        if kind not in self._scales:
            scales = self.plan.t if factors.gates else self.plan.s
            between = _between(factors.scale(0.0), factors.scale(1.0), scales)
            ids = factors.rows.ids.where(factors.variable, -1).reshape(-1)
            self._scales[kind] = factors.variable, between, ids
        return self._scales[kind][1:]

    def _leaf(self, values: Tensor) -> Tensor:
        self.leaves.append(values.detach().requires_grad_())
        return self.leaves[-1]

    def gated(self, factors: Factors, values: Tensor) -> Tensor:
        """Return for every replica the output of a ReLU with the gates of the first or the second replica.

        The derivative with respect to the scale of a row is that with respect to the output, times the output, by t.
        """
        scales, ids = self._scales_of(factors)
        scales = scales.view(len(scales), *[1] * (values.dim() - scales.dim()), *scales.shape[1:])
        with torch.no_grad():
            gates = (values[:2] > 0).to(values.dtype).index_select(0, self.plan.which).mul_(scales)
        out = values * gates
        if out.requires_grad:
            self.leaves.append(out)
            self.gates.append((out, scales.shape, ids))
        return out

    def rewritten(
        self, call: FrozenCall, func: Callable[..., Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any], int], Any]:
        """Return what makes a rewritten call for one replica after the other."""
        scales = [self.add_factors(kept) if isinstance(kept, Factors) else None for kept in call.kept]
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


def _between(zero: Tensor, one: Tensor, scales: Tensor) -> Tensor:
    """Interpolate linearly for each replica: ``zero`` at scale 0 and ``one`` at scale 1."""
    return zero + scales.to(zero.dtype).view(-1, *[1] * zero.dim()) * (one - zero)


def places_of(ids: Tensor, count: int) -> Tensor:
    """Return ids as places in a list of ``count`` entries, and the place behind it for -1."""
    flat = ids.reshape(-1)
    return flat.where(flat >= 0, count)
