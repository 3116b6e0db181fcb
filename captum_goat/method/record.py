"""Run a model once and record its activation pattern, with every row tracked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.adjacency.presence import EdgeSums, Gathering, Presence, entered
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.rules.call_arguments import input_of
from captum_goat.rules.frozen_calls import Factors, KeptCall
from captum_goat.rules.registry import Rewrite, Rule
from captum_goat.rules.standard import EXPONENTIAL, FACTORS, LEAVES, QUOTIENT, frozen_size, relu, size_position
from captum_goat.tracking import (
    Broken,
    Edges,
    EdgeTracker,
    Messages,
    Rows,
    RowTracker,
    Trace,
    Unmasked,
    Unsupported,
    UnsupportedModelError,
    by_hand,
)
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


def _name(func: Callable[..., Any]) -> str:
    owner = getattr(func, "__self__", None)
    return type(owner).__name__ if isinstance(owner, Module) else func.__name__


def _same(one: Any, other: Any) -> bool:
    """Return whether results agree up to rounding."""
    if isinstance(one, tuple):
        return isinstance(other, tuple) and all(_same(*pair) for pair in zip(one, other, strict=True))
    if not one.is_floating_point() or one.numel() == 0:
        return torch.equal(one, other)
    near = torch.finfo(one.dtype).eps ** 0.5
    return torch.allclose(one, other, rtol=near, atol=near * float(other.nan_to_num().abs().max()), equal_nan=True)


class _Squash(NamedTuple):
    """A call of a softmax or sigmoid: its input, its result, and how often the input had been written to."""

    before: Tensor
    after: Tensor
    version: int


class _Recorder:
    """One recording: what its callbacks see."""

    def __init__(self, subject: Subject, steps: Steps | None = None, left_out: int | None = None) -> None:
        self.subject = subject
        self.steps = steps
        self.only_relus = True
        self.left_out = left_out
        self.tracker = RowTracker({module: name for name, module in subject.model.named_modules()})
        self.edges = EdgeTracker(self.tracker, subject.edge_sets) if subject.edge_sets else None
        self.edge_sums = EdgeSums(self.tracker) if subject.edge_sets and subject.adjacency else None
        self.sums: list[bool] = []
        self.messages: list[Messages | Presence] = []
        self.calls: list[KeptCall | None] = []
        self.kept: list[Factors | None] = []  # of the call that is being rewritten
        self.suspects: list[str] = []
        self.squashes: dict[int, _Squash] = {}
        # Of features that are all 0 a gate is a constant, though it looks like a variable.
        self.zero_rows = any(bool((each.unsqueeze(-1).flatten(1) == 0).all(1).any()) for each in subject.features)

    def record(self) -> ActivationPattern:
        subject, tracker = self.subject, self.tracker
        callbacks: dict[str, Any] = {"on_call": self.on_call, "around_propagate": tracker.around_propagate}
        if self.edges is not None:
            callbacks |= {"on_message": self.on_message, "on_layer": self.edges.enter}
        if self.edge_sums is not None:
            callbacks |= {"on_sum": self.on_sum, "around_propagate": self.edge_sums.around_propagate}
        if self.steps is not None:
            callbacks["steps"] = self.steps
        features = self.tracked_features()

        def run() -> tuple[Tensor, int | None]:
            output = tensor_output(subject.forward(features))
            if self.steps is not None:
                self.steps.note(tensor_output, (output,), {})
            last = tracker.squashed(output)
            if last is not None and (logits := self.logits_of(last, output)) is not None:
                self.left_out, self.calls[last], output = last, None, logits
            return output if subject.finish is None else tensor_output(subject.finish(output)), last

        output, last = intercepted(run, subject.model, tracker=tracker, **callbacks)
        if last is not None and self.left_out is None:  # the last step but for a choice of its results
            return _Recorder(subject, left_out=last).record()  # without its steps, of which there are two lots now
        if self.edges is not None:
            self.edges.check_seen()
        rows = tracker.rows(output)
        if rows is not None and rows.degree == 0 and rows.frozen > 0:
            raise UnsupportedModelError(
                "The output is made of frozen numbers alone, as that of a softmax with something after it is, so no "
                "edge has a share of its own. Make the softmax the last step of the model, or return logits."
            )
        pattern = (subject, self.messages, self.calls, self.left_out, output, rows, tracker.graph)
        sums = None if self.edge_sums is None else tuple(self.sums)
        return ActivationPattern(*pattern, tuple(self.suspects), self.reusable_steps(), sums)

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
        features = [each.clone() for each in self.subject.features]
        first = self.subject.mask.numel()
        for each in features:
            elements = torch.arange(first, first + each.size(0), device=each.device)
            self.tracker.set(each, self.tracker.graph.inputs(elements, each.dim()))
            first += each.size(0)
        return features

    def on_message(self, layer: MessagePassing, propagated: Any, values: Tensor) -> Tensor:
        assert self.edges is not None
        check_context(self.subject.mask.device.type)
        tracker, call = self.tracker, self.edges.follow(layer, propagated, values)
        if self.edge_sums is None:
            self.messages.append(call)
            masked = values * call.factor(self.subject.mask)
        else:
            self.edge_sums.pass_messages()
            masked = values.clone()
        with tracker.paused():
            targets = propagated[1 if layer.flow == "source_to_target" else 0]
            edges, nodes = call.edges.view(call.shape), targets.view(call.shape)
            tracker.set(masked, tracker.graph.cross(tracker.rows(masked), edges, nodes))
        return masked

    def on_sum(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.edge_sums is not None
        call = Gathering.of(func, args, kwargs)
        place = self.edge_sums.find(call)
        self.sums.append(place is not None)
        if place is None:
            return func(*args, **kwargs)
        with self.tracker.paused():
            place = place.started(call, self.subject.mask)
        self.messages.append(place)
        return entered(call, place.factor(self.subject.mask))

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number, position = len(self.calls), None
        self.calls.append(None)
        if number == self.left_out:
            return input_of(args, kwargs).clone()
        if rule is FACTORS and (position := self.size_position(func, args, kwargs)) is not None:
            out = frozen_size(self.keep, func, args, kwargs, position)
        elif rule.rewrite is not None and self.applies(rule, func, args, kwargs):
            out = self.rewritten(rule.rewrite, func, args, kwargs)
            if rule is EXPONENTIAL:
                self.loosen(out)
        else:
            out = func(*args, **kwargs)
        if rule.squashes and self.left_out is None:
            self.tracker.set_squashed(out, number)
            self.squashes[number] = _Squash(input_of(args, kwargs), out, input_of(args, kwargs)._version)
        if rule is QUOTIENT and not self.kept:
            self.settle(out)
        if rule is LEAVES:
            self.watch_leaving(func, self.tracker.get(args[0]))
        if self.kept:
            self.only_relus &= rule.rewrite is relu
            check_context(self.subject.mask.device.type)
            self.calls[number] = KeptCall(_name(func), tuple(self.kept), position)
            self.kept = []
        return out

    def loosen(self, exponential: Tensor) -> None:
        """Take the frozen exponentials of attention for constants, of which only the quotient can be used."""
        self.kept = [each and each._replace(variable=torch.zeros_like(each.variable)) for each in self.kept]
        rows = self.tracker.get(exponential)
        if isinstance(rows, Rows):
            self.tracker.set(exponential, rows._replace(broken=Broken("exp", self.tracker.place(), scale=False)))

    def settle(self, quotient: Tensor) -> None:
        """Take attention over edges for a factor that depends on their presence alone: the rest of it is frozen."""
        trace = self.tracker.get(quotient)
        if isinstance(trace, Rows | Unsupported):
            rows = self.tracker.rows(quotient) if isinstance(trace, Unsupported) else trace
            self.tracker.set(quotient, rows and rows._replace(degree=0, gates=0, frozen=0, broken=None))

    def watch_leaving(self, func: Callable[..., Any], trace: Trace | None) -> None:
        """Refuse edges that are taken out of torch, and note values."""
        if isinstance(trace, Edges):
            raise UnsupportedModelError(
                f"'{func.__name__}' in {self.tracker.place()} takes edges out of torch, and what is done with them "
                f"there cannot be masked. Let a layer that derives from torch_geometric.nn.MessagePassing do it."
            )
        if isinstance(trace, Rows):
            self.suspects.append(f"'{func.__name__}' in {self.tracker.place()}")

    def rewritten(
        self, rewrite: Rewrite, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a rule makes of a call, after a look at whether that is what the call does."""
        if rewrite is relu:
            return relu(self.keep, func, args, kwargs)
        with self.tracker.paused():
            copies = [each.clone() if isinstance(each, Tensor) else each for each in args]
            expected = func(*copies, **kwargs)
        out = rewrite(self.keep, func, args, kwargs)
        with self.tracker.paused():
            if not _same(out, expected):
                raise UnsupportedModelError(
                    f"The rule for '{_name(func)}' in {self.tracker.place()} gives another result than the operation "
                    f"itself. If the rule is yours, make it write the operation in other words; else please report it."
                )
        return out

    def applies(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a rule is needed, because variables reach the arguments, and will do."""
        if rule.when is not None and not rule.when(func, args, kwargs):
            return False
        over_edges = bool(self.sums) and self.sums[-1]  # as the maximum, or the sum, of the same softmax
        if (rule is EXPONENTIAL and not over_edges) or (rule is QUOTIENT and over_edges):
            return False
        traces = [self.tracker.get(each) for each in (*args, *kwargs.values())]
        structure = any(isinstance(each, Unmasked) and each.kind == "structure" for each in traces)
        if structure and not rule.unary and any(isinstance(each, Rows) for each in traces):
            raise by_hand("with a matrix that is made of the edges", self.tracker.place())
        reached = [each for each in traces if isinstance(each, Rows)]
        sound = all(each.broken is None for each in reached)
        sound = sound and not any(isinstance(each, Unsupported) for each in traces)
        if rule.unary:
            sound = sound and len(reached) == 1 and isinstance(traces[0], Rows)
        return bool(reached) and (rule.cuts or sound)

    def size_position(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Return which argument of a multiplication or division is a size that must be frozen."""
        rows = [each for argument in args if isinstance(each := self.tracker.get(argument), Rows)]
        if len(rows) != 2 or all(each.broken is None for each in rows):
            return None
        if any(each.broken is not None and not each.broken.scale for each in rows):
            return None
        return size_position(func, args, kwargs, [each.broken is not None for each in rows])

    def keep(
        self, values: Callable[[], Tensor], *, gate: bool = False, reads: Callable[[], Tensor] | None = None
    ) -> Tensor:
        """Keep numbers, and what reaches them."""
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
