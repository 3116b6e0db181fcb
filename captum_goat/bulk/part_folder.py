"""Finished parts of a run on disk, so that an interrupted run can continue."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, TextIO

import torch

from captum_goat.bulk.ranks import Ranks
from captum_goat.runs.digests import digest_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNFINISHED = ".unfinished"  # how the names of files end that are being written
_RUN, _LOCK = "run.json", "lock"
_PARTS, _UNFINISHED = f"{'[0-9]' * 8}.part", f"*{UNFINISHED}"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_locks: set[TextIO] = set()
if hasattr(os, "register_at_fork"):  # a worker that outlives a killed run must not keep its lock
    os.register_at_fork(after_in_child=lambda: [file.close() for file in _locks])


class PartFolder:
    """The folder ``<out>.parts``: one file per finished batch, and ``run.json`` with the options of the run."""

    def __init__(self, out: Path, record: dict[str, Any], count: int) -> None:
        self.out, self.record, self.count = out, record, count
        self.path = out.with_name(f"{out.name}.parts")
        self._digest = digest_of(record)

    @contextmanager
    def claimed(self, ranks: Ranks) -> Iterator[None]:
        """Make the folder, and keep other runs out of it; called by all processes of the run."""
        with ExitStack() as stack:
            ranks.once(lambda: stack.enter_context(self._locked()))
            try:
                yield
            except BaseException:
                if ranks.count == 1 and not self._files(_PARTS):  # nothing that another call could go on with
                    self._remove()
                raise

    def prepare(self, *, resume: bool) -> dict[int, str]:
        """Return the digests of the graphs in the finished, undamaged parts of the same run, by number.

        Without ``resume``, parts are deleted. Parts of another run raise ValueError.
        """
        known = self._known_record()
        if not resume:
            self._delete(_PARTS)
        if known is None or not self._files(_PARTS):  # nothing was finished
            with full_disk_explained(self.path), replaced(self.path / _RUN) as file:
                file.write(json.dumps({"captum_goat": self.record}).encode())
        elif known != json.loads(json.dumps(self.record)):
            names = [name for name, value in self.record.items() if name not in known or known[name] != value]
            raise self.of_another_run(", ".join(names))
        self._delete(_UNFINISHED)
        finished = {}
        for number in sorted(int(file.stem) for file in self._files(_PARTS)):
            part = self._read(number)
            if part is not None and (part["run"] != self._digest or number >= self.count):
                raise self.of_another_run(f"the part {number}")
            if part is not None:
                finished[number] = part["digest"]
        return finished

    def write(self, number: int, part: dict[str, Any]) -> None:
        """Write a part, which appears when it is complete."""
        content = io.BytesIO()
        torch.save(part | {"run": self._digest}, content)
        with full_disk_explained(self.path), replaced(self._file(number)) as file:
            file.write(_header(content.getbuffer()))
            file.write(content.getbuffer())

    def read(self, number: int) -> dict[str, Any]:
        """Read a part; raise ValueError if it is not what was written, FileNotFoundError if it is missing."""
        if not self._file(number).is_file():
            raise FileNotFoundError(
                f"Expected {self.count} parts in {self.path} (got none with number {number}). All processes of a run "
                "must write to the same folder; on several machines, to a shared one."
            )
        part = self._read(number)
        if part is None:
            raise ValueError(
                f"Expected {self._file(number)} as it was written (got other contents). Call again: only the damaged "
                "part is explained again."
            )
        return part

    def _read(self, number: int) -> dict[str, Any] | None:
        """Read a part; return ``None`` if it is damaged."""
        with self._file(number).open("rb") as file:
            header, content = file.readline(), file.read()
        with suppress(UnpicklingError):  # something else, with a checksum of its own
            return torch.load(io.BytesIO(content), weights_only=True) if header == _header(content) else None
        return None

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Yield all parts in order."""
        return map(self.read, range(self.count))

    @contextmanager
    def merging(self) -> Iterator[Path]:
        """Yield a path to merge the parts at; then move that file to ``out``, and delete what the run has written."""
        merged = self.path / f"whole{UNFINISHED}"
        try:
            with full_disk_explained(self.path):
                yield merged
                with merged.open("rb") as file:
                    os.fsync(file.fileno())  # before the parts are deleted
            merged.replace(self.out)
        finally:
            self._delete(_UNFINISHED)
        self._delete(_PARTS)
        self._remove()

    def of_another_run(self, difference: str) -> ValueError:
        """Return the error for parts that cannot be used."""
        return ValueError(
            f"Expected parts of this run in {self.path} (got parts of a run that differs in {difference}). Pass "
            "resume=False to delete them and start again, or choose another file."
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Make and lock the folder. The system releases the lock when the process ends, however it ends."""
        file = None
        while file is None:  # another run may just have deleted the folder
            self._known_record()  # raises for other folders, before a file is added
            with full_disk_explained(self.path), suppress(FileNotFoundError):
                self.path.mkdir(parents=True, exist_ok=True)
                file = _locked_file(self.path / _LOCK)
        _locks.add(file)
        try:
            yield
        finally:
            _locks.remove(file)
            file.close()

    def _remove(self) -> None:
        """Remove what is left in the folder when it has no parts; ``run.json`` last, since it marks it as ours."""
        self._delete(_UNFINISHED)
        (self.path / _RUN).unlink(missing_ok=True)
        (self.path / _LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # it has other files, or the next run has begun
            self.path.rmdir()

    def _known_record(self) -> dict[str, Any] | None:
        """Return the options of the run that made the folder; ``None`` if it is empty or does not exist."""
        if all(file.name == _LOCK or file.match(_UNFINISHED) for file in self.path.glob("*")):
            return None
        try:
            known: dict[str, Any] = dict(json.loads((self.path / _RUN).read_text(encoding="utf-8"))["captum_goat"])
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"Expected {self.path} to be the folder of a run (got one without a readable {_RUN}). Nothing in it "
                "was changed: move it away, or choose another file."
            ) from error
        return known

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"

    def _files(self, pattern: str) -> list[Path]:
        return [file for file in self.path.glob(pattern) if file.is_file()]

    def _delete(self, pattern: str) -> None:
        for file in self._files(pattern):
            file.unlink(missing_ok=True)


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when it is on the disk, and is deleted if an error comes first."""
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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
    return f"captum_goat part {hashlib.sha256(content).hexdigest()}\n".encode()


def _locked_file(path: Path) -> TextIO | None:
    """Open and lock a file; return ``None`` if another run has just deleted it."""
    with ExitStack() as stack:  # closes the file, unless it is returned
        file = stack.enter_context(path.open("a+", encoding="utf-8"))
        file.seek(0)
        try:
            if fcntl is None:
                raise OSError(errno.ENOSYS, "no fcntl")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"Expected no other run that writes to {path.parent} (got {file.read() or 'another process'}). Wait "
                "for it, or choose another file."
            ) from error
        except OSError as error:  # on Windows and some network file systems
            logging.warning(f"{path.parent} cannot be locked ({error}): let only one run at a time write there")
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return None
        file.truncate(0)
        print(f"process {os.getpid()} on {socket.gethostname()}", end="", file=file, flush=True)
        stack.pop_all()
    return file
