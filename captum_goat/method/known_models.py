"""Recording again: what is known about a model after one pass, for passes over other graphs and the same graph.

A pass that makes the calls of a known program needs only the index tensors of its graph to find its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.rules.activations import relu_as
from captum_goat.rules.frozen_calls import FrozenCall
from captum_goat.rules.operations import input_of
from captum_goat.rules.recorded_calls import Factors, Kept
from captum_goat.rules.registry import Rule
from captum_goat.tracking import Rows
from captum_goat.tracking.program import GivenRows, LastGraph, OtherProgramError, Program, ProgramRun

_MOST_REMEMBERED = 2**15  # entries of the arguments of a graph that is remembered


class KnownModel(NamedTuple):
    """What is known about a model after one pass, for passes on other graphs."""

    program: Program  # its calls
    calls: list[FrozenCall | None]  # its calls of operations with a rule, without the values that were frozen
    left_out: int | None  # the number of the call among these that is left out
    rows: Rows  # the rows of the output, for their degree
    dtype: torch.dtype  # the dtype of the output
    last: LastGraph[GraphRows]  # the graph of the last pass

    @classmethod
    def of(cls, pattern: ActivationPattern) -> KnownModel | None:
        """Return what is known after a pass; ``None`` if other passes cannot follow its program."""
        if pattern.program is None or pattern.rows is None:
            return None
        rows = pattern.rows._replace(ids=pattern.rows.ids.new_empty(0))
        calls = _without_values(pattern, lambda kept: kept._replace(rows=rows, variable=rows.ids))
        return cls(pattern.program, calls, pattern.left_out, rows, pattern.output.dtype, LastGraph())


class GraphRows(NamedTuple):
    """What a pass over a graph has told of its rows, for the next pass over the same graph."""

    deciding: list[list[Any]]  # what has decided rows, see :class:`ProgramRun`
    pattern: ActivationPattern  # without values


def _nothing(_: Sequence[Tensor]) -> None:
    """Stand for a model that is not called any more."""


def _without_values(
    pattern: ActivationPattern, change: Callable[[Factors], Factors] = lambda factors: factors
) -> list[FrozenCall | None]:
    """Return the calls of a pattern without the values that were frozen."""
    empty = pattern.output.new_empty(0)

    def bare(kept: Kept) -> Kept:
        return change(kept._replace(values=empty)) if isinstance(kept, Factors) else kept

    return [call and call._replace(kept=tuple(map(bare, call.kept))) for call in pattern.calls]


@torch.no_grad()
def record_by_program(known: KnownModel, subject: Subject, arguments: Sequence[Tensor]) -> ActivationPattern:
    """Run the model once and record its activation pattern, if it makes the calls that are known.

    Raises:
        OtherProgramError: If it makes other calls.
    """
    small = sum(argument.numel() for argument in arguments) <= _MOST_REMEMBERED
    again, rows = known.last.find(arguments) if small else (False, None)
    if rows is not None:
        with suppress(OtherProgramError):  # an index depends on features or on the model
            return _ProgramFollower(known, subject, arguments, rows).record()
    follower = _ProgramFollower(known, subject, arguments)
    if not again:
        return follower.record()
    follower.steps.deciding = list[list[Any]]()
    pattern = replace(follower.record(), known={})
    nothing = subject.mask.new_empty(0)
    bare = replace(pattern, subject=subject._replace(forward=_nothing, features=(), edge_sets=(), mask=nothing))
    bare = replace(bare, output=pattern.output.new_empty(0), calls=_without_values(pattern), tape=None)
    known.last.keep(arguments, GraphRows(follower.steps.deciding, bare))
    return pattern


class _ProgramFollower:
    """Records the pattern of a graph in a pass that follows a program; ``rows`` are those of the graph, if known."""

    def __init__(
        self, known: KnownModel, subject: Subject, arguments: Sequence[Tensor], rows: GraphRows | None = None
    ) -> None:
        self._known, self._subject = known, subject
        self._before = None if rows is None else rows.pattern
        self._tracker = GivenRows(subject.model)
        self.steps = ProgramRun(known.program, arguments, self._tracker, None if rows is None else rows.deciding)
        self._calls: list[FrozenCall | None] = []
        # Which rows of ids edges reach, and whether that are some and all; the ids are kept alive.
        self._variable: dict[int, tuple[Tensor, Tensor, bool, bool]] = {}

    def record(self) -> ActivationPattern:
        """Run the model."""
        known, subject, tracker, steps = self._known, self._subject, self._tracker, self.steps
        if self._before is None:
            masks = subject.masks(tracker)
            hooks = masks.hooks()
        else:
            factors, device = self._before.sites.factors(subject.mask), subject.mask.device.type
            hooks, check_masks = self._before.sites.replayed(factors, lambda: check_context(device))

        def run() -> Tensor:
            output = tensor_output(subject.forward(()))
            steps.end(output)
            return output

        output = intercepted(run, subject.model, on_call=self._on_call, steps=steps, **hooks)
        steps.check_done()
        if self._before is not None:
            check_masks()
            return replace(self._before, subject=subject, calls=self._calls, output=output, tape=steps.tape())
        rows, expected = tracker.rows(output), known.rows
        if rows is None or len(self._calls) != len(known.calls) or output.dtype != known.dtype:
            steps.fail()
        if (rows.degree, rows.gates, max(rows.frozen, 0)) != (expected.degree, expected.gates, max(expected.frozen, 0)):
            steps.fail()
        seen = self._calls, known.left_out, output, rows, tracker.graph
        return ActivationPattern(subject, masks.sites(), *seen, tape=steps.tape())

    def _on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = len(self._calls)
        if number >= len(self._known.calls):
            self.steps.fail()
        call = (self._known if self._before is None else self._before).calls[number]
        self._calls.append(None)
        if call is None and number != self._known.left_out:
            return func(*args, **kwargs)
        value = input_of(args, kwargs)
        rows = None if self._before is not None else self._rows_of(value)
        if call is None:
            out = value.clone()
        elif rule is not call.rule or not rule.is_relu:
            self.steps.fail()
        else:
            values = (value > 0).to(value.dtype)
            known = call.kept[0] if isinstance(call.kept[0], Factors) else None
            gates = known if rows is None else self._gates(rows)
            if (gates is None) != (known is None):
                self.steps.fail()
            self._calls[-1] = call._replace(kept=(gates and gates._replace(values=values),))
            out = relu_as(lambda value: value * values, func, args, kwargs)
            if rows is not None and gates is not None:
                rows = self._tracker.graph.merge([rows, gates.rows], multiply=True)
        if rows is not None:
            self._tracker.set(out, rows)
        return out

    def _rows_of(self, value: Tensor) -> Rows:
        rows = self._tracker.get(value)
        if not isinstance(rows, Rows):
            self.steps.fail()
        return rows

    def _gates(self, rows: Rows) -> Factors | None:
        """Return the gates of a ReLU without their values; ``None`` if no edge reaches them."""
        if id(rows.ids) not in self._variable:
            variable, full = rows.ids >= 0, self._tracker.graph.is_full(rows.ids)
            some, all_ = (full, full) if full else (bool(variable.any()), bool(variable.all()))
            self._variable[id(rows.ids)] = rows.ids, variable, some, all_
        _, variable, some, all_ = self._variable[id(rows.ids)]
        gates = rows._replace(degree=1, gates=1, frozen=-1 if all_ else 0, broken=None)
        return Factors(rows.ids, gates, variable, True) if some else None
