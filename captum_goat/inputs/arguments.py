"""The arguments of a call of a model: their names, which of them are edges, and Captum's repetition undone."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse

from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.sparse import is_adjacency, num_edges

# How many entries each mask has: of one mask, of several in the order of the sets, or by the sets' labels.
MaskSizes: TypeAlias = int | Sequence[int] | Mapping[Any, int]

_USUAL_NAMES = ("x", "edge_index", "batch")  # of arguments that a model's forward does not name
_TENSORS = (*_USUAL_NAMES, "edge_attr", "edge_weight")  # arguments that no model takes as NumPy arrays

_signatures: WeakKeyDictionary[Any, inspect.Signature] = WeakKeyDictionary()


def signature_of(model: Module) -> inspect.Signature:
    """Return the signature of a model's forward; of one that wraps another (``__wrapped__``), that of the other."""
    model = inspect.unwrap(model)
    if isinstance(signature := vars(model).get("__signature__"), inspect.Signature):
        return signature
    function = getattr(model.forward, "__func__", None)
    if function is None:  # set on the model itself
        return inspect.signature(model.forward)
    if function not in _signatures:
        _signatures[function] = inspect.signature(model.forward)
    return _signatures[function]


def named_arguments(
    model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], leading: int = 0, attributes: bool = False
) -> tuple[dict[str, Any], int, tuple[str, str | None] | None]:
    """Return the arguments of a call by name, how many are passed by position, and where edge attributes belong.

    The ``leading`` first ones are not in ``args``, and with ``attributes`` neither are the edge attributes.
    """
    for value in args:
        if isinstance(value, list | tuple) and value and isinstance(value[0], BaseData):
            raise ValueError(
                f"Expected one graph, or a Batch (got a {type(value).__name__} of {len(value)} graphs). "
                "Batch.from_data_list(graphs) makes a batch of several graphs."
            )
    if args and all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in args):
        args = (Data.from_dict(dict(args)),)  # some methods of Captum take a Data object for a sequence
    named = _unpacked(model, args[0], leading) if len(args) == 1 and isinstance(args[0], BaseData) else {}
    place = _attribute_place(model, args) if attributes else None
    missing = place[0] if place is not None and place[1] is None else None
    values = [None] * leading + ([] if named else list(args))
    if not named and missing in (names := _positional_names(model)[: len(values) + 1]):
        values.insert(names.index(missing), None)
    named = dict(zip(_argument_names(model, len(values)), values, strict=True)) | named | dict(kwargs)
    if missing is not None:
        named.setdefault(missing, None)
    known: dict[int, Any] = {}
    return {name: _plain(name, value, known) for name, value in named.items()}, len(values), place


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


def _attribute_place(model: Module, args: tuple[Any, ...]) -> tuple[str, str | None]:
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


def unexpanded(arguments: dict[str, Any], edges: EdgeSet | None, count: int) -> dict[str, Any]:
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


class EdgeSet(NamedTuple):
    """The place of one set of edges among the arguments of a model."""

    name: str  # of the argument
    key: Any = None  # an edge type, or an attribute of a Data; None if the argument is no such container
    inside: tuple[Any, ...] = ()  # the keys and positions in dictionaries and lists that lead to the tensor

    @property
    def label(self) -> Any:
        """What the user calls the set: its edge type, or its name."""
        label = self.name if self.key is None else self.key
        return label + "".join(f"[{step!r}]" for step in self.inside) if self.inside else label

    def of(self, arguments: Mapping[str, Any]) -> Tensor:
        """Return the edges, ``[2, E]``."""
        value = arguments[self.name]
        if self.key is not None:
            value = value[self.key].edge_index if isinstance(value, HeteroData) else value[self.key]
        for step in self.inside:
            value = value[step]
        edge_index: Tensor = value
        return edge_index


def find_edge_sets(arguments: Mapping[str, Any], sizes: MaskSizes | None) -> tuple[EdgeSet, ...]:
    """Return the places of the edges, one per mask in their order; without masks those of what looks like edges."""
    _check_dense(arguments)
    typed = _typed_sets(arguments)
    if sizes is None:
        return typed or tuple(_preferred(arguments)[:1])
    sizes = (sizes,) if isinstance(sizes, int) else sizes
    single = len(sizes) == 1 and not typed and not isinstance(sizes, Mapping)
    sets = (_single(arguments, sizes[0]),) if single else candidate_sets(arguments, len(sizes))
    if isinstance(sizes, Mapping):
        by_label = {edges.label: edges for edges in sets}
        if set(by_label) != set(sizes):
            raise ValueError(
                f"Expected a mask for each of {listed(by_label)} (got masks for {listed(sizes)}). Give the edges of a "
                f"type that is not of interest a mask of ones."
            )
        sets, sizes = tuple(by_label[label] for label in sizes), list(sizes.values())
    if len(sets) != len(sizes):
        labels = listed(edges.label for edges in sets)
        raise ValueError(
            f"Expected {len(sets)} mask(s), one for each of {labels} in this order (got {len(sizes)} masks)."
        )
    for edges, size in zip(sets, sizes, strict=True):
        expected = num_edges(edges.of(arguments))
        if size != expected:
            advice, shape = "", edges.of(arguments).shape
            if expected == 2 and shape[0] == size:
                advice = f" Edges are [2, num_edges], and these are {list(shape)}: pass {edges.label}.t()."
            elif expected and size % expected == 0:  # as Captum repeats examples
                advice = " Captum's methods take dimension 0 for examples: pass mask.unsqueeze(0), [1, num_edges]."
            raise ValueError(f"Expected one mask entry per edge: {expected} for {edges.label!r} (got {size}).{advice}")
    return sets


def candidate_sets(arguments: Mapping[str, Any], count: int) -> tuple[EdgeSet, ...]:
    """Return the sets of edges that ``count`` masks may be for, by the names of the arguments where they tell."""
    if typed := _typed_sets(arguments):
        return typed
    unlabelled = [edges for edges in _candidates(arguments) if "label" not in str(edges.label)]
    named = [edges for edges in unlabelled if "edge_index" in str(edges.label)]
    return tuple(unlabelled if len(unlabelled) == count or not named else named)


def is_edge_index(value: Any) -> bool:
    """Return whether a value looks like edges: integers ``[2, E]``, perhaps repeated by Captum."""
    integers = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    return integers and value.dim() == 2 and value.size(0) > 0 and value.size(0) % 2 == 0


def is_edge_dict(name: str, value: Any) -> bool:
    """Return whether an argument is a dictionary of edges, one tensor per edge type."""
    if not isinstance(value, dict) or not value or not ("edge" in name or all(isinstance(key, tuple) for key in value)):
        return False
    return all(is_edge_index(entry) and entry.size(0) == 2 for entry in value.values())


def has_edges(arguments: Sequence[Any]) -> bool:
    """Return whether some argument, its name not known, is or contains what looks like edges."""

    def is_plain(tensor: Tensor) -> bool:
        return is_adjacency(tensor) or (tensor.dtype == torch.long and tensor.dim() == 2 == tensor.size(0))

    graphs = (isinstance(value, HeteroData) for value in arguments)
    return any(graphs) or any(is_plain(tensor) for _, tensor in tensors_of(arguments))


def tensors_of(value: Any) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """Return the tensors that a value is or contains, with the keys and positions that lead to them."""
    if isinstance(value, Tensor):
        yield (), value
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseData):
        entries = (((store._key, key), entry) for store in value.stores for key, entry in store.items())
    elif isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    for key, entry in entries:
        yield from (((key, *path), tensor) for path, tensor in tensors_of(entry))


def describe(arguments: Mapping[str, Any]) -> str:
    """Return the names and shapes of arguments, for messages."""
    parts = (f"{k}: {list(v.shape) if isinstance(v, Tensor) else type(v).__name__}" for k, v in arguments.items())
    return ", ".join(parts) or "no arguments"


def listed(labels: Iterable[Any]) -> str:
    """Return labels of edges or nodes, for messages."""
    return ", ".join(repr(label) for label in labels) or "nothing"


def check_masks(masks: Sequence[Any]) -> None:
    """Raise ValueError unless there is one mask per set of edges, each ``[E]``, or each ``[B, E]`` with the same B."""
    for mask in masks:
        is_mask = isinstance(mask, Tensor) and mask.is_floating_point() and mask.dim() in (1, 2)
        if not is_mask or (mask.dim() == 2 and len(mask) == 0):
            got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(
                f"Expected an edge mask of floating point numbers, [num_edges] or [num_masks, num_edges] (got {got}). "
                f"Pass torch.ones(edge_index.size(1)) to explain the graph as it is."
            )
    if len({mask.shape[:-1] for mask in masks}) != 1:
        raise ValueError(
            f"Expected masks that are all [num_edges], or all [num_masks, num_edges] with the same number of masks "
            f"(got {[list(mask.shape) for mask in masks]})."
        )


def _check_dense(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for unknown sparse matrices, and for edges of which Captum has left one row."""
    for name, value in arguments.items():
        typed = isinstance(value, dict) and any(isinstance(key, tuple) for key in value)
        graph = [list(store.values()) for store in value.stores] if isinstance(value, BaseData) else value
        entries = [value] if isinstance(value, Tensor) else tree_leaves(graph)
        if any(is_sparse(entry) and (typed or not is_adjacency(entry)) for entry in entries):
            raise ValueError(
                f"Expected edges as an edge_index tensor of shape [2, num_edges], or one square torch.sparse matrix in "
                f"COO or CSR layout (got another sparse adjacency matrix for '{name}'). Convert it: a SparseTensor by "
                f"its method to_torch_sparse_csr_tensor, which keeps the order of entries; others by "
                f"torch_geometric.utils.to_edge_index."
            )
        if "edge_index" in name and isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == 1:
            raise ValueError(
                f"Expected an edge_index of shape [2, num_edges] (got {list(value.shape)}). Captum's Lime and "
                f"KernelShap hand over one row of every tensor if there are several masks: pass one Data object."
            )


def _typed_sets(arguments: Mapping[str, Any]) -> tuple[EdgeSet, ...]:
    """Return the edge types of a heterogeneous graph."""
    types = {name: list(value) for name, value in arguments.items() if is_edge_dict(name, value)}
    for name, value in arguments.items():
        if isinstance(value, HeteroData):
            types[name] = [key for key in value.edge_types if "edge_index" in value[key]]
    best = min(types, key=lambda name: ("label" in name, "edge_index" not in name), default="")
    return tuple(EdgeSet(best, key) for key in types.get(best, ()))


def _candidates(arguments: Mapping[str, Any]) -> list[EdgeSet]:
    """Return what may be edges in the arguments of a model for homogeneous graphs, every tensor once."""
    by_tensor: dict[int, EdgeSet] = {}
    for (name, *path), tensor in tensors_of(arguments):
        key = None
        if isinstance(arguments[name], BaseData):
            (_, key), *path = path
        if is_adjacency(tensor) or (is_edge_index(tensor) and (key is None or path or "edge_index" in key)):
            by_tensor.setdefault(id(tensor), EdgeSet(name, key, tuple(path)))
    return list(by_tensor.values())


def _preferred(arguments: Mapping[str, Any]) -> list[EdgeSet]:
    """Return the candidate called ``edge_index``, if there is one, else all."""
    candidates = _candidates(arguments)
    return [edges for edges in candidates if "edge_index" in (edges.label, *edges.inside[-1:])] or candidates


def _single(arguments: Mapping[str, Any], size: int) -> EdgeSet:
    """Return the one set of edges that a single mask fits; the only one even if it does not fit."""
    if not arguments:
        raise ValueError(
            "Expected the graph as model arguments (got none). Pass additional_forward_args=(x, edge_index, ...); "
            "to an EdgeMaskedModel, pass these after the mask, or bind them: EdgeMaskedModel(model, data=data)."
        )
    candidates = _preferred(arguments)
    fitting = [edges for edges in candidates if num_edges(edges.of(arguments)) == size]
    if len(fitting) == 1 or len(candidates) == 1:
        return (fitting or candidates)[0]
    raise ValueError(
        f"Expected one integer tensor of shape [2, {size}] with the edges among the model's arguments (got "
        f"{len(fitting)}: {describe(arguments)}). Name it 'edge_index' in the model's forward, or pass a tuple with "
        f"one mask per set of edges. If the model makes its edges itself, wrap it: captum_goat.MadeEdges(model)."
    )
