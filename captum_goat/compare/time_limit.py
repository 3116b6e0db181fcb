"""A limit on the processor time of one call."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHORTEST = 0.001  # seconds from one look at the processor time to the next


class TimeLimitError(Exception):
    """A call took longer than it was allowed to."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, by a signal; where there are none (or in other threads) nothing happens.

    The timer is one of the clock, which looks at the processor time when it is over. While a timer of processor time
    runs, Linux may count that in ticks of some milliseconds only, and short calls could not be timed.

    Args:
        seconds: The processor time that is allowed; infinity for no limit.

    Raises:
        TimeLimitError: If it was not enough.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or seconds == float("inf"):
        yield
        return
    end = time.process_time() + seconds

    def stop(number: int, frame: Any) -> None:
        left = end - time.process_time()
        if left <= 0.0:
            raise TimeLimitError
        signal.setitimer(signal.ITIMER_REAL, max(left, SHORTEST))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
