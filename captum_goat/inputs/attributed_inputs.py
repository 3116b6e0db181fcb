"""The forms in which inputs are given: a tensor, or several in a tuple, or by node or edge type in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch_geometric.data import HeteroData

from captum_goat.inputs.edge_masks import check_masks
from captum_goat.inputs.edge_sets import MaskSizes

# The node types and edge types of a heterogeneous graph.
Metadata: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class AttributedInputs:
    """The tensors that are attributed.

    Attributes:
        features: The attributed first arguments of the model; or what is in the dictionary that is its first argument.
        masks: The edge masks.
        node_types: The node types of the features, if they are in a dictionary.
        edge_types: The edge types of the masks, if they are named.
    """

    features: tuple[Tensor, ...]
    masks: tuple[Tensor, ...]
    node_types: tuple[str, ...] | None
    edge_types: tuple[Any, ...] | None

    @classmethod
    def of(cls, kind: str, inputs: Any, arguments: Sequence[Any], metadata: Metadata | None) -> AttributedInputs:
        """Take inputs apart.

        Args:
            kind: ``"edge"``, ``"node"``, ``"node_and_edge"`` or, for models without a graph, ``"input"``.
            inputs: What the user gave.
            arguments: The model's other arguments.
            metadata: The types in whose order tensors are given, if that is known.
        """
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        tensors = tuple(_detached(each) for each in flattened(inputs))
        needed = 2 if kind == "node_and_edge" else 1
        if len(parts) < needed or not tensors:
            what = {"edge": "the edge mask", "node": "the node features"}.get(kind, "(x, edge_mask)")
            raise ValueError(f"Expected {needed} input(s), {what} (got {len(parts)} inputs).")
        if kind == "input":
            if any(isinstance(each, dict) for each in parts):
                raise ValueError("Expected tensors, the inputs of a model without message passing (got a dictionary).")
            return cls(tensors, (), None, None)
        node_types, edge_types = metadata if metadata is not None else (None, None)
        if node_types is None and len(arguments) == 1 and isinstance(arguments[0], HeteroData):
            node_types = tuple(arguments[0].collect("x", allow_empty=True))
        if kind == "edge":
            return cls((), tensors, None, _keys(parts, "edge masks") or edge_types)
        if kind == "node":
            return cls(tensors, (), _node_types(parts, len(tensors), node_types), None)
        node_types = _node_types(parts[:1], 1 if node_types is None else len(node_types), node_types)
        if node_types is not None and len(node_types) != 1:
            raise ValueError(
                f"Expected nodes of one type with mask_type 'node_and_edge' (got {_listed(node_types)}). Explain edges "
                f"and features one after the other, with mask_type 'edge' and 'node'."
            )
        return cls(tensors[:1], tensors[1:], node_types, _keys(parts[1:], "edge masks") or edge_types)

    @property
    def num_edges(self) -> MaskSizes | None:
        """The number of entries of each mask; ``None`` if there are no masks."""
        sizes = [each.size(-1) for each in self.masks]
        if self.edge_types is None:
            return sizes or None
        if len(self.edge_types) != len(sizes):
            raise ValueError(
                f"Expected {len(self.edge_types)} mask(s), one for each of {_listed(self.edge_types)} in this order "
                f"(got {len(sizes)} masks)."
            )
        return dict(zip(self.edge_types, sizes, strict=True))

    @property
    def count(self) -> int | None:
        """How many masks or features of one graph there are; ``None`` for inputs as the model takes them."""
        if not self.masks:
            return self._count_of_features()
        shapes = [list(each.shape) for each in self.features]
        if self.masks[0].dim() == 1:
            if any(each.dim() > 2 for each in self.features):
                raise ValueError(
                    f"Expected a mask [B, num_edges] for features [B, num_nodes, ...] (got "
                    f"{list(self.masks[0].shape)} for {shapes})."
                )
            return None
        if any(each.dim() < 2 or len(each) != len(self.masks[0]) for each in self.features):
            raise ValueError(f"Expected features [B, num_nodes, ...] for masks [B, num_edges] (got {shapes}).")
        return len(self.masks[0])

    def check(self, *, rows_are_examples: bool) -> None:
        """Raise ValueError for what is neither a mask nor features."""
        if self.masks:
            check_masks(self.masks)
        for each in self.features:
            if not each.is_floating_point() or each.dim() < (1 if rows_are_examples else 2):
                raise ValueError(
                    f"Expected inputs of floating point numbers, one row per "
                    f"{'example' if rows_are_examples else 'node'} (got {each.dtype} {list(each.shape)})."
                )

    def _count_of_features(self) -> int | None:
        counts = {len(each) if each.dim() == 3 else None for each in self.features}
        if len(counts) > 1:
            raise ValueError(
                f"Expected features that are all [num_nodes, ...], or all [B, num_nodes, ...] with the same B (got "
                f"{[list(each.shape) for each in self.features]})."
            )
        return counts.pop()


def flattened(inputs: Any, like: Any = None) -> list[Any]:
    """Return what is in a tuple, in a dictionary or in both, in order.

    Args:
        inputs: A tensor, or several in a tuple, a dictionary, or a tuple of dictionaries.
        like: Inputs whose order of types is wanted; ``None`` for that of ``inputs``.
    """
    if isinstance(inputs, tuple):
        likes = like if isinstance(like, tuple) and len(like) == len(inputs) else (None,) * len(inputs)
        return [each for part, other in zip(inputs, likes, strict=True) for each in flattened(part, other)]
    if not isinstance(inputs, dict):
        return [inputs]
    order = like if isinstance(like, dict) else inputs
    if set(order) != set(inputs):
        raise ValueError(f"Expected tensors for {_listed(order)}, the types of the inputs (got {_listed(inputs)}).")
    return [inputs[key] for key in order]


def restored(inputs: Any, values: Sequence[Tensor]) -> Any:
    """Return values in the form in which inputs were given."""
    remaining = iter(values)

    def restore(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(restore(each) for each in part)
        return {key: next(remaining) for key in part} if isinstance(part, dict) else next(remaining)

    return restore(inputs)


def _keys(parts: tuple[Any, ...], what: str) -> tuple[Any, ...] | None:
    """Return the types of inputs that are given as one dictionary; ``None`` for tensors."""
    if not any(isinstance(each, dict) for each in parts):
        return None
    if len(parts) != 1:
        raise ValueError(f"Expected {what} as one dictionary, or as tensors (got {len(parts)} inputs of both kinds).")
    return tuple(parts[0])


def _node_types(parts: tuple[Any, ...], count: int, known: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the node types of the features; ``None`` if the model takes the features as one tensor."""
    given = _keys(parts, "node features")
    if known is not None and (count != len(known) if given is None else set(given) != set(known)):
        got = f"{count} inputs" if given is None else _listed(given)
        raise ValueError(f"Expected the features of each of {_listed(known)} (got {got}).")
    if given is None and known is None and count != 1:
        raise ValueError(
            f"Expected 1 input(s), the node features (got {count} inputs). Pass the features of several node types as "
            f"a dictionary, or the rest of the graph as one HeteroData, which tells their order."
        )
    return known if given is None else given


def _detached(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"Expected inputs that are tensors (got {type(value).__name__}).")
    tensor: Tensor = value.detach()
    return tensor.clone() if tensor.is_inference() else tensor


def _listed(types: Any) -> str:
    return ", ".join(repr(each) for each in types) or "nothing"
