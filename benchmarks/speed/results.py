"""Results of the sections: numbers, targets with verdicts, and text."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        part: The part of the benchmark.
        graphs: What graphs.
        gnn: The model.
        edges: The number of edges; 0 where it is not one number.
        method: What was measured.
        metric: Of what: ``seconds``, ``least_seconds``, ``units``, ``peak_bytes`` and others.
        value: The number.
    """

    part: str
    graphs: str
    gnn: str
    edges: int
    method: str
    metric: str
    value: float


@dataclass(frozen=True)
class Check:
    """A number that has a target.

    Attributes:
        what: What was measured.
        value: The number; ``nan`` if it could not be measured.
        target: What it should be.
        at_most: Whether it should be no more than that, else no less.
        unit: What it counts.
        note: How it was measured.
    """

    what: str
    value: float
    target: float
    at_most: bool
    unit: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        """``"met"``, ``"missed"`` or ``"not measured"``."""
        if math.isnan(self.value):
            return "not measured"
        return "met" if (self.value <= self.target if self.at_most else self.value >= self.target) else "missed"

    @property
    def wanted(self) -> str:
        """The target in words."""
        return f"{'at most' if self.at_most else 'at least'} {_number(self.target)}{self._unit}"

    @property
    def measured(self) -> str:
        """The number in words."""
        return "-" if math.isnan(self.value) else f"{_number(self.value)}{self._unit}"

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.what}: {self.measured}; target: {self.wanted}: {self.verdict}{note}"


@dataclass(frozen=True)
class Section:
    """The results of one section.

    Attributes:
        title: Its headline.
        text: Markdown, with tables.
        rows: All numbers.
        checks: The numbers that have targets.
        pictures: Files, by what they show.
    """

    title: str
    text: str
    rows: list[Row]
    checks: list[Check]
    pictures: dict[str, Path] = field(default_factory=dict)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write all numbers to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(column.name for column in fields(Row))
        writer.writerows(astuple(row) for row in rows)


def _number(value: float) -> str:
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
