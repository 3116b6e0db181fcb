"""Tables of dataclasses as CSV files."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TextIO


def write_rows(path: Path, rows: Iterable[Any], kind: type) -> None:
    """Write a table as CSV, numbers with four significant digits (differences three, errors two), nothing for nan.

    Args:
        path: The file; compressed if it ends in ``.gz``.
        rows: The table.
        kind: The dataclass that its rows are of.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened_text(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [each.name for each in fields(kind)]
        writer.writerow(names)
        for row in rows:
            writer.writerow([_text(name, value) for name, value in zip(names, astuple(row), strict=True)])


@contextmanager
def opened_text(path: Path, mode: Literal["r", "w"]) -> Iterator[TextIO]:
    """Open a file of text; the same table makes the same compressed file, whenever it is written."""
    if path.suffix != ".gz":
        with path.open(mode, newline="", encoding="utf-8") as file:
            yield file
        return
    with (
        path.open(f"{mode}b") as raw,
        gzip.GzipFile("", f"{mode}b", fileobj=raw, mtime=0) as packed,
        TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        yield text


def _text(name: str, value: object) -> object:
    if isinstance(value, float):
        digits = 2 if name.endswith("error") else 3 if name == "difference" else 4
        return "" if math.isnan(value) else f"{value:.{digits}g}"
    return value
