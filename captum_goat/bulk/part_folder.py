"""Finished parts of a run on disk, so that an interrupted run can continue."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from captum_goat.bulk.ranks import Ranks
from captum_goat.runs.atomic_files import replaced
from captum_goat.runs.digests import digest_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# The options of a run by name, as plain values.
Record = dict[str, Any]

_RUN, _LOCK = "run.json", "lock"
_PART, _BEGINNING = re.compile(r"\d{8}\.part"), re.compile(r"lock|run\.\d+\.unfinished")
_UNFINISHED = re.compile(r"whole\.(pt|parquet)|[a-z_]+\.whole|(run|\d{8})\.\d+\.unfinished")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BUSY = (errno.EACCES, errno.EAGAIN)
_held: dict[str, _RunLock] = {}  # in this process, whose threads share the locks that the system gives it


class DamagedPartError(ValueError):
    """The contents of a part are not those that were written."""


@dataclass(frozen=True)
class PartFolder:
    """A folder beside the file that a run writes: one file per batch, and ``run.json`` with the options of the run."""

    path: Path

    @classmethod
    def beside(cls, out: Path) -> PartFolder:
        """Return the folder for the parts of a file."""
        return cls(out.with_name(f"{out.name}.parts"))

    @contextmanager
    def claimed(self, ranks: Ranks) -> Iterator[None]:
        """Make the folder, and keep other runs out of it; called by all processes of the run.

        Raises:
            BlockingIOError: If another run writes to it.
            ValueError: If it exists, but is not the folder of a run.
        """
        lock = _RunLock(self.path / _LOCK)

        def claim() -> None:
            taken = False
            while not taken:
                self._record()  # raises for other folders, before a file is added
                with full_disk_explained(self.path):
                    self.path.mkdir(parents=True, exist_ok=True)
                    taken = lock.acquire()

        ranks.once(claim)
        try:
            yield
        finally:
            lock.release()

    def prepare(self, record: Record, count: int, *, resume: bool) -> dict[int, str]:
        """Find the parts of the same run in the folder, which must have been claimed.

        Args:
            record: The options of the run.
            count: The number of its parts.
            resume: Whether to use the parts that are there; otherwise they are deleted.

        Returns:
            The digests of the graphs in the finished parts, by number; without damaged parts, as after a power failure.

        Raises:
            ValueError: If the folder has parts of another run.
        """
        known = self._record() if resume else None
        if not resume:
            self._delete_parts()
        if known is None:
            with full_disk_explained(self.path), replaced(self.path / _RUN, sync=True) as file:
                file.write(json.dumps({"captum_goat": record}).encode())
        elif known != json.loads(json.dumps(record)):
            differences = [name for name in record if name not in known or known[name] != record[name]]
            raise self._of_another_run(", ".join(differences))
        self.delete_unfinished()
        finished, run = {}, digest_of(record)
        for number in sorted(int(file.stem) for file in self._files() if _PART.fullmatch(file.name)):
            with suppress(DamagedPartError):
                part = self.read(number)
                if part["run"] != run or number >= count:
                    raise self._of_another_run(f"the part {number}")
                finished[number] = part["digest"]
        return finished

    def check(self, digest: str, expected: str) -> None:
        """Raise ValueError if a part has other graphs than the dataset."""
        if digest != expected:
            raise self._of_another_run("graphs")

    def write(self, number: int, part: dict[str, Any], record: Record) -> None:
        """Write a part, which appears when it is complete."""
        content = io.BytesIO()
        torch.save(part | {"run": digest_of(record)}, content)
        with full_disk_explained(self.path), replaced(self._file(number)) as file:
            file.write(_header(content.getbuffer()))
            file.write(content.getbuffer())

    def read(self, number: int) -> dict[str, Any]:
        """Read a part.

        Raises:
            DamagedPartError: If it is not what was written.
        """
        with self._file(number).open("rb") as file:
            header, content = file.readline(), file.read()
        if header == _header(content):
            with suppress(UnpicklingError):  # something else, with a checksum of its own
                part: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
                return part
        raise DamagedPartError(
            f"Expected {self._file(number)} as it was written (got other contents). Call again: only the damaged part "
            "is explained again."
        )

    def read_all(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield all parts in order.

        Raises:
            DamagedPartError: If one is not what was written.
            FileNotFoundError: If one is missing.
        """
        for number in range(count):
            if not self._file(number).is_file():
                raise FileNotFoundError(
                    f"Expected {count} parts in {self.path} (got none with number {number}). All processes of a run "
                    "must write to the same folder; on several machines, to a shared one."
                )
            yield self.read(number)

    def remove(self) -> None:
        """Delete what the run has written to the folder, and the folder if nothing else is in it."""
        self.delete_unfinished()
        self._delete_parts()
        (self.path / _RUN).unlink()  # last, since it marks the folder as ours
        (self.path / _LOCK).unlink()
        with suppress(OSError):  # it has other files, or the next run has begun
            self.path.rmdir()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"

    def _files(self) -> list[Path]:
        return [file for file in self.path.glob("*") if file.is_file()]

    def _record(self) -> Record | None:
        """Return the options of the run that made the folder; ``None`` if it is empty or does not exist."""
        if all(_BEGINNING.fullmatch(file.name) for file in self.path.glob("*")):
            return None
        try:
            known: Record = dict(json.loads((self.path / _RUN).read_text(encoding="utf-8"))["captum_goat"])
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"Expected {self.path} to be the folder of a run (got one without a readable {_RUN}). Nothing in it "
                "was changed: move it away, or choose another file."
            ) from error
        return known

    def _delete_parts(self) -> None:
        for file in self._files():
            if _PART.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def delete_unfinished(self) -> None:
        """Delete unfinished files, while no other process writes any."""
        for file in self._files():
            if _UNFINISHED.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def _of_another_run(self, difference: str) -> ValueError:
        return ValueError(
            f"Expected parts of this run in {self.path} (got parts of a run that differs in {difference}). Pass "
            "resume=False to delete them and start again, or choose another file."
        )


@contextmanager
def full_disk_explained(folder: Path) -> Iterator[None]:
    """Raise an OSError that says what to do if the disk is full."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch.save hides what write() raised
        if not isinstance(cause, OSError) or cause.errno not in _FULL:
            raise
        raise OSError(
            cause.errno,
            f"Expected free space on the disk of {folder} (got: {os.strerror(cause.errno)}). The finished parts are "
            "kept: free some space and call again",
        ) from error


def _header(content: bytes | memoryview) -> bytes:
    """Return the first line of a part, with the checksum of its content."""
    return f"captum_goat part {hashlib.sha256(content).hexdigest()}\n".encode()


class _RunLock:
    """A lock on a file, which the system releases when the process ends, however it ends.

    Forked processes, such as the workers of a ``DataLoader``, do not hold it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = str(path.absolute())
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock, and return whether it was taken; if not, another run has deleted the file: try again.

        Raises:
            BlockingIOError: If another run has the lock.
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
        """Release the lock, if it was taken."""
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
            logging.warning(f"{self._path} cannot be locked ({error}): let only one run at a time write there")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    def _busy(self, owner: str) -> BlockingIOError:
        return BlockingIOError(
            f"Expected no other run that writes to {self._path.parent} (got {owner}). Wait for it, or choose another "
            "file."
        )
