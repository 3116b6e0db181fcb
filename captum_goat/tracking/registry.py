"""The register of rules: how each tensor operation moves, merges or makes rows.

A rule is also a licence: an operation without one is refused when its result matters (see
:class:`captum_goat.tracking.row_tracker.RowTracker`). So only operations that are linear in what depends on the
edges, or products of such things, which stay polynomials, have rules in :mod:`captum_goat.tracking.moves` and
:mod:`captum_goat.tracking.linear`. The rules in :mod:`captum_goat.tracking.nonlinear` are no licences: they only say
which rows the result depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking.operations import Operation
from captum_goat.tracking.row_graph import Edges, RowGraph, Rows, Trace, Unsupported, broken_of
from captum_goat.tracking.row_ids import with_dims

Result = Trace | list[Trace | None] | None


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
DEPENDENCE: dict[Any, Rule] = {}  # of operations that are not linear


def rule(*operations: Any) -> Callable[[Rule], Rule]:
    """Register a rule for operations; it returns ``REFUSED`` for calls that it refuses."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, function))
        return function

    return register


def depends(*operations: Any) -> Callable[[Rule], Rule]:
    """Register what the results of operations that are not linear depend on."""

    def register(function: Rule) -> Rule:
        DEPENDENCE.update(dict.fromkeys(operations, function))
        return function

    return register


def moves(*operations: Any) -> Callable[[Callable[[Call, Tensor], Any]], Rule]:
    """Register a rule for operations that only move the entries of their first argument.

    The decorated function does to the ids what the operation does to the tensor.
    """

    def register(function: Callable[[Call, Tensor], Any]) -> Rule:
        def apply(call: Call) -> Result:
            trace = call.trace(call.args[0])
            if not isinstance(trace, Edges | Rows):
                return None  # an index was traced, but no value
            moved = function(call, trace.ids)
            if isinstance(moved, list | tuple):
                return [trace._replace(ids=ids) for ids in moved]
            return trace._replace(ids=moved)

        MOVES.update(operations)
        return rule(*operations)(apply)

    return register


def joined(rows: Sequence[Rows], ids: Tensor, *, constants: bool) -> Rows:
    """Return rows with ids that come from several tensors, each entry from one of them; constants may be others."""
    sources: frozenset[int] = frozenset().union(*(each.sources for each in rows))
    frozen = max([each.frozen for each in rows] + [0] * constants)
    degree, gates = max(each.degree for each in rows), max(each.gates for each in rows)
    marks: frozenset[str] = frozenset().union(*(each.marks for each in rows))
    return Rows(ids, sources, degree, gates, frozen, broken_of(rows), marks)


def edges_of_pointwise(traces: list[Trace], out: Any, graph: RowGraph) -> Result:
    """Return the edges of the result of an element-wise operation: those of its arguments, if they agree."""
    edges = [trace for trace in traces if isinstance(trace, Edges)]
    if not edges or not isinstance(out, Tensor):
        return None
    ids = edges[0].ids
    for other in edges[1:]:
        if not _is_view_of_same(ids, other.ids):
            graph.by_values = True  # on another graph they may agree, or not
            if not torch.equal(ids, other.ids):
                return None
    return edges[0]._replace(ids=with_dims(ids, out.dim()))


def _is_view_of_same(one: Tensor, other: Tensor) -> bool:
    same = one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
    return one is other or same


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among arguments of an operation, or in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found
