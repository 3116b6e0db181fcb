"""Files that appear only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"  # how the names of files end that are being written


@contextmanager
def replaced(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` at the end, and is deleted if an error comes first.

    With ``sync`` the contents are on the disk before the file appears.
    """
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
