"""Draw random cases; equal seeds give equal cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from .case import (
    CONVS,
    FROZEN,
    MESSAGES,
    WITH_ATTRIBUTES,
    Case,
    InvalidCaseError,
    Op,
    Shape,
    overwritten,
    shapes,
    used,
    validate,
)

FLOWS = ("source_to_target", "source_to_target", "target_to_source")


def draw_case(seed: int, number: int) -> Case:
    """Draw the case of a number in the sequence of a seed."""
    return _first_valid(Random(f"{seed}/{number}"), MASK_TYPES, WEIGHTS)


def draw_extended_case(seed: int, number: int) -> Case:
    """Draw a case with edge attributes, frozen factors, GRU cells, messages by hand and standard deviations, too.

    These are a sequence of their own, so that the numbers of the other cases stay what they were.
    """
    return _first_valid(Random(f"extended/{seed}/{number}"), EXTENDED_MASK_TYPES, EXTENDED_WEIGHTS)


def _first_valid(random: Random, mask_types: Mapping[str, int], weights: Mapping[str, int]) -> Case:
    while True:
        case = _draw(random, mask_types, weights)
        try:
            validate(case)
        except InvalidCaseError:
            continue
        return case


def _draw(random: Random, mask_types: Mapping[str, int], weights: Mapping[str, int]) -> Case:
    mask_type = random.choices(tuple(mask_types), tuple(mask_types.values()))[0]
    x, edges, batch = _graph(random, mask_type)
    many = mask_type == "edge" and (batch is None or max(batch) == 0) and random.random() < 0.35
    masks = tuple(_mask(random, len(edges)) for _ in range(random.randint(1, 3) if many else 1))
    if "edge" not in mask_type.split("_and_"):
        masks = ((1.0,) * len(edges),)
    channels = random.choice((1, 2, 2, 3, 4))
    case = Case(
        (), channels, random.randrange(10**6), x, edges, batch, masks, many, (),
        random.choice(("distinct", "distinct", "repeated")), mask_type, random.random() < 0.1,
    )  # fmt: skip
    if weights is EXTENDED_WEIGHTS and edges:
        case = replace(case, attributes=_attributes(random, len(edges)))
    case = _model(random, case, weights)
    graph_level = shapes(case)[-1].level == "graph"
    asked = case.num_graphs if graph_level and not many else len(masks)
    targets = tuple((random.randrange(len(x)), random.randrange(8)) for _ in range(asked))
    return replace(case, targets=targets)


def _number(random: Random) -> float:
    return round(random.gauss(0, 1), 2)


def _graph(random: Random, mask_type: str) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[int, int], ...], Any]:
    """Draw one to four directed graphs, with self-loops, duplicates, isolated nodes; some without edges."""
    sizes = [random.choice((1, 2, 3, 3, 4, 5, 6)) for _ in range(random.choice((1, 1, 1, 2, 3, 4)))]
    edges: list[tuple[int, int]] = []
    first = 0
    for size in sizes:
        own = []
        for _ in range(random.choice((0, 1, 2, 4, 6, 9)) if size > 1 else random.choice((0, 0, 1))):
            source, target = first + random.randrange(size), first + random.randrange(size)
            if source == target and random.random() < 0.5:
                continue
            own.append((source, target))
            if random.random() < 0.25:
                own.append((target, source))
            if random.random() < 0.1:
                own.append(random.choice(own))
        edges += own
        first += size
    random.shuffle(edges)
    width = random.choice((1, 2, 2, 3))
    zeros = 0.2 if mask_type != "edge" else 0.05
    x = tuple(tuple(0.0 if random.random() < zeros else _number(random) for _ in range(width)) for _ in range(first))
    batch = tuple(graph for graph, size in enumerate(sizes) for _ in range(size))
    return x, tuple(edges), batch if len(sizes) > 1 or random.random() < 0.5 else None


def _attributes(random: Random, edges: int) -> tuple[tuple[float, ...], ...]:
    """Draw edge attributes, some of them 0."""
    width = random.choice((1, 2, 2, 3))
    return tuple(tuple(0.0 if random.random() < 0.2 else _number(random) for _ in range(width)) for _ in range(edges))


def _mask(random: Random, edges: int) -> tuple[float, ...]:
    """Draw a mask of ones, of zeros and ones, or of fractions, negative numbers and zeros."""
    kind = random.choice(("ones", "binary", "fractions", "any"))
    numbers = {
        "ones": lambda: 1.0,
        "binary": lambda: float(random.random() < 0.6),
        "fractions": lambda: round(random.random(), 2),
        "any": lambda: random.choice((0.0, 1.0, -1.0, _number(random), 2 * _number(random))),
    }
    return tuple(numbers[kind]() for _ in range(edges))


def _options(random: Random, kind: str) -> dict[str, Any]:
    flow = random.choice(FLOWS)
    if kind == "gcn":
        normalize = random.random() < 0.7
        loops = normalize and random.random() < 0.7
        return {"normalize": normalize, "add_self_loops": loops, "bias": random.random() < 0.8, "flow": flow}
    if kind == "sage":
        aggr = random.choice(("mean", "sum", "max"))
        return {"aggr": aggr, "root_weight": random.random() < 0.7, "normalize": random.random() < 0.1, "flow": flow}
    if kind == "graph_conv":
        return {"aggr": random.choice(("sum", "sum", "mean", "max")), "flow": flow}
    if kind in ("gin", "gine"):
        return {"train_eps": random.random() < 0.5, "flow": flow}
    if kind == "gat":
        heads = random.choice((1, 2))
        return {
            "heads": heads, "concat": random.random() < 0.5, "add_self_loops": random.random() < 0.6, "flow": flow
        }  # fmt: skip
    if kind == "own":
        message = random.choice(("copy", "difference", "relu", "product"))
        return {"kind": message, "aggr": random.choice(("sum", "mean", "max")), "flow": flow}
    if kind == "attributed":
        message = random.choice(("sum", "product"))
        return {"kind": message, "aggr": random.choice(("sum", "mean", "max")), "flow": flow}
    if kind == "linear":
        return {"bias": random.random() < 0.7}
    if kind == "activation":
        smooth = random.choice(("tanh", "sigmoid", "elu", "leaky_relu", "gelu", "silu", "softplus"))
        return {"function": "relu" if random.random() < 0.7 else smooth, "spelling": random.randrange(7)}
    if kind == "pool":
        return {"aggr": random.choice(("mean", "sum", "max"))}
    return (
        {"spelling": random.randrange(4)}
        if kind in ("add", "mul", "cat", "maximum", "dropout", "broadcast", *FROZEN)
        else {}
    )


WEIGHTS = {
    **dict.fromkeys(CONVS, 4), "activation": 16, "linear": 4, "bias": 1, "batch_norm": 2, "layer_norm": 1,
    "normalize": 1, "dropout": 1, "add": 5, "mul": 2, "maximum": 2, "cat": 3, "pool": 4, "broadcast": 8,
}  # fmt: skip
EXTENDED_WEIGHTS = WEIGHTS | dict.fromkeys(WITH_ATTRIBUTES, 8) | dict.fromkeys((*FROZEN, "gru", "std"), 5)
EXTENDED_WEIGHTS |= {"hand": 8}
MASK_TYPES = {"edge": 8, "node": 1, "node_and_edge": 1}
EXTENDED_MASK_TYPES = MASK_TYPES | {
    "edge_attr": 3, "edge_and_edge_attr": 3, "node_and_edge_attr": 2, "node_and_edge_and_edge_attr": 2
}  # fmt: skip


def _model(random: Random, case: Case, by_kind: Mapping[str, int]) -> Case:
    """Draw operations one by one, until a last one; what the output does not read is mostly left out."""
    kinds, weights = list(by_kind), list(by_kind.values())
    convs = 0
    for _ in range(random.randint(2, 14)):
        kind = random.choices(kinds, weights)[0]
        passes = kind in (*MESSAGES, "hand", "std")
        if (passes and convs == 4) or (kind == "gru" and any(op.kind == "gru" for op in case.ops)):
            continue
        op = _draw_op(random, case, kind)
        if op is None:
            continue
        convs += passes
        case = replace(case, ops=(*case.ops, op))
    if not convs:
        op = _draw_op(random, case, random.choice(CONVS))
        if op is not None:
            case = replace(case, ops=(*case.ops, op))
    if shapes(case)[-1].level == "node" and random.random() < 0.4:
        case = replace(case, ops=(*case.ops, Op("pool", (len(case.ops),), 0, _options(random, "pool"))))
    if random.random() < 0.5 or (case.ops and case.ops[-1].kind == "activation"):
        layer = len(case.ops) + 1
        case = replace(case, ops=(*case.ops, Op("linear", (layer - 1,), layer, {"bias": True})))
    return without_unused(case) if random.random() < 0.8 else case


def _draw_op(random: Random, case: Case, kind: str) -> Op | None:
    """Draw an operation that fits one of the last values; None if there is none."""
    known = shapes(case)
    level = {"pool": "node", "broadcast": "graph"}.get(kind, "node" if kind in (*MESSAGES, "hand", "std") else None)
    candidates = [k for k, shape in enumerate(known) if level in (None, shape.level)]
    if kind in FROZEN:
        candidates = [k for k in candidates if k in _moving(case)]
    if not candidates or (kind in WITH_ATTRIBUTES and not case.attributes):
        return None
    value = candidates[-1] if random.random() < 0.6 else random.choice(candidates)
    layer = len(case.ops) + 1
    if kind in ("hand", "std"):
        return _other_conv(random, kind, value, layer)
    options = _options(random, kind)
    twins = [op for op in case.ops if op.kind == kind and known[op.inputs[0]].width == known[value].width]
    if kind in (*MESSAGES, "linear", "batch_norm", "layer_norm", "bias") and twins and random.random() < 0.5:
        return replace(random.choice(twins), inputs=(value,))  # the same layer once more
    if kind == "activation" and options["function"] == "relu" and random.random() < 0.2:
        op = Op(kind, (value,), layer, options | {"inplace": True})
        return op if _is_valid_in_place(case, op) else Op(kind, (value,), layer, options)
    if kind in ("add", "mul", "maximum", "cat", *FROZEN, "gru"):
        partners = _partners(known, value, kind)
        if kind in FROZEN:
            partners = [k for k in partners if k not in _recognized(case)]
        if not partners or (known[value].width > 8 and kind == "cat"):
            return None
        inputs = [value, random.choice(partners)]
        if kind not in FROZEN:
            random.shuffle(inputs)
        return Op(kind, tuple(inputs), layer, options)
    return Op(kind, (value,), layer, options)


def _other_conv(random: Random, kind: str, value: int, layer: int) -> Op:
    """Draw a layer that passes its messages by its own code, or one that brings them together by their deviation."""
    if kind == "std":
        return Op("own", (value,), layer, _options(random, "own") | {"aggr": "std"})
    if random.random() < 0.6:
        hand = random.choice(("recognized", "declared", "module"))
        return Op("own", (value,), layer, _options(random, "own") | {"hand": hand})
    options = _options(random, "gat") | {"add_self_loops": False, "hand": random.choice(("frozen", "declared"))}
    return Op("gat", (value,), layer, options)


def _moving(case: Case) -> set[int]:
    """Return the values that depend on what is attributed: only these can be divided by something frozen."""
    result = {0} if "node" in case.attributed else set()
    for number, op in enumerate(case.ops, start=1):
        if op.kind == "own" and not case.edges:
            continue  # nothing is left of its input
        by_edges = op.kind in MESSAGES and "edge" in case.attributed and bool(case.edges)
        by_attributes = op.kind in WITH_ATTRIBUTES and "edge_attr" in case.attributed
        if by_edges or by_attributes or result.intersection(op.inputs):
            result.add(number)
    return result


def _recognized(case: Case) -> set[int]:
    """Return the values that depend on sums of messages by hand: dividing by them is refused, as a softmax is."""
    result: set[int] = set()
    for number, op in enumerate(case.ops, start=1):
        if op.options.get("hand") in ("recognized", "frozen") or result.intersection(op.inputs):
            result.add(number)
    return result


def _partners(known: list[Shape], value: int, kind: str) -> list[int]:
    level, width = known[value]
    return [
        k
        for k, shape in enumerate(known)
        if shape.level == level and (kind == "cat" or shape.width == width) and (k != value or kind == "mul")
    ]


def _is_valid_in_place(case: Case, op: Op) -> bool:
    with_conv = Op("own", (len(case.ops) + 1,), 0, {"kind": "copy", "aggr": "sum", "flow": FLOWS[0]})
    value = op.inputs[0]
    if value == 0 or value in overwritten(case) or shapes(case)[value].level != "node":
        return False
    targets = tuple((0, 0) for _ in case.masks)
    try:
        validate(replace(case, ops=(*case.ops, op, with_conv), targets=targets))
    except InvalidCaseError:
        return False
    return True


def without_unused(case: Case) -> Case:
    """Leave out the operations whose results have no part in the output."""
    kept = sorted(used(case) | set(_changing(case)))
    numbers = {value: k for k, value in enumerate(kept)}
    if 0 not in numbers:
        numbers = {0: 0} | {value: k + 1 for value, k in numbers.items()}
    ops = [case.ops[value - 1] for value in kept if value]
    return replace(case, ops=tuple(replace(op, inputs=tuple(numbers[k] for k in op.inputs)) for op in ops))


def _changing(case: Case) -> set[int]:
    """Return the operations that change in place a value that has a part in the output."""
    needed = used(case)
    return {number for value, number in overwritten(case).items() if value in needed}
