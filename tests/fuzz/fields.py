"""The referee's receptive fields: what can reach each entry of each value, as plain sets.

An entry's set holds ``("edge", hop, e)``, an edge and the number of graph edges crossed since, itself included;
``("step", k, e)``, an edge that was crossed in operation k;
``("row", n)``, a node whose attributed features flow into the entry; and ``("own", n)``, a node that its row stands
for: its own, or those that were pooled into it; and ``("attribute", hop, e)``, an edge whose attributed attributes flow
into the entry. What stands for several nodes has an edge, and its attributes, once, whatever the hops.
"""

from __future__ import annotations

from typing import NamedTuple

from .case import FROZEN, WITH_ATTRIBUTES, Case, Op, overwritten, shapes

Entry = frozenset[tuple[str | int, ...]]
Row = list[Entry]
Table = list[Row]
NOTHING: Entry = frozenset()
COUNTED = ("edge", "attribute")  # what has a hop


class Message(NamedTuple):
    """A message; ``edge`` is None for a self-loop that the layer adds, which is a constant."""

    source: int
    target: int
    edge: int | None


def messages(case: Case, op: Op) -> list[Message]:
    """List a layer's messages.

    Layers that add self-loops have one loop per node: the user's (the last, if there are several), else their own.
    """
    forwards = op.options["flow"] == "source_to_target"
    pairs = [(a, b) if forwards else (b, a) for a, b in case.edges]
    result = [Message(source, target, e) for e, (source, target) in enumerate(pairs)]
    if op.options.get("add_self_loops"):
        own = {message.source: message.edge for message in result if message.source == message.target}
        result = [message for message in result if message.source != message.target]
        result += [Message(node, node, own.get(node)) for node in range(len(case.x))]
    return result


def merge(*entries: Entry) -> Entry:
    """Return the set of what reads several entries; those that nothing attributed reaches are constants."""
    together = NOTHING.union(*(entry for entry in entries if any(item[0] != "own" for item in entry)))
    if sum(item[0] == "own" for item in together) > 1:
        return frozenset((item[0], 1, item[2]) if item[0] in COUNTED else item for item in together)
    return together


def merge_rows(*rows: Row) -> Row:
    """Merge rows channel by channel."""
    return [merge(*column) for column in zip(*rows, strict=True)]


def mixed(row: Row, width: int) -> Row:
    """Return a row of which every channel reads all channels of another."""
    return [merge(*row)] * width


def without_own(entry: Entry) -> Entry:
    return frozenset(item for item in entry if item[0] != "own")


def crossed(entry: Entry, edge: int | None, number: int) -> Entry:
    """Return what is behind a message, after it crossed its edge in operation ``number``."""
    if edge is None:
        return entry
    further = {(item[0], int(item[1]) + 1, item[2]) if item[0] in COUNTED else item for item in entry}
    return frozenset(further | {("edge", 1, edge), ("step", number, edge)})


class Fields:
    """The sets of all values, and of all gates and frozen factors.

    Attributes:
        factors: By (operation, name), for each entry of the factor in row-major order, what reaches it.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.factors: dict[tuple[int, str], list[Entry]] = {}
        width = len(case.x[0])
        features = ("row",) if "node" in case.attributed else ()
        values: list[Table] = [
            [[frozenset((kind, n) for kind in ("own", *features))] * width for n in range(len(case.x))]
        ]
        replaced = {number: value for value, number in overwritten(case).items()}
        widths = [shape.width for shape in shapes(case)]
        for number, op in enumerate(case.ops, start=1):
            self.number, self.width = number, widths[number]
            values.append(self.apply(op, [values[k] for k in op.inputs]))
            if number in replaced:
                values[replaced[number]] = values[number]

    def factor(self, name: str, table: Table) -> None:
        self.factors[self.number, name] = [entry for row in table for entry in row]

    def apply(self, op: Op, inputs: list[Table]) -> Table:
        """Return the sets of an operation's result."""
        h = inputs[0]
        if op.kind == "linear":
            return [mixed(row, self.width) for row in h]
        if op.kind in ("bias", "batch_norm", "dropout"):
            return h
        if op.kind == "activation":
            self.factor("gate", h)
            return h
        if op.kind in ("layer_norm", "normalize"):
            self.factor("frozen", [[merge(*row)] for row in h])
            return [mixed(row, self.width) for row in h]
        if op.kind == "cat":
            return [first + second for first, second in zip(*inputs, strict=True)]
        if op.kind in FROZEN:
            self.factor("frozen", inputs[1])
        if op.kind == "gru":
            return self.gru(inputs)
        if op.kind in ("add", "mul", "maximum", *FROZEN):
            result = [merge_rows(*rows) for rows in zip(*inputs, strict=True)]
            if op.kind == "maximum":
                self.factor("frozen", [row for _ in range(2) for row in result])
            return result
        if op.kind == "pool":
            return self.pool(op, h)
        if op.kind == "broadcast":
            return [h[graph] for graph in self.case.graph_of]
        return self.conv(op, h)

    def gru(self, inputs: list[Table]) -> Table:
        """Return the sets of a GRU cell, whose gates read all channels of input and state."""
        read = [merge_rows(*(mixed(row, self.width) for row in rows)) for rows in zip(*inputs, strict=True)]
        for name in ("gate reset", "gate update", "gate new"):
            self.factor(name, read)
        return [merge_rows(*rows) for rows in zip(read, inputs[1], strict=True)]

    def pool(self, op: Op, h: Table) -> Table:
        """Merge the rows of each graph."""
        result = []
        for graph in range(self.case.num_graphs):
            result.append(merge_rows(*(row for row, own in zip(h, self.case.graph_of, strict=True) if own == graph)))
        if op.options["aggr"] == "max":
            self.factor("frozen", [result[graph] for graph in self.case.graph_of])
        return result

    def conv(self, op: Op, h: Table) -> Table:
        """Return the sets of message passing: of what is sent and of a node's own row, where it is read."""
        sent = messages(self.case, op)
        if op.kind in ("gcn", "gat"):
            h = [mixed(row, self.width) for row in h]
        rows = self.attend(op, h, sent) if op.kind == "gat" else [h[m.source] for m in sent]
        if op.kind == "own" and op.options["kind"] in ("difference", "product"):
            rows = [merge_rows(h[m.source], h[m.target]) for m in sent]
        if op.kind in WITH_ATTRIBUTES and "edge_attr" in self.case.attributed:
            offers: Table = [
                [frozenset({("attribute", 1, m.edge)})] * len(row) for row, m in zip(rows, sent, strict=True)
            ]
            rows = [merge_rows(*pair) for pair in zip(rows, offers, strict=True)]
        if op.options.get("kind") == "relu" or op.kind == "gine":
            self.factor("message gate" if op.kind == "gine" else "gate", rows)
        rows = [
            [crossed(without_own(entry), m.edge, self.number) for entry in row]
            for row, m in zip(rows, sent, strict=True)
        ]
        collected: Table = []
        for node in range(len(h)):
            arrived = [row for row, m in zip(rows, sent, strict=True) if m.target == node]
            own: Entry = frozenset({("own", node)})
            collected.append([own.union(*(row[channel] for row in arrived)) for channel in range(len(h[0]))])
        if op.options.get("aggr") == "max":
            self.factor("frozen", [collected[m.target] for m in sent])
        if op.options.get("aggr") == "std":
            for name in ("gate clamp", "ratio", "kept"):
                self.factor(name, collected)
        return self.update(op, h, collected)

    def attend(self, op: Op, h: Table, sent: list[Message]) -> Table:
        """Return the sets of messages with coefficients, which read the rows of all rivals and of the target."""
        rows = []
        coefficients = []
        for message in sent:
            read = {message.target, *(rival.source for rival in sent if rival.target == message.target)}
            coefficient = merge(*(entry for node in read for entry in h[node]))
            coefficients.append([coefficient] * op.options["heads"])
            rows.append([merge(entry, coefficient) for entry in h[message.source]])
        self.factor("frozen", coefficients)
        return rows

    def update(self, op: Op, h: Table, collected: Table) -> Table:
        """Return the sets of a layer's output, made of what nodes have received and of their own rows."""
        if op.kind in ("sage", "graph_conv", "gin", "gine"):
            collected = [mixed(row, self.width) for row in collected]
        if op.kind in ("graph_conv", "gin", "gine") or op.options.get("root_weight"):
            roots = [mixed(row, self.width) for row in h]
            collected = [merge_rows(*rows) for rows in zip(collected, roots, strict=True)]
        if op.kind in ("gin", "gine"):
            self.factor("gate", collected)
        if op.kind == "sage" and op.options["normalize"]:
            self.factor("norm", [[merge(*row)] for row in collected])
        return collected
