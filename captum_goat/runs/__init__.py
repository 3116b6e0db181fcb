"""What long runs need: progress bars, and digests that tell whether a model and its data are the same as before."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pickle import PicklingError
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex, Index
from torch_geometric.inspector import Inspector
from tqdm import tqdm

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, torch.dtype, torch.layout, torch.device)
_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")  # dictionaries whose keys are running numbers
_LIBRARIES = {"numpy", "torch", "torch_geometric", *sys.stdlib_module_names}  # told by names alone


@contextmanager
def progress_bar(total: int, unit: str, shown: bool, title: str = "explaining") -> Iterator[Callable[[int], object]]:
    """Show a progress bar, and yield a function that advances it."""
    with tqdm(total=total, desc=title, unit=unit, disable=not shown) as bar:
        yield bar.update


def digest_of(values: Mapping[str, object]) -> str:
    """Return a hash of values by name: of their contents, whatever they print, and of the code of functions.

    Functions and classes are hashed by their code, with defaults and closures, but not the globals that they name;
    those of torch, PyG, NumPy and Python by name. The hash is the same in every process.
    """
    return _Hasher().digest(sorted(values.items())).hex()[:32]


class _Hasher:
    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}  # with the objects, so that their ids stay theirs

    def digest(self, value: object) -> bytes:
        """Return the hash of a value. Inside itself, a value is hashed as a mark."""
        if type(value) in _PLAIN:
            return hashlib.sha256(f"{type(value).__name__}:{value!r}".encode("utf-8", "surrogatepass")).digest()
        if id(value) not in self._known:
            self._known[id(value)] = value, b"inside itself"
            result = hashlib.sha256(b"class" if isinstance(value, type) else type(value).__name__.encode())
            is_set = isinstance(value, set | frozenset)
            for part in sorted(map(self.digest, value)) if is_set else _parts(value):  # type: ignore[call-overload]
                result.update(part if isinstance(part, memoryview) else self.digest(part))
            self._known[id(value)] = value, result.digest()
        return self._known[id(value)][1]


def _parts(value: Any) -> Iterable[Any]:
    """Return what a value is made of: values with digests of their own, and a memoryview of plain contents."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return [str(value.dtype.descr), value.shape, memoryview(value.tobytes())]
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, Module):
        return _module(value)
    if isinstance(value, FunctionType):
        return _function(value)
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, value.co_varnames, value.co_consts]
    if isinstance(value, staticmethod | classmethod | property):
        return [getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel")]
    if type(value) is dict:
        return value.items()
    return value if type(value) in (list, tuple) else _state(value)


def _tensor(value: Tensor) -> list[Any]:
    plain = value.as_tensor() if isinstance(value, EdgeIndex | Index) else value.detach()
    if is_lazy(value) or plain.is_meta:
        return ["without numbers"]
    if plain.layout == torch.strided and not plain.is_nested and not plain.is_quantized:
        contents = plain.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().data
        return [plain.dtype, tuple(plain.shape), contents]
    content = io.BytesIO()  # of sparse, nested or quantized tensors
    torch.save(plain, content)
    return [content.getbuffer()]


def _module(module: Module) -> Iterator[Any]:
    yield type(module)
    for name, value in sorted(vars(module).items()):
        if name != "training" and not isinstance(value, Inspector):  # which knows what the class says
            yield name
            yield list(value.values()) if name.endswith(_HOOKS) and isinstance(value, dict) else value


def _class(value: type) -> Iterator[Any]:
    yield f"{value.__module__}.{value.__qualname__}"
    if value.__module__.partition(".")[0] in _LIBRARIES:
        return
    yield value.__bases__
    for name, member in sorted(vars(value).items()):
        # Functions of other modules are those that PyG generates, or keeps, when the first layer is made.
        is_function = isinstance(member, FunctionType) and member.__module__ == value.__module__
        if is_function or not (isinstance(member, FunctionType) or name.startswith("__") or name == "_abc_impl"):
            yield name
            yield member


def _function(function: FunctionType) -> Iterator[Any]:
    is_library = (function.__module__ or "").partition(".")[0] in _LIBRARIES
    yield f"{function.__module__}.{function.__qualname__}" if is_library else function.__code__
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None


def _state(value: Any) -> list[Any]:
    """Return what pickle would save of an object; of one that cannot be saved, its type and its attributes."""
    try:
        reduced = value.__reduce_ex__(4)
    except (AttributeError, PicklingError, RuntimeError, TypeError):
        return [type(value), getattr(value, "__dict__", None)]
    if isinstance(reduced, str):
        return [type(value), getattr(value, "__module__", None), reduced, getattr(value, "__wrapped__", None)]
    # A function and its arguments, then perhaps a state and iterators over items.
    return [type(value), *(list(part) if isinstance(part, Iterator) else part for part in reduced)]
