"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

_DELAY = 3.0  # seconds before a bar that was not asked for appears


@contextmanager
def progress_bar(
    total: int, unit: str, shown: bool | None, title: str = "explaining"
) -> Iterator[Callable[[int], object]]:
    """Show a progress bar, and yield a function that advances it; ``None``: in a terminal, after a few seconds."""
    delay, disable = (_DELAY, None) if shown is None else (0.0, not shown)  # disable=None: unless it is a terminal
    with tqdm(total=total, desc=title, unit=unit, disable=disable, delay=delay) as bar:
        yield bar.update
