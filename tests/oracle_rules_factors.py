"""Stages with divisors, norms as values, recurrent cells and choices of rows, and what the oracle does with them."""

from __future__ import annotations

import math

import torch
from oracle_rules_products import Polynomial, Row, add, linear, times, value
from oracle_rules_rows import Rows
from torch import Tensor, nn


def divided(x: Tensor) -> Tensor:
    """Divide by a polynomial."""
    return x / (1 + x.square())


def weighted(x: Tensor) -> Tensor:
    """Multiply by exponentials."""
    return torch.exp(x / 2) * x.flip(-1)


def with_norm(x: Tensor) -> Tensor:
    """Put the norm of a row in the place of its first channel."""
    return torch.cat([x.norm(dim=-1, keepdim=True), x[:, 1:]], dim=-1)


def chosen(x: Tensor) -> Tensor:
    """Keep the two rows with the largest first channels."""
    return x[x[:, 0].topk(2).indices.sort().values]


class Cell(nn.Module):
    """A GRU cell whose input is also its state."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(before, before)
        self.lin = nn.Linear(before, after)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(self.cell(x, x))


def product(one: Polynomial, other: Polynomial) -> Polynomial:
    """Multiply two sums of scalar products."""
    result: Polynomial = {}
    for left, a in one.items():
        for right, b in other.items():
            key = tuple(sorted((*left, *right)))
            result[key] = result.get(key, 0.0) + a * b
    return result


class FactorRows(Rows):
    """What such stages do to rows."""

    def frozen(self, numbers: list[list[float]], entries: list[Row]) -> None:
        """Multiply every entry by a number of its own, a frozen factor."""
        self.table = [
            [
                times(entry, number, self.factor("frozen", (row, channel), self.fields[row]))
                for channel, (entry, number) in enumerate(zip(line, own, strict=True))
            ]
            for row, (line, own) in enumerate(zip(entries, numbers, strict=True))
        ]

    def divide(self) -> None:
        """out = in * D, with D frozen."""
        numbers = [[1 / (1 + value(entry) ** 2) for entry in row] for row in self.table]
        self.frozen(numbers, self.table)

    def weight(self) -> None:
        """out = E * the channels in reverse, with the exponentials E frozen."""
        numbers = [[math.exp(value(entry) / 2) for entry in row] for row in self.table]
        self.frozen(numbers, [row[::-1] for row in self.table])

    def norm_value(self) -> None:
        """The norm is the sum of squares times a frozen factor."""
        for number, row in enumerate(self.table):
            squares = add((1.0, product(entry, entry)) for entry in row)
            size = math.hypot(*(value(entry) for entry in row))
            self.margin = min(self.margin, size)
            row[0] = times(squares, 1 / size, self.factor("frozen", (number,), self.fields[number]))

    def choose(self) -> None:
        """Keep two rows; what was not chosen is not read."""
        firsts = [value(row[0]) for row in self.table]
        order = sorted(range(len(firsts)), key=lambda row: -firsts[row])
        self.margin = min(self.margin, firsts[order[1]] - firsts[order[2]])
        self.table, self.fields = ([rows[row] for row in sorted(order[:2])] for rows in (self.table, self.fields))

    def smooth(self, entry: Polynomial, row: int, place: int, kind: str) -> Polynomial:
        """Apply a sigmoid or tanh as f(0) + P * in."""
        number = value(entry)
        self.margin = min(self.margin, abs(number) or math.inf)
        at_zero, there = (0.5, 1 / (1 + math.exp(-number))) if kind == "sigmoid" else (0.0, math.tanh(number))
        pattern = (there - at_zero) / number if number else 0.0
        factor = self.factor("gate", (row, place), self.fields[row])
        return add([(1.0, times(entry, pattern, factor)), (at_zero, {(): 1.0})])

    def recur(self, stage: Cell) -> None:
        """Write a GRU cell out: gates, sums and products."""
        cell, width = stage.cell, len(self.table[0])
        ours = linear(self.table, cell.weight_ih, cell.bias_ih)
        its = linear(self.table, cell.weight_hh, cell.bias_hh)
        table = []
        for row, state in enumerate(self.table):
            out: Row = []
            for k in range(width):
                parts = [(ours[row][k + part * width], its[row][k + part * width]) for part in range(3)]
                reset, update = (
                    self.smooth(add([(1.0, a), (1.0, b)]), row, 3 * k + part, "sigmoid")
                    for part, (a, b) in enumerate(parts[:2])
                )
                inner = add([(1.0, parts[2][0]), (1.0, product(reset, parts[2][1]))])
                new = self.smooth(inner, row, 3 * k + 2, "tanh")
                change = add([(1.0, state[k]), (-1.0, new)])
                out.append(add([(1.0, new), (1.0, product(update, change))]))
            table.append(out)
        self.table = linear(table, stage.lin.weight, stage.lin.bias)

    def constant_change(self, empty: FactorRows, target: tuple[int, int]) -> float:
        """Return the change of products without any factor, which is due to other rows that are chosen."""
        row, channel = target
        return self.table[row][channel].get((), 0.0) - empty.table[row][channel].get((), 0.0)
