"""One forward pass: the model's gates and other frozen values, with the rows that reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import MessageSites
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.hooks.model_state import modules_of
from captum_goat.hooks.replicas import as_replicas, batched, is_batched, outside_replicas
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.inputs.targets import Target
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.method.share import Contributions, Replicas, Shares
from captum_goat.rules.activations import relu_as
from captum_goat.rules.frozen_calls import FrozenCall
from captum_goat.rules.operations import input_of, operation_name
from captum_goat.rules.recorded_calls import Chosen, Factors, Kept, RecordedCall
from captum_goat.rules.registry import Rewrite, Rule
from captum_goat.tracking import (
    Messages,
    NoPolynomialError,
    Rows,
    RowTracker,
    Unsupported,
    UnsupportedModelError,
    unseen,
)
from captum_goat.tracking.program import GivenRows, Program, ProgramRecorder, ProgramRun


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


class _MaskWatcher:
    """Sets the rows of masked messages: the edges that they cross."""

    integrates = True

    def __init__(self, tracker: RowTracker, subject: Subject) -> None:
        self._tracker = tracker
        self._offsets = self._targets = None
        if subject.offsets is not None:
            sizes = [edges.size(1) for edges in subject.edge_sets]
            starts = torch.tensor(subject.offsets, device=subject.mask.device)
            self._offsets = starts.repeat_interleave(torch.tensor(sizes, device=subject.mask.device))
            self._targets = torch.cat([edges[1] for edges in subject.edge_sets])

    def before_masking(self, messages: Tensor) -> None:
        check_context(messages.device.type)

    def after_masking(self, masked: Tensor, messages: Tensor, call: Messages, nodes: Tensor) -> None:
        tracker = self._tracker
        with tracker.paused():
            # A copy, because a view would keep the user's edge_index alive.
            nodes = nodes + self._shift(call.edges, nodes)
            edges, nodes = call.edges.view(call.shape), nodes.view(call.shape)
            tracker.set(masked, tracker.graph.cross(tracker.rows(messages), edges, nodes))

    def _shift(self, edges: Tensor, nodes: Tensor) -> int:
        """Return what to add to the numbers of nodes of one type to get their rows among the features of all types."""
        if self._offsets is None or self._targets is None:
            return 0
        known = edges >= 0
        offsets, targets, given = self._offsets[edges[known]], self._targets[edges[known]], nodes[known]
        shift = int(offsets[0]) if offsets.numel() else 0
        if torch.equal(given, targets + offsets):  # the layer counts the nodes of all types
            shift = 0
        elif not torch.equal(given, targets) or (offsets != shift).any():
            raise UnsupportedModelError(
                f"{self._tracker.place()} numbers the nodes of all types in a way of its own, so it is not known which "
                f"features belong to a gate. Use mask_type 'edge' and 'node' one after the other."
            )
        self._tracker.graph.first_node = shift
        return shift

    def after_presence(self, factor: Tensor, edges: Tensor) -> None:
        """Do nothing: messages have rows, the factors by which edges count in degrees have none."""


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
        self.tracker = RowTracker({module: name for name, module in subject.model.named_modules()})
        self.steps = None if arguments is None else ProgramRecorder(arguments, self.tracker)
        self.masks = None
        if subject.edge_sets:
            self.masks = subject.entry(
                self.tracker, subject.edge_sets, subject.mask, _MaskWatcher(self.tracker, subject)
            )
        self.calls: list[FrozenCall | None] = []
        self.kept: list[Kept] = []  # of the call that is being rewritten
        self.suspects: list[str] = []
        self.squashes: dict[int, _Squash] = {}
        # A gate that only features of value 0 reach is a constant, though its rows are variables.
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
        if last is not None and self.left_out is None:  # the output is a part of the result of that call
            return _Recorder(subject, left_out=last, values=self.values).record()
        tracker.check_by_layers(output)
        sites = MessageSites() if self.masks is None else self.masks.sites()
        rows = tracker.rows(output)
        if rows is not None and rows.degree == 0 and rows.frozen > 0:
            raise UnsupportedModelError(
                "The output depends on edges by frozen values only, as after a softmax that other operations follow, "
                "so no edge has a share of its own. Make the softmax the last step of the model, or return logits."
            )
        seen = output, rows, tracker.graph, tuple(self.suspects), self.program()
        return ActivationPattern(subject, sites, self.calls, self.left_out, *seen)

    def program(self) -> Program | None:
        """Return the program of the pass, if another pass can follow it: if only gates of ReLUs are frozen."""
        if self.steps is None or self.no_relus - {self.left_out} or self.suspects or self.subject.finish is not None:
            return None
        return self.steps.program(None if self.left_out is None else self.squashes[self.left_out].step)

    def logits_of(self, last: int, output: Tensor) -> Tensor | None:
        """Return the input of a softmax or sigmoid whose result is the output, if it is unchanged."""
        squash = self.squashes[last]
        same = output is squash.result and squash.input._version == squash.version
        return squash.input if same else None

    def tracked_features(self) -> Sequence[Tensor]:
        """Return the attributed inputs, each entry along dimension 0 a row of its own."""
        features = [feature.clone() for feature in self.subject.features]
        first = self.subject.mask.numel()
        for feature in features:
            elements = torch.arange(first, first + feature.size(0), device=feature.device)
            self.tracker.set(feature, self.tracker.graph.inputs(elements, feature.dim()))
            first += feature.size(0)
        return features

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let a rule rewrite a call, if it must, and note the values that it freezes."""
        number, over_edges = len(self.calls), self.masks is not None and self.masks.over_edges
        self.calls.append(None)
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


class KnownModel(NamedTuple):
    """What is known about a model after one pass, for passes on other graphs."""

    program: Program  # its calls
    calls: list[FrozenCall | None]  # its calls of operations with a rule, without the values that were frozen
    left_out: int | None  # the number of the call among these that is left out
    rows: Rows  # the rows of the output, for their degree
    dtype: torch.dtype  # the dtype of the output
    largest: float  # the number of entries of the largest frozen tensor per edge

    @classmethod
    def of(cls, pattern: ActivationPattern) -> KnownModel | None:
        """Return what is known after a pass; ``None`` if other passes cannot follow its program."""
        if pattern.program is None or pattern.rows is None or torch.finfo(pattern.output.dtype).bits < 32:
            return None
        empty, rows = pattern.output.new_empty(0), pattern.rows._replace(ids=pattern.rows.ids.new_empty(0))

        def without_numbers(call: FrozenCall) -> FrozenCall:
            gates = [kept and Factors(empty, rows, rows.ids, gates=True) for kept in call.kept]
            return call._replace(kept=tuple(gates))

        calls = [call and without_numbers(call) for call in pattern.calls]
        sizes = [factors.values.numel() for factors in pattern.factors]
        largest = max([1.0, *(size / max(pattern.subject.mask.numel(), 1) for size in sizes)])
        return cls(pattern.program, calls, pattern.left_out, rows, pattern.output.dtype, largest)


class ReplicaRecorder:
    """Records the pattern of a graph and shares its output in one pass of replicas that follows a program."""

    def __init__(self, known: KnownModel, subject: Subject, arguments: Sequence[Tensor]) -> None:
        self._known, self._subject = known, subject
        self._tracker = tracker = GivenRows({module: name for name, module in modules_of(subject.model).items()})
        self._steps = ProgramRun(known.program, arguments, tracker, outside_replicas)
        sum_dtype = torch.promote_types(torch.promote_types(subject.mask.dtype, known.dtype), torch.float32)
        self._replicas = Replicas(subject, known.rows, sum_dtype)
        self._calls: list[FrozenCall | None] = []
        self._rows: Rows | None = None
        self._variable: dict[int, tuple[Tensor, Tensor, bool, bool]] = {}  # `_variable` by the id() of ids

    def record(self, choose: Callable[[Tensor], list[Target]]) -> tuple[ActivationPattern, Shares]:
        """Run the model.

        Raises:
            OtherProgramError: If the model makes other calls than the program.
        """
        known, subject, tracker = self._known, self._subject, self._tracker
        options: dict[str, Any] = {"factor": self._factor, "apart": outside_replicas}
        masks = subject.entry(tracker, subject.edge_sets, subject.mask, _MaskWatcher(tracker, subject), **options)

        def run() -> Tensor:
            output = tensor_output(subject.forward(()))
            self._steps.note(tensor_output, (output,), {})
            self._rows = tracker.rows(output)
            return output

        torch._C._set_grad_enabled(True)
        hooks: dict[str, Any] = {"on_call": self._on_call, **masks.hooks(), "steps": self._steps}
        outputs = batched(lambda: intercepted(run, subject.model, **hooks), self._replicas.count)
        self._steps.check_done()
        rows, expected = self._rows, known.rows
        if rows is None or len(self._calls) != len(known.calls) or outputs.dtype != known.dtype:
            self._steps.fail()
        if (rows.degree, rows.gates, max(rows.frozen, 0)) != (expected.degree, expected.gates, max(expected.frozen, 0)):
            self._steps.fail()
        pattern = ActivationPattern(
            subject, masks.sites(), self._calls, known.left_out, outputs[0].detach(), rows, tracker.graph
        )
        return pattern, self._replicas.share(outputs, choose, lambda: Contributions.zeros(pattern))

    def _factor(self, site: Messages) -> Tensor:
        """Return the factors of messages, one per replica."""
        return as_replicas(outside_replicas(lambda: self._replicas.add_site(site)))

    def _on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = len(self._calls)
        if number >= len(self._known.calls):
            self._steps.fail()
        call = self._known.calls[number]
        self._calls.append(None)
        if call is None and number != self._known.left_out:
            return func(*args, **kwargs)
        rows = self._tracker.get(input_of(args, kwargs))
        if not isinstance(rows, Rows):
            self._steps.fail()
        if call is None:
            out = input_of(args, kwargs).clone()
        elif rule is not call.rule or not rule.is_relu:
            self._steps.fail()
        else:
            gates = self._gates(rows, input_of(args, kwargs))
            if (gates is None) != (call.kept[0] is None):
                self._steps.fail()
            self._calls[-1] = call._replace(kept=(gates,))
            if gates is None:
                out = func(*args, **kwargs)
            else:
                out = relu_as(partial(self._gated, gates), func, args, kwargs)
                rows = self._tracker.graph.merge([rows, gates.rows], multiply=True)
        self._tracker.set(out, rows)
        return out

    def _gates(self, rows: Rows, value: Tensor) -> Factors | None:
        """Return the gates of a ReLU without their values; ``None`` if no edge reaches them."""
        if id(rows.ids) not in self._variable:
            self._variable[id(rows.ids)] = outside_replicas(partial(_variable, rows.ids))
        _, variable, some, all_ = self._variable[id(rows.ids)]
        gates = rows._replace(degree=1, gates=1, frozen=-1 if all_ else 0, broken=None)
        kind: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
        return Factors(torch.empty(0, **kind), gates, variable, True) if some else None

    def _gated(self, gates: Factors, value: Tensor) -> Tensor:
        scale = outside_replicas(lambda: self._replicas.add_factors(gates))
        if is_batched(value):
            return self._replicas.gated(scale, value)
        return value * (value > 0).to(value.dtype) * as_replicas(scale)


def _variable(ids: Tensor) -> tuple[Tensor, Tensor, bool, bool]:
    """Return ids of rows, which of them edges reach, and whether that are any and all. The ids are kept alive."""
    variable = ids >= 0
    return ids, variable, bool(variable.any()), bool(variable.all())


def _same(result: Any, expected: Any) -> bool:
    """Return whether results agree up to rounding."""
    if isinstance(result, tuple):
        return isinstance(expected, tuple) and all(_same(*pair) for pair in zip(result, expected, strict=True))
    if not result.is_floating_point() or result.numel() == 0:
        return torch.equal(result, expected)
    near = torch.finfo(result.dtype).eps ** 0.5
    largest = float(expected.nan_to_num().abs().max())
    return torch.allclose(result, expected, rtol=near, atol=near * largest, equal_nan=True)
