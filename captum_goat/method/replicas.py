"""A whole explanation in one pass: replicas of the model, each with its own scales, under ``torch.vmap``.

The first replica is the model itself, the second is the model without edges; from these two the others, which are the
points of the integrals, take their frozen numbers. On a small graph a pass costs what Python and the launching of
operations cost, however many replicas it has. On a large one the replicas only take memory. So this is the way for
small graphs, and :mod:`captum_goat.method.share`, one point after the other, is the way for all others; also for
models with operations that ``torch.vmap`` cannot batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]
from torch.nn import Module

from captum_goat.hooks.global_state import restores_state
from captum_goat.inputs.targets import Target
from captum_goat.method.replay import ActivationPattern
from captum_goat.method.replica_plan import ReplicaPlan, between, replicas_of
from captum_goat.method.share import Contributions, no_contributions
from captum_goat.rules.frozen_calls import Factors
from captum_goat.rules.frozen_gates import FrozenGates
from captum_goat.tracking.call_trace import Comparison, OtherStepsError

_logger = logging.getLogger(__name__)

_MOST_NUMBERS = 2**15  # in the largest frozen tensor of all replicas together; more are faster one after the other

_functorch: Any = torch._C._functorch  # what torch.vmap is made of

# What torch raises for operations and models that it cannot batch.
_CANNOT_BATCH = (RuntimeError, TypeError, ValueError, IndexError)
# How many explanations ago replicas of a model failed, from 1 on.
_since_failure: WeakKeyDictionary[Module, int] = WeakKeyDictionary()


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
    if pattern.rows is None or pattern.sums is not None:
        return False
    if torch.finfo(pattern.output.dtype).bits < 32:  # batched operations round otherwise, and so flip gates
        return False
    largest = max([each.values.numel() for each in pattern.factors] + [pattern.subject.mask.numel()])
    return 0 < largest * len(replicas_of(pattern)) <= _MOST_NUMBERS


def replicated(
    pattern: ActivationPattern,
    choose: Callable[[Tensor], list[Target]],
    steps: Comparison | None = None,
    plan: ReplicaPlan | None = None,
) -> Replicated | None:
    """Explain a pattern with replicas; ``None`` if that cannot be done.

    Args:
        pattern: The pattern, whose frozen numbers are not used, but found anew.
        choose: Returns what is explained, given the model's output.
        steps: Compares the steps of the model with those when it was recorded.
        plan: What the replicas need, if it is known.
    """
    model = pattern.subject.model
    if steps is None and not _is_tried(model):
        return None
    try:
        found = _Replicas(pattern, plan or ReplicaPlan(pattern)).explain(choose, steps)
    except OtherStepsError:
        return None
    except _CANNOT_BATCH as error:  # what is not due to the replicas comes again without them
        _logger.debug("Replicas of %s failed, so it runs once per point: %r", type(model).__name__, error)
        if steps is None:
            _since_failure.setdefault(model, 1)
        return None
    _since_failure.pop(model, None)
    return found


def _is_tried(model: Module) -> bool:
    """Return whether to try replicas: after failures only in the next explanation, the second, the fourth, ..."""
    count = _since_failure.get(model, 0)
    if count:
        _since_failure[model] = count + 1
    return count & (count - 1) == 0


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
    layer = _functorch.pop_dynamic_layer_stack()  # if it is lost by an interrupt, nobody needs it any more
    try:
        result = func(every.movedim(dim, 0) if dim else every)
    finally:
        _functorch.push_dynamic_layer_stack(layer)
    found: Tensor = _functorch._add_batch_dim(result, 0, level)
    return found


class _Replicas:
    """Replicas with their scales, which are leaves: one tensor per call of a message function, input and factor."""

    def __init__(self, pattern: ActivationPattern, plan: ReplicaPlan) -> None:
        self._pattern = pattern
        self._plan = plan
        mask, own = pattern.subject.mask, plan.own
        self._messages = [_leaf(between(call.factor(mask, 0.0), call.factor(mask), own)) for call in pattern.messages]
        self._features = [_leaf(between(torch.zeros_like(each), each, own)) for each in pattern.subject.features]
        self._scales = [_leaf(each) for each in plan.scales]

    @restores_state
    def explain(self, choose: Callable[[Tensor], list[Target]], steps: Comparison | None) -> Replicated:
        def run(messages: list[Tensor], features: list[Tensor], scales: list[Tensor]) -> Tensor:
            remaining = iter(zip(scales, self._scales, strict=True))

            def keep(known: Factors | None, compute: Callable[[], Tensor]) -> Tensor:
                if known is None:
                    return compute()
                with torch.no_grad():
                    frozen = _of_first(compute(), self._plan.which)
                return frozen * next(remaining)[0]

            def gate(_: Factors, value: Tensor) -> Tensor:
                scale, scales = next(remaining)
                if not _functorch.is_batchedtensor(value):
                    return value * (value > 0).to(value.dtype) * scale
                return _with_replicas(partial(self._gated, scales), value)

            return self._pattern.run(keep, messages, features, steps, gate if self._plan.nowhere_zero else None)

        torch._C._set_grad_enabled(True)
        outputs = _batched(run, len(self._plan.which), self._messages, self._features, self._scales)
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
        gates = (values.detach().index_select(0, self._plan.which) > 0).to(values.dtype)
        scales = scales.view(len(scales), *[1] * (values.dim() - scales.dim()), *scales.shape[1:])
        found: Tensor = FrozenGates.apply(values, scales, gates, 1.0, False)  # type: ignore[no-untyped-call]
        return found

    def _shares(self, gradients: Sequence[Tensor | None]) -> tuple[Contributions, Contributions]:
        """Return the weighted sums of the gradients of each pattern's replicas."""
        remaining, pattern, weights = iter(gradients), self._pattern, self._plan.weights
        none = no_contributions(pattern)
        edges, rows = none.edges.new_zeros(2, none.edges.numel() + 1), none.rows.new_zeros(2, none.rows.numel() + 1)
        for places in self._plan.edges:
            _scatter(next(remaining), weights[0], places, edges)
        features = []
        for share in none.features:
            gradient = next(remaining)
            features.append(share if gradient is None else share + _total(gradient, weights[0][0]).view_as(share))
        for each, places, gradient in zip(pattern.factors, self._plan.rows, remaining, strict=True):
            _scatter(gradient, weights[0 if each.gates else 1], places, rows)
        subject = pattern.subject
        own = [share * feature for share, feature in zip(features, subject.features, strict=True)]
        return none._replace(edges=edges[0, :-1] * subject.mask, features=own, rows=rows[0, :-1]), none._replace(
            rows=rows[1, :-1]
        )


@restores_state
def _batched(run: Callable[..., Tensor], count: int, *inputs: list[Tensor]) -> Tensor:
    """Run a function of lists of tensors for ``count`` replicas at once, the first dimension of all tensors.

    This is ``torch.vmap``, but for a generator in there that pops the transform when the generator is collected: after
    an interrupt any time later.
    """
    lazy_load_decompositions()
    level = _functorch._vmap_increment_nesting(count, "error")
    output = run(*([_functorch._add_batch_dim(each, 0, level) for each in given] for given in inputs))
    found: Tensor = _functorch._remove_batch_dim(output, level, count, 0)
    return found


def _leaf(values: Tensor) -> Tensor:
    return values.detach().requires_grad_()


def _total(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over replicas; each line of weights gives one line of sums."""
    return weights @ gradient.reshape(weights.size(-1), -1).to(weights.dtype)


def _scatter(gradient: Tensor | None, weights: Tensor, places: Tensor, to: Tensor) -> None:
    """Add weighted sums of gradients to places, of which nobody reads the last."""
    if gradient is not None:
        to.index_add_(1, places, _total(gradient, weights))
