"""Record the activation pattern of a forward pass, and replay the model with that pattern frozen.

With every activation written as ``out = P * in`` and P frozen, and with other numbers frozen that the rules of
:mod:`captum_goat.rules` name, the model is a polynomial in its variables: the edges and inputs that are attributed, and
the gates P. This is the *gated replay*. Scaling all variables by t turns a scalar product
z with c variable factors into ``z * t**c``, which is all that :mod:`captum_goat.method.share` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.adjacency.presence import Gathering, Presence, entered
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.rules.frozen_calls import Factors, KeptCall, KeptCalls, OnGate, OnKeep, changed_steps
from captum_goat.rules.frozen_gates import FrozenGates
from captum_goat.tracking import Messages, RowGraph, Rows
from captum_goat.tracking.call_trace import Following, Steps


class Replay(NamedTuple):
    """One gated replay.

    Attributes:
        output: The model's output with all variables scaled by t.
        messages: The factor of each message, or the presence of each edge, a leaf tensor per place where it enters.
        features: The attributed inputs, scaled, as leaf tensors.
        factors: The frozen numbers that are scaled, with their scales, a leaf tensor with one number per row.
    """

    output: Tensor
    messages: list[Tensor]
    features: list[Tensor]
    factors: list[tuple[Factors, Tensor]]


class Subject(NamedTuple):
    """What is run and which of its inputs are variables.

    Attributes:
        model: The user's model, in eval mode.
        forward: Calls it with its attributed inputs.
        features: The attributed inputs, if any.
        edge_sets: The edges, the very tensors ``[2, E]`` with which ``forward`` calls the model: one, or one per edge
            type; empty if edges are constants.
        mask: The factor of each edge's messages, one set after the other; empty if edges are constants.
        finish: Applied to the model's output.
        adjacency: Whether the mask is the presence of each edge, else a factor of its messages.
    """

    model: Module
    forward: Callable[[Sequence[Tensor]], Any]
    features: tuple[Tensor, ...]
    edge_sets: tuple[Tensor, ...]
    mask: Tensor
    finish: Callable[[Any], Any] | None = None
    adjacency: bool = False


@dataclass(frozen=True)
class ActivationPattern:
    """The frozen numbers of one forward pass, in call order, and what was seen on the way.

    Attributes:
        subject: What was run.
        messages: The calls of message functions; or the sums in which the presence of edges enters.
        calls: The calls of operations with a rule; ``None`` for those that are replayed as they are.
        left_out: The number of the call of a softmax or sigmoid that was the model's last step and is left out;
            ``None`` if there was no such step.
        output: The model's output, without that step.
        rows: The rows of the output; ``None`` when no variable reaches it.
        graph: Which rows read which.
        suspects: Where values that variables reach were taken out of torch.
        steps: The steps of the pass, if another pass with the same steps has the same rows; else ``None``.
        sums: Of sums at places of an index, whether the presence of edges enters; ``None`` if messages are masked.
    """

    subject: Subject
    messages: Sequence[Messages | Presence]
    calls: list[KeptCall | None]
    left_out: int | None
    output: Tensor
    rows: Rows | None
    graph: RowGraph
    suspects: tuple[str, ...] = ()
    steps: Steps | None = None
    sums: tuple[bool, ...] | None = None

    @property
    def is_polynomial(self) -> bool:
        """Whether a replay is a polynomial: it is not where the presence of edges enters normalisations."""
        return not any(isinstance(each, Presence) and not each.linear for each in self.messages)

    @property
    def eps(self) -> float:
        """The relative precision of the output: that of degrees, if they are counted less precisely."""
        dtypes = [self.output.dtype, *(each.dtype for each in self.messages if isinstance(each, Presence))]
        return max(torch.finfo(each).eps for each in dtypes)

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums of shares: neither a coarse mask nor a coarse model must make coarse sums."""
        return torch.promote_types(torch.promote_types(self.subject.mask.dtype, self.output.dtype), torch.float32)

    @property
    def factors(self) -> list[Factors]:
        """The frozen numbers that variables reach."""
        return [each for call in self.calls if call is not None for each in call.kept if each is not None]

    @property
    def gate_blocks(self) -> frozenset[int]:
        """The blocks of the rows of these numbers."""
        return frozenset[int]().union(*(each.rows.sources for each in self.factors))

    @torch.no_grad()
    def at_zero(self) -> ActivationPattern:
        """Return the pattern P' of the same model with every edge masked to 0 and every attributed input 0."""
        mask = torch.zeros_like(self.subject.mask)
        features = tuple(torch.zeros_like(each) for each in self.subject.features)
        found: list[Factors | None] = []

        def keep(known: Factors | None, values: Callable[[], Tensor]) -> Tensor:
            current = values()
            found.append(known and known._replace(values=current))
            return current

        output = self.run(keep, [call.factor(mask) for call in self.messages], features)
        remaining = iter(found)
        calls = [call and call._replace(kept=tuple(next(remaining) for _ in call.kept)) for call in self.calls]
        return replace(self, subject=self.subject._replace(mask=mask, features=features), calls=calls, output=output)

    def with_variable(self, variable: Callable[[Factors], Tensor]) -> ActivationPattern:
        """Return the pattern with other rows as variables."""

        def changed(each: Factors) -> Factors:
            return each._replace(variable=variable(each), rows=each.rows._replace(frozen=max(each.rows.frozen, 0)))

        calls = [
            call and call._replace(kept=tuple(each and changed(each) for each in call.kept)) for call in self.calls
        ]
        return replace(self, calls=calls)

    @torch.no_grad()
    def with_starts(self) -> ActivationPattern:
        """Return the pattern, without the starts of the edges' presence (see :class:`Presence`) if they do not fit.

        They fit normalisations of messages, which are 0 at the start anyway. What else depends on the edges must start
        as it is without them.
        """
        plain = [each._replace(start=None) if isinstance(each, Presence) else each for each in self.messages]
        without = replace(self, messages=plain)
        first, second = (each.replay(0.0, inputs=False).output for each in (self, without))
        near, largest = torch.finfo(first.dtype).eps ** 0.5, float(first.nan_to_num().abs().max())
        return self if torch.allclose(first, second, rtol=near, atol=near * largest) else without

    def replay(self, t: float, *, inputs: bool, frozen: float | None = None) -> Replay:
        """Run the model with the pattern frozen and all variables scaled by t.

        Args:
            t: The scale of edges, features and gates.
            inputs: Whether gradients with respect to edges and features are wanted.
            frozen: The scale of frozen factors that are no gates, and then gradients are wanted with respect to them;
                ``None`` to have gradients with respect to gates.
        """
        messages = [call.factor(self.subject.mask, t).requires_grad_(inputs) for call in self.messages]
        features = [(each * t).requires_grad_(inputs) for each in self.subject.features]
        scaled: list[tuple[Factors, Tensor]] = []

        def keep(known: Factors | None, values: Callable[[], Tensor]) -> Tensor:
            if known is None:
                return values()
            if known.gates != (frozen is None):
                return known.values * known.scale(t) if known.gates else known.values
            return known.values * scale_of(known)

        def scale_of(known: Factors) -> Tensor:
            scale = known.scale(t if frozen is None else frozen).requires_grad_()
            scaled.append((known, scale))
            return scale

        def gate(known: Factors, value: Tensor) -> Tensor:
            arguments = value, scale_of(known), known.values, t, known.everywhere
            found: Tensor = FrozenGates.apply(*arguments)  # type: ignore[no-untyped-call]
            return found

        output = self.run(keep, messages, features, gate=gate if frozen is None and t != 0.0 else None)
        return Replay(output, messages, features, scaled)

    def run(
        self,
        keep: OnKeep,
        messages: Sequence[Tensor],
        features: Sequence[Tensor],
        steps: Following | None = None,
        gate: OnGate | None = None,
    ) -> Tensor:
        """Run the model.

        Args:
            keep: Says what frozen numbers are this time.
            messages: The factor of the messages of each call of a message function, or of each sum.
            features: The attributed inputs.
            steps: Sees every step of the model.
            gate: Does what a ReLU with frozen gates does; ``None`` to multiply by what ``keep`` returns.
        """
        remaining, calls = iter(messages), KeptCalls(self.calls, self.left_out, keep, gate)
        differentiable = torch.is_grad_enabled()

        def on_message(layer: MessagePassing, edge_index: Any, values: Tensor) -> Tensor:
            check_context(subject.mask.device.type, differentiable=differentiable)
            for factor in remaining:
                return values * factor
            raise changed_steps("more messages")

        def on_sum(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            enters = next(sums, None)
            if enters is None:
                raise changed_steps("more sums")
            if not enters:
                return func(*args, **kwargs)
            check_context(subject.mask.device.type, differentiable=differentiable)
            return entered(Gathering.of(func, args, kwargs), next(remaining))

        subject, sums = self.subject, iter(self.sums or ())
        hooks: dict[str, Any] = {"on_call": calls.on_call, "steps": steps}
        if subject.edge_sets:
            hooks |= {"on_message": on_message} if self.sums is None else {"on_sum": on_sum}

        def run() -> Tensor:
            # A model may change its input in place, which a leaf does not bear: it gets a copy.
            output = tensor_output(subject.forward([each.clone() for each in features]))
            if steps is not None:
                steps.note(tensor_output, (output,), {})
            return output if subject.finish is None else tensor_output(subject.finish(output))

        output = intercepted(run, subject.model, **hooks)
        calls.check_done()
        for _ in (*remaining, *sums):
            raise changed_steps("fewer messages")
        return output
