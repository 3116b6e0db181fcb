"""Run a model once and record its activation pattern, with every row tracked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.activation_pattern import ActivationPattern, Gates, Subject, squash_input, tensor_output
from captum_goat.interception import intercepted
from captum_goat.tracking import EdgeTracker, Messages, RowTracker


@torch.no_grad()
def record(subject: Subject) -> ActivationPattern:
    """Run the model once and record its activation pattern.

    Raises:
        UnsupportedModelError: If the model does something that cannot be explained exactly.
    """
    return _Recorder(subject).record()


def _is_reshaped(output: Tensor, value: Tensor) -> bool:
    """Return whether an output is a value, or a view of it in another shape (as after `squeeze`)."""
    reshaped = output._base is value and output.numel() == value.numel()
    return output is value or (reshaped and output.is_contiguous() and value.is_contiguous())


class _Recorder:
    """One recording: what its callbacks see."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.tracker = RowTracker({module: name for name, module in subject.model.named_modules()})
        self.edges = EdgeTracker(self.tracker, subject.edge_sets) if subject.edge_sets else None
        self.messages: list[Messages] = []
        self.gates: list[Gates | None] = []
        self.squashes: list[tuple[Tensor, Tensor]] = []

    def record(self) -> ActivationPattern:
        subject, tracker = self.subject, self.tracker
        callbacks: dict[str, Any] = {
            "on_gate": self.on_gate,
            "on_squash": self.on_squash,
            "around_propagate": self.around_propagate,
        }
        if self.edges is not None:
            callbacks |= {"on_message": self.on_message, "on_layer": self.edges.enter}
        features = self.tracked_features()
        squash = None
        with intercepted(subject.model, **callbacks), tracker:
            output = tensor_output(subject.forward(features))
            for number, (before, after) in enumerate(self.squashes):
                if _is_reshaped(output, after):  # the model's last step: logits are attributed
                    squash, output = number, before.reshape(output.shape)
            if subject.finish is not None:
                output = tensor_output(subject.finish(output))
        if self.edges is not None:
            self.edges.check_seen()
        return ActivationPattern(
            subject, self.messages, self.gates, squash, output, tracker.rows(output), tracker.graph
        )

    def tracked_features(self) -> Sequence[Tensor]:
        """Return the attributed inputs, with one row each along dimension 0."""
        features = [each.clone() for each in self.subject.features]
        first = self.subject.mask.numel()
        for each in features:
            elements = torch.arange(first, first + each.size(0), device=each.device)
            self.tracker.set(each, self.tracker.graph.inputs(elements, each.dim()))
            first += each.size(0)
        return features

    def on_message(self, layer: MessagePassing, propagated: Any, values: Tensor) -> Tensor:
        assert self.edges is not None
        tracker, call = self.tracker, self.edges.follow(layer, propagated, values)
        self.messages.append(call)
        masked = values * call.factor(self.subject.mask)
        with tracker.paused():
            tracker.set(masked, tracker.graph.cross(tracker.rows(masked), call.edges.view(call.shape)))
        return masked

    def on_gate(self, value: Tensor) -> Tensor:
        rows = self.tracker.rows(value)
        with self.tracker.paused():
            out = torch.relu(value)
            if rows is None or not (rows.ids >= 0).any():
                self.gates.append(None)
            else:
                self.gates.append(Gates((value > 0).to(value.dtype), rows, rows.ids >= 0))
                rows = rows._replace(degree=rows.degree + 1, gates=rows.gates + 1)
        if rows is not None:
            self.tracker.set(out, rows)
        return out

    def on_squash(self, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        out = func(*args, **kwargs)
        self.squashes.append((squash_input(args, kwargs), out))
        return out

    def around_propagate(self, step: int) -> None:
        self.tracker.graph.propagating += step
