"""Record the activation pattern of a forward pass, and replay the model with that pattern frozen.

With every ReLU written as ``out = P * in`` and P frozen, the model is a polynomial in its variables: the edges and
inputs that are attributed, and the gates. This is the *gated replay*. Scaling all variables by t turns a scalar product
z with c variable factors into ``z * t**c``, which is all that :mod:`captum_goat.contributions` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.interception import intercepted
from captum_goat.tracking import Messages, RowGraph, Rows, UnsupportedModelError

T = TypeVar("T")


class Gates(NamedTuple):
    """One call of a ReLU that variables can reach.

    Attributes:
        pattern: P: 1 where the ReLU let its input pass, else 0.
        rows: The rows of the gates.
        variable: Which of the rows some edge or feature reaches; the gates of the others are constants.
    """

    pattern: Tensor
    rows: Rows
    variable: Tensor

    def scale(self, t: float) -> Tensor:
        """Return t for every row that is variable and 1 for the others."""
        return torch.ones_like(self.variable, dtype=self.pattern.dtype).masked_fill_(self.variable, t)


class Replay(NamedTuple):
    """One gated replay.

    Attributes:
        output: The model's output with all variables scaled by t.
        factors: The factor of each message, a leaf tensor per call of a message function.
        features: The attributed inputs, scaled, as leaf tensors.
        scales: The factor of each row of gates, a leaf tensor per call of a ReLU; ``None`` for constants.
    """

    output: Tensor
    factors: list[Tensor]
    features: list[Tensor]
    scales: list[Tensor | None]


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
    """The gates of one forward pass, in call order, and what was seen on the way.

    Attributes:
        subject: What was run.
        messages: The calls of message functions.
        gates: The calls of ReLUs; ``None`` for those that no variable reaches, which are constants.
        squash: The number of the call of a softmax or sigmoid that was the model's last step and is left out; ``None``
            if there was no such step.
        output: The model's output, without that step.
        rows: The rows of the output; ``None`` when no variable reaches it.
        graph: Which rows read which.
    """

    subject: Subject
    messages: list[Messages]
    gates: list[Gates | None]
    squash: int | None
    output: Tensor
    rows: Rows | None
    graph: RowGraph

    @torch.no_grad()
    def at_zero(self) -> ActivationPattern:
        """Return the pattern P' of the same model with every edge masked to 0 and every attributed input 0."""
        mask = torch.zeros_like(self.subject.mask)
        features = tuple(torch.zeros_like(each) for each in self.subject.features)
        gates: list[Gates | None] = []
        calls = iter(self.gates)

        def on_gate(value: Tensor) -> Tensor:
            known = _next(calls, "ReLUs")
            gates.append(known and known._replace(pattern=(value > 0).to(value.dtype)))
            return torch.relu(value)

        output = self._run(on_gate, [call.factor(mask) for call in self.messages], features)
        _check_done(calls, "ReLUs")
        return replace(self, subject=self.subject._replace(mask=mask, features=features), gates=gates, output=output)

    def replay(self, t: float, *, inputs: bool) -> Replay:
        """Run the model with the pattern frozen and all variables scaled by t.

        Args:
            t: The scale, in (0, 1].
            inputs: Whether gradients with respect to edges and features are wanted, else only to gates.
        """
        factors = [call.factor(self.subject.mask, t).requires_grad_(inputs) for call in self.messages]
        features = [(each * t).requires_grad_(inputs) for each in self.subject.features]
        scales = [gates and gates.scale(t).requires_grad_() for gates in self.gates]
        calls = iter(zip(self.gates, scales, strict=True))

        def on_gate(value: Tensor) -> Tensor:
            gates, scale = _next(calls, "ReLUs")
            return torch.relu(value) if gates is None or scale is None else value * gates.pattern * scale

        output = self._run(on_gate, factors, features)
        _check_done(calls, "ReLUs")
        return Replay(output, factors, features, scales)

    def _run(self, on_gate: Callable[[Tensor], Tensor], factors: list[Tensor], features: Sequence[Tensor]) -> Tensor:
        remaining, squashes = iter(factors), 0

        def on_message(layer: MessagePassing, edge_index: Any, messages: Tensor) -> Tensor:
            return messages * _next(remaining, "messages")

        def on_squash(func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
            nonlocal squashes
            squashes += 1
            return squash_input(args, kwargs) if squashes - 1 == self.squash else func(*args, **kwargs)

        subject = self.subject
        hook = on_message if subject.edge_sets else None
        with intercepted(subject.model, on_message=hook, on_gate=on_gate, on_squash=on_squash):
            # A model may change its input in place, which a leaf does not bear: it gets a copy.
            output = tensor_output(subject.forward([each.clone() for each in features]))
            output = output if subject.finish is None else tensor_output(subject.finish(output))
        _check_done(remaining, "messages")
        return output


def tensor_output(output: Any) -> Tensor:
    """Return the model's output if it is one tensor of numbers."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(
            f"Expected a model that returns one floating point tensor (got {kind}). Wrap it in one that does."
        )
    return output


def squash_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return what a softmax or sigmoid was called with."""
    value: Tensor = args[0] if args else kwargs["input"]
    return value


def _next(calls: Iterator[T], what: str) -> T:
    for call in calls:
        return call
    raise _changed(f"more {what}")


def _check_done(calls: Iterator[Any], what: str) -> None:
    for _ in calls:
        raise _changed(f"fewer {what}")


def _changed(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The model computed {what} when it was run again than when it was recorded. GOAt needs a model that takes the "
        f"same steps in every call, whatever the values of its edges and of earlier calls."
    )
