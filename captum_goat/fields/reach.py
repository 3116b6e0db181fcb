"""Which edges reach which rows of a small graph, as one matrix per tensor, found by the tape of a pass alone.

Rows are the entries of a tensor along dimension 0. Functions that mix them in other ways than the ones below have no
rule here: then the rows of a pass are followed (:mod:`captum_goat.tracking.program`). Whether a tape tells the same as
rows is compared once per model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.fields.small_fields import SmallFields
from captum_goat.rules.registry import Factors
from captum_goat.tracking import Messages, RowGraph, Rows
from captum_goat.tracking.registry import by_names
from captum_goat.tracking.row_graph import NO_ROW
from captum_goat.tracking.tape import Slot, Step, Tape, Zeros, rows_of_index


class Reach(NamedTuple):
    """The edges that reach each row of a tensor."""

    matrix: Tensor  # ``[rows, E]``, above 0 where an edge reaches a row: the number of paths
    dims: int  # the dimensions of the tensor


class ReachPlan(NamedTuple):
    """Which calls of a tape make rows that other edges reach than those of their arguments."""

    places: list[int]  # of the calls, on the tape
    same: dict[int, list[int]]  # by the number of a result, those that the same edges reach, itself included
    gates: dict[int, int]  # by the numbers of calls of ReLUs, those of their results


class ReachedRows(NamedTuple):
    """The rows of gates and of the output, and which edges reach them."""

    graph: RowGraph  # with the reach of all rows, without blocks
    # by the number of the call, the ids of the rows, and which of them some edge reaches
    gates: dict[int, tuple[Tensor, Tensor]]
    output: Tensor  # the ids of the rows of the output
    full: bool  # whether some edge reaches each row

    def factors(self, number: int, values: Tensor) -> Factors:
        """Return the gates of a call."""
        ids, variable = self.gates[number]
        return Factors(values, Rows(ids, frozenset(), 1, 1), variable, gates=True, full=self.full)


_Reached = Mapping[int, Reach]  # by the numbers of results
_Rule = Callable[[_Reached, Step], Reach | None]
_RULES: dict[Any, _Rule] = {}
_rule = by_names(_RULES)


def plan_reach(
    tape: Tape,  # the calls of a pass whose rows were followed
    sites: Sequence[Any],  # where the mask entered
    gates: Mapping[int, Factors],  # by the numbers of the calls of ReLUs
    left_out: int | None,  # the number of the call of a last softmax that is left out, if any
    output: Rows,
    graph: RowGraph,
    num_edges: int,
) -> ReachPlan | None:
    """Return the plan of passes that make the calls of a tape; ``None`` if that does not tell what rows do."""
    reached, plan, first_with = dict[int, Reach](), ReachPlan([], {}, {}), dict[int, int]()
    for place, step in enumerate(tape.steps):
        call = None if step.masks else step.number
        is_frozen = call is not None and (call in gates or call == left_out)
        result = _first(reached, step) if is_frozen else _made_by(reached, step, sites, num_edges)
        if result is None or len(step.results) != 1:
            return None
        (number,) = step.results
        reached[number] = result
        if id(result) not in first_with:
            first_with[id(result)] = number
            plan.places.append(place)
        plan.same.setdefault(first_with[id(result)], []).append(number)
        if call is not None and call in gates:
            plan.gates[call] = number
    rows = find_reach(plan, tape, sites, num_edges)
    if rows is None or rows.graph.reach is None or rows.gates.keys() != gates.keys():
        return None
    followed, found = SmallFields(graph, torch.ones(num_edges, device=output.ids.device)).reach(), rows.graph.reach
    pairs = [(factors.rows.ids, rows.gates[number][0]) for number, factors in gates.items()] + [
        (output.ids, rows.output)
    ]
    return plan if all(a.shape == b.shape and torch.equal(followed[a], found[b]) for a, b in pairs) else None


def find_reach(plan: ReachPlan, tape: Tape, sites: Sequence[Any], num_edges: int) -> ReachedRows | None:
    """Return the edges that reach gates and the output of a pass; ``None`` if its calls do not fit the plan."""
    reached = dict[int, Reach]()
    for place in plan.places:
        step = tape.steps[place]
        result = _made_by(reached, step, sites, num_edges)
        if result is None:
            return None
        for number in plan.same[step.results[0]]:
            reached[number] = result
    return _numbered({call: reached[number] for call, number in plan.gates.items()}, reached[tape.output])


def _made_by(reached: _Reached, step: Step, sites: Sequence[Any], num_edges: int) -> Reach | None:
    """Return the reach of the result of a call."""
    if step.masks:
        return _cross(reached, step, sites[step.number or 0], num_edges)
    rule = _RULES.get(step.function)
    return None if rule is None else rule(reached, step)


def _numbered(gates: dict[int, Reach], output: Reach) -> ReachedRows:
    """Number the rows; tensors that the same edges reach have the same rows."""
    distinct = {id(reach.matrix): reach.matrix for reach in (*gates.values(), output)}
    matrices, graph = [*distinct.values()], RowGraph()
    matrix = torch.cat([*matrices, output.matrix.new_zeros(1, output.matrix.size(1))]).clamp_(max=1.0)
    graph.reach, graph.num_rows = matrix, len(matrix) - 1
    reaching, ids = matrix[:-1].amax(dim=1) > 0, torch.arange(graph.num_rows, device=matrix.device)
    full = bool(reaching.all())
    ids, sizes = ids if full else ids.where(reaching, NO_ROW), [len(matrix) for matrix in matrices]
    parts = dict(zip(distinct, zip(ids.split(sizes), reaching.split(sizes), strict=True), strict=True))
    views: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def rows_of(reach: Reach) -> tuple[Tensor, Tensor]:
        if (kind := (id(reach.matrix), reach.dims)) not in views:
            shape = [-1] + [1] * (reach.dims - 1)
            views[kind] = parts[kind[0]][0].view(shape), parts[kind[0]][1].view(shape)
        return views[kind]

    return ReachedRows(graph, {number: rows_of(reach) for number, reach in gates.items()}, rows_of(output)[0], full)


def _first(reached: _Reached, step: Step) -> Reach | None:
    """Return the reach of the first argument; ``None`` if another one depends on edges too."""
    slots = [value.number for value in (*step.args, *step.kwargs.values()) if isinstance(value, Slot)]
    is_first = len(slots) == 1 and (not step.args or isinstance(step.args[0], Slot))
    return reached[slots[0]] if is_first else None


def _cross(reached: _Reached, step: Step, site: Any, num_edges: int) -> Reach | None:
    """Return the reach of messages behind the mask."""
    if not isinstance(site, Messages) or site.shape[0] != -1:
        return None
    messages, edges, dims = step.args[0], site.edges, len(site.shape)
    known = reached[messages.number] if isinstance(messages, Slot) else None
    if known is not None and known.dims != dims:
        return None
    if edges is not site.whole:  # some messages may be over no edge
        crossed = torch.zeros(edges.numel(), num_edges + 1, device=edges.device)
        crossed = crossed.scatter_(1, (edges % (num_edges + 1)).view(-1, 1), 1.0)[:, :-1]
        return Reach(crossed if known is None else known.matrix + crossed, dims)
    if known is None:
        return Reach(torch.eye(num_edges, device=edges.device), dims)
    return Reach(known.matrix.scatter(1, edges.view(-1, 1), 1.0), dims)


@_rule("linear matmul __matmul__ batch_norm dropout clone contiguous neg")
def _row_by_row(reached: _Reached, step: Step) -> Reach | None:
    first = _first(reached, step)
    others = [value for value in step.args[1:2] if isinstance(value, Tensor) and value.dim() > 2]
    return None if first is None or first.dims < 2 or others else first


@_rule("add sub mul div __add__ __radd__ __sub__ __mul__ __rmul__ __truediv__")
@_rule("add_ sub_ mul_ div_ __iadd__ __isub__ __imul__ __itruediv__")
def _entry_by_entry(reached: _Reached, step: Step) -> Reach | None:
    values = step.args[:2]
    parts = [reached[value.number] for value in values if isinstance(value, Slot)]
    constants = [value for value in values if isinstance(value, Tensor)]
    if not parts or any(isinstance(value, Slot | Tensor) for value in (*step.args[2:], *step.kwargs.values())):
        return None
    first, *others = parts
    if any(other.dims != first.dims for other in others) or any(value.dim() > first.dims for value in constants):
        return None
    matrix = first.matrix
    for other in others:
        matrix = matrix if other.matrix is matrix else matrix + other.matrix
    rows = max([len(matrix)] + [len(value) for value in constants if value.dim() == first.dims])
    if matrix is first.matrix and rows == len(matrix):
        return first
    return Reach(matrix.expand(rows, -1), first.dims)


@_rule("index_select")
def _index_select(reached: _Reached, step: Step) -> Reach | None:
    first = _first(reached, step)
    if first is None or len(step.args) != 3 or step.args[1] not in (0, -first.dims) or step.args[2].dim() != 1:
        return None
    return first._replace(matrix=first.matrix.index_select(0, step.args[2]))


@_rule("__getitem__")
def _getitem(reached: _Reached, step: Step) -> Reach | None:
    first, index = _first(reached, step), step.args[1]
    if first is None or not isinstance(index, Tensor) or index.dtype != torch.long or index.dim() != 1:
        return None
    return first._replace(matrix=first.matrix[index])


@_rule("scatter_add scatter_add_")
def _scatter_add(reached: _Reached, step: Step) -> Reach | None:
    if len(step.args) != 4 or step.kwargs:
        return None
    zeros, dim, index, source = step.args
    if not isinstance(zeros, Zeros) or not isinstance(index, Tensor) or not isinstance(source, Slot):
        return None
    first = reached[source.number]
    if index.dim() != first.dims or dim not in (0, -first.dims) or (index := rows_of_index(index)) is None:
        return None
    if index.numel() != len(first.matrix):
        return None
    matrix = first.matrix.new_zeros(zeros.size[0], first.matrix.size(1))
    return first._replace(matrix=matrix.index_put_((index,), first.matrix, accumulate=True))


@_rule("mean sum")
def _reduce(reached: _Reached, step: Step) -> Reach | None:
    first, dim = _first(reached, step), step.kwargs.get("dim", step.args[1] if len(step.args) > 1 else None)
    keeps = step.kwargs.get("keepdim", len(step.args) > 2 and step.args[2])
    if first is None or dim not in (0, -first.dims) or keeps is not True:
        return None
    return first._replace(matrix=first.matrix.sum(dim=0, keepdim=True))
