"""One forward pass: the model's gates and other frozen values, with the rows that reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import MessageSites
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.rules.frozen_calls import FrozenCall
from captum_goat.rules.operations import input_of, operation_name
from captum_goat.rules.recorded_calls import Chosen, Factors, Kept, RecordedCall
from captum_goat.rules.registry import Rewrite, Rule
from captum_goat.tracking import NoPolynomialError, Rows, RowTracker, Unsupported, UnsupportedModelError, unseen
from captum_goat.tracking.program import Program, ProgramRecorder
from captum_goat.tracking.tape import Tape


@torch.no_grad()
def record(subject: Subject, arguments: Sequence[Tensor] | None = None) -> ActivationPattern:
    """Run the model once and record its activation pattern.

    Raises:
        UnsupportedModelError: If the model does something that cannot be explained exactly.
    """
    values: frozenset[int] = frozenset()
    while True:
        try:
            return _Recorder(subject, arguments, values=values).record()
        except NoPolynomialError as error:  # a root that is a value, not a factor of others
            if error.call is None or error.call in values:
                raise
            values, arguments = values | {error.call}, None


class _Squash(NamedTuple):
    """A call of a softmax or sigmoid."""

    input: Tensor
    result: Tensor
    version: int  # the version of the input
    step: int | None  # the number of the call in the program


class _Recorder:
    """One recording: its callbacks and what they have seen."""

    def __init__(
        self,
        subject: Subject,
        arguments: Sequence[Tensor] | None = None,
        left_out: int | None = None,
        values: frozenset[int] = frozenset(),
    ) -> None:
        self.subject = subject
        self.values = values  # calls of roots and powers whose results are values, not factors of others
        self.no_relus: set[int] = set()  # calls of operations other than ReLU at which values are frozen
        self.left_out = left_out
        self.tracker = RowTracker(subject.model)
        self.arguments, self.features = arguments, [feature.clone() for feature in subject.features]
        self.steps = None if arguments is None else ProgramRecorder(arguments, self.tracker, self.features)
        self.masks = None
        if subject.edge_sets:
            self.masks = subject.masks(self.tracker)
        self.calls: list[FrozenCall | None] = []
        self.kept: list[Kept] = []  # of the call that is being rewritten
        self.suspects: list[str] = []
        self.squashes: dict[int, _Squash] = {}
        # A gate that only features of value 0 reach is a constant, though its rows are variables.
        rows = [feature.unsqueeze(-1).flatten(1) for feature in subject.features]
        self.zero_rows = any(bool((row == 0).all(1).any()) for row in rows)

    def record(self) -> ActivationPattern:
        """Run the model."""
        subject, tracker = self.subject, self.tracker
        self.track_features()
        own: dict[str, Any] = {"on_call": self.on_call, "around_propagate": tracker.around_propagate}
        hooks = own if self.masks is None else own | self.masks.hooks()

        def run() -> tuple[Tensor, int | None]:
            output = result = tensor_output(subject.forward(self.features))
            last = tracker.squashed(output)
            if last is not None and (logits := self.logits_of(last, output)) is not None:
                self.left_out, self.calls[last], output = last, None, logits
            if subject.finish is not None:
                output = result = tensor_output(subject.finish(output))
            if self.steps is not None:
                self.steps.end(result)  # before a last softmax is left out: the tape leaves it out, too
            return output, last

        output, last = intercepted(run, subject.model, steps=self.steps, tracker=tracker, **hooks)
        if last is not None and self.left_out is None:  # the output is a part of the result of that call
            return _Recorder(subject, self.arguments, left_out=last, values=self.values).record()
        tracker.check_by_layers(output)
        sites = MessageSites() if self.masks is None else self.masks.sites()
        rows = tracker.rows(output)
        if rows is not None and rows.degree == 0 and rows.frozen > 0:
            raise UnsupportedModelError(
                "The output depends on edges by frozen values only, as after a softmax that other operations follow, "
                "so no edge has a share of its own. Make the softmax the last step of the model, or return logits."
            )
        tape = self.tape()
        seen = output, rows, tracker.graph, tuple(self.suspects), self.program(tape), tape
        return ActivationPattern(subject, sites, self.calls, self.left_out, *seen)

    def tape(self) -> Tape | None:
        """Return the tape of the pass; ``None`` if the model's own code has seen numbers that depend on edges."""
        if self.steps is None or self.tracker.leaked or self.suspects:
            return None
        return self.steps.tape.tape(self.steps.output, [number for number, call in enumerate(self.calls) if call])

    def program(self, tape: Tape | None) -> Program | None:
        """Return the program of the pass, if another pass can follow it: if only gates of ReLUs are frozen."""
        if self.steps is None or tape is None or self.no_relus - {self.left_out} or self.subject.finish is not None:
            return None
        if self.left_out is not None and self.left_out not in self.squashes:
            return None
        return self.steps.program(None if self.left_out is None else self.squashes[self.left_out].step, tape)

    def logits_of(self, last: int, output: Tensor) -> Tensor | None:
        """Return the input of a softmax or sigmoid whose result is the output, if it is unchanged."""
        squash = self.squashes[last]
        same = output is squash.result and squash.input._version == squash.version
        return squash.input if same else None

    def track_features(self) -> None:
        """Make each entry of the attributed inputs along dimension 0 a row of its own."""
        first = self.subject.mask.numel()
        for feature in self.features:
            elements = torch.arange(first, first + feature.size(0), device=feature.device)
            self.tracker.set(feature, self.tracker.graph.inputs(elements, feature.dim()))
            first += feature.size(0)

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let a rule rewrite a call, if it must, and note the values that it freezes."""
        number, over_edges = len(self.calls), self.masks is not None and self.masks.over_edges
        self.calls.append(None)
        if self.steps is not None:
            self.steps.tape.rewrite(number, func)
        if number == self.left_out:
            return input_of(args, kwargs).clone()
        as_value = number in self.values
        call = RecordedCall(func, args, kwargs, self.tracker, over_edges, self.suspects, number, as_value)
        rewrite = rule.rewrite_for(call)
        if rewrite is None:
            out = func(*args, **kwargs)
        elif rule.is_relu:
            out = rewrite(self.keep, func, args, kwargs)
            if self.steps is not None:
                self.steps.rewritten()
        else:
            out = self.rewritten(rewrite, call)
        if rule.squashes and self.left_out is None:
            self.tracker.set_squashed(out, number)
            value, step = input_of(args, kwargs), None if self.steps is None else self.steps.current
            self.squashes[number] = _Squash(value, out, value._version, step)
        kept = tuple(rule.settle(call, out, self.kept))
        if kept and rewrite is not None:
            if not rule.is_relu:
                self.no_relus.add(number)
            check_context(self.subject.mask.device.type)
            self.calls[number] = FrozenCall(operation_name(func), rule, rewrite, kept)
            self.kept = []
        return out

    def rewritten(self, rewrite: Rewrite, call: RecordedCall) -> Any:
        """Return the result of a rewritten call, after a check that the call itself has the same result."""
        with self.tracker.paused():
            copies = [value.clone() if isinstance(value, Tensor) else value for value in call.args]
            expected = call.func(*copies, **call.kwargs)
        out = rewrite(self.keep, call.func, call.args, call.kwargs)
        with self.tracker.paused():
            if not _same(out, expected):
                raise UnsupportedModelError(
                    f"The rule for '{operation_name(call.func)}' in {self.tracker.place()} gives another result than "
                    f"the operation itself. If the rule is yours, correct it; otherwise please report it."
                )
        return out

    def keep(
        self,
        values: Callable[[], Tensor],
        *,
        gate: bool = False,
        reads: Callable[[], Tensor] | None = None,
        index: bool = False,
    ) -> Tensor:
        """Freeze values, and note the rows that reach them (see :class:`captum_goat.rules.Keep`)."""
        tracker = self.tracker
        if index:
            with tracker.paused():
                chosen = values().clone()
            self.kept.append(Chosen(chosen))
            return chosen
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
            rows = rows if gate else rows._replace(marks=unseen.without_sums(rows.marks))  # as in a normalisation
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
