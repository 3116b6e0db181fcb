"""What the oracle of rules does to rows: gates, norms, pools and maxima, and how it shares their products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from oracle_rules_products import Factor, Product, Row, Table, add, times, value
from torch import Tensor, nn

Field = frozenset[int]  # edges
Stage = Callable[..., Tensor]  # a module or a function

NOWHERE: Field = frozenset()


def softplus(number: float) -> float:
    """Return log(1 + exp(x)); torch stops computing it above 20."""
    return number if number > 20 else math.log1p(math.exp(number))


ACTIVATIONS: dict[str, tuple[Callable[[float], float], tuple[Stage, ...]]] = {
    "relu": (lambda a: max(a, 0.0), (F.relu, nn.ReLU())),
    "leaky_relu": (lambda a: a if a > 0 else 0.01 * a, (F.leaky_relu, nn.LeakyReLU())),
    "elu": (lambda a: a if a > 0 else math.expm1(a), (F.elu, nn.ELU())),
    "gelu": (lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2, (F.gelu, nn.GELU())),
    "tanh": (math.tanh, (torch.tanh, nn.Tanh())),
    "sigmoid": (lambda a: 1 / (1 + math.exp(-a)), (torch.sigmoid, nn.Sigmoid())),
    "softplus": (softplus, (F.softplus, nn.Softplus())),
    "silu": (lambda a: a / (1 + math.exp(-a)), (F.silu, nn.SiLU())),
}


class Rows:
    """One graph on its way through the network.

    Attributes:
        table: The network's present numbers; a row per node, or one row after pooling.
        fields: For each row the edges that can change it, whatever the numbers are.
        field_of: For each factor the edges that can change it; of an edge, itself.
        margin: How far the closest decision was from another outcome: the sign of a gate's input, a maximum. If it is
            as small as rounding errors are, the real model may have decided otherwise.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, mask: Tensor) -> None:
        self.edges: list[tuple[int, int]] = [(source, target) for source, target in edge_index.t().tolist()]
        self.mask: list[float] = mask.tolist()
        self.table: Table = [[{(): entry} for entry in row] for row in x.tolist()]
        self.fields: list[Field] = [NOWHERE] * len(x)
        self.field_of: dict[Factor, Field] = {("edge", e): frozenset([e]) for e in range(len(self.edges))}
        self.operations = 0
        self.margin = math.inf

    def factor(self, kind: str, place: tuple[int, ...], field: Field) -> Product:
        """Name a new gate or frozen factor; none if no edge reaches it, for then it is a constant."""
        if not field:
            return ()
        name: Factor = (kind, self.operations, *place)
        self.field_of[name] = field
        return (name,)

    # Gates

    def gate(self, function: Callable[[float], float], number: float) -> tuple[float, float]:
        """Return f(0) and P."""
        constant = function(0.0)
        return constant, (function(number) - constant) / number if number else 0.0

    def activation(self, function: Callable[[float], float]) -> None:
        """out = f(0) + P * in."""
        for row, entries in enumerate(self.table):
            for channel, entry in enumerate(entries):
                number = value(entry)
                self.margin = min(self.margin, abs(number) or math.inf)
                constant, pattern = self.gate(function, number)
                factor = self.factor("gate", (row, channel), self.fields[row])
                entries[channel] = add([(1.0, times(entry, pattern, factor)), (constant, {(): 1.0})])

    # Norms

    def centred(self, row: Row) -> Row:
        """Subtract the mean over the channels, which is linear."""
        mean = add((1 / len(row), entry) for entry in row)
        return [add([(1.0, entry), (-1.0, mean)]) for entry in row]

    def layer_norm(self, norm: nn.LayerNorm) -> None:
        """out = (in - mean) * S * weight + bias."""
        weights, biases = norm.weight.tolist(), norm.bias.tolist()
        for number, row in enumerate(self.table):
            values = [value(entry) for entry in row]
            mean = math.fsum(values) / len(values)
            variance = math.fsum((entry - mean) ** 2 for entry in values) / len(values)
            scale, factor = 1 / math.sqrt(variance + norm.eps), self.factor("frozen", (number,), self.fields[number])
            self.table[number] = [
                add([(weight, times(entry, scale, factor)), (bias, {(): 1.0})])
                for entry, weight, bias in zip(self.centred(row), weights, biases, strict=True)
            ]

    def normalize(self) -> None:
        """out = in * S."""
        for number, row in enumerate(self.table):
            scale = 1 / max(math.hypot(*(value(entry) for entry in row)), 1e-12)
            factor = self.factor("frozen", (number,), self.fields[number])
            self.table[number] = [times(entry, scale, factor) for entry in row]

    # Pools

    def mean_pool(self) -> None:
        """Take the mean over all nodes."""
        self.table = [[add((1 / len(column), entry) for entry in column) for column in zip(*self.table, strict=True)]]
        self.fields = [NOWHERE.union(*self.fields)]

    def max_pool(self) -> None:
        """Take the maximum over all nodes."""
        field = NOWHERE.union(*self.fields)
        self.table, self.fields = [self.maximum(0, self.table, field)], [field]

    def winners(self, values: Sequence[float]) -> list[float]:
        """Return each competitor's share W in the maximum: winners that are equal share it equally."""
        wins = [number == max(values) for number in values]
        return [win / sum(wins) for win in wins]

    def maximum(self, place: int, rows: Table, field: Field) -> Row:
        """out = the sum of W * row; all competitors' edges can change W, not only the winner's."""
        result = []
        for channel, column in enumerate(zip(*rows, strict=True)):
            values = [value(entry) for entry in column]
            self.margin = min(self.margin, *(max(values) - number or math.inf for number in values))
            shares = self.winners(values)
            result.append(
                add(
                    (1.0, times(entry, share, self.factor("frozen", (place, number, channel), field)))
                    for number, (entry, share) in enumerate(zip(column, shares, strict=True))
                )
            )
        return result

    # Shares

    def sharers(self, product: Product) -> Product:
        """List the factors, one entry per occurrence, that share a product: the variables; if none, the frozen ones."""
        variables = tuple(factor for factor in product if factor[0] != "frozen")
        return variables or product

    def shares(self, target: tuple[int, int]) -> list[float]:
        """Return what the edges are given, an edge's own shares and its part of those of gates and frozen factors."""
        row, channel = target
        result = [0.0] * len(self.edges)
        for product, z in self.table[row][channel].items():
            sharers = self.sharers(product)
            for factor in sharers:
                field = self.field_of[factor]
                for e in field:
                    result[e] += z / len(sharers) / len(field)
        return result
