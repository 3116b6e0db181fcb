"""One forward pass: the model's gates and other frozen values, with the rows that reach them.

A pass that makes the calls of a known program needs only the index tensors of its graph to find its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from captum_goat.adjacency.deletion import nearly_equal
from captum_goat.adjacency.mask_entry import MessageSites
from captum_goat.fields.reach import ReachPlan, find_reach, plan_reach
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import GraphInputs, tensor_output
from captum_goat.method.replay import FAILURES, ActivationPattern, Subject
from captum_goat.rules.operations import Arguments, Keywords, input_of, operation_name
from captum_goat.rules.registry import Chosen, Factors, FrozenCall, Kept, RecordedCall, Rewrite, Rule
from captum_goat.rules.registry import version as rules_version
from captum_goat.tracking import NoPolynomialError, RowGraph, Rows, RowTracker, Unsupported, UnsupportedModelError
from captum_goat.tracking.program import (
    GivenRows,
    OtherProgramError,
    ProgramRecorder,
    ProgramRun,
    ProgramStore,
)
from captum_goat.tracking.registry import tensors_in
from captum_goat.tracking.unseen import without_sums

_logger = logging.getLogger(__name__)

_MOST_REACHED = 2**16  # entries of the largest matrix of edges that reach rows, with which these are not followed


@torch.no_grad()
def record(
    subject: Subject, graph: GraphInputs | None = None, programs: ProgramStore[KnownModel] | None = None
) -> ActivationPattern:
    """Run the model once and record its activation pattern, by one of its known programs if one fits.

    Without the ``graph`` that the model is called with, the pattern has no tape.
    """
    arguments = None if graph is None else graph.tensors
    if graph is None or arguments is None or programs is None:
        return _record_anew(subject, arguments)
    key = rules_version(), graph.kinds, subject.mask.dtype
    for known in programs.of(key):
        try:
            pattern = record_by_program(known, subject, arguments)
        except (OtherProgramError, *FAILURES) as error:  # an error of the model itself is raised again below
            _logger.debug("A program of %s did not fit: %r", type(subject.model).__name__, error)
            continue
        by = "its rows" if pattern.graph.reach is None else "a plan of reach"
        _logger.debug("A program of %s was followed, by %s", type(subject.model).__name__, by)
        programs.hit()
        return pattern
    pattern = _record_anew(subject, arguments)
    programs.add(key, KnownModel.of(pattern))
    return pattern


def _record_anew(subject: Subject, arguments: Sequence[Tensor] | None) -> ActivationPattern:
    values: frozenset[int] = frozenset()
    while True:
        try:
            return _Recorder(subject, arguments, values=values).record()
        except NoPolynomialError as error:  # a root that is a value, not a factor of others
            if error.call is None or error.call in values:
                raise
            values, arguments = values | {error.call}, None


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
        self.left_out = left_out
        self.tracker = RowTracker(subject.model)
        self.arguments, self.features = arguments, [feature.clone() for feature in subject.features]
        self.steps = None if arguments is None else ProgramRecorder(arguments, self.tracker, self.features)
        self.masks = subject.masks(self.tracker) if subject.edge_sets else None
        self.calls: list[FrozenCall | None] = []
        self.kept: list[Kept] = []  # of the call that is being rewritten
        self.suspects: list[str] = []
        # Calls of a softmax or sigmoid: input, result, version of the input, number of the call in the program.
        self.squashes: dict[int, tuple[Tensor, Tensor, int, int | None]] = {}
        # A gate that only features of value 0 reach is a constant, though its rows are variables.
        rows = [feature.unsqueeze(-1).flatten(1) for feature in subject.features]
        self.zero_rows = any(bool((row == 0).all(1).any()) for row in rows)

    def record(self) -> ActivationPattern:
        """Run the model."""
        subject, tracker = self.subject, self.tracker
        first = subject.mask.numel()
        for feature in self.features:  # each entry along dimension 0 is a row of its own
            elements = torch.arange(first, first + len(feature), device=feature.device)
            tracker.set(feature, tracker.graph.inputs(elements, feature.dim()))
            first += len(feature)
        hooks = {"around_propagate": tracker.around_propagate} if self.masks is None else self.masks.hooks()

        def run() -> tuple[Tensor, int | None]:
            output = result = tensor_output(subject.forward(self.features))
            last = tracker.squashed(output)
            if last is not None:
                logits, squashed, version, _ = self.squashes[last]
                if output is squashed and logits._version == version:
                    self.left_out, self.calls[last], output = last, None, logits
            if subject.finish is not None:
                output = result = tensor_output(subject.finish(output))
            if self.steps is not None:
                self.steps.end(result)  # before a last softmax is left out: the tape leaves it out, too
            return output, last

        output, last = intercepted(run, subject.model, on_call=self.on_call, steps=self.steps, tracker=tracker, **hooks)
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
        pattern = ActivationPattern(subject, sites, self.calls, self.left_out, output, rows, tracker.graph)
        return self.with_tape(replace(pattern, suspects=tuple(self.suspects)))

    def with_tape(self, pattern: ActivationPattern) -> ActivationPattern:
        """Return the pattern with the tape of the pass, unless the model's own code has seen values that edges reach.

        Other passes can follow its program if only gates of ReLUs are frozen.
        """
        if self.steps is None or self.tracker.leaked or self.suspects:
            return pattern
        tape = self.steps.tape([number for number, call in enumerate(self.calls) if call])
        last = None if self.left_out is None else self.squashes.get(self.left_out)
        known_end = self.subject.finish is None and (self.left_out is None) == (last is None)
        if tape is None or not known_end or not all(call.rule.is_relu for call in self.calls if call is not None):
            return replace(pattern, tape=tape)
        return replace(pattern, tape=tape, program=self.steps.program(last and last[3], tape))

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let a rule rewrite a call, if it must, and note the values that it freezes."""
        number, over_edges = len(self.calls), self.masks is not None and self.masks.over_edges
        self.calls.append(None)
        if self.steps is not None:
            self.steps.rewrite(number, func)
        if number == self.left_out:
            return input_of(args, kwargs).clone()
        seen = self.tracker, over_edges, self.suspects, number, number in self.values
        call = RecordedCall(func, args, kwargs, *seen)
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
            self.squashes[number] = value, out, value._version, step
        kept = tuple(rule.settle(call, out, self.kept))
        if kept and rewrite is not None:
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
            pairs = zip_longest(tensors_in([expected]), tensors_in([out]), fillvalue=torch.empty(0))
            if not all(nearly_equal(*pair) if pair[0].is_floating_point() else torch.equal(*pair) for pair in pairs):
                operation = f"'{operation_name(call.func)}' in {self.tracker.place()}"
                if any(bool(value.isnan().any()) for value in tensors_in([expected])):
                    raise UnsupportedModelError(
                        f"{operation} returns nan, as a standard deviation of one row does. Explain the model on "
                        f"inputs for which its output is finite."
                    )
                raise UnsupportedModelError(
                    f"The rule for {operation} gives another result than the operation itself. If the rule is yours, "
                    f"correct it; otherwise please report it."
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
            factors = None
            if isinstance(rows, Rows):
                factors = _factors(frozen, rows, tracker.graph, gate=gate, zero_rows=self.zero_rows)
        self.kept.append(factors)
        if factors is not None:
            tracker.set(frozen, factors.rows)
        return frozen


def _factors(values: Tensor, rows: Rows, graph: RowGraph, *, gate: bool, zero_rows: bool = False) -> Factors | None:
    """Return frozen values with their rows; ``None`` if no variable reaches them."""
    variable = rows.ids >= 0
    everywhere = graph.is_full(rows.ids) or bool(variable.all())
    if not variable.numel() or not (everywhere or variable.any()):
        return None
    if gate:
        rows = rows._replace(degree=1, gates=1, frozen=-1 if everywhere and not zero_rows else 0, broken=None)
    else:  # as in a normalisation
        rows = rows._replace(degree=0, gates=0, frozen=1, broken=None, marks=without_sums(rows.marks))
    return Factors(values, rows, variable, gate, everywhere)


@dataclass
class KnownModel:
    """What is known about a model after one pass, for passes on other graphs."""

    pattern: ActivationPattern  # without what belongs to the graph
    # how the tape of a pass tells which edges reach its gates; ``None`` if it does not
    plan: ReachPlan | None = None
    planned: bool = False  # whether that was tried

    @classmethod
    def of(cls, pattern: ActivationPattern) -> KnownModel | None:
        """Return what is known after a pass; ``None`` if other passes cannot follow its program."""
        if pattern.program is None or pattern.rows is None:
            return None
        empty = pattern.output.new_empty(0)
        subject = pattern.subject._replace(forward=lambda _: None, features=(), edge_sets=(), mask=empty)
        calls = [call and call._replace(kept=()) for call in pattern.calls]
        rows = pattern.rows._replace(ids=pattern.rows.ids.new_empty(0))
        bare = replace(pattern, subject=subject, calls=calls, output=empty, rows=rows, tape=None)
        return cls(replace(bare, sites=MessageSites(), graph=RowGraph()))


def record_by_program(known: KnownModel, subject: Subject, arguments: Sequence[Tensor]) -> ActivationPattern:
    """Record the pattern in a pass that makes the calls that are known, or raise OtherProgramError."""
    num_edges = subject.mask.numel()
    largest = max([num_edges, *(len(argument) for argument in arguments if argument.dim())])
    small = 0 < num_edges * largest <= _MOST_REACHED and not subject.by_node
    pattern = _follow(known.pattern, subject, arguments, known.plan if small else None)
    if small and not known.planned and pattern.tape is not None and pattern.rows is not None:
        kept = {number: call.kept[0] for number, call in enumerate(pattern.calls) if call is not None}
        gates = {number: factors for number, factors in kept.items() if isinstance(factors, Factors)}
        followed = pattern.left_out, pattern.rows, pattern.graph
        known.plan, known.planned = plan_reach(pattern.tape, pattern.sites.sites, gates, *followed, num_edges), True
    return pattern


def _follow(
    known: ActivationPattern, subject: Subject, arguments: Sequence[Tensor], plan: ReachPlan | None
) -> ActivationPattern:
    """Record the pattern in a pass that follows a program; its rows are followed, too, or found by a plan."""
    tracker, calls, gates = GivenRows(subject.model), list[FrozenCall | None](), dict[int, Tensor]()
    assert known.program is not None
    assert known.rows is not None
    steps = ProgramRun(known.program, arguments, tracker, follows_rows=plan is None)
    masks = subject.masks(tracker, watched=plan is None)
    hooks = masks.hooks() | {"on_scatter": None}  # a model with a program passes no messages outside of layers

    def on_call(rule: Rule, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        number = len(calls)
        call = known.calls[number] if number < len(known.calls) else steps.fail()
        calls.append(call)
        if call is None and number != known.left_out:
            return func(*args, **kwargs)
        value = input_of(args, kwargs)
        rows = tracker.get(value)
        out = value.clone() if call is None else func(*args, **kwargs)  # a ReLU: nothing else is frozen in a program
        if call is not None:
            gates[number] = out.sign()
        if plan is not None:
            return out
        if not isinstance(rows, Rows):
            steps.fail()
        if call is not None:
            factors = _factors(gates[number], rows, tracker.graph, gate=True)
            rows = rows if factors is None else tracker.graph.merge([rows, factors.rows], multiply=True)
            calls[number] = call._replace(kept=(factors,))
        tracker.set(out, rows)
        return out

    def run() -> Tensor:
        output = tensor_output(subject.forward(()))
        steps.end(output)
        return output

    output = intercepted(run, subject.model, on_call=on_call, steps=steps, **hooks)
    steps.check_done()
    rows = tracker.rows(output) if plan is None else known.rows
    if rows is None or len(calls) != len(known.calls) or output.dtype != known.output.dtype:
        steps.fail()
    if (rows.degree, rows.gates) != (known.rows.degree, known.rows.gates):
        steps.fail()
    tape, sites, graph = steps.tape(), masks.sites(), tracker.graph
    if plan is not None:
        reached = None if tape is None else find_reach(plan, tape, sites.sites, subject.mask.numel())
        if reached is None or reached.gates.keys() != gates.keys():
            steps.fail("other rows")
        for number, values in gates.items():
            call = calls[number]
            calls[number] = call and call._replace(kept=(reached.factors(number, values),))
        rows, graph = rows._replace(ids=reached.output, sources=frozenset()), reached.graph
    return ActivationPattern(subject, sites, calls, known.left_out, output, rows, graph, tape=tape)
