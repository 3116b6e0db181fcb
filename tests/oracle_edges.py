"""The oracle for edge attributes and for message passing steps: still every scalar product, written out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from oracle import (
    Network,
    Place,
    Polynomial,
    Stage,
    Table,
    Values,
    Variable,
    equal_contributions,
    linear,
    receptive_field,
    times,
    value,
    weighted_sum,
)
from torch import Tensor
from torch_geometric.nn import GINEConv


class AttributePlace(Place):
    """The place of a gate that also knows the edges whose attributes flow into it."""

    attributes: frozenset[int] = frozenset()


@dataclass
class AttributedNetwork(Network):
    """A network of GINE layers on edges with attributes; ``kinds`` are the variables: node, edge, edge_attr."""

    kinds: frozenset[str] = frozenset()
    attributes: Table = field(default_factory=list)
    attribute_sharers: list[tuple[int, int]] = field(default_factory=list)
    reached: list[frozenset[int]] = field(default_factory=list)  # the edges whose attributes flow into each row
    flows: dict[tuple[Place, ...], frozenset[int]] = field(default_factory=dict)

    def listed(self, place: Place, attributes: frozenset[int], nodes: frozenset[int]) -> list[Variable]:
        """List the variables among which a gate's contribution is shared."""
        reaching = range(len(self.edges))
        if place.node is not None:
            reaching = receptive_field(self.edges, place.node, place.depth, "distinct")
        edges: list[Variable] = [("edge", e) for e in reaching] if "edge" in self.kinds else []
        features: list[Variable] = []
        if "node" in self.kinds:
            features = [("feature", node, k) for node, k in self.sharers if node in nodes]
        own: list[Variable] = []
        if "edge_attr" in self.kinds:
            own = [("attribute", e, k) for e, k in self.attribute_sharers if e in attributes]
        return edges + features + own

    def gated(self, entries: list[Polynomial], row: int, listings: list[Variable]) -> None:
        """Freeze the patterns of one row, whose gates are shared among ``listings``."""
        for channel, entry in enumerate(entries):
            gate: Variable = ("gate", self.relus, row, channel)
            if value(entry, self.values) <= 0:
                entries[channel] = {}
            elif listings:
                entries[channel] = times(entry, gate)
                self.fields[gate] = listings

    def relu(self) -> None:
        """Freeze the patterns of the rows of nodes, or of the pooled row."""
        for row, entries in enumerate(self.table):
            place = Place(None if self.pooled else row, self.depth, self.rows[row])
            nodes = self.rows[row]
            if "edge" in self.kinds:
                nodes = frozenset([row]) if not self.pooled else self.pooled_nodes
                if not self.pooled and not (self.rows[row] or receptive_field(self.edges, row, self.depth, "")):
                    nodes = frozenset()
            self.gated(entries, row, self.listed(place, self.reached[row], nodes))
        self.relus += 1

    @property
    def fields(self) -> dict[Variable, list[Variable]]:
        """The variables among which each gate is shared."""
        return self.__dict__.setdefault("_fields", {})

    def apply(self, stage: Stage) -> None:
        """Go through one layer."""
        if not isinstance(stage, GINEConv):
            pooled = self.pooled
            super().apply(stage)
            if self.pooled and not pooled:
                self.reached = [frozenset().union(*self.reached)]
            return
        offers = linear(self.attributes, stage.lin.weight, stage.lin.bias)
        messages = []
        for e, (source, _) in enumerate(self.edges):
            summands = zip(self.table[source], offers[e], strict=True)
            message = [weighted_sum([(1.0, a), (1.0, b)]) for a, b in summands]
            nodes = self.rows[source]
            if "edge" in self.kinds and self.depth > 0:  # a message belongs to the node that it comes from
                nodes = frozenset([source])
            place = Place(source, self.depth, self.rows[source])
            self.gated(message, e, self.listed(place, self.reached[source] | {e}, nodes))
            messages.append(message)
        self.relus += 1
        reached = list(self.reached)
        for e, (source, target) in enumerate(self.edges):
            reached[target] |= self.reached[source] | {e}
        self.deepen(range(len(self.table)))
        self.reached = reached
        table = []
        for node, row in enumerate(self.table):
            incoming = [e for e, (_, target) in enumerate(self.edges) if target == node]
            masked = {e: [times(m, ("edge", e)) if "edge" in self.kinds else m for m in messages[e]] for e in incoming}
            table.append(
                [
                    weighted_sum([(1 + stage.eps.item(), entry), *((1.0, masked[e][k]) for e in incoming)])
                    for k, entry in enumerate(row)
                ]
            )
        self.table = table
        for inner in stage.nn:
            self.apply(inner)


def run_attributed(
    stages: Iterable[Stage], x: Tensor, edge_index: Tensor, edge_attr: Tensor, kinds: set[str], factor: float
) -> AttributedNetwork:
    """Take a graph with edge attributes through a network; the variables are 0 if ``factor`` is."""
    edges = [(source, target) for source, target in edge_index.t().tolist()]
    of_kind = {kind: factor if kind in kinds else 1.0 for kind in ("node", "edge", "edge_attr")}
    values: Values = {("edge", e): of_kind["edge"] for e in range(len(edges))}
    tables: list[Table] = []
    for name, kind, given in (("feature", "node", x), ("attribute", "edge_attr", edge_attr)):
        rows = (of_kind[kind] * given).tolist()
        values |= {(name, n, k): entry for n, row in enumerate(rows) for k, entry in enumerate(row)}
        tables.append(
            [
                [{((name, n, k),): 1.0} if kind in kinds else {(): entry} for k, entry in enumerate(row)]
                for n, row in enumerate(rows)
            ]
        )
    sharers, attribute_sharers = ([(n, k) for n, k in given.nonzero().tolist()] for given in (x, edge_attr))
    rows = [frozenset([node]) for node in range(len(x))]
    network = AttributedNetwork(edges, values, tables[0], "", sharers, rows)
    network.kinds, network.attributes, network.attribute_sharers = frozenset(kinds), tables[1], attribute_sharers
    network.reached = [frozenset() for _ in range(len(x))]
    for stage in stages:
        network.apply(stage)
    return network


def attributed(explained: AttributedNetwork, baseline: AttributedNetwork, target: tuple[int, int]) -> Values:
    """Return the attribution of every variable, calibrated."""
    result: Values = defaultdict(float)
    for network, sign in ((explained, 1.0), (baseline, -1.0)):
        row, channel = target
        for variable, contribution in equal_contributions(network.table[row][channel], network.values).items():
            listings = network.fields[variable] if variable[0] == "gate" else [variable]
            for listing in listings:
                result[listing] += sign * contribution / len(listings)
    return result


class SteppedNetwork(Network):
    """A network in which an edge is another variable at every step."""

    def messages(self, table: Table, constants: Iterable[float], others: Table | None = None) -> Table:
        """Sum the messages as in any network, with the edges of this step."""
        summed = super().messages(table, list(constants), None)
        step = self.depth - 1
        renamed = [[{_renamed(product, step): c for product, c in entry.items()} for entry in row] for row in summed]
        if others is None:
            return renamed
        pairs = zip(renamed, others, strict=True)
        return [[weighted_sum([(1.0, a), (1.0, b)]) for a, b in zip(*rows, strict=True)] for rows in pairs]

    def last_step(self, place: Place, edge: int) -> int:
        """Return the last step in which a message over an edge reaches a gate: the hop at which it is listed first."""
        if place.node is None:
            return self.depth - 1
        for hop in range(1, place.depth + 1):
            if edge in receptive_field(self.edges, place.node, hop, "distinct"):
                return place.depth - hop
        raise AssertionError


def _renamed(product: tuple[Variable, ...], step: int) -> tuple[Variable, ...]:
    return tuple(sorted((*v, step) if v[0] == "edge" and len(v) == 2 else v for v in product))


def run_stepped(stages: Iterable[Stage], x: Tensor, edge_index: Tensor, mask: Tensor) -> SteppedNetwork:
    """Take one graph through the network, with edges as variables."""
    edges = [(source, target) for source, target in edge_index.t().tolist()]
    values: Values = {("edge", e, step): entry for e, entry in enumerate(mask.tolist()) for step in range(9)}
    values |= {("edge", e): entry for e, entry in enumerate(mask.tolist())}
    table: Table = [[{(): entry} for entry in row] for row in x.tolist()]
    network = SteppedNetwork(edges, values, table, "edge", [], [frozenset([node]) for node in range(len(x))])
    for stage in stages:
        network.apply(stage)
    return network


def by_step(
    explained: SteppedNetwork, baseline: SteppedNetwork, target: tuple[int, int]
) -> dict[tuple[int, int], float]:
    """Return the attribution of every step and edge, calibrated."""
    result: dict[tuple[int, int], float] = defaultdict(float)
    for network, sign in ((explained, 1.0), (baseline, -1.0)):
        row, channel = target
        for variable, contribution in equal_contributions(network.table[row][channel], network.values).items():
            if variable[0] == "edge":
                result[variable[2], variable[1]] += sign * contribution
                continue
            place = network.gates[variable]
            edges = [listing[1] for listing in network.field_of(place, "distinct")]
            for edge in edges:
                result[network.last_step(place, edge), edge] += sign * contribution / len(edges)
    return result
