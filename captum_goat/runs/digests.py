"""Hashes that tell whether a model and its data are the same as before, by their contents and their code."""

from __future__ import annotations

import functools
import hashlib
import io
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import PicklingError
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex, Index
from torch_geometric.inspector import Inspector

LENGTH = 32  # hexadecimal digits
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, torch.dtype, torch.layout, torch.device)
# Members of classes that say nothing about what they do. PyG keeps the methods that it generates under more names.
_NO_CODE = {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"}
_NO_CODE |= {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "_abc_impl"}
_NO_CODE |= {f"_{origin}_{method}" for origin in ("orig", "jinja") for method in ("propagate", "edge_updater")}
_GENERATED = ("_propagate", "_edge_updater")  # how the names of modules end that PyG makes from templates
_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")  # dictionaries whose keys are running numbers
_LIBRARIES = {"numpy", "torch", "torch_geometric", *sys.stdlib_module_names}  # told by names alone


def digest_of(values: Mapping[str, object]) -> str:
    """Return a hash of values by name: of their contents, whatever they print, and of the code of functions.

    Functions and classes are hashed by their code, with defaults, closures and the globals that they name; those of
    torch, PyG, NumPy and Python by name. The hash is the same in every process.
    """
    hasher, digest = _Hasher(), hashlib.sha256()
    for name, value in sorted(values.items()):
        digest.update(f"{name}:".encode())
        for chunk in hasher.chunks(value):
            digest.update(chunk)
    return digest.hexdigest()[:LENGTH]


class _Hasher:
    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}  # with the objects, so that their ids stay theirs

    def digest(self, value: object) -> bytes:
        """Return the hash of a value. Inside itself, a value is hashed as a mark."""
        if type(value) in _PLAIN:
            return _sha(self.chunks(value))
        if id(value) not in self._known:
            self._known[id(value)] = value, b"inside itself"
            self._known[id(value)] = value, _sha(self.chunks(value))
        return self._known[id(value)][1]

    def chunks(self, value: Any) -> Iterator[Any]:
        """Yield the bytes that a value is hashed by."""
        if isinstance(value, Tensor):
            yield from self._tensor(value)
        elif type(value) in _PLAIN:
            yield f"{type(value).__name__}:{value!r};".encode("utf-8", "surrogatepass")
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            yield f"array {value.dtype.descr}{value.shape};".encode()
            yield value.tobytes()
        else:
            yield f"{'class' if isinstance(value, type) else type(value).__name__};".encode()
            yield from self._object(value)

    def _tensor(self, value: Tensor) -> Iterator[Any]:
        plain = value.as_tensor() if isinstance(value, EdgeIndex | Index) else value.detach()
        if is_lazy(value) or plain.is_meta:
            yield f"{type(value).__name__} without numbers;".encode()
        elif plain.layout == torch.strided and not plain.is_nested and not plain.is_quantized:
            yield f"{plain.dtype}{list(plain.shape)};".encode()
            plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
            yield plain.reshape(-1).view(torch.uint8).numpy().data
        else:  # sparse, nested or quantized
            content = io.BytesIO()
            torch.save(plain, content)
            yield content.getbuffer()

    def _object(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, Module):
            yield from self._module(value)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, CodeType):
            yield from self._code(value)
        elif isinstance(value, staticmethod | classmethod):
            yield self.digest(value.__func__)
        elif isinstance(value, property):
            yield from map(self.digest, (value.fget, value.fset, value.fdel))
        elif isinstance(value, ModuleType):
            yield value.__name__.encode()
        elif isinstance(value, set | frozenset):
            yield from sorted(map(self.digest, value))
        elif type(value) in (dict, list, tuple):
            yield from map(self.digest, value.items() if isinstance(value, dict) else value)
        else:
            yield from map(self.digest, _state(value))

    def _module(self, module: Module) -> Iterator[bytes]:
        yield self.digest(type(module))
        for name, value in sorted(vars(module).items()):
            if name != "training" and not isinstance(value, Inspector):  # which knows what the class says
                hooks = name.endswith(_HOOKS) and isinstance(value, dict)
                yield from map(self.digest, (name, list(value.values()) if hooks else value))

    def _class(self, value: type) -> Iterator[bytes]:
        if _top_level(value) in _LIBRARIES:
            yield f"{value.__module__}.{value.__qualname__}".encode()
            return
        yield from map(self.digest, (value.__qualname__, value.__bases__))
        for name, member in sorted(vars(value).items()):
            generated = isinstance(member, FunctionType) and str(member.__module__).endswith(_GENERATED)
            if name not in _NO_CODE and not generated:
                yield from map(self.digest, (name, member))

    def _function(self, function: FunctionType) -> Iterator[bytes]:
        if _top_level(function) in _LIBRARIES and function.__closure__ is None:
            yield f"{function.__module__}.{function.__qualname__}".encode()
            return
        yield from map(self.digest, (function.__code__, function.__defaults__, function.__kwdefaults__))
        yield from map(self.digest, _closure(function))
        if _is_installed(_top_level(function)):
            return  # what it calls is installed as well
        names = sorted(_names(function.__code__))
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                yield from map(self.digest, (name, value))
                if isinstance(value, ModuleType) and not _is_installed(value.__name__.partition(".")[0]):
                    yield from (self.digest(vars(value)[member]) for member in names if member in vars(value))

    def _code(self, code: CodeType) -> Iterator[bytes]:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        handlers = getattr(code, "co_exceptiontable", b"")  # from Python 3.11 on
        yield from map(self.digest, (code.co_code, handlers, counts, names, code.co_consts))


def _sha(chunks: Iterator[Any]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


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


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None


def _names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in code, and in the functions that are defined in it."""
    return {*code.co_names}.union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _top_level(value: type | FunctionType) -> str:
    return (value.__module__ or "").partition(".")[0]


@functools.cache
def _is_installed(package: str) -> bool:
    """Return whether a package is part of Python, or where pip installs packages."""
    if package in _LIBRARIES:
        return True
    module = sys.modules.get(package)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    folders = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    return any(place is not None and Path(place).is_relative_to(folder) for place in places for folder in folders)
