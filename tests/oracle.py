"""A literal, slow GOAt: every scalar product is written out, then shared by hand.

The package never enumerates the scalar products; this file does nothing else. It knows nothing of the package, so that
an agreement of the two is evidence for both. Every number of the network is kept as a polynomial in the edges, the
node features and the gates (whichever are variables), and the layers are written out entry by entry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

Variable = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]
# ("edge", e), ("feature", node, column) or ("gate", number of the ReLU, row, channel)
Values = dict[Variable, float]  # of edges and features; gates that are kept are on, hence 1, and are not listed
ScalarProduct = tuple[Variable, ...]  # sorted, with one entry per occurrence: a multiset
Polynomial = dict[ScalarProduct, float]  # the constant of each product; products of equal variables are merged,
# which changes nothing: how a product is shared depends on its variables only, and shares are linear in the constant
Table = list[list[Polynomial]]  # [row][channel]
Edge = tuple[int, int]  # source, target
Stage = Callable[..., Tensor]  # a module, one of RELUS or one of POOLS

RELUS: tuple[Stage, ...] = (F.relu, torch.relu, Tensor.relu)
POOLS: tuple[Stage, ...] = (global_mean_pool, global_add_pool)


def weighted_sum(parts: Iterable[tuple[float, Polynomial]]) -> Polynomial:
    """Add polynomials, each multiplied by a constant."""
    total: Polynomial = defaultdict(float)
    for constant, polynomial in parts:
        for product, coefficient in polynomial.items():
            total[product] += constant * coefficient
    return dict(total)


def times(polynomial: Polynomial, variable: Variable) -> Polynomial:
    """Multiply every scalar product by one more variable."""
    return {tuple(sorted((*product, variable))): constant for product, constant in polynomial.items()}


def product_value(product: ScalarProduct, constant: float, values: Values) -> float:
    """Return the value z of a scalar product."""
    return constant * math.prod(values.get(variable, 1.0) for variable in product)


def value(polynomial: Polynomial, values: Values) -> float:
    """Return the value of a polynomial."""
    return math.fsum(product_value(product, constant, values) for product, constant in polynomial.items())


def receptive_field(edges: Sequence[Edge], node: int, depth: int, setting: str) -> list[int]:
    """List the edges that reach a node's gate after ``depth`` message passing steps.

    Hop k holds the edges whose target is k - 1 steps upstream. The distinct field is the hops' union: a target within
    at most r - 1 steps is one that some hop finds.
    """
    targets, listings = {node}, []
    for _ in range(depth):
        hop = [e for e, (_, target) in enumerate(edges) if target in targets]
        listings += hop
        targets = {edges[e][0] for e in hop}
    return sorted(set(listings)) if setting == "distinct" else listings


class Place(NamedTuple):
    """Where a gate stands: its node, or None after pooling; its depth; the nodes whose rows of x can flow into it."""

    node: int | None
    depth: int
    rows: frozenset[int]


@dataclass
class Network:
    """One graph on its way through the network, with the state that the definitions speak of.

    ``attributed`` says what the variables are: "edge", "node" or "node_and_edge"; ``sharers`` are the features that
    may take a part of a gate: the non-zero ones of the x that is explained, also if this is the network of x = 0.
    ``depth`` counts the message passing steps so far; ``rows`` are the nodes whose features flow into each row;
    ``gates`` remembers where each gate stands, which is all that is needed to find its field.
    """

    edges: list[Edge]
    values: Values
    table: Table
    attributed: str
    sharers: list[tuple[int, int]]
    rows: list[frozenset[int]]
    depth: int = 0
    pooled: bool = False
    pooled_nodes: frozenset[int] = frozenset()
    relus: int = 0
    gates: dict[Variable, Place] = field(default_factory=dict)

    def field_of(self, place: Place, setting: str) -> list[Variable]:
        """List the edges and features among which a gate's contribution is shared."""
        reaching = range(len(self.edges))
        if place.node is not None:
            reaching = receptive_field(self.edges, place.node, place.depth, setting)
        edges: list[Variable] = [] if self.attributed == "node" else [("edge", e) for e in reaching]
        if self.attributed == "edge" or not (edges or place.rows):  # the latter: it sees nothing but biases
            return edges
        nodes = place.rows
        if self.attributed == "node_and_edge":
            nodes = {place.node} if place.node is not None else self.pooled_nodes
        return edges + [("feature", node, k) for node, k in self.sharers if node in nodes]

    def apply(self, stage: Stage) -> None:
        """Go through one layer."""
        if stage in RELUS or isinstance(stage, nn.ReLU):
            self.relu()
        elif stage in POOLS:
            size = len(self.table) if stage is global_mean_pool else 1
            self.table = [
                [weighted_sum((1 / size, entry) for entry in column) for column in zip(*self.table, strict=True)]
            ]
            reached = (n for n, own in enumerate(self.rows) if own or receptive_field(self.edges, n, self.depth, ""))
            self.pooled_nodes = frozenset(reached)  # the others bring nothing but biases into the pool
            self.pooled, self.rows = True, [frozenset().union(*self.rows)]
        elif isinstance(stage, nn.Linear):
            self.table = linear(self.table, stage.weight, stage.bias)
        else:
            {GCNConv: self.gcn, SAGEConv: self.sage, GINConv: self.gin}[type(stage)](stage)

    def deepen(self, own: Container[int]) -> None:
        """Count a message passing step; rows flow along the edges and, at the nodes ``own``, on to themselves."""
        self.depth += 1
        incoming = [[source for source, target in self.edges if target == node] for node in range(len(self.rows))]
        paths = [[*sources, node] if node in own else sources for node, sources in enumerate(incoming)]
        self.rows = [frozenset().union(*(self.rows[source] for source in sources)) for sources in paths]

    def relu(self) -> None:
        """Freeze the patterns: out = P * in, where a gate whose field is empty is a constant.

        A gate that is off makes its products 0, and a product that is 0 has nothing to share: it is dropped.
        """
        for row, entries in enumerate(self.table):
            place = Place(None if self.pooled else row, self.depth, self.rows[row])
            is_variable = bool(self.field_of(place, "distinct"))
            for channel, entry in enumerate(entries):
                gate: Variable = ("gate", self.relus, row, channel)
                if value(entry, self.values) <= 0:
                    entries[channel] = {}
                elif is_variable:
                    entries[channel] = times(entry, gate)
                    self.gates[gate] = place
        self.relus += 1

    def messages(self, table: Table, constants: Sequence[float], others: Table | None = None) -> Table:
        """Sum, at every node, the messages constant * a_e * h_source over its edges, plus ``others`` if given."""
        result = []
        for node in range(len(table)):
            incoming = [(e, source) for e, (source, target) in enumerate(self.edges) if target == node]
            row = []
            for channel in range(len(table[0])):
                parts = [(constants[e], table[source][channel]) for e, source in incoming]
                if self.attributed != "node":
                    parts = [(constants[e], times(table[source][channel], ("edge", e))) for e, source in incoming]
                if others is not None:
                    parts.append((1.0, others[node][channel]))
                row.append(weighted_sum(parts))
            result.append(row)
        return result

    def in_degrees(self) -> list[int]:
        """Count the user's edges into every node."""
        return [sum(target == node for _, target in self.edges) for node in range(len(self.table))]

    def gcn(self, conv: GCNConv) -> None:
        """GCN: a loop is added, as a constant, wherever the user has none; or, unnormalised, nowhere."""
        transformed = linear(self.table, conv.lin.weight, None)
        looped = {source for source, target in self.edges if source == target}
        self.deepen(set(range(len(self.table))) - looped if conv.normalize else ())
        if not conv.normalize:
            self.table = self.messages(transformed, [1.0] * len(self.edges))
        else:
            degrees = [degree + (node not in looped) for node, degree in enumerate(self.in_degrees())]
            constants = [1 / math.sqrt(degrees[source] * degrees[target]) for source, target in self.edges]
            loops = [
                [{} if node in looped else weighted_sum([(1 / degrees[node], entry)]) for entry in row]
                for node, row in enumerate(transformed)
            ]
            self.table = self.messages(transformed, constants, loops)
        biases: list[Polynomial] = [{(): bias} for bias in conv.bias.tolist()]
        self.table = sum_of_tables(self.table, [biases] * len(self.table))

    def sage(self, conv: SAGEConv) -> None:
        """GraphSAGE: the mean divides by the full in-degree, whatever the mask."""
        self.deepen(range(len(self.table)))
        degrees = self.in_degrees()
        constants = [1 / degrees[target] if conv.aggr == "mean" else 1.0 for _, target in self.edges]
        neighbours = linear(self.messages(self.table, constants), conv.lin_l.weight, conv.lin_l.bias)
        roots = linear(self.table, conv.lin_r.weight, None)
        self.table = sum_of_tables(neighbours, roots)

    def gin(self, conv: GINConv) -> None:
        """GIN: its inner gates are as deep as the one that follows it."""
        self.deepen(range(len(self.table)))
        roots = [[weighted_sum([(1 + conv.eps.item(), entry)]) for entry in row] for row in self.table]
        self.table = self.messages(self.table, [1.0] * len(self.edges), roots)
        for stage in conv.nn:
            self.apply(stage)


def sum_of_tables(first: Table, second: Table) -> Table:
    """Add two tables entry by entry."""
    return [
        [weighted_sum([(1.0, a), (1.0, b)]) for a, b in zip(*rows, strict=True)]
        for rows in zip(first, second, strict=True)
    ]


def linear(table: Table, weight: Tensor, bias: Tensor | None) -> Table:
    """Apply a linear layer to every row."""
    weights = weight.tolist()
    biases = [0.0] * len(weights) if bias is None else bias.tolist()
    return [
        [weighted_sum([*zip(weights[o], row, strict=True), (1.0, {(): biases[o]})]) for o in range(len(weights))]
        for row in table
    ]


def run(
    stages: Iterable[Stage], x: Tensor, edge_index: Tensor, mask: Tensor, attributed: str = "edge", factor: float = 1.0
) -> Network:
    """Take one graph through the network with the patterns of factor * x and mask; its table is then the output."""
    edges = [(source, target) for source, target in edge_index.t().tolist()]
    rows = (factor * x).tolist()
    values: Values = {("edge", e): entry for e, entry in enumerate(mask.tolist())}
    values |= {("feature", node, k): entry for node, row in enumerate(rows) for k, entry in enumerate(row)}
    table: Table = [[{(("feature", node, k),): 1.0} for k in range(x.shape[1])] for node in range(len(x))]
    if attributed == "edge":
        table = [[{(): entry} for entry in row] for row in rows]
    sharers = [(node, k) for node, k in x.nonzero().tolist()]
    network = Network(edges, values, table, attributed, sharers, [frozenset([node]) for node in range(len(x))])
    for stage in stages:
        network.apply(stage)
    return network


def equal_contributions(polynomial: Polynomial, values: Values) -> Values:
    """Share every scalar product equally among the occurrences of its variables: I_v = sum of O(v,z) / c(z) * z.

    A product without variables is shared with nobody.
    """
    contributions: Values = defaultdict(float)
    for product, constant in polynomial.items():
        for variable in product:  # once per occurrence
            contributions[variable] += product_value(product, constant, values) / len(product)
    return contributions


def spread(network: Network, target: tuple[int, int], setting: str) -> Values:
    """Give edges and features their own contributions and the gates' contributions, each spread over its field."""
    row, channel = target
    result = dict.fromkeys(network.values, 0.0)
    for variable, contribution in equal_contributions(network.table[row][channel], network.values).items():
        listings = network.field_of(network.gates[variable], setting) if variable[0] == "gate" else [variable]
        for listing in listings:
            result[listing] += contribution / len(listings)
    return result


def attributions(explained: Network, baseline: Network, target: tuple[int, int], setting: str) -> dict[str, Tensor]:
    """Subtract the calibration: what is left, in the baseline, of products of gates and constants.

    Returns, under "edge" and "feature", a number per edge and a number per feature, node by node.
    """
    calibration = spread(baseline, target, setting)
    result: dict[str, list[float]] = {"edge": [], "feature": []}
    for variable, contribution in spread(explained, target, setting).items():
        result[variable[0]].append(contribution - calibration[variable])
    return {kind: torch.tensor(numbers, dtype=torch.float64) for kind, numbers in result.items()}


def masked_output(model: nn.Module, x: Tensor, edge_index: Tensor, mask: Tensor) -> Tensor:
    """Judge the oracle: run the real model with PyG's own edge masks, which multiply messages after normalisation.

    Normalised GCN moves the loops to the end, one per node; PyG would not mask the user's loops among them.
    """
    set_masks(model, mask, edge_index, apply_sigmoid=False)
    is_loop = edge_index[0] == edge_index[1]
    loops = mask.new_ones(len(x)).index_put((edge_index[0, is_loop],), mask[is_loop])
    for module in model.modules():
        if isinstance(module, GCNConv) and module.normalize:
            module._edge_mask = torch.cat([mask[~is_loop], loops])
    try:
        with torch.no_grad():
            return model(x, edge_index)
    finally:
        clear_masks(model)
