"""Finished parts of a run on disk, so that it can continue, and the processes that share the run."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, TextIO, TypeVar

import torch
import torch.distributed as dist

from captum_goat.runs import digest_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
UNFINISHED = ".unfinished"  # how the names of files end that are being written
_RUN, _LOCK = "run.json", "lock"
_PARTS, _UNFINISHED = f"{'[0-9]' * 8}.part", f"*{UNFINISHED}"


@dataclass(frozen=True)
class Ranks:
    """The number of this process, and how many processes the run has."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """Return the processes of ``torch.distributed``, or this one alone if that is not initialised."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def once(self, action: Callable[[], T]) -> T:
        """Let the first process do something when all are here; return its result, or raise its error, in all."""
        if self.count == 1:
            return action()
        dist.barrier()
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome[0] = action()
            except Exception as error:  # raised below, in all processes
                outcome[1] = error
        dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result


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
        """Return the digests of the graphs in the finished, undamaged parts by number; delete parts to start again.

        Parts of a run with other options raise ValueError.
        """
        known = self._known_record()
        if not resume:
            self._delete(_PARTS)
        parts = sorted(self._files(_PARTS))
        if known is None or not parts:  # nothing was finished
            with replaced(self.path / _RUN) as file:
                file.write(json.dumps({"captum_goat": self.record}).encode())
        elif known != json.loads(json.dumps(self.record)):
            names = [name for name, value in self.record.items() if name not in known or known[name] != value]
            raise self.of_another_run(", ".join(names))
        self._delete(_UNFINISHED)
        finished = {}
        for number in (int(file.stem) for file in parts):
            if (part := self.read(number)) is not None:
                finished[number] = part["digest"]
        return finished

    def write(self, number: int, part: dict[str, Any]) -> None:
        """Write a part, which appears when it is complete."""
        content = io.BytesIO()
        torch.save(part, content)
        with replaced(self._file(number)) as file:
            file.write(self._header(number, content.getbuffer()))
            file.write(content.getbuffer())

    def read(self, number: int) -> dict[str, Any] | None:
        """Read a part; return ``None`` if it is missing, damaged, or of another run."""
        with suppress(FileNotFoundError, UnpicklingError):  # something else, with a checksum of its own
            header, _, content = self._file(number).read_bytes().partition(b"\n")
            if header + b"\n" == self._header(number, content):
                part: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
                return part
        return None

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Yield all parts in order; raise ValueError if one is missing or damaged."""
        for number in range(self.count):
            if (part := self.read(number)) is None:
                raise ValueError(
                    f"Expected {self._file(number)} as it was written (got none, or other contents). Call again: only "
                    "the damaged part is explained again. Processes on several machines need a shared folder."
                )
            yield part

    @contextmanager
    def merging(self) -> Iterator[Path]:
        """Yield a path to merge the parts at; then move that file to ``out``, and delete what the run has written."""
        merged = self.path / f"whole{UNFINISHED}"
        try:
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
        with ExitStack() as stack:
            while True:  # another run may just have deleted the folder
                self._known_record()  # raises for other folders, before a file is added
                with suppress(FileNotFoundError):
                    self.path.mkdir(parents=True, exist_ok=True)
                    file = stack.enter_context((self.path / _LOCK).open("w"))
                    _lock(file, self.path)
                    if os.path.samestat(os.fstat(file.fileno()), (self.path / _LOCK).stat()):
                        break
            yield

    def _header(self, number: int, content: bytes | memoryview) -> bytes:
        return f"captum_goat part {self._digest} {number} {hashlib.sha256(content).hexdigest()}\n".encode()

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


def _lock(file: TextIO, folder: Path) -> None:
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no fcntl")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"Expected no other run that writes to {folder} (got one). Wait for it, or choose another file."
        ) from error
    except OSError as error:  # on Windows and some network file systems
        logging.warning(f"{folder} cannot be locked ({error}): let only one run at a time write there")
