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
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from captum_goat.bulk.ranks import Ranks
from captum_goat.runs.atomic_files import UNFINISHED, replaced
from captum_goat.runs.digests import digest_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_RUN, _LOCK = "run.json", "lock"
_PART, _BEGINNING = re.compile(r"\d{8}\.part"), re.compile(rf"lock|run\.\d+\{UNFINISHED}")
_UNFINISHED = re.compile(rf"[a-z\d_]+(\.\d+)?\{UNFINISHED}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BUSY = (errno.EACCES, errno.EAGAIN)
_locked: dict[str, object] = {}  # folders, by this process, whose threads share the locks that the system gives it


class DamagedPartError(ValueError):
    """The contents of a part are not those that were written."""


class PartFolder:
    """The folder ``<out>.parts``: one file per finished batch, and ``run.json`` with the options of the run."""

    def __init__(self, out: Path, record: dict[str, Any], count: int) -> None:
        self.out, self.record, self.count = out, record, count
        self.path = out.with_name(f"{out.name}.parts")
        self._digest = digest_of(record)

    @contextmanager
    def claimed(self, ranks: Ranks) -> Iterator[None]:
        """Make the folder, and keep other runs out of it; called by all processes of the run."""

        def claim() -> int:
            while True:
                self._known_record()  # raises for other folders, before a file is added
                with full_disk_explained(self.path):
                    self.path.mkdir(parents=True, exist_ok=True)
                    descriptor = _lock(self.path / _LOCK)
                if descriptor is not None:
                    return descriptor

        descriptor = ranks.once(claim)
        try:
            yield
        except BaseException:
            if ranks.count == 1 and not self._files(_PART):  # nothing that another call could go on with
                self._remove()
            raise
        finally:
            if ranks.is_first:
                _unlock(self.path / _LOCK, descriptor)

    def prepare(self, *, resume: bool) -> dict[int, str]:
        """Return the digests of the graphs in the finished, undamaged parts of the same run, by number.

        Without ``resume``, parts are deleted. Parts of another run raise ValueError.
        """
        known = self._known_record()
        if not resume:
            self._delete(_PART)
        if known is None or not self._files(_PART):  # nothing was finished
            with full_disk_explained(self.path), replaced(self.path / _RUN, sync=True) as file:
                file.write(json.dumps({"captum_goat": self.record}).encode())
        elif known != json.loads(json.dumps(self.record)):
            names = [name for name, value in self.record.items() if name not in known or known[name] != value]
            raise self.of_another_run(", ".join(names))
        self._delete(_UNFINISHED)
        finished = {}
        for number in sorted(int(file.stem) for file in self._files(_PART)):
            with suppress(DamagedPartError):
                part = self.read(number)
                if part["run"] != self._digest or number >= self.count:
                    raise self.of_another_run(f"the part {number}")
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
        """Read a part; raise DamagedPartError if it is not what was written."""
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

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Yield all parts in order; raise DamagedPartError or FileNotFoundError if one is damaged or missing."""
        for number in range(self.count):
            if not self._file(number).is_file():
                raise FileNotFoundError(
                    f"Expected {self.count} parts in {self.path} (got none with number {number}). All processes of a "
                    "run must write to the same folder; on several machines, to a shared one."
                )
            yield self.read(number)

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
        self._delete(_PART)
        self._remove()

    def _remove(self) -> None:
        """Remove what is left in the folder when it has no parts; ``run.json`` last, since it marks it as ours."""
        self._delete(_UNFINISHED)
        (self.path / _RUN).unlink(missing_ok=True)
        (self.path / _LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # it has other files, or the next run has begun
            self.path.rmdir()

    def of_another_run(self, difference: str) -> ValueError:
        """Return the error for parts that cannot be used."""
        return ValueError(
            f"Expected parts of this run in {self.path} (got parts of a run that differs in {difference}). Pass "
            "resume=False to delete them and start again, or choose another file."
        )

    def _known_record(self) -> dict[str, Any] | None:
        """Return the options of the run that made the folder; ``None`` if it is empty or does not exist."""
        if all(_BEGINNING.fullmatch(file.name) for file in self.path.glob("*")):
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

    def _files(self, names: re.Pattern[str]) -> list[Path]:
        return [file for file in self.path.glob("*") if names.fullmatch(file.name) and file.is_file()]

    def _delete(self, names: re.Pattern[str]) -> None:
        for file in self._files(names):
            file.unlink(missing_ok=True)


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


def _lock(path: Path) -> int | None:
    """Lock a file, and return its descriptor; ``None`` if another run has just deleted the file: try again.

    The system releases the lock when the process ends, however it ends. Forked workers do not hold it.
    """
    folder, mark, descriptor, is_ours = str(path.parent.absolute()), object(), -1, False
    if _locked.setdefault(folder, mark) is not mark:
        raise _busy(folder, f"process {os.getpid()}, this one")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        _lock_descriptor(descriptor, folder)
        is_ours = os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        pass
    finally:
        if not is_ours:
            _unlock(path, descriptor)
    return descriptor if is_ours else None


def _unlock(path: Path, descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
    del _locked[str(path.parent.absolute())]


def _lock_descriptor(descriptor: int, folder: str) -> None:
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no fcntl")
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise _busy(folder, os.read(descriptor, 1000).decode(errors="replace") or "another process") from error
        logging.warning(f"{folder} cannot be locked ({error}): let only one run at a time write there")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _busy(folder: str, owner: str) -> BlockingIOError:
    return BlockingIOError(
        f"Expected no other run that writes to {folder} (got {owner}). Wait for it, or choose another file."
    )
