"""Which arguments of a model are edges: one set of them, or several with a mask each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

# How many entries each mask has: of one mask, of several in the order of the sets, or by the sets' labels.
MaskSizes: TypeAlias = int | Sequence[int] | Mapping[Any, int]


class EdgeSet(NamedTuple):
    """The place of one set of edges among the arguments of a model.

    Attributes:
        name: The argument's name.
        key: What the edges are called inside of the argument: an edge type in a dictionary or a ``HeteroData``, the
            name of an attribute in a ``Data``; ``None`` if the argument is the tensor of edges itself.
    """

    name: str
    key: Any = None

    @property
    def label(self) -> Any:
        """What the user calls the set: its edge type, or its name."""
        return self.name if self.key is None else self.key

    def of(self, arguments: Mapping[str, Any]) -> Tensor:
        """Return the edges, ``[2, E]``."""
        value = arguments[self.name]
        if self.key is not None:
            value = value[self.key].edge_index if isinstance(value, HeteroData) else value[self.key]
        edge_index: Tensor = value
        return edge_index


def find_edge_sets(arguments: Mapping[str, Any], sizes: MaskSizes | None) -> tuple[EdgeSet, ...]:
    """Find the edges that are masked.

    Args:
        arguments: The arguments of a model.
        sizes: The sizes of the masks; ``None`` if the edges are not masked.

    Returns:
        One place per mask, in the masks' order. Without masks what looks like edges, which may be nothing.

    Raises:
        ValueError: If masks and edges do not fit together.
    """
    _refuse_what_is_not_edges(arguments)
    if sizes is None:
        return _typed_sets(arguments) or _alone(_candidates(arguments))[:1]
    if isinstance(sizes, int):
        sizes = (sizes,)
    found = candidate_sets(arguments, len(sizes))
    if isinstance(sizes, Mapping):
        found, sizes = _by_label(found, sizes), list(sizes.values())
    elif len(sizes) == 1 and not _typed_sets(arguments):
        found = _single(arguments, sizes[0])
    _check(found, [each.of(arguments).size(1) for each in found], sizes)
    return found


def candidate_sets(arguments: Mapping[str, Any], count: int) -> tuple[EdgeSet, ...]:
    """Return the sets of edges that ``count`` masks may be for: where names tell, what is named as edges are."""
    typed = _typed_sets(arguments)
    if typed:
        return typed
    unlabelled = [each for each in _candidates(arguments) if "label" not in str(each.label)]
    named = [each for each in unlabelled if "edge_index" in str(each.label)]
    return tuple(unlabelled if len(unlabelled) == count or not named else named)


def is_edge_index(value: Any) -> bool:
    """Return whether a value looks like edges: integers ``[2, E]``, perhaps repeated by Captum."""
    whole = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    return whole and value.dim() == 2 and value.size(0) > 0 and value.size(0) % 2 == 0


def is_edge_dict(name: str, value: Any) -> bool:
    """Return whether an argument is a dictionary of edges, one tensor per edge type."""
    if not isinstance(value, dict) or not value:
        return False
    if not all(is_edge_index(each) and each.size(0) == 2 for each in value.values()):
        return False
    return "edge" in name or all(isinstance(key, tuple) for key in value)


def has_edges(arguments: Sequence[Any]) -> bool:
    """Return whether some argument, its name not known, looks like edges."""
    return any(
        is_edge_dict("", each)
        or isinstance(each, HeteroData)
        or (isinstance(each, Tensor) and each.dtype == torch.long and each.dim() == 2 and each.size(0) == 2)
        for each in arguments
    )


def describe(arguments: Mapping[str, Any]) -> str:
    """Return the names and shapes of arguments, for messages."""
    parts = (f"{k}: {list(v.shape) if isinstance(v, Tensor) else type(v).__name__}" for k, v in arguments.items())
    return ", ".join(parts) or "no arguments"


def _refuse_what_is_not_edges(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if any(is_sparse(each) for each in (value.values() if isinstance(value, dict) else (value,))):
            raise ValueError(
                f"Expected edges as an edge_index tensor of shape [2, num_edges] (got a sparse adjacency matrix for "
                f"'{name}'). Convert it, for example with torch_geometric.utils.to_edge_index."
            )
        if "edge_index" in name and isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == 1:
            raise ValueError(
                f"Expected an edge_index of shape [2, num_edges] (got {list(value.shape)}). Captum's Lime and "
                f"KernelShap hand over one row of every tensor where there are several masks: pass the graph as one "
                f"Data object."
            )


def _typed_sets(arguments: Mapping[str, Any]) -> tuple[EdgeSet, ...]:
    """Return the edge types of a heterogeneous graph."""
    types: dict[str, list[Any]] = {}
    for name, value in arguments.items():
        if is_edge_dict(name, value):
            types[name] = list(value)
        elif isinstance(value, HeteroData):
            types[name] = [each for each in value.edge_types if "edge_index" in value[each]]
    if not types:
        return ()
    name = min(types, key=lambda each: ("label" in each, "edge_index" not in each))
    return tuple(EdgeSet(name, key) for key in types[name])


def _candidates(arguments: Mapping[str, Any]) -> list[EdgeSet]:
    """Return what may be edges in the arguments of a model for homogeneous graphs, every tensor once."""
    found: dict[int, EdgeSet] = {}
    for name, value in arguments.items():
        if isinstance(value, BaseData):
            for key, each in value.stores[0].items():  # in the order in which they were put in
                if "edge_index" in key and is_edge_index(each):
                    found.setdefault(id(each), EdgeSet(name, key))
        elif is_edge_index(value):
            found.setdefault(id(value), EdgeSet(name))
    return list(found.values())


def _alone(candidates: list[EdgeSet]) -> tuple[EdgeSet, ...]:
    """Return the one that is named as edges are, if there is one, else all."""
    named = tuple(each for each in candidates if each.label == "edge_index")
    return named or tuple(candidates)


def _single(arguments: Mapping[str, Any], size: int) -> tuple[EdgeSet, ...]:
    """Return the one set of edges that a single mask fits."""
    candidates = _alone(_candidates(arguments))
    fitting = [each for each in candidates if each.of(arguments).size(1) == size]
    if len(fitting) == 1 or len(candidates) == 1:
        return tuple(fitting) or candidates
    raise ValueError(
        f"Expected one integer tensor of shape [2, {size}] with the edges among the model's arguments (got "
        f"{len(fitting)}: {describe(arguments)}). Name it 'edge_index' in the model's forward, or pass a tuple with "
        f"one mask per set of edges."
    )


def _by_label(found: tuple[EdgeSet, ...], sizes: Mapping[Any, int]) -> tuple[EdgeSet, ...]:
    """Return the sets in the order of a dictionary of masks."""
    sets = {each.label: each for each in found}
    if set(sets) != set(sizes):
        raise ValueError(
            f"Expected a mask for each of {_listed(sets)} (got masks for {_listed(sizes)}). Give the edges of a type "
            f"that is not of interest a mask of ones."
        )
    return tuple(sets[label] for label in sizes)


def _check(found: tuple[EdgeSet, ...], expected: Sequence[int], sizes: Sequence[int]) -> None:
    if len(found) != len(sizes):
        raise ValueError(
            f"Expected {len(found)} mask(s), one for each of {_listed(each.label for each in found)} in this order "
            f"(got {len(sizes)} masks)."
        )
    for each, wanted, size in zip(found, expected, sizes, strict=True):
        if wanted != size:
            raise ValueError(f"Expected one mask entry per edge: {wanted} for {each.label!r} (got {size}).")


def _listed(labels: Any) -> str:
    return ", ".join(repr(each) for each in labels) or "no edges"
