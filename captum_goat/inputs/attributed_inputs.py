"""The forms in which inputs are given: a tensor, or several in a tuple, or by node or edge type in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch import Tensor
from torch_geometric.data import HeteroData

from captum_goat.inputs.edge_masks import check_masks
from captum_goat.inputs.edge_sets import MaskSizes, check_number_of_masks, listed

# The node types and edge types of a heterogeneous graph.
Metadata: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class AttributedInputs:
    """The tensors that are attributed."""

    # the model's first arguments, or the entries of the dictionary that is the first one; then the edge attributes
    features: tuple[Tensor, ...]
    masks: tuple[Tensor, ...]  # of edges
    node_types: tuple[str, ...] | None = None  # of the features, if they are in a dictionary
    edge_types: tuple[Any, ...] | None = None  # of the masks, if they are named
    has_attributes: bool = False  # whether the last of the features are edge attributes

    @classmethod
    def of(cls, kind: str, inputs: Any, arguments: Sequence[Any], metadata: Metadata | None) -> AttributedInputs:
        """Split the user's inputs into features and masks, and check them.

        Args:
            kind: ``"edge"``, ``"node"``, ``"edge_attr"``, several of these with ``"_and_"`` between them or, for models
                without a graph, ``"input"``.
            inputs: What the user passes.
            arguments: The model's other arguments.
            metadata: The types in whose order tensors are given, if that is known.
        """
        if kind.endswith("edge_attr"):
            return cls._with_attributes(kind, inputs, arguments, metadata)
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        tensors = tuple(_detached(tensor) for tensor in flattened(inputs))
        needed = 2 if kind == "node_and_edge" else 1
        if len(parts) < needed or not tensors:
            what = {"edge": "the edge mask", "node": "the node features"}.get(kind, "(x, edge_mask)")
            raise ValueError(f"Expected {needed} input(s), {what} (got {len(parts)} inputs).")
        node_types, edge_types = metadata if metadata is not None else (None, None)
        if node_types is None and len(arguments) == 1 and isinstance(arguments[0], HeteroData):
            node_types = tuple(arguments[0].collect("x", allow_empty=True))
        if kind == "input":
            if any(isinstance(part, dict) for part in parts):
                raise ValueError("Expected tensors, the inputs of a model without message passing (got a dictionary).")
            attributed = cls(tensors, ())
        elif kind == "edge":
            attributed = cls((), tensors, None, _keys(parts, "edge masks") or edge_types)
        elif kind == "node":
            attributed = cls(tensors, (), _node_types(parts, len(tensors), node_types))
        else:
            count = len(parts[0]) if isinstance(parts[0], dict) else 1 if node_types is None else len(node_types)
            features = parts[:1] if isinstance(parts[0], dict) else parts[:count]
            node_types = _node_types(features, count, node_types)
            keys = _keys(parts[len(features) :], "edge masks") or edge_types
            attributed = cls(tensors[:count], tensors[count:], node_types, keys)
        if attributed.masks:
            check_masks(attributed.masks)
        row, dims = ("example", 1) if kind == "input" else ("node", 2)
        for feature in attributed.features:
            if not feature.is_floating_point() or feature.dim() < dims:
                got = f"{feature.dtype} {list(feature.shape)}"
                raise ValueError(f"Expected inputs of floating point numbers, one row per {row} (got {got}).")
        return attributed

    @classmethod
    def _with_attributes(
        cls, kind: str, inputs: Any, arguments: Sequence[Any], metadata: Metadata | None
    ) -> AttributedInputs:
        """Split inputs of which the last are edge attributes."""
        *others, attributes = inputs if isinstance(inputs, tuple) else (inputs,)
        names = kind.split("_and_")[:-1]
        if len(others) < len(names) or (others and not names):
            raise ValueError(f"Expected {len(names) + 1} input(s) for mask_type {kind!r} (got {len(others) + 1}).")
        if not isinstance(attributes, Tensor) or not attributes.is_floating_point() or attributes.dim() < 1:
            raise ValueError(
                "Expected edge attributes that are one floating point tensor, a row per edge, as last input."
            )
        rest = cls.of("_and_".join(names), tuple(others), arguments, metadata) if names else cls((), ())
        return replace(rest, features=(*rest.features, _detached(attributes)), has_attributes=True)

    @property
    def num_edges(self) -> MaskSizes | None:
        """The number of entries of each mask; ``None`` if there are no masks."""
        sizes = [mask.size(-1) for mask in self.masks]
        if self.edge_types is None:
            return sizes or None
        check_number_of_masks(self.edge_types, len(sizes))
        return dict(zip(self.edge_types, sizes, strict=True))

    @property
    def count(self) -> int | None:
        """How many masks or features of one graph there are; ``None`` for inputs as the model takes them."""
        shapes = [list(feature.shape) for feature in self.features]
        if not self.masks:
            counts = {len(feature) if feature.dim() == 3 else None for feature in self.features}
            if len(counts) > 1:
                raise ValueError(
                    f"Expected features that are all [num_nodes, ...], or all [B, num_nodes, ...] with the same B (got "
                    f"{shapes})."
                )
            return counts.pop()
        mask = self.masks[0]
        if mask.dim() == 1 and any(feature.dim() > 2 for feature in self.features):
            got = f"{list(mask.shape)} for {shapes}"
            raise ValueError(f"Expected a mask [B, num_edges] for features [B, num_nodes, ...] (got {got}).")
        if mask.dim() == 2 and any(feature.dim() < 2 or len(feature) != len(mask) for feature in self.features):
            raise ValueError(f"Expected features [B, num_nodes, ...] for masks [B, num_edges] (got {shapes}).")
        return None if mask.dim() == 1 else len(mask)


def flattened(inputs: Any, like: Any = None) -> list[Any]:
    """Return the entries of a tuple, a dictionary or a tuple of dictionaries, with types in the order of ``like``."""
    if isinstance(inputs, tuple):
        likes = like if isinstance(like, tuple) and len(like) == len(inputs) else (None,) * len(inputs)
        return [tensor for part, other in zip(inputs, likes, strict=True) for tensor in flattened(part, other)]
    if not isinstance(inputs, dict):
        return [inputs]
    order = like if isinstance(like, dict) else inputs
    if set(order) != set(inputs):
        raise ValueError(f"Expected tensors for {listed(order)}, the types of the inputs (got {listed(inputs)}).")
    return [inputs[key] for key in order]


def restored(inputs: Any, values: Sequence[Tensor]) -> Any:
    """Return values in the form in which inputs were given."""
    remaining = iter(values)

    def restore(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(restore(entry) for entry in part)
        return {key: next(remaining) for key in part} if isinstance(part, dict) else next(remaining)

    return restore(inputs)


def _keys(parts: tuple[Any, ...], what: str) -> tuple[Any, ...] | None:
    """Return the types of inputs that are given as one dictionary; ``None`` for tensors."""
    if not any(isinstance(part, dict) for part in parts):
        return None
    if len(parts) != 1:
        raise ValueError(f"Expected {what} as one dictionary, or as tensors (got {len(parts)} inputs of both kinds).")
    return tuple(parts[0])


def _node_types(parts: tuple[Any, ...], count: int, known: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the node types of the features; ``None`` if the model takes the features as one tensor."""
    given = _keys(parts, "node features")
    if known is not None and (count != len(known) if given is None else set(given) != set(known)):
        got = f"{count} inputs" if given is None else listed(given)
        raise ValueError(f"Expected the features of each of {listed(known)} (got {got}).")
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
