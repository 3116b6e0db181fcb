"""A whole explanation in one pass: replicas of the model, each with its own scales, under ``torch.vmap``.

The first replica is the model itself, the second is the model without edges; from these two the others, which are the
points of the integrals, take their frozen numbers. On a small graph a pass costs what Python and the launching of
operations cost, however many replicas it has. On a large one the replicas only take memory. So this is the way for
small graphs, and :mod:`captum_goat.contributions`, one point after the other, is the way for all others; also for
models with operations that ``torch.vmap`` cannot batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.nn import Module

from captum_goat.activation_pattern import ActivationPattern
from captum_goat.contributions import Contributions, no_contributions
from captum_goat.gates import FrozenGates
from captum_goat.kept_calls import Factors
from captum_goat.points import Point, points
from captum_goat.steps import Comparison
from captum_goat.targets import Target

_MOST_NUMBERS = 2**15  # in the largest frozen tensor of all replicas together; more are faster one after the other

_functorch: Any = torch._C._functorch  # what torch.vmap is made of

# Models with which replicas have failed.
_failed: WeakSet[Module] = WeakSet()


class Replicated(NamedTuple):
    """What one pass of replicas has found.

    Attributes:
        output: The model's output.
        base: Its output without edges.
        targets: What is explained.
        shares: The shares of edges, features and gates in each target.
        calibrations: The same without edges.
    """

    output: Tensor
    base: Tensor
    targets: list[Target]
    shares: list[Contributions]
    calibrations: list[Contributions]


def fits(pattern: ActivationPattern) -> bool:
    """Return whether replicas are the way for a pattern."""
    if pattern.rows is None or pattern.sums is not None or pattern.subject.model in _failed:
        return False
    largest = max([each.values.numel() for each in pattern.factors] + [pattern.subject.mask.numel()])
    return 0 < largest * len(_points_of(pattern)) <= _MOST_NUMBERS


def replicated(
    pattern: ActivationPattern, choose: Callable[[Tensor], list[Target]], steps: Comparison | None = None
) -> Replicated | None:
    """Explain a pattern with replicas; ``None`` if that cannot be done.

    Args:
        pattern: The pattern, whose frozen numbers are not used, but found anew.
        choose: Returns what is explained, given the model's output.
        steps: Compares the steps of the model with those when it was recorded.
    """
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # of operations that are not batched but repeated
            return _Replicas(pattern).explain(choose, steps)
    except Exception:  # what is not due to the replicas comes again without them
        if steps is None:
            _failed.add(pattern.subject.model)
        return None


class _Replica(NamedTuple):
    """One point of the integral of one of two patterns: 0, that of the graph, or 1, that without edges."""

    pattern: int
    point: Point


def _points_of(pattern: ActivationPattern) -> list[_Replica]:
    assert pattern.rows is not None
    found = [_Replica(number, each) for number in (0, 1) for each in points(pattern.rows, inputs=number == 0)]
    whole = Point(1.0, None, 0.0)
    return [_Replica(0, whole), _Replica(1, whole), *found]


def _of_first(values: Tensor, which: Tensor) -> Tensor:
    """Give every replica the numbers of the first or of the second one."""
    if not _functorch.is_batchedtensor(values):
        return values
    return _with_replicas(lambda each: each.index_select(0, which), values)


def _with_replicas(func: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Apply a function to the tensor of all replicas, the first dimension of which they are."""
    level, dim = _functorch.maybe_get_level(values), _functorch.maybe_get_bdim(values)
    every = _functorch.get_unwrapped(values)
    if _functorch.maybe_current_level() != level or _functorch.is_batchedtensor(every):
        raise NotImplementedError("torch.vmap inside of the model")
    with temporarily_pop_interpreter_stack():
        result = func(every.movedim(dim, 0) if dim else every)
    found: Tensor = _functorch._add_batch_dim(result, 0, level)
    return found


class _Replicas:
    """Replicas with their scales, which are leaves: one tensor per call of a message function, input and factor."""

    def __init__(self, pattern: ActivationPattern) -> None:
        self._pattern = pattern
        replicas, subject = _points_of(pattern), pattern.subject
        dtype, device = torch.promote_types(subject.mask.dtype, pattern.output.dtype), subject.mask.device
        numbers, found = [each.pattern for each in replicas], [each.point for each in replicas]
        self._nowhere_zero = all(each.t != 0.0 for each in found)
        self._which = torch.tensor(numbers, device=device)
        self._t = torch.tensor([each.t for each in found], dtype=dtype, device=device)
        self._s = self._t.new_tensor([1.0 if each.frozen is None else each.frozen for each in found])
        weights = self._t.new_tensor([each.weight for each in found])
        over_frozen = torch.tensor([each.frozen is not None for each in found], device=device)
        of_pattern = self._which == torch.arange(2, device=device).view(2, 1)
        # One line per pattern: the weights of the points of its integral over variables, and over frozen numbers.
        self._weights = weights * of_pattern * ~over_frozen, weights * of_pattern * over_frozen
        own = self._t * of_pattern[0]
        self._messages = [
            _leaf(_between(call.factor(subject.mask, 0.0), call.factor(subject.mask), own)) for call in pattern.messages
        ]
        self._features = [_leaf(_between(torch.zeros_like(each), each, own)) for each in subject.features]
        self._scales = [
            _leaf(_between(each.scale(0.0), each.scale(1.0), self._t if each.gates else self._s))
            for each in pattern.factors
        ]

    def explain(self, choose: Callable[[Tensor], list[Target]], steps: Comparison | None) -> Replicated:
        def run(messages: list[Tensor], features: list[Tensor], scales: list[Tensor]) -> Tensor:
            remaining = iter(zip(scales, self._scales, strict=True))

            def keep(known: Factors | None, compute: Callable[[], Tensor]) -> Tensor:
                if known is None:
                    return compute()
                with torch.no_grad():
                    frozen = _of_first(compute(), self._which)
                return frozen * next(remaining)[0]

            def gate(_: Factors, value: Tensor) -> Tensor:
                scale, scales = next(remaining)
                if not _functorch.is_batchedtensor(value):
                    return value * (value > 0).to(value.dtype) * scale
                return _with_replicas(partial(self._gated, scales), value)

            return self._pattern.run(keep, messages, features, steps, gate if self._nowhere_zero else None)

        outputs = torch.vmap(run)(self._messages, self._features, self._scales)
        if steps is not None:
            steps.check_done()
        output, base = outputs[0].detach(), outputs[1].detach()
        targets = choose(output)
        leaves = self._messages + self._features + self._scales
        gradients = [
            torch.autograd.grad(
                target(outputs.movedim(0, -1)).sum(),
                leaves,
                allow_unused=True,
                retain_graph=number + 1 < len(targets),
            )
            for number, target in enumerate(targets)
        ]
        shares, calibrations = zip(*(self._shares(each) for each in gradients), strict=True)
        return Replicated(output, base, targets, list(shares), list(calibrations))

    def _gated(self, scales: Tensor, values: Tensor) -> Tensor:
        """Return what a ReLU with the gates of the first or second replica lets pass, for all replicas."""
        gates = (values.detach().index_select(0, self._which) > 0).to(values.dtype)
        scales = scales.view(len(scales), *[1] * (values.dim() - scales.dim()), *scales.shape[1:])
        found: Tensor = FrozenGates.apply(values, scales, gates, 1.0, False)  # type: ignore[no-untyped-call]
        return found

    def _shares(self, gradients: Sequence[Tensor | None]) -> tuple[Contributions, Contributions]:
        """Return the weighted sums of the gradients of each pattern's replicas."""
        remaining, pattern = iter(gradients), self._pattern
        none = no_contributions(pattern)
        edges, rows = none.edges.new_zeros(2, none.edges.numel() + 1), none.rows.new_zeros(2, none.rows.numel() + 1)
        for call in pattern.messages:
            _scatter(next(remaining), self._weights[0], call.edges, edges)
        features = []
        for share in none.features:
            gradient = next(remaining)
            features.append(share if gradient is None else share + _total(gradient, self._weights[0][0]).view_as(share))
        for each, gradient in zip(pattern.factors, remaining, strict=True):
            ids = each.rows.ids.masked_fill(~each.variable, -1)
            _scatter(gradient, self._weights[0 if each.gates else 1], ids, rows)
        subject = pattern.subject
        own = [share * feature for share, feature in zip(features, subject.features, strict=True)]
        return none._replace(edges=edges[0, :-1] * subject.mask, features=own, rows=rows[0, :-1]), none._replace(
            rows=rows[1, :-1]
        )


def _between(zero: Tensor, one: Tensor, scales: Tensor) -> Tensor:
    """Return for each replica what is ``zero`` at scale 0 and ``one`` at scale 1."""
    return zero + scales.to(zero.dtype).view(-1, *[1] * zero.dim()) * (one - zero)


def _leaf(values: Tensor) -> Tensor:
    return values.detach().requires_grad_()


def _total(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over replicas; each line of weights gives one line of sums."""
    return weights @ gradient.reshape(weights.size(-1), -1).to(weights.dtype)


def _scatter(gradient: Tensor | None, weights: Tensor, ids: Tensor, to: Tensor) -> None:
    """Add weighted sums of gradients to the entries ``ids`` (-1, constants: to the last, which nobody reads)."""
    if gradient is not None:
        flat = ids.reshape(-1)
        to.index_add_(1, flat.where(flat >= 0, to.size(1) - 1), _total(gradient, weights))
