"""Progress bars, for those who have tqdm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, unit: str, shown: bool) -> Iterator[Callable[[int], object]]:
    """Show a progress bar (if tqdm is installed), and yield a function that moves it on by a number of units."""
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is a comfort, not a need
        yield lambda count: None
        return
    with tqdm(total=total, desc="explaining", unit=unit, disable=not shown) as bar:
        yield bar.update
