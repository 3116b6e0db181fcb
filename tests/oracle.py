"""A literal, slow GOAt: every scalar product is written out, then shared by hand.

The package never enumerates the scalar products; this file does nothing else. It knows nothing of the package and
takes only the weights from the torch modules, so that an agreement of the two is evidence for both. Every number of
the network is kept as a polynomial in the edges and the gates, and the layers are written out entry by entry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

Variable = tuple[str, int] | tuple[str, int, int, int]  # ("edge", e) or ("gate", number of the ReLU, row, channel)
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


def product_value(product: ScalarProduct, constant: float, mask: Sequence[float]) -> float:
    """Return the value z of a scalar product: edges have their mask's value; gates that are kept are on, hence 1."""
    return constant * math.prod(mask[variable[1]] for variable in product if variable[0] == "edge")


def value(polynomial: Polynomial, mask: Sequence[float]) -> float:
    """Return the value of a polynomial."""
    return math.fsum(product_value(product, constant, mask) for product, constant in polynomial.items())


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


@dataclass
class Network:
    """One graph on its way through the network, with the state that the definitions speak of.

    ``depth`` counts the message passing steps so far; ``gates`` remembers where each gate stands (its node, or None
    after pooling, and its depth), which is all that is needed to find its field.
    """

    edges: list[Edge]
    mask: list[float]
    table: Table
    depth: int = 0
    pooled: bool = False
    relus: int = 0
    gates: dict[Variable, tuple[int | None, int]] = field(default_factory=dict)

    def field_of(self, node: int | None, depth: int, setting: str) -> list[int]:
        """List the edges among which a gate's contribution is shared."""
        if node is None:
            return list(range(len(self.edges)))
        return receptive_field(self.edges, node, depth, setting)

    def apply(self, stage: Stage) -> None:
        """Go through one layer."""
        if stage in RELUS or isinstance(stage, nn.ReLU):
            self.relu()
        elif stage in POOLS:
            size = len(self.table) if stage is global_mean_pool else 1
            self.table = [
                [weighted_sum((1 / size, entry) for entry in column) for column in zip(*self.table, strict=True)]
            ]
            self.pooled = True
        elif isinstance(stage, nn.Linear):
            self.table = linear(self.table, stage.weight, stage.bias)
        else:
            self.depth += 1
            if isinstance(stage, GCNConv):
                self.gcn(stage)
            elif isinstance(stage, SAGEConv):
                self.sage(stage)
            elif isinstance(stage, GINConv):
                self.gin(stage)
            else:
                raise NotImplementedError(stage)

    def relu(self) -> None:
        """Freeze the patterns: out = P * in, where a gate that no edge can reach is a constant.

        A gate that is off makes its products 0, and a product that is 0 has nothing to share: it is dropped.
        """
        for row, entries in enumerate(self.table):
            node = None if self.pooled else row
            is_variable = bool(self.field_of(node, self.depth, "distinct"))
            for channel, entry in enumerate(entries):
                gate: Variable = ("gate", self.relus, row, channel)
                if value(entry, self.mask) <= 0:
                    entries[channel] = {}
                elif is_variable:
                    entries[channel] = times(entry, gate)
                    self.gates[gate] = (node, self.depth)
        self.relus += 1

    def messages(self, table: Table, constants: Sequence[float], others: Table | None = None) -> Table:
        """Sum, at every node, the messages constant * a_e * h_source over its edges, plus ``others`` if given."""
        width = len(table[0])
        result = []
        for node in range(len(table)):
            incoming = [(e, source) for e, (source, target) in enumerate(self.edges) if target == node]
            row = []
            for channel in range(width):
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
        if not conv.normalize:
            self.table = self.messages(transformed, [1.0] * len(self.edges))
        else:
            looped = {source for source, target in self.edges if source == target}
            degrees = [degree + (node not in looped) for node, degree in enumerate(self.in_degrees())]
            constants = [1 / math.sqrt(degrees[source] * degrees[target]) for source, target in self.edges]
            loops = [
                [{} if node in looped else weighted_sum([(1 / degrees[node], entry)]) for entry in row]
                for node, row in enumerate(transformed)
            ]
            self.table = self.messages(transformed, constants, loops)
        biases = [constant_polynomial(bias) for bias in conv.bias.tolist()]
        self.table = sum_of_tables(self.table, [biases] * len(self.table))

    def sage(self, conv: SAGEConv) -> None:
        """GraphSAGE: the mean divides by the full in-degree, whatever the mask."""
        degrees = self.in_degrees()
        constants = [1 / degrees[target] if conv.aggr == "mean" else 1.0 for _, target in self.edges]
        neighbours = linear(self.messages(self.table, constants), conv.lin_l.weight, conv.lin_l.bias)
        roots = linear(self.table, conv.lin_r.weight, None)
        self.table = sum_of_tables(neighbours, roots)

    def gin(self, conv: GINConv) -> None:
        """GIN: its inner gates are as deep as the one that follows it."""
        roots = [[weighted_sum([(1 + conv.eps.item(), entry)]) for entry in row] for row in self.table]
        self.table = self.messages(self.table, [1.0] * len(self.edges), roots)
        for stage in conv.nn:
            self.apply(stage)


def constant_polynomial(constant: float) -> Polynomial:
    """Return a polynomial of one product without variables."""
    return {(): constant}


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
        [
            weighted_sum([*zip(weights[o], row, strict=True), (1.0, constant_polynomial(biases[o]))])
            for o in range(len(weights))
        ]
        for row in table
    ]


def run(stages: Iterable[Stage], x: Tensor, edge_index: Tensor, mask: Tensor) -> Network:
    """Take one graph through the network with the patterns of this mask; the result's table is the output."""
    edges = [(source, target) for source, target in edge_index.t().tolist()]
    table = [[constant_polynomial(feature) for feature in row] for row in x.tolist()]
    network = Network(edges, mask.tolist(), table)
    for stage in stages:
        network.apply(stage)
    return network


def equal_contributions(polynomial: Polynomial, mask: Sequence[float]) -> dict[Variable, float]:
    """Share every scalar product equally among the occurrences of its variables: I_v = sum of O(v,z) / c(z) * z.

    A product without variables is shared with nobody.
    """
    contributions: dict[Variable, float] = defaultdict(float)
    for product, constant in polynomial.items():
        for variable in product:  # once per occurrence
            contributions[variable] += product_value(product, constant, mask) / len(product)
    return contributions


def spread(network: Network, target: tuple[int, int], setting: str) -> list[float]:
    """Give the edges their own contributions and the gates' contributions, each spread over its field."""
    row, channel = target
    result = [0.0] * len(network.edges)
    for variable, contribution in equal_contributions(network.table[row][channel], network.mask).items():
        if variable[0] == "edge":
            result[variable[1]] += contribution
        else:
            listings = network.field_of(*network.gates[variable], setting)
            for e in listings:
                result[e] += contribution / len(listings)
    return result


def attributions(with_edges: Network, without_edges: Network, target: tuple[int, int], setting: str) -> Tensor:
    """Subtract the calibration: what is left, with every edge masked to 0, of products of gates and constants."""
    explained = torch.tensor(spread(with_edges, target, setting), dtype=torch.float64)
    calibration = torch.tensor(spread(without_edges, target, setting), dtype=torch.float64)
    return explained - calibration


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
