"""Numbers of a network as sums of scalar products, each with its value in the recorded pass and with its factors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from torch import Tensor

Factor = tuple[str | int, ...]
# ("edge", e); ("gate", operation, row, channel); or ("frozen", operation, ...), with what tells it from the others
Product = tuple[Factor, ...]  # sorted, with one entry per occurrence: a multiset
Polynomial = dict[Product, float]  # the value z of each product; products of equal factors are merged, which changes
# nothing, for how a product is shared depends on its factors only; products that are 0 may be missing
Row = list[Polynomial]  # [channel]
Table = list[Row]  # [row][channel]


def add(parts: Iterable[tuple[float, Polynomial]]) -> Polynomial:
    """Add polynomials, each multiplied by a constant."""
    total: Polynomial = defaultdict(float)
    for constant, polynomial in parts:
        for product, z in polynomial.items():
            total[product] += constant * z
    return dict(total)


def times(polynomial: Polynomial, number: float, factors: Product = ()) -> Polynomial:
    """Multiply every scalar product by a number that is a constant, or the value of the factors that are given."""
    if number == 0:
        return {}
    return {tuple(sorted((*product, *factors))): z * number for product, z in polynomial.items()}


def value(polynomial: Polynomial) -> float:
    """Return the value of a polynomial."""
    return math.fsum(polynomial.values())


def linear(table: Table, weight: Tensor, bias: Tensor | None) -> Table:
    """Apply a linear layer to every row."""
    weights = weight.tolist()
    biases = [0.0] * len(weights) if bias is None else bias.tolist()
    return [
        [
            add([*zip(own, row, strict=True), (1.0, {(): constant})])
            for own, constant in zip(weights, biases, strict=True)
        ]
        for row in table
    ]


def sum_of(*tables: Table) -> Table:
    """Add tables entry by entry."""
    return [
        [add((1.0, entry) for entry in entries) for entries in zip(*rows, strict=True)]
        for rows in zip(*tables, strict=True)
    ]
