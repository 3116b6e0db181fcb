"""Finished parts of a run on disk, so that an interrupted one can go on."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from captum_goat.bulk.ranks import Ranks
from captum_goat.bulk.run_lock import RunLock
from captum_goat.runs.atomic_files import replaced
from captum_goat.runs.digests import digest_of

# What the parts of one run have in common, by name; plain values, so that they can be read and compared.
Record = dict[str, Any]

_RUN, _LOCK = "run.json", "lock"
_PART, _BEGINNING = re.compile(r"\d{8}\.part"), re.compile(r"lock|run\.\d+\.unfinished")
_UNFINISHED = re.compile(r"whole\.(pt|parquet)|[a-z_]+\.whole|(run|\d{8})\.\d+\.unfinished")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DamagedPartError(ValueError):
    """A part whose contents are not those that were written."""


@dataclass(frozen=True)
class PartFolder:
    """A folder beside the file that a run is to end with: one file per batch, and ``run.json``, which says what run.

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def beside(cls, out: Path) -> PartFolder:
        """Return the folder for the parts of a file."""
        return cls(out.with_name(f"{out.name}.parts"))

    @contextmanager
    def claimed(self, ranks: Ranks) -> Iterator[None]:
        """Make the folder, and keep other runs out of it.

        Args:
            ranks: The processes of this run, all of which must come here.

        Raises:
            BlockingIOError: If another run writes to it.
            ValueError: If no run has made the folder.
        """
        lock = RunLock(self.path / _LOCK)

        def claim() -> None:
            taken = False
            while not taken:
                self._record()  # refuses folders of others, before a file is added
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
            record: What run this is.
            count: How many parts it has.
            resume: Whether to go on with the parts that are there. Otherwise they are deleted.

        Returns:
            The digests of the graphs in the finished parts, by the numbers of the parts; without parts that are
            damaged, as after a power failure.

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
        """Raise a ValueError if a part is about other graphs than those in the data set."""
        if digest != expected:
            raise self._of_another_run("graphs")

    def write(self, number: int, part: dict[str, Any], record: Record) -> None:
        """Write a part of a run, which appears when it is whole."""
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
            f"Expected {self._file(number)} as it was written (got other contents). Call again: the damaged part is "
            "explained again, the others are kept."
        )

    def read_all(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield parts one after the other.

        Raises:
            DamagedPartError: If one is not what was written.
            FileNotFoundError: If one is missing.
        """
        for number in range(count):
            if not self._file(number).is_file():
                raise FileNotFoundError(
                    f"Expected {count} parts in {self.path} (got none with number {number}). Every process of a run "
                    "must write to the same folder: on several machines, to one that they share."
                )
            yield self.read(number)

    def remove(self) -> None:
        """Delete what the run has written to the folder, and the folder if nothing else is in it."""
        self.delete_unfinished()
        self._delete_parts()
        (self.path / _RUN).unlink()  # last, since by it the folder is known to be ours
        (self.path / _LOCK).unlink()
        with suppress(OSError):  # it has files of others, or the next run has come already
            self.path.rmdir()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"

    def _files(self) -> list[Path]:
        return [file for file in self.path.glob("*") if file.is_file()]

    def _record(self) -> Record | None:
        """Return what run has made the folder; ``None`` if it is empty or does not exist."""
        if all(_BEGINNING.fullmatch(file.name) for file in self.path.glob("*")):
            return None
        try:
            known: Record = dict(json.loads((self.path / _RUN).read_text(encoding="utf-8"))["captum_goat"])
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"Expected {self.path} to be the folder of a run (got one without a readable {_RUN}). Nothing in it "
                "was touched: move it away, or choose another file."
            ) from error
        return known

    def _delete_parts(self) -> None:
        for file in self._files():
            if _PART.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def delete_unfinished(self) -> None:
        """Delete files that were not finished, while no other process writes any."""
        for file in self._files():
            if _UNFINISHED.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def _of_another_run(self, difference: str) -> ValueError:
        return ValueError(
            f"Expected parts of this very run in {self.path} (got some of a run that differs in {difference}). Pass "
            "resume=False to delete them and start anew, or choose another file."
        )


@contextmanager
def full_disk_explained(folder: Path) -> Iterator[None]:
    """Say what to do if the disk that a run writes its folder to is full."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch.save hides what write() raised
        if not isinstance(cause, OSError) or cause.errno not in _FULL:
            raise
        raise OSError(
            cause.errno,
            f"Expected room on the disk of {folder} (got: {os.strerror(cause.errno)}). The finished parts are kept: "
            "make room and call again",
        ) from error


def _header(content: bytes | memoryview) -> bytes:
    """Return the line that comes before the content of a part, with its checksum."""
    return f"captum_goat part {hashlib.sha256(content).hexdigest()}\n".encode()
