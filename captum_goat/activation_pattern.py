"""Record the activation pattern of a forward pass, and replay the model with that pattern frozen.

With every ReLU written as ``out = P * in`` and P frozen, the model is a polynomial in its edges and gates: the
*gated replay*. Scaling all of these variables by t turns a scalar product z with c variable factors into
``z * t**c``, which is all that :mod:`captum_goat.contributions` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.interception import intercepted
from captum_goat.tracking import EdgeTracker, Messages, RowGraph, Rows, RowTracker, UnsupportedModelError

T = TypeVar("T")


class Gates(NamedTuple):
    """One call of a ReLU that edges can reach.

    Attributes:
        name: The module or function that was called.
        pattern: P: 1 where the ReLU let its input pass, else 0.
        rows: The rows of the gates.
    """

    name: str
    pattern: Tensor
    rows: Rows

    def scale(self, t: float) -> Tensor:
        """Return t for every row that some edge reaches and 1 for the others, whose gates are constants."""
        reached = self.rows.ids >= 0
        return torch.ones_like(reached, dtype=self.pattern.dtype).masked_fill_(reached, t)


class Replay(NamedTuple):
    """One gated replay.

    Attributes:
        output: The model's output with all variables scaled by t.
        factors: The factor of each message, a leaf tensor per call of a message function.
        scales: The factor of each row of gates, a leaf tensor per call of a ReLU; ``None`` for constants.
    """

    output: Tensor
    factors: list[Tensor]
    scales: list[Tensor | None]


@dataclass(frozen=True)
class ActivationPattern:
    """The gates of one forward pass, in call order, and what was seen on the way.

    Attributes:
        model: The user's model.
        forward: Calls it on the user's graph.
        mask: The factor of each edge's messages.
        messages: The calls of message functions.
        gates: The calls of ReLUs; ``None`` for those that no edge reaches, which are constants.
        output: The model's output.
        rows: The rows of the output; ``None`` when no edge reaches it.
        graph: Which rows read which.
    """

    model: Module
    forward: Callable[[], Any]
    mask: Tensor
    messages: list[Messages]
    gates: list[Gates | None]
    output: Tensor
    rows: Rows | None
    graph: RowGraph

    @torch.no_grad()
    def without_edges(self) -> ActivationPattern:
        """Return the pattern P' of the same model with every edge masked to 0."""
        mask = torch.zeros_like(self.mask)
        gates: list[Gates | None] = []
        calls = iter(self.gates)

        def on_gate(name: str, value: Tensor) -> Tensor:
            known = _next(calls, "ReLUs")
            gates.append(known and known._replace(pattern=(value > 0).to(value.dtype)))
            return torch.relu(value)

        output = self._run(on_gate, [call.factor(mask) for call in self.messages])
        return replace(self, mask=mask, gates=gates, output=output)

    def replay(self, t: float, *, edges: bool) -> Replay:
        """Run the model with the pattern frozen and all variables scaled by t.

        Args:
            t: The scale, in (0, 1].
            edges: Whether gradients with respect to the edges' factors are wanted.
        """
        factors = [call.factor(self.mask * t).requires_grad_(edges) for call in self.messages]
        scales = [gates and gates.scale(t).requires_grad_() for gates in self.gates]
        calls = iter(zip(self.gates, scales, strict=True))

        def on_gate(name: str, value: Tensor) -> Tensor:
            gates, scale = _next(calls, "ReLUs")
            return torch.relu(value) if gates is None or scale is None else value * gates.pattern * scale

        return Replay(self._run(on_gate, factors), factors, scales)

    def _run(self, on_gate: Callable[[str, Tensor], Tensor], factors: list[Tensor]) -> Tensor:
        remaining = iter(factors)

        def on_message(layer: MessagePassing, edge_index: Any, messages: Tensor) -> Tensor:
            return messages * _next(remaining, "messages")

        with intercepted(self.model, on_message=on_message, on_gate=on_gate):
            return tensor_output(self.forward())


@torch.no_grad()
def record(model: Module, forward: Callable[[], Any], edge_index: Tensor, mask: Tensor) -> ActivationPattern:
    """Run the model once and record its activation pattern.

    Args:
        model: The user's model, in eval mode.
        forward: Calls the model on the user's graph.
        edge_index: The edges, the very tensor with which ``forward`` calls the model.
        mask: The factor of each edge's messages.

    Raises:
        UnsupportedModelError: If the model does something that cannot be explained exactly.
    """
    tracker = RowTracker({module: name for name, module in model.named_modules()})
    edge_tracker = EdgeTracker(tracker, edge_index)
    messages: list[Messages] = []
    gates: list[Gates | None] = []

    def on_message(layer: MessagePassing, propagated: Any, values: Tensor) -> Tensor:
        call = edge_tracker.follow(layer, propagated, values)
        messages.append(call)
        masked = values * call.factor(mask)
        with tracker.paused():
            tracker.set(masked, tracker.graph.cross(tracker.rows(masked), call.edges.view(call.shape)))
        return masked

    def on_gate(name: str, value: Tensor) -> Tensor:
        rows = tracker.rows(value)
        with tracker.paused():
            out = torch.relu(value)
            reached = rows is not None and bool((rows.ids >= 0).any())
            gates.append(Gates(name, (value > 0).to(value.dtype), rows) if rows and reached else None)
        if rows is not None:
            tracker.set(out, rows._replace(degree=rows.degree + reached, gates=rows.gates + reached))
        return out

    def around_propagate(step: int) -> None:
        tracker.graph.propagating += step

    with (
        intercepted(model, on_message=on_message, on_gate=on_gate, around_propagate=around_propagate),
        tracker,
    ):
        output = tensor_output(forward())
    edge_tracker.check_seen()
    return ActivationPattern(model, forward, mask, messages, gates, output, tracker.rows(output), tracker.graph)


def tensor_output(output: Any) -> Tensor:
    """Return the model's output if it is one tensor of numbers."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(
            f"Expected a model that returns one floating point tensor (got {kind}). Wrap it in one that does."
        )
    return output


def _next(calls: Iterator[T], what: str) -> T:
    for call in calls:
        return call
    raise UnsupportedModelError(
        f"The model computed more {what} when it was run again than when it was recorded. GOAt needs a model that "
        f"takes the same steps whatever the values of its edges."
    )
