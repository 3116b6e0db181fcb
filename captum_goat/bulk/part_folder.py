"""Finished parts of a run on disk, so that an interrupted one can go on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

# What the parts of one run have in common, by name; plain values, so that they can be read and compared.
Record = dict[str, Any]


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

    def prepare(self, record: Record, *, resume: bool) -> dict[int, str]:
        """Make the folder, or find the parts of the same run in it.

        Args:
            record: What run this is.
            resume: Whether to go on with the parts that are there. Otherwise they are deleted.

        Returns:
            The digests of the graphs in the finished parts, by the numbers of the parts.

        Raises:
            ValueError: If the folder has parts of another run.
        """
        if not resume and self.path.exists():
            shutil.rmtree(self.path)
        known = self._record()
        if known is not None and known != record:
            differences = [name for name in record if name not in known or known[name] != record[name]]
            raise self._of_another_run(", ".join(differences))
        self.path.mkdir(parents=True, exist_ok=True)
        if known is None:
            _replace(self.path / "run.json", lambda path: path.write_text(json.dumps(record), encoding="utf-8"))
        numbers = (int(file.stem) for file in self.path.glob("*.pt") if file.stem.isdigit())
        parts = {number: self._digest(number) for number in sorted(numbers)}
        return {number: digest for number, digest in parts.items() if digest is not None}

    def check(self, digest: str, expected: str) -> None:
        """Raise a ValueError if a part is about other graphs than those in the data set."""
        if digest != expected:
            raise self._of_another_run("graphs")

    def write(self, number: int, part: dict[str, Any]) -> None:
        """Write a part, which appears when it is whole."""
        _replace(self._file(number), lambda path: torch.save(part, path))

    def read(self, number: int) -> dict[str, Any]:
        """Read a part; its tensors stay on disk until they are used."""
        part: dict[str, Any] = torch.load(str(self._file(number)), weights_only=True, mmap=True)
        return part

    def read_all(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield parts one after the other.

        Raises:
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
        """Delete the folder and all that is in it."""
        shutil.rmtree(self.path)

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08d}.pt"

    def _record(self) -> Record | None:
        file = self.path / "run.json"
        if not file.is_file():
            if any(self.path.glob("*")):
                raise self._of_another_run("origin")
            return None
        known: Record = json.loads(file.read_text(encoding="utf-8"))
        return known

    def _digest(self, number: int) -> str | None:
        """Return the digest in a part; ``None`` if it cannot be read, as after a power failure."""
        try:
            digest: str = self.read(number)["digest"]
        except (EOFError, KeyError, RuntimeError, UnpicklingError):
            return None
        return digest

    def _of_another_run(self, difference: str) -> ValueError:
        return ValueError(
            f"Expected parts of this very run in {self.path} (got some of a run that differs in {difference}). Pass "
            "resume=False to delete them and start anew, or choose another file."
        )


def _replace(path: Path, write: Any) -> None:
    """Write a file under another name first, so that it appears when it is whole."""
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}.unfinished")
    write(unfinished)
    unfinished.replace(path)
