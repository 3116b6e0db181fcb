"""The register of rules: how each operation moves, merges or makes rows.

A rule is also a licence: :class:`~captum_goat.tracking.row_tracker.RowTracker` refuses outputs that depend on an
operation without one. So only operations that keep the output a polynomial of the variables have rules in
:mod:`captum_goat.tracking.moves` and :mod:`captum_goat.tracking.linear`: those that are linear in their inputs, and
products. Rules of the kind :data:`depends` are no licences: they only tell which rows a nonlinear result reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from captum_goat.tracking.row_graph import Edges, Pointer, RowGraph, Rows, Trace, Unsupported, with_dims

aten = torch.ops.aten
_Entry = TypeVar("_Entry")
Result = Trace | list[Trace | None] | None


def named(names: str) -> frozenset[Any]:
    """Return the operations with these names, in place or not."""
    both = [name + end for name in names.split() for end in ("", "_")]
    return frozenset(getattr(aten, name) for name in both if hasattr(aten, name))


def functions(names: str) -> frozenset[Any]:
    """Return the functions of these names, wherever torch has them."""
    places = (torch, Tensor, torch.nn.functional)
    return frozenset(getattr(place, name) for name in names.split() for place in places if hasattr(place, name))


def by_names(rules: dict[Any, _Entry]) -> Callable[[str], Callable[[_Entry], _Entry]]:
    """Return what decorates the rule of functions, given their names, and adds it to ``rules``."""

    def named_rule(names: str) -> Callable[[_Entry], _Entry]:
        def register(entry: _Entry) -> _Entry:
            rules.update(dict.fromkeys(functions(names), entry))
            return entry

        return register

    return named_rule


class Operation(NamedTuple):
    """The properties of an operation."""

    packet: Any  # the operation with all its overloads
    pointwise: bool  # whether it works entry by entry
    mutable: bool  # whether it changes an argument
    random: bool  # whether it may draw random numbers
    factory: bool  # whether its result depends on shapes at most, not on values
    overwrites: bool  # whether it replaces its whole first argument


_FACTORIES = named("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full new_empty_strided")
_OVERWRITES = (aten.copy_, aten.fill_, aten.zero_)


@cache
def operation_of(func: Any) -> Operation:
    """Return the properties of a function that a dispatch mode sees."""
    packet, tags = func.overloadpacket, func.tags
    pointwise, random = torch.Tag.pointwise in tags, torch.Tag.nondeterministic_seeded in tags
    return Operation(packet, pointwise, func._schema.is_mutable, random, packet in _FACTORIES, packet in _OVERWRITES)


class Call(NamedTuple):
    """One call of an operation, after it has run."""

    func: Any
    operation: Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    graph: RowGraph
    trace: Callable[[Any], Trace | None]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def rows(self, tensor: Any) -> Rows | None:
        """Return the rows of a tensor; ``None`` when no edge reaches it."""
        trace = self.trace(tensor)
        return trace if isinstance(trace, Rows) else None


REFUSED = Unsupported("", "")  # what a rule returns for a call that is not linear
Rule = Callable[[Call], Result]
RULES: dict[Any, Rule] = {}
MOVES: set[Any] = set()  # operations that only move entries
DEPENDS: dict[Any, Rule] = {}  # rules of nonlinear operations: what their results depend on


def _register(rules: dict[Any, Rule], *operations: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        rules.update(dict.fromkeys(operations, function))
        return function

    return register


rule = partial(_register, RULES)  # decorates the rule of operations, which may return REFUSED
depends = partial(_register, DEPENDS)  # decorates the rule of operations when they are not linear


def moves(*operations: Any) -> Callable[[Callable[[Call, Tensor], Any]], Rule]:
    """Decorate a function that does to ids what operations do to their first argument: they only move its entries."""

    def register(function: Callable[[Call, Tensor], Any]) -> Rule:
        def apply(call: Call) -> Result:
            trace = call.trace(call.args[0])
            if not isinstance(trace, Edges | Rows):
                return None  # only an index is traced
            moved = function(call, trace.ids)
            if isinstance(moved, list | tuple):
                return [trace._replace(ids=ids) for ids in moved]
            return trace._replace(ids=moved)

        MOVES.update(operations)
        return rule(*operations)(apply)

    return register


def by_rule(call: Call, traces: list[Trace]) -> Result:
    """Return the traces of results, given those of arguments; REFUSED if an operation on rows is not linear."""
    packet = call.operation.packet
    if traces and isinstance(traces[0], Pointer) and packet in (aten.slice, aten.detach, aten.sub):
        return traces[0]
    only_edges = not any(isinstance(trace, Rows) for trace in traces)
    if only_edges and call.operation.pointwise:
        return _edges_of_pointwise(traces, call.out, call.graph)
    result = RULES[packet](call) if packet in RULES else REFUSED
    return None if only_edges and result is REFUSED else result


def _edges_of_pointwise(traces: list[Trace], out: Any, graph: RowGraph) -> Result:
    """Return the edges of the result of an element-wise operation: those of its arguments, if they agree."""
    edges = [trace for trace in traces if isinstance(trace, Edges)]
    if not edges or not isinstance(out, Tensor):
        return None
    ids = edges[0].ids
    for other in (trace.ids for trace in edges[1:] if trace.ids is not ids):
        same = ids.shape == other.shape and ids.data_ptr() == other.data_ptr() and ids.stride() == other.stride()
        if not same:
            graph.by_values = True  # they may agree on one graph and differ on another
            if not torch.equal(ids, other):
                return None
    return edges[0]._replace(ids=with_dims(ids, out.dim()))


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values, and in lists and tuples of them."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += tensors_in(value)
    return tensors
