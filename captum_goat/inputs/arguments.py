"""The arguments of a call of a model: what they are called, and what they were before Captum repeated them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_map_only
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing

from captum_goat.inputs.edge_sets import (
    EdgeSet,
    candidate_sets,
    describe,
    has_edges,
    is_edge_dict,
    is_edge_index,
    tensors_of,
)
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.sparse import is_adjacency

_USUAL_NAMES = ("x", "edge_index", "batch")  # of arguments that a model's forward does not name
_TENSORS = (*_USUAL_NAMES, "edge_attr", "edge_weight")  # arguments that no model takes as NumPy arrays

_signatures: WeakKeyDictionary[Any, inspect.Signature] = WeakKeyDictionary()


def signature_of(model: Module) -> inspect.Signature:
    """Return the signature of a model's forward; of one that wraps another (``__wrapped__``), that of the other."""
    model = inspect.unwrap(model)
    function = getattr(model.forward, "__func__", None)
    if function is None:  # set on the model itself
        return inspect.signature(model.forward)
    if function not in _signatures:
        _signatures[function] = inspect.signature(model.forward)
    return _signatures[function]


def named_arguments(
    model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], leading: int = 0, missing: str | None = None
) -> tuple[dict[str, Any], int]:
    """Return the arguments of a call by name, without ``leading`` first ones, and how many are passed by position."""
    for value in args:
        if isinstance(value, list | tuple) and value and isinstance(value[0], BaseData):
            raise ValueError(
                f"Expected one graph, or a Batch (got a {type(value).__name__} of {len(value)} graphs). "
                "Batch.from_data_list(graphs) makes a batch of several graphs."
            )
    if args and all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in args):
        args = (Data.from_dict(dict(args)),)  # some methods of Captum take a Data object for a sequence
    named = _unpacked(model, args[0], leading) if len(args) == 1 and isinstance(args[0], BaseData) else {}
    values = [None] * leading + ([] if named else list(args))
    if not named and missing in (names := _positional_names(model)[: len(values) + 1]):
        values.insert(names.index(missing), None)
    named = dict(zip(_argument_names(model, len(values)), values, strict=True)) | named | dict(kwargs)
    if missing is not None:
        named.setdefault(missing, None)
    known: dict[int, Any] = {}
    return {name: _plain(name, value, known) for name, value in named.items()}, len(values)


def number_of_masks(model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return how many masks, one per set of edges, stand before the arguments of a model's own."""
    masks = list(takewhile(lambda value: isinstance(value, Tensor) and value.is_floating_point(), args))
    while masks and masks[-1].shape[:-1] != masks[0].shape[:-1]:
        masks.pop()
    for number in range(len(masks), 1, -1):
        with suppress(TypeError):  # from arguments that do not fit the model's forward
            if not isinstance(args[-1], BaseData):
                signature_of(model).bind(*args[number:], **kwargs)
            sets = candidate_sets(named_arguments(model, args[number:], kwargs)[0], number)
            if len(sets) == number or any(isinstance(edges.key, tuple) for edges in sets):
                return number
    return 1


def attributes_for(model: Module, data: Data) -> list[str]:
    """Return the attributes of a graph that a model's forward takes by name; all if it takes the graph itself."""
    parameters, names = signature_of(model).parameters, list(data.keys())
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [one.name for one in parameters.values() if one.default is one.empty and one.kind not in variadic]
    taken = [name for name in names if name in parameters]
    if not taken and len(required) <= 1:
        return names
    if missing := [name for name in required if name not in names]:
        raise ValueError(
            f"Expected graphs with {', '.join(missing)}, which {type(model).__name__}.forward needs (got "
            f"{', '.join(names)}). Pass arguments=..., a function that returns the model's arguments for a graph."
        )
    return taken


def fresh(value: Any) -> Any:
    """Return an argument that a model may put other tensors into without changing the original."""
    return copy.copy(value) if isinstance(value, BaseData) else tree_map_only(Tensor, lambda tensor: tensor, value)


def attribute_place(model: Module, args: tuple[Any, ...]) -> tuple[str, str | None]:
    """Return the argument of a model that is its edge attributes; or the graph that is its argument, and their name."""
    parameters = list(signature_of(model).parameters)
    if len(args) == 1 and isinstance(args[0], Data) and not _unpacked(model, args[0], 0):
        return parameters[0], "edge_attr"
    names = [name for name in parameters if "edge" in name and "index" not in name and "type" not in name]
    if not names:
        raise ValueError(
            f"Expected a model whose forward has an argument edge_attr (got {type(model).__name__}.forward("
            f"{', '.join(parameters)})). Rename the argument that holds the attributes of edges."
        )
    usual = ("edge_weight", "edge_feat", "edge_features", "edge_attr")
    return max(names, key=lambda name: usual.index(name) if name in usual else -1), None


def _positional_names(model: Module) -> list[str]:
    """Return the names of the arguments that a model's forward takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in signature_of(model).parameters.values() if parameter.kind in kinds]


def _argument_names(model: Module, count: int) -> list[str]:
    """Return the names of the first ``count`` positional arguments of the model."""
    names = _positional_names(model)
    if count <= len(names):
        return names[:count]
    if all(one.kind is not one.VAR_POSITIONAL for one in signature_of(model).parameters.values()):
        expected = (
            f"Expected at most {len(names)} arguments for {type(model).__name__}.forward({', '.join(names)}) "
            f"(got {count}). Pass them in this order; an edge mask is not one of them"
        )
        if any(isinstance(module, MessagePassing) for module in model.modules()):
            raise TypeError(f"{expected}.")
        raise UnsupportedModelError(f"{expected}, and there is no layer that derives from MessagePassing to mask.")
    names += [name for name in _USUAL_NAMES if name not in names][: count - len(names)]
    return names + [f"argument_{number}" for number in range(len(names), count)]


def _unpacked(model: Module, data: BaseData, leading: int) -> dict[str, Any]:
    """Return what a model's forward takes of a graph by name; nothing if its only argument is the graph itself."""
    names = list(signature_of(model).parameters)
    dictionaries = any(name.endswith("_dict") for name in names)
    shared = data.stores[0]  # of a heterogeneous graph: what is not of any type
    values: dict[str, Any] = {}
    for name in names:
        if name in shared:
            values[name] = shared[name]
        elif isinstance(data, HeteroData) and (name.endswith("_dict") or not dictionaries):  # the latter: to_hetero
            values[name] = data.collect(name.removesuffix("_dict"), allow_empty=True) or None
    values = {name: value for name, value in values.items() if value is not None}
    whole = leading == 0 and len(values) == 1 == len(names) and not has_edges(list(values.values()))
    return {} if whole else values


def _plain(name: str, value: Any, known: dict[int, Any]) -> Any:
    """Return an argument of the kinds that can be followed; the same one for the same one."""
    if isinstance(value, Tensor):
        if id(value) not in known:
            known[id(value)] = _plain_tensor(value)
        return known[id(value)]
    if isinstance(value, np.ndarray) and name in _TENSORS:
        raise ValueError(f"Expected '{name}' to be a tensor (got ndarray). Convert it by torch.as_tensor({name}).")
    if isinstance(value, dict | list | tuple):
        value = tree_map_only(Tensor, lambda tensor: _plain(name, tensor, known), value)
        return _one_tensor_each(value) if is_edge_dict(name, value) else value
    if isinstance(value, HeteroData):
        edges = {key: _plain_tensor(entry) for key, entry in value.collect("edge_index", allow_empty=True).items()}
        value = copy.copy(value)
        for key, edge_index in _one_tensor_each(edges).items():
            value[key].edge_index = edge_index
    return value


def _plain_tensor(value: Tensor) -> Tensor:
    if isinstance(value, EdgeIndex):
        value = value.as_tensor()
    if value.dtype == torch.int32 and is_edge_index(value):
        return value.long()  # torch's scatter_add has no gradient for an index of 32 bits
    if value.layout == torch.sparse_coo:
        return value.coalesce()
    # Autograd cannot save tensors that were made in inference mode.
    return value.clone() if value.is_inference() else value


def _one_tensor_each(edges: dict[Any, Tensor]) -> dict[Any, Tensor]:
    """Give edge types that share one tensor a tensor each: edges are told apart by their tensors."""
    seen: set[int] = set()
    separate = {}
    for key, edge_index in edges.items():
        separate[key] = edge_index.clone() if id(edge_index) in seen else edge_index
        seen.add(id(edge_index))
    return separate


def without_expansion(arguments: dict[str, Any], edges: EdgeSet | None, count: int) -> dict[str, Any]:
    """Return the arguments, with ``edges`` among them, as they were before Captum repeated them for ``count`` masks."""
    if edges is None or is_adjacency(edges.of(arguments)):
        return arguments
    if edges.key is None and not edges.inside:
        times = arguments[edges.name].size(0) // 2
        return _repeated_once(arguments, times) if times > 1 else arguments
    # Captum leaves graphs and dictionaries as they are, but not the tensors beside them.
    sizes = [(tensor.size(0), len(path) == 1) for path, tensor in tensors_of(arguments) if tensor.dim()]
    usual = {2, *(size for size, is_beside in sizes if not is_beside)}
    for times in (number for number in range(count, 1, -1) if count % number == 0):
        if any(is_beside and size not in usual and size / times in usual for size, is_beside in sizes):
            with suppress(ValueError):
                return _repeated_once(arguments, times)
    return arguments


def _repeated_once(arguments: dict[str, Any], times: int) -> dict[str, Any]:
    """Undo Captum's repetition along dimension 0: as a whole, row by row, or first one and then the other."""
    expanded = {name: value for name, value in arguments.items() if isinstance(value, Tensor) and value.dim() > 0}
    whole = all(value.size(0) % times == 0 for value in expanded.values())
    originals = []
    for inner in (number for number in range(1, times + 1) if whole and times % number == 0):
        parts = {
            name: value.reshape(times // inner, value.size(0) // times, inner, *value.shape[1:])
            for name, value in expanded.items()
        }
        if all(bool((part == part[:1, :, :1]).all()) for part in parts.values()):
            originals.append({name: part[0, :, 0] for name, part in parts.items()})
    if not originals:
        if wrong := [name for name, value in expanded.items() if bool(value.isnan().any())]:
            raise ValueError(f"Expected finite numbers (got nan entries in '{', '.join(wrong)}').")
        raise ValueError(
            f"Expected edges of shape [2, num_edges], or all arguments repeated {times} times as Captum does it (got "
            f"{describe(arguments)})."
        )
    if any(not torch.equal(value, other[name]) for other in originals[1:] for name, value in originals[0].items()):
        raise ValueError(  # possible only where every edge is a self-loop
            "Expected arguments whose repetition by Captum can be undone (got some that may have been repeated as a "
            "whole or row by row). Pass the graph as one torch_geometric Data."
        )
    return arguments | originals[0]
