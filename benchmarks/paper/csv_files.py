"""Tables of dataclasses as CSV files, which may be compressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TextIO

from captum_goat.compare.comparison import write_rows


def write_csv(path: Path, rows: Iterable[Any], row_type: type) -> None:
    """Write rows as CSV; see :func:`~captum_goat.compare.comparison.write_rows`.

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
