"""A lock that keeps two runs from writing to the same file."""

from __future__ import annotations

import errno
import logging
import os
import socket
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BUSY = (errno.EACCES, errno.EAGAIN)
_held: dict[str, RunLock] = {}  # in this process, whose threads share the locks that the system gives it


class RunLock:
    """A lock on a file, which the system releases when the process ends, however it ends.

    Processes that are forked off, such as the workers of a ``DataLoader``, do not hold it.

    Args:
        path: The file; it is made if need be, in a folder that must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = str(path.absolute())
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock.

        Returns:
            Whether it was taken. If not, another run has deleted the file in between: try again.

        Raises:
            BlockingIOError: If another run has it.
        """
        if _held.setdefault(self._key, self) is not self:
            raise self._busy(f"process {os.getpid()}, this one")
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            self._lock(self._descriptor)
            taken = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            taken = False
        except BaseException:
            self.release()
            raise
        if not taken:
            self.release()
        return taken

    def release(self) -> None:
        """Give the lock back, if it was taken."""
        if _held.get(self._key) is self:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            del _held[self._key]

    def _lock(self, descriptor: int) -> None:
        try:
            if fcntl is None:
                raise OSError(errno.ENOSYS, "no fcntl")
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                raise self._busy(os.read(descriptor, 1000).decode(errors="replace") or "another process") from error
            logging.warning(f"{self._path} cannot be locked ({error}): see to it that one run at a time writes there")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    def _busy(self, owner: str) -> BlockingIOError:
        return BlockingIOError(
            f"Expected no other run that writes to {self._path.parent} (got {owner}). Wait until it has finished, or "
            "choose another file."
        )
