"""A fuzz case as plain data: the operations of a model, a graph, masks and targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CONVS = ("gcn", "sage", "graph_conv", "gin", "gat", "own")
WITH_ATTRIBUTES = ("gine", "attributed")  # convolutions whose messages read edge attributes
UNARY = ("linear", "bias", "batch_norm", "layer_norm", "normalize", "dropout", "activation")
BINARY = ("add", "mul", "maximum", "cat")
FROZEN = ("div", "weigh")  # a / (1 + b * b) and a * exp(-b * b)
KINDS = (*CONVS, *UNARY, *BINARY, "pool", "broadcast")
# Drawn by ``draw_extended_case`` only. "hand" and "std" become "own" or "gat" with other options: layers that pass
# messages by their own code, and standard deviations of messages.
EXTENDED = (*WITH_ATTRIBUTES, *FROZEN, "gru", "hand", "std")
OF_TWO = (*BINARY, *FROZEN, "gru")
MESSAGES = (*CONVS, *WITH_ATTRIBUTES)
# Operations that have parameters, hence a layer that can be reused.
LAYERED = (*MESSAGES, "linear", "bias", "batch_norm", "layer_norm", "gru")


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        kind: One of ``KINDS``.
        inputs: The values that it reads: 0 is x, k the result of the k-th operation, counted from 1.
        layer: The number of its layer; operations of the same number share one module.
        options: The arguments of the layer, or the spelling of the operation.
    """

    kind: str
    inputs: tuple[int, ...]
    layer: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A model, a graph and what is asked.

    Attributes:
        ops: The model; the last operation gives the output.
        channels: The output channels of layers.
        seed: Of the parameters.
        x: The node features, by node.
        edges: The directed edges (edge_index[0], edge_index[1]).
        batch: The graph of each node; None if the model is called without ``batch``.
        masks: One row of numbers per mask.
        many: Whether the masks are given as [B, E], else there is one, of shape [E].
        targets: (row, column) of the output for each graph of a batch, else for each mask; taken modulo its shape.
        field: "distinct" or "repeated".
        mask_type: What is attributed: "node", "edge", "edge_attr", or several with "_and_" between them, in this order.
        log_probabilities: Whether the model ends with a log-softmax, which is left out of the explanation.
        attributes: The attributes of each edge; empty if the model is called without.
    """

    ops: tuple[Op, ...]
    channels: int
    seed: int
    x: tuple[tuple[float, ...], ...]
    edges: tuple[tuple[int, int], ...]
    batch: tuple[int, ...] | None
    masks: tuple[tuple[float, ...], ...]
    many: bool
    targets: tuple[tuple[int, int], ...]
    field: str = "distinct"
    mask_type: str = "edge"
    log_probabilities: bool = False
    attributes: tuple[tuple[float, ...], ...] = ()

    @property
    def graph_of(self) -> tuple[int, ...]:
        """The graph of each node."""
        return (0,) * len(self.x) if self.batch is None else self.batch

    @property
    def attributed(self) -> tuple[str, ...]:
        """What is attributed: some of node, edge and edge_attr, in this order."""
        return tuple(self.mask_type.split("_and_"))

    @property
    def num_graphs(self) -> int:
        return max(self.graph_of) + 1


class Shape(NamedTuple):
    """The shape of a value: a row per node or per graph, and its channels."""

    level: str
    width: int


class InvalidCaseError(ValueError):
    """The case describes no model that could be built."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise InvalidCaseError(reason)


def out_width(op: Op, width: int, channels: int) -> int:
    """Return the output channels of an operation of one input."""
    if op.kind == "gat":
        return channels * op.options["heads"] if op.options["concat"] else channels
    return channels if op.kind in ("gcn", "sage", "graph_conv", "gin", "gine", "linear") else width


def shapes(case: Case) -> list[Shape]:
    """Return the shape of x and of every operation's result; raise InvalidCaseError where operations do not fit."""
    _require(bool(case.x) and bool(case.x[0]) and case.channels > 0, "something is empty")
    result = [Shape("node", len(case.x[0]))]
    layers: dict[int, tuple[str, int, Mapping[str, Any]]] = {}
    for number, op in enumerate(case.ops, start=1):
        _require(op.kind in (*KINDS, *EXTENDED), f"there is no operation {op.kind!r}")
        _require(len(op.inputs) == (2 if op.kind in OF_TWO else 1), f"wrong number of inputs of {op.kind}")
        _require(all(0 <= k < number for k in op.inputs), "operations read values before them")
        first = result[op.inputs[0]]
        _require(op.kind not in (*MESSAGES, "pool") or first.level == "node", f"{op.kind} reads nodes")
        _require(op.kind != "broadcast" or first.level == "graph", "broadcast reads graphs")
        _require(op.kind not in WITH_ATTRIBUTES or bool(case.attributes), "there are no edge attributes")
        loops, normalizes = op.options.get("add_self_loops"), op.options.get("normalize", True)
        _require(not loops or normalizes, "GCN adds self-loops only where it normalises")
        if op.kind in LAYERED:
            layer = (op.kind, first.width, op.options)
            _require(layers.setdefault(op.layer, layer) == layer, "one layer of two kinds")
        if op.kind in OF_TWO:
            second = result[op.inputs[1]]
            _require(first.level == second.level, "levels differ")
            _require(op.kind == "cat" or first.width == second.width, "widths differ")
            result.append(Shape(first.level, first.width + second.width if op.kind == "cat" else first.width))
        elif op.kind in ("pool", "broadcast"):
            result.append(Shape("graph" if op.kind == "pool" else "node", first.width))
        else:
            result.append(Shape(first.level, out_width(op, first.width, case.channels)))
    return result


def used(case: Case) -> set[int]:
    """Return the values that have a part in the output."""
    result, waiting = set(), [len(case.ops)]
    while waiting:
        value = waiting.pop()
        if value not in result:
            result.add(value)
            waiting += case.ops[value - 1].inputs if value else ()
    return result


def overwritten(case: Case) -> dict[int, int]:
    """Return, for each value that an operation changes in place, the number of that operation."""
    return {op.inputs[0]: number for number, op in enumerate(case.ops, start=1) if op.options.get("inplace")}


def validate(case: Case) -> list[Shape]:
    """Return the shapes; raise InvalidCaseError if the case cannot be built, run or asked."""
    _require(bool(case.ops), "no operation")
    result = shapes(case)
    reached = used(case)
    _require(any(case.ops[k - 1].kind in MESSAGES for k in reached if k), "no message passing")
    last = case.ops[-1]
    while last.kind == "dropout" and last.inputs[0]:
        last = case.ops[last.inputs[0] - 1]
    _require(last.options.get("function") != "sigmoid", "a sigmoid at the very end is left out of explanations")
    deviating: set[int] = set()
    for number, op in enumerate(case.ops, start=1):
        if op.options.get("aggr") == "std" or deviating.intersection(op.inputs):
            deviating.add(number)
        multiplies = op.kind in ("mul", "gru") or op.options.get("kind") == "product"
        _require(not multiplies or not deviating.intersection(op.inputs), "a root is frozen as a factor of others")
    for value, number in overwritten(case).items():
        _require(value > 0, "x is changed in place")
        source = case.ops[value - 1]
        fresh = source.kind in ("gcn", "graph_conv", "gin", "gat", "linear", "bias", "add", "cat")
        _require(fresh, f"autograd or another value needs the result of {source.kind}")
        readers = [k for k, op in enumerate(case.ops, start=1) if value in op.inputs and k < number]
        _require(not readers, "the value was read before it is changed")
    graph_of = case.graph_of
    _require(len(graph_of) == len(case.x) and sorted(set(graph_of)) == list(range(case.num_graphs)), "bad batch")
    _require(list(graph_of) == sorted(graph_of), "bad batch")
    nodes = range(len(case.x))
    _require(all(a in nodes and b in nodes and graph_of[a] == graph_of[b] for a, b in case.edges), "bad edges")
    _require(bool(case.masks) and all(len(mask) == len(case.edges) for mask in case.masks), "bad masks")
    _require("edge" in case.attributed or set(case.masks[0]) <= {1.0}, "edges are constants")
    _require(not case.attributes or len(case.attributes) == len(case.edges), "bad attributes")
    attributed = any(case.ops[k - 1].kind in WITH_ATTRIBUTES for k in reached if k)
    _require("edge_attr" not in case.attributed or attributed, "no message reads the attributes")
    _require(case.many or len(case.masks) == 1, "several masks in one row")
    _require(not case.many or (case.num_graphs == 1 and case.mask_type == "edge"), "[B, E] is for one graph")
    batched = result[-1].level == "graph" and not case.many
    _require(len(case.targets) == (case.num_graphs if batched else len(case.masks)), "bad targets")
    return result
