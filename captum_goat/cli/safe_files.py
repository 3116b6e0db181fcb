"""Files that are read without executing what is in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch


def safe_load(path: Path, expected: str, advice: str, classes: Sequence[type] = ()) -> Any:
    """Read tensors and plain values, to the CPU.

    Args:
        path: The file.
        expected: What it should have.
        advice: What to do if it has something else.
        classes: What objects it may have.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If there is something else in it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected {expected} in {path} (got no such file).")
    try:
        with _allowed(classes):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (EOFError, RuntimeError, UnpicklingError) as error:
        culprit = re.search(r"(?:GLOBAL|function|class) <?([\w.]*\.\w+)", str(error))
        got = culprit.group(1) if culprit else "something else"
        raise ValueError(f"Expected {expected} in {path} (got {got}). {advice}") from error


def _allowed(classes: Sequence[type]) -> AbstractContextManager[object]:
    """Let files have objects of some classes; for good in torch 2.4, where this cannot be taken back."""
    # Classes that are allowed already, by PyG, would no longer be after the context.
    missing: list[Any] = [each for each in classes if each not in torch.serialization.get_safe_globals()]
    if hasattr(torch.serialization, "safe_globals"):
        context: AbstractContextManager[object] = torch.serialization.safe_globals(missing)
        return context
    torch.serialization.add_safe_globals(missing)
    return nullcontext()
