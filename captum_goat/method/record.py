"""One forward pass: the model's gates and other frozen numbers, with the rows that reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import MessageSites
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.rules.frozen_calls import FrozenCall
from captum_goat.rules.operations import input_of, operation_name
from captum_goat.rules.recorded_calls import Factors, RecordedCall
from captum_goat.rules.registry import Rewrite, Rule
from captum_goat.tracking import Messages, Rows, RowTracker, Unsupported, UnsupportedModelError
from captum_goat.tracking.call_trace import Steps


@torch.no_grad()
def record(subject: Subject, steps: Steps | None = None) -> ActivationPattern:
    """Run the model once and record its activation pattern.

    Args:
        subject: What is run.
        steps: Where to note the steps of the pass.

    Raises:
        UnsupportedModelError: If the model does something that cannot be explained exactly.
    """
    return _Recorder(subject, steps).record()


class _MaskWatcher:
    """Notes the edges that messages cross."""

    integrates = True

    def __init__(self, tracker: RowTracker) -> None:
        self._tracker = tracker

    def before_masking(self, messages: Tensor) -> None:
        check_context(messages.device.type)

    def after_masking(self, masked: Tensor, messages: Tensor, call: Messages, nodes: Tensor) -> None:
        tracker = self._tracker
        with tracker.paused():
            # A copy, because a view would keep the user's edge_index alive.
            edges, nodes = call.edges.view(call.shape), nodes.clone().view(call.shape)
            tracker.set(masked, tracker.graph.cross(tracker.rows(masked), edges, nodes))

    def after_presence(self, factor: Tensor, edges: Tensor) -> None:
        """Say nothing of presence: it has no rows of its own."""


class _Recorder:
    """One recording: what its callbacks see."""

    def __init__(self, subject: Subject, steps: Steps | None = None, left_out: int | None = None) -> None:
        self.subject = subject
        self.steps = steps
        self.only_relus = True
        self.left_out = left_out
        self.tracker = RowTracker({module: name for name, module in subject.model.named_modules()})
        self.masks = None
        if subject.edge_sets:
            self.masks = subject.entry(self.tracker, subject.edge_sets, subject.mask, _MaskWatcher(self.tracker))
        self.calls: list[FrozenCall | None] = []
        self.kept: list[Factors | None] = []  # of the call that is being rewritten
        self.suspects: list[str] = []
        self.squashes: dict[int, tuple[Tensor, Tensor, int]] = {}  # input, result, version of the input
        # Of features that are all 0 a gate is a constant, though it looks like a variable.
        rows = [feature.unsqueeze(-1).flatten(1) for feature in subject.features]
        self.zero_rows = any(bool((row == 0).all(1).any()) for row in rows)

    def record(self) -> ActivationPattern:
        """Run the model."""
        subject, tracker, features = self.subject, self.tracker, self.tracked_features()
        own: dict[str, Any] = {"on_call": self.on_call, "around_propagate": tracker.around_propagate}
        hooks = own if self.masks is None else own | self.masks.hooks()

        def run() -> tuple[Tensor, int | None]:
            output = tensor_output(subject.forward(features))
            if self.steps is not None:
                self.steps.note(tensor_output, (output,), {})
            last = tracker.squashed(output)
            if last is not None and (logits := self.logits_of(last, output)) is not None:
                self.left_out, self.calls[last], output = last, None, logits
            return output if subject.finish is None else tensor_output(subject.finish(output)), last

        output, last = intercepted(run, subject.model, steps=self.steps, tracker=tracker, **hooks)
        if last is not None and self.left_out is None:  # the last step but for a choice of its results
            return _Recorder(subject, left_out=last).record()  # without its steps, of which there are two lots now
        sites = MessageSites() if self.masks is None else self.masks.sites()
        rows = tracker.rows(output)
        if rows is not None and rows.degree == 0 and rows.frozen > 0:
            raise UnsupportedModelError(
                "The output is made of frozen numbers alone, as that of a softmax with something after it is, so no "
                "edge has a share of its own. Make the softmax the last step of the model, or return logits."
            )
        seen = output, rows, tracker.graph, tuple(self.suspects), self.reusable_steps()
        return ActivationPattern(subject, sites, self.calls, self.left_out, *seen)

    def reusable_steps(self) -> Steps | None:
        """Return the steps, if nothing but them decides about rows: no maximum, no matrix of constants with zeros."""
        if self.steps is None or not self.only_relus or self.tracker.graph.by_values or not self.steps.settled:
            return None
        return self.steps

    def logits_of(self, last: int, output: Tensor) -> Tensor | None:
        """Return the input of a softmax or sigmoid whose result is the output just as it is."""
        before, after, version = self.squashes[last]
        return before if output is after and before._version == version else None

    def tracked_features(self) -> Sequence[Tensor]:
        """Return the attributed inputs, with one row each along dimension 0."""
        features = [feature.clone() for feature in self.subject.features]
        first = self.subject.mask.numel()
        for feature in features:
            elements = torch.arange(first, first + feature.size(0), device=feature.device)
            self.tracker.set(feature, self.tracker.graph.inputs(elements, feature.dim()))
            first += feature.size(0)
        return features

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let a rule rewrite a call, if it has to, and note what it keeps."""
        number, over_edges = len(self.calls), self.masks is not None and self.masks.over_edges
        self.calls.append(None)
        if number == self.left_out:
            return input_of(args, kwargs).clone()
        call = RecordedCall(func, args, kwargs, self.tracker, over_edges, self.suspects)
        rewrite = rule.rewrite_for(call)
        if rewrite is None:
            out = func(*args, **kwargs)
        elif rule.is_relu:
            out = rewrite(self.keep, func, args, kwargs)
        else:
            out = self.rewritten(rewrite, call)
        if rule.squashes and self.left_out is None:
            self.tracker.set_squashed(out, number)
            self.squashes[number] = input_of(args, kwargs), out, input_of(args, kwargs)._version
        kept = tuple(rule.settle(call, out, self.kept))
        if kept and rewrite is not None:
            self.only_relus &= rule.is_relu
            check_context(self.subject.mask.device.type)
            self.calls[number] = FrozenCall(operation_name(func), rule, rewrite, kept)
            self.kept = []
        return out

    def rewritten(self, rewrite: Rewrite, call: RecordedCall) -> Any:
        """Return what a rule makes of a call, after a check that this is what the call does."""
        with self.tracker.paused():
            copies = [value.clone() if isinstance(value, Tensor) else value for value in call.args]
            expected = call.func(*copies, **call.kwargs)
        out = rewrite(self.keep, call.func, call.args, call.kwargs)
        with self.tracker.paused():
            if not _same(out, expected):
                raise UnsupportedModelError(
                    f"The rule for '{operation_name(call.func)}' in {self.tracker.place()} gives another result than "
                    f"the operation itself. If the rule is yours, correct it; else please report it."
                )
        return out

    def keep(
        self, values: Callable[[], Tensor], *, gate: bool = False, reads: Callable[[], Tensor] | None = None
    ) -> Tensor:
        """Keep numbers, and what reaches them (see :class:`captum_goat.rules.Keep`)."""
        tracker = self.tracker
        if reads is None:
            computed = followed = values()
        else:
            followed = reads()
            with tracker.paused():
                computed = values()
        trace = tracker.get(followed)
        rows = tracker.rows(followed) if isinstance(trace, Unsupported) else trace
        with tracker.paused():
            frozen = computed.clone()
            if not isinstance(rows, Rows) or not (rows.ids >= 0).any():
                self.kept.append(None)
                return frozen
            variable = rows.ids >= 0
            everywhere = -1 if variable.all() and not self.zero_rows else 0
            rows = rows._replace(degree=int(gate), gates=int(gate), frozen=everywhere if gate else 1, broken=None)
            self.kept.append(Factors(frozen, rows, variable, gate))
        tracker.set(frozen, rows)
        return frozen


def _same(result: Any, expected: Any) -> bool:
    """Return whether results agree up to rounding."""
    if isinstance(result, tuple):
        return isinstance(expected, tuple) and all(_same(*pair) for pair in zip(result, expected, strict=True))
    if not result.is_floating_point() or result.numel() == 0:
        return torch.equal(result, expected)
    near = torch.finfo(result.dtype).eps ** 0.5
    largest = float(expected.nan_to_num().abs().max())
    return torch.allclose(result, expected, rtol=near, atol=near * largest, equal_nan=True)
