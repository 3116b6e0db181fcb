"""How an operation was called: its input, and whether that is changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch.nn import Module


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the first argument of a call."""
    return args[0] if args else kwargs["input"]


def is_inplace(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call changes its first argument."""
    module = getattr(func, "__self__", None)
    if isinstance(module, Module):
        return bool(getattr(module, "inplace", False))
    name, position = getattr(func, "__name__", ""), inplace_position(func)
    if position is not None:
        return bool(args[position] if len(args) > position else kwargs.get("inplace", False))
    return name.endswith("_") and not name.endswith("__")


def inplace_position(func: Callable[..., Any]) -> int | None:
    """Return where a function takes ``inplace``, if it does."""
    return _find_inplace(func) if inspect.isfunction(func) else None


@cache
def _find_inplace(func: Callable[..., Any]) -> int | None:
    names = list(inspect.signature(func).parameters)
    return names.index("inplace") if "inplace" in names else None
