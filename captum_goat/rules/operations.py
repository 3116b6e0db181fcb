"""How operations of torch are spelled and called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]

_PLAIN_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)  # most of torch's


def spellings(*names: str) -> tuple[Any, ...]:
    """Return the functions of these names, in place or not, wherever torch has them."""
    places = (torch, Tensor, F, torch.special, torch.linalg)
    functions = [getattr(place, name + end, None) for place in places for name in names for end in ("", "_")]
    return tuple({function for function in functions if callable(function)})


def operation_name(func: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of a module."""
    owner = getattr(func, "__self__", None)
    return type(owner).__name__ if isinstance(owner, Module) else func.__name__


def kernel_name(func: Any) -> str | None:
    """Return the name of an operation that a package adds to torch, whose kernels may hide what they compute.

    A scripted function that calls such operations has the name of the first of them. It is ``None`` for all others.
    """
    if func.__class__ in _PLAIN_FUNCTIONS:
        return None
    if isinstance(func, torch._ops.OpOverloadPacket | torch._ops.OpOverload):
        package, name, *_ = str(func).split(".")
        return None if package == "aten" else f"{package}.{name}"
    return _first_kernel(func) if isinstance(func, torch.jit.ScriptFunction) else None


@cache
def _first_kernel(function: Any) -> str | None:
    calls = re.findall(r"= (\w+)::(\w+)", str(function.inlined_graph))
    return next((f"{package}.{name}" for package, name in calls if package not in ("aten", "prim")), None)


def input_of(args: Arguments, kwargs: Keywords) -> Any:
    """Return the first argument of a call."""
    return args[0] if args else kwargs["input"]


def is_inplace(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    """Return whether a call changes its first argument."""
    module = getattr(func, "__self__", None)
    if isinstance(module, Module):
        return bool(getattr(module, "inplace", False))
    name, position = getattr(func, "__name__", ""), inplace_position(func)
    if position is not None:
        return bool(args[position] if len(args) > position else kwargs.get("inplace", False))
    return name.endswith("_") and not name.endswith("__")


def inplace_position(func: Callable[..., Any]) -> int | None:
    """Return the position of a function's argument ``inplace``; ``None`` if it has none."""
    return _find_inplace(func) if inspect.isfunction(func) else None


@cache
def _find_inplace(func: Callable[..., Any]) -> int | None:
    names = list(inspect.signature(func).parameters)
    return names.index("inplace") if "inplace" in names else None


_NAMES_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim"}


def bind(names: tuple[str, ...], args: Arguments, kwargs: Keywords) -> Keywords:
    """Return the arguments of a call by torch's names, for which numpy's may stand."""
    return dict(zip(names, args, strict=False)) | {_NAMES_OF_NUMPY.get(name, name): kwargs[name] for name in kwargs}


def ratio(out: Tensor, value: Tensor) -> Tensor:
    """Return out / value, and 0 where value is 0."""
    return torch.where(value == 0, 0.0, out / value)
