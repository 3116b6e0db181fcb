"""Make a failing case small: drop operations, nodes, edges, masks, channels while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .case import Case, InvalidCaseError, Op, shapes, validate
from .draw import without_unused


def shrink(case: Case, still_fails: Callable[[Case], bool], attempts: int = 600) -> Case:
    """Return a small case that still fails; ``still_fails`` is asked ``attempts`` times at most."""
    progress = True
    while progress:
        progress = False
        for smaller in smaller_cases(case):
            if attempts <= 0:
                return case
            attempts -= 1
            if still_fails(smaller):
                case, progress = smaller, True
                break
    return case


def smaller_cases(case: Case) -> Iterator[Case]:
    """Yield the valid cases that are one step smaller, those that save the most first."""
    for candidate in _candidates(case):
        try:
            fitted = _fit_targets(candidate)
            validate(fitted)
        except InvalidCaseError:
            continue
        if fitted != case:
            yield fitted


def _fit_targets(case: Case) -> Case:
    """Cut the targets, and the batch, to what is left."""
    level = shapes(case)[-1].level
    asked = case.num_graphs if level == "graph" and not case.many else len(case.masks)
    return replace(case, targets=(case.targets * asked)[:asked])


def _candidates(case: Case) -> Iterator[Case]:
    for length in range(1, len(case.ops)):
        yield without_unused(replace(case, ops=case.ops[:length]))
    yield without_unused(case)
    for number in range(len(case.ops), 0, -1):
        yield from _without_op(case, number)
    if case.num_graphs > 1:
        for graph in range(case.num_graphs):
            yield _with_nodes(case, [n for n, own in enumerate(case.graph_of) if own != graph])
    for node in range(len(case.x)):
        yield _with_nodes(case, [n for n in range(len(case.x)) if n != node])
    for edge in range(len(case.edges)):
        yield _with_edges(case, [e for e in range(len(case.edges)) if e != edge])
    for number in range(len(case.masks) if len(case.masks) > 1 else 0):
        kept = [k for k in range(len(case.masks)) if k != number]
        yield replace(case, masks=tuple(case.masks[k] for k in kept), targets=tuple(case.targets[k] for k in kept))
    if case.many and len(case.masks) == 1:
        yield replace(case, many=False)
    if case.channels > 1:
        yield replace(case, channels=case.channels - 1)
    if len(case.x[0]) > 1:
        yield replace(case, x=tuple(row[:-1] for row in case.x))
    yield replace(case, attributes=())
    if case.attributes and len(case.attributes[0]) > 1:
        yield replace(case, attributes=tuple(row[:-1] for row in case.attributes))
    if case.num_graphs == 1 and case.batch is not None:
        yield replace(case, batch=None)
    yield replace(case, masks=tuple((1.0,) * len(case.edges) for _ in case.masks))
    yield replace(case, x=tuple((1.0,) * len(row) for row in case.x))
    yield replace(case, log_probabilities=False)
    yield replace(case, field="distinct")
    for name in case.attributed if len(case.attributed) > 1 else ():
        yield replace(case, mask_type="_and_".join(one for one in case.attributed if one != name))
    yield replace(case, mask_type="edge")
    yield replace(case, targets=tuple((0, 0) for _ in case.targets))
    for number, op in enumerate(case.ops, start=1):
        for simpler in _simpler_ops(op):
            yield replace(case, ops=(*case.ops[: number - 1], simpler, *case.ops[number:]))


def _without_op(case: Case, number: int) -> Iterator[Case]:
    """Put each input of an operation in the place of its result."""
    for kept in case.ops[number - 1].inputs:
        moved = {number: kept} | {k: k - 1 for k in range(number + 1, len(case.ops) + 1)}
        ops = [op for k, op in enumerate(case.ops, start=1) if k != number]
        yield replace(
            case, ops=tuple(replace(op, inputs=tuple(moved.get(k, k) for k in op.inputs)) for op in ops)
        )  # fmt: skip


def _with_nodes(case: Case, nodes: list[int]) -> Case:
    """Keep some nodes, and the edges between them."""
    new = {node: k for k, node in enumerate(nodes)}
    case = _with_edges(case, [e for e, edge in enumerate(case.edges) if edge[0] in new and edge[1] in new])
    graphs = sorted({case.graph_of[node] for node in nodes})
    return replace(
        case,
        x=tuple(case.x[node] for node in nodes),
        edges=tuple((new[a], new[b]) for a, b in case.edges),
        batch=None if case.batch is None else tuple(graphs.index(case.batch[node]) for node in nodes),
        targets=tuple((new.get(row % len(case.x), 0), column) for row, column in case.targets),
    )


def _with_edges(case: Case, edges: list[int]) -> Case:
    return replace(
        case,
        edges=tuple(case.edges[e] for e in edges),
        masks=tuple(tuple(mask[e] for e in edges) for mask in case.masks),
        attributes=tuple(case.attributes[e] for e in edges) if case.attributes else (),
    )


def _simpler_ops(op: Op) -> Iterator[Op]:
    simple = {
        "spelling": 0, "flow": "source_to_target", "heads": 1, "concat": True, "root_weight": False, "function": "relu",
        "add_self_loops": False, "normalize": False, "aggr": "sum", "inplace": False, "bias": False,
        "train_eps": False,
    }  # fmt: skip
    simple["kind"] = "sum" if op.kind == "attributed" else "copy"
    simple["hand"] = "recognized" if op.kind == "own" else "frozen"
    for name, value in op.options.items():
        if value != simple[name]:
            yield replace(op, options={**op.options, name: simple[name]})
