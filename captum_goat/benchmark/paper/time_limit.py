"""A limit on the processor time of one call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TimeLimitError(Exception):
    """A call took longer than it was allowed to."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, by a signal; where there are none (or in other threads) nothing happens.

    Args:
        seconds: The processor time that is allowed; infinity for no limit.

    Raises:
        TimeLimitError: If it was not enough.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or seconds == float("inf"):
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
