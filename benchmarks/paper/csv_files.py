"""Tables of dataclasses as CSV files, which may be compressed."""

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


def write_csv(path: Path, rows: Iterable[Any], row_type: type) -> None:
    """Write rows as CSV; see :func:`write_rows`.

    Args:
        path: The file; compressed if it ends in ``.gz``.
        rows: The rows.
        row_type: Their dataclass.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_text(path, "w") as file:
        write_rows(file, rows, row_type)


@contextmanager
def open_text(path: Path, mode: Literal["r", "w"]) -> Iterator[TextIO]:
    """Open a text file, compressed if it ends in ``.gz``; equal contents make equal compressed files."""
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


def write_rows(file: TextIO, rows: Iterable[Any], row_type: type) -> None:
    """Write rows, dataclasses of one type, as CSV to a file that was opened with ``newline=""``.

    Numbers have four significant digits, differences three and errors two; nan is an empty cell.
    """
    writer = csv.writer(file, lineterminator="\n")
    names = [field.name for field in fields(row_type)]
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(name, value) for name, value in zip(names, astuple(row), strict=True)])


def _cell(name: str, value: object) -> object:
    if isinstance(value, float):
        digits = 2 if name.endswith("error") else 3 if name == "difference" else 4
        return "" if math.isnan(value) else f"{value:.{digits}g}"
    return value
