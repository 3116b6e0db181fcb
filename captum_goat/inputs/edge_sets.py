"""Which arguments of a model are edges: one set of them, or several with a mask each; and what is a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from captum_goat.tracking.sparse import is_adjacency, num_edges

# How many entries each mask has: of one mask, of several in the order of the sets, or by the sets' labels.
MaskSizes: TypeAlias = int | Sequence[int] | Mapping[Any, int]


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
    sets = candidate_sets(arguments, len(sizes))
    if isinstance(sizes, Mapping):
        by_label = {edges.label: edges for edges in sets}
        if set(by_label) != set(sizes):
            raise ValueError(
                f"Expected a mask for each of {listed(by_label)} (got masks for {listed(sizes)}). Give the edges of a "
                f"type that is not of interest a mask of ones."
            )
        sets, sizes = tuple(by_label[label] for label in sizes), list(sizes.values())
    elif len(sizes) == 1 and not typed:
        sets = (_single(arguments, sizes[0]),)
    check_number_of_masks([edges.label for edges in sets], len(sizes))
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
    if not isinstance(value, dict) or not value:
        return False
    if not all(is_edge_index(entry) and entry.size(0) == 2 for entry in value.values()):
        return False
    return "edge" in name or all(isinstance(key, tuple) for key in value)


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


def check_number_of_masks(labels: Sequence[Any], count: int) -> None:
    """Raise ValueError unless there is one mask for each set of edges."""
    if len(labels) != count:
        raise ValueError(
            f"Expected {len(labels)} mask(s), one for each of {listed(labels)} in this order (got {count} masks)."
        )


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
        entries = value.values() if isinstance(value, dict) else (value,)
        if any(is_sparse(entry) and (typed or not is_adjacency(entry)) for entry in entries):
            raise ValueError(
                f"Expected edges as an edge_index tensor of shape [2, num_edges], or one square torch.sparse matrix in "
                f"COO or CSR layout (got another sparse adjacency matrix for '{name}'). Convert it, for example with "
                f"torch_geometric.utils.to_edge_index."
            )
        if "edge_index" in name and isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == 1:
            raise ValueError(
                f"Expected an edge_index of shape [2, num_edges] (got {list(value.shape)}). Captum's Lime and "
                f"KernelShap hand over one row of every tensor if there are several masks: pass one Data object."
            )


def _typed_sets(arguments: Mapping[str, Any]) -> tuple[EdgeSet, ...]:
    """Return the edge types of a heterogeneous graph."""
    types: dict[str, list[Any]] = {}
    for name, value in arguments.items():
        if is_edge_dict(name, value):
            types[name] = list(value)
        elif isinstance(value, HeteroData):
            types[name] = [key for key in value.edge_types if "edge_index" in value[key]]
    if not types:
        return ()
    best = min(types, key=lambda name: ("label" in name, "edge_index" not in name))
    return tuple(EdgeSet(best, key) for key in types[best])


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
        f"one mask per set of edges."
    )
