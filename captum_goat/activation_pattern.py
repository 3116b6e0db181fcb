"""Record the activation pattern of a forward pass, and replay the model with that pattern frozen.

With every activation written as ``out = P * in`` and P frozen, and with other numbers frozen that the rules of
:mod:`captum_goat.rules` name, the model is a polynomial in its variables: the edges and inputs that are attributed, and
the gates P. This is the *gated replay*. Scaling all variables by t turns a scalar product
z with c variable factors into ``z * t**c``, which is all that :mod:`captum_goat.contributions` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.gates import FrozenGates
from captum_goat.interception import check_context, intercepted
from captum_goat.rules import Rule, input_of
from captum_goat.standard_rules import frozen_size, relu, relu_as
from captum_goat.steps import OnStep, Steps
from captum_goat.tracking import Messages, RowGraph, Rows, UnsupportedModelError


class Factors(NamedTuple):
    """Numbers of the recorded pass that are frozen in a replay.

    Attributes:
        values: The numbers; for the gates of a ReLU 1 where it let its input pass, else 0.
        rows: Their rows.
        variable: Which of the rows some edge or feature reaches; the others are constants.
        gates: Whether they are gates, which are variables; else they are constants.
    """

    values: Tensor
    rows: Rows
    variable: Tensor
    gates: bool

    @property
    def everywhere(self) -> bool:
        """Whether it is known that all rows are variable."""
        return self.rows.frozen < 0

    def scale(self, t: float) -> Tensor:
        """Return t for every row that is variable and 1 for the others."""
        return torch.ones_like(self.variable, dtype=self.values.dtype).masked_fill_(self.variable, t)


class KeptCall(NamedTuple):
    """One call of an operation with a rule, at which numbers were kept.

    Attributes:
        operation: Its name.
        kept: The numbers, in the order in which the rule asks for them; ``None`` for those that no variable reaches.
        position: For multiplications and divisions the argument that is frozen.
    """

    operation: str
    kept: tuple[Factors | None, ...]
    position: int | None


class Replay(NamedTuple):
    """One gated replay.

    Attributes:
        output: The model's output with all variables scaled by t.
        messages: The factor of each message, a leaf tensor per call of a message function.
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
    """

    model: Module
    forward: Callable[[Sequence[Tensor]], Any]
    features: tuple[Tensor, ...]
    edge_sets: tuple[Tensor, ...]
    mask: Tensor
    finish: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class ActivationPattern:
    """The frozen numbers of one forward pass, in call order, and what was seen on the way.

    Attributes:
        subject: What was run.
        messages: The calls of message functions.
        calls: The calls of operations with a rule; ``None`` for those that are replayed as they are.
        left_out: The number of the call of a softmax or sigmoid that was the model's last step and is left out;
            ``None`` if there was no such step.
        output: The model's output, without that step.
        rows: The rows of the output; ``None`` when no variable reaches it.
        graph: Which rows read which.
        suspects: Where values that variables reach were taken out of torch.
        steps: The steps of the pass, if another pass with the same steps has the same rows; else ``None``.
    """

    subject: Subject
    messages: list[Messages]
    calls: list[KeptCall | None]
    left_out: int | None
    output: Tensor
    rows: Rows | None
    graph: RowGraph
    suspects: tuple[str, ...] = ()
    steps: Steps | None = None

    @property
    def factors(self) -> list[Factors]:
        """The frozen numbers that variables reach."""
        return [each for call in self.calls if call is not None for each in call.kept if each is not None]

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
        on_step: OnStep | None = None,
        gate: OnGate | None = None,
    ) -> Tensor:
        """Run the model.

        Args:
            keep: Says what frozen numbers are this time.
            messages: The factor of the messages of each call of a message function.
            features: The attributed inputs.
            on_step: Called with every step of the model.
            gate: Does what a ReLU with frozen gates does; ``None`` to multiply by what ``keep`` returns.
        """
        remaining, calls = iter(messages), _Calls(self.calls, self.left_out, keep, gate)
        differentiable = torch.is_grad_enabled()

        def on_message(layer: MessagePassing, edge_index: Any, values: Tensor) -> Tensor:
            check_context(subject.mask.device.type, differentiable=differentiable)
            for factor in remaining:
                return values * factor
            raise _changed("more messages")

        subject = self.subject
        hook = on_message if subject.edge_sets else None
        with intercepted(subject.model, on_message=hook, on_call=calls.on_call, on_step=on_step):
            # A model may change its input in place, which a leaf does not bear: it gets a copy.
            output = tensor_output(subject.forward([each.clone() for each in features]))
            output = output if subject.finish is None else tensor_output(subject.finish(output))
        calls.check_done()
        for _ in remaining:
            raise _changed("fewer messages")
        return output


# Called with numbers of the recorded pass (``None``: constants) and what computes them anew.
OnKeep = Callable[[Factors | None, Callable[[], Tensor]], Tensor]


# Called with the gates of a ReLU and its input; returns its result.
OnGate = Callable[[Factors, Tensor], Tensor]


class _Calls:
    """The calls of operations with a rule, as they come again."""

    def __init__(self, calls: list[KeptCall | None], left_out: int | None, keep: OnKeep, gate: OnGate | None) -> None:
        self._calls = calls
        self._left_out = left_out
        self._keep = keep
        self._gate = gate
        self._number = -1

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._number += 1
        if self._number >= len(self._calls):
            raise _changed("more operations")
        if self._number == self._left_out:
            return input_of(args, kwargs).clone()  # which may still be written to
        call = self._calls[self._number]
        if call is None:
            return func(*args, **kwargs)
        kept = iter(call.kept)

        def keep(values: Callable[[], Tensor], **_: Any) -> Tensor:
            return self._keep(next(kept), values)

        if call.position is not None:
            return frozen_size(keep, func, args, kwargs, call.position)
        if rule.rewrite is None:
            raise _changed("other operations")
        if rule.rewrite is relu and self._gate is not None and (known := call.kept[0]) is not None:
            return relu_as(partial(self._gate, known), func, args, kwargs)
        return rule.rewrite(keep, func, args, kwargs)

    def check_done(self) -> None:
        if self._number + 1 != len(self._calls):
            raise _changed("fewer operations")


def tensor_output(output: Any) -> Tensor:
    """Return the model's output if it is one tensor of numbers."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(
            f"Expected a model that returns one floating point tensor (got {kind}). Wrap it in one that does."
        )
    return output


def _changed(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The model computed {what} when it was run again than when it was recorded. GOAt needs a model that takes the "
        f"same steps in every call, whatever the values of its edges and of earlier calls."
    )
