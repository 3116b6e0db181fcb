"""Peak memory and time of one call in a process of its own.

The largest amount of memory that a process ever had cannot be told from outside what it is due to. So each call gets a
new process, which makes model and graph, gives back what it does not need, sets the kernel's high-water mark to what is
left, and calls. The processes are forked from a server that has imported everything and has run nothing.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

IMPORTED = "benchmarks.speed.scaling"  # by the server, and with it nearly everything
PATIENCE = 10.0  # seconds in which a process may end when it is done
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_FULL = ("can't allocate memory", "not enough memory", "out of memory")


class TooLargeError(Exception):
    """A call took more time or memory than it may."""


class Apart(NamedTuple):
    """The time, memory and result of a call in its own process.

    Attributes:
        seconds: Its time.
        peak: The memory in bytes that it had at most, beyond what was there before; ``nan`` where the system does not
            tell.
        result: What it returned.
    """

    seconds: float
    peak: float
    result: Any


def call_apart(
    prepare: Callable[..., Callable[[], Any]],
    arguments: tuple[Any, ...],
    *,
    threads: int,
    seconds: float,
    memory: float,
) -> Apart:
    """Measure a call in a new process.

    Args:
        prepare: A function that can be imported. It makes what the call needs, and returns the call, whose result has
            to be small. It is not measured.
        arguments: Its arguments.
        threads: How many threads torch uses.
        seconds: The time after which the process is ended, ``prepare`` included.
        memory: The bytes that the call may take.

    Returns:
        Time, peak memory and result.

    Raises:
        TooLargeError: If the call took too much time or memory.
        RuntimeError: If it failed otherwise.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([IMPORTED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(sender, prepare, arguments, threads, memory), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise TooLargeError(f"more than {seconds:g} seconds")
        answer = receiver.recv()
        process.join(PATIENCE)  # so that it ends by itself and clears away
    except EOFError:
        process.join()
        raise TooLargeError(f"the process ended with code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(answer, Apart):
        return answer
    raise TooLargeError("out of memory") if answer is None else RuntimeError(answer)


def _measure(
    sender: Connection,
    prepare: Callable[..., Callable[[], Any]],
    arguments: tuple[Any, ...],
    threads: int,
    memory: float,
) -> None:
    torch.set_num_threads(threads)
    try:
        call = prepare(*arguments)
        _limit(memory)
        before = _reset_peak()
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        sender.send(Apart(seconds, _status("VmHWM") - before, result))
    except Exception as error:
        full = isinstance(error, MemoryError) or any(phrase in str(error) for phrase in _FULL)
        sender.send(None if full else f"{type(error).__name__}: {error}")
    finally:
        sender.close()


def _limit(memory: float) -> None:
    """Limit the memory that this process may take in addition to its current memory."""
    taken = _status("VmData")
    if taken == taken:
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (int(taken + memory), most))


def _reset_peak() -> float:
    """Release free memory, reset the peak, and return the current memory of this process."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return float("nan")
    return _status("VmRSS")


def _status(name: str) -> float:
    """Return an entry of the kernel's status of this process in bytes; ``nan`` if there is none."""
    lines = _STATUS.read_text(encoding="ascii").splitlines() if _STATUS.is_file() else []
    values = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return 1024 * float(next(values, "nan"))
