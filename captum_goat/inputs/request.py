"""What one call of ``attribute`` asks for: which inputs are attributed, in which layout, on which graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from captum_goat.inputs.arguments import MaskSizes, check_masks, listed
from captum_goat.inputs.feature_masks import sum_features
from captum_goat.inputs.graph_inputs import GraphInputs

# The mask ``[E]``, one set of edges after the other (``None`` if edges are constants), and the attributed features.
Part: TypeAlias = tuple[Tensor | None, tuple[Tensor, ...]]

# The node types and edge types of a heterogeneous graph.
Metadata: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Request:
    """Edges and features to be attributed, and the graph they belong to."""

    graph: GraphInputs  # the model and its other arguments
    # the model's first arguments, or the entries of the dictionary that is the first one; then the edge attributes
    features: tuple[Tensor, ...]
    masks: tuple[Tensor, ...]  # of edges
    count: int | None  # B, if there are B masks (or features) of one graph; None for inputs as the model takes them
    rows_are_examples: bool  # whether the model has no graph, so that every row of an input is an example
    finish: Callable[[Any], Any] | None  # applied to the model's output
    at: str  # how an edge mask enters: "message" or "adjacency"

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return (*self.features, *self.masks)[0].device

    @property
    def whole(self) -> Part:
        """The mask and features of all examples side by side."""
        features = self.features
        if self.count is not None:
            features = tuple(feature.flatten(0, 1) for feature in features)
        return _flat_mask(self.masks), features

    @property
    def singles(self) -> list[Part]:
        """The mask and features of one example after the other."""
        return [
            (_flat_mask([mask[number] for mask in self.masks]), tuple(feature[number] for feature in self.features))
            for number in range(self.count or 0)
        ]

    @property
    def one_graph(self) -> GraphInputs:
        """The graph with the features of the first example."""
        features = self.features if self.count is None else [feature[0] for feature in self.features]
        return self.graph.with_leading(features)

    def joined(self, edges: Sequence[Tensor], features: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
        """Join the attributions of parts of the examples: one tensor of the shape and dtype of each input."""
        sizes = [mask.numel() // len(edges) for mask in self.masks]
        of_masks = zip(*(part.split(sizes) for part in edges), strict=True) if sizes else ()
        results = [torch.cat(parts) for parts in (*zip(*features, strict=True), *of_masks)]
        inputs = zip(results, (*self.features, *self.masks), strict=True)
        results = [result.view_as(given).to(given.dtype) for result, given in inputs]
        if self.graph.attributes is not None:  # the last of the user's inputs
            results.append(results.pop(len(self.features) - 1))
        return tuple(results)

    def parts(self, scores: Sequence[Tensor], count: int) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Return scores of the inputs' shapes as edges and features of each of ``count`` parts of the examples."""
        end = len(scores) - (self.graph.attributes is not None)
        begin = end - len(self.masks)
        scored = replace(self, features=(*scores[:begin], *scores[end:]), masks=tuple(scores[begin:end]))
        parts = scored.singles if count > 1 else [scored.whole]
        return [(features[0].new_empty(0) if edges is None else edges, features) for edges, features in parts]

    def grouped(self, attributions: tuple[Tensor, ...], feature_masks: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return attributions in which every entry has the sum over its feature."""
        if len(feature_masks) != len(attributions):
            raise ValueError(
                f"Expected one feature mask per input (got {len(feature_masks)} for {len(attributions)} inputs)."
            )
        if self.count is not None or self.rows_are_examples:
            return tuple(sum_features(attributions, feature_masks))
        totals = sum_features([attribution.unsqueeze(0) for attribution in attributions], feature_masks)
        return tuple(total.squeeze(0) for total in totals)


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


def _flat_mask(masks: Sequence[Tensor]) -> Tensor | None:
    """Return masks ``[E]`` or ``[B, E]`` one set of edges after the other; ``None`` if edges are constants."""
    return torch.cat([mask.reshape(-1) for mask in masks]) if masks else None


def split_inputs(
    kind: str, inputs: Any, arguments: Sequence[Any], metadata: Metadata | None
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[str, ...] | None, MaskSizes | None]:
    """Return the features and masks among the user's inputs, the features' node types, and the sizes of the masks."""
    names, given = kind.split("_and_"), inputs if isinstance(inputs, tuple) else (inputs,)
    parts, attributes = (given[:-1], given[-1:]) if names[-1] == "edge_attr" else (given, ())
    if len(given) < len(names) or (parts and kind == "edge_attr") or not flattened(inputs):
        words = {"edge": "the edge mask", "node": "the node features", "node_and_edge": "(x, edge_mask)"}
        expected = f"Expected {len(names)} input(s), {words.get(kind, f'for mask_type {kind!r}')}"
        raise ValueError(f"{expected} (got {len(given)} inputs).")
    node_types, edge_types = metadata if metadata is not None else (None, None)
    if node_types is None and len(arguments) == 1 and isinstance(arguments[0], HeteroData):
        node_types = tuple(arguments[0].collect("x", allow_empty=True))
    number = 0 if names[0] == "edge" else len(parts)  # of parts that are features
    if "node" in names and "edge" in names:
        number = 1 if node_types is None or isinstance(parts[0], dict) else len(node_types)
    features, masks = (tuple(map(_detached, flattened(part))) for part in (parts[:number], parts[number:]))
    if "node" in names:
        node_types = _node_types(parts[:number], len(features), node_types)
    else:
        node_types = None
        if kind == "input" and any(isinstance(part, dict) for part in parts):
            raise ValueError("Expected tensors, the inputs of a model without message passing (got a dictionary).")
    sizes: MaskSizes | None = None
    if "edge" in names:
        check_masks(masks)
        sizes = [mask.size(-1) for mask in masks]
        edge_types = _keys(parts[number:], "edge masks") or edge_types
        if edge_types is not None and len(edge_types) == len(sizes):
            sizes = dict(zip(edge_types, sizes, strict=True))
    rows = [("example", 1) if kind == "input" else ("node", 2)] * len(features) + [("edge", 1)] * len(attributes)
    features = (*features, *map(_detached, attributes))
    for feature, (row, dims) in zip(features, rows, strict=True):
        if not feature.is_floating_point() or feature.dim() < dims:
            got = f"{feature.dtype} {list(feature.shape)}"
            raise ValueError(f"Expected inputs of floating point numbers, one row per {row} (got {got}).")
    return features, masks, node_types, sizes


def count_of(features: Sequence[Tensor], masks: Sequence[Tensor]) -> int | None:
    """Return how many masks or features of one graph there are; ``None`` for inputs as the model takes them."""
    repeated = masks[0].dim() == 2 if masks else features[0].dim() == 3
    dims, counts = {feature.dim() for feature in features}, {len(tensor) for tensor in (*features, *masks[:1])}
    allowed = {2, 3} if masks else {3}
    if (len(counts) > 1 or not dims <= allowed) if repeated else 3 in dims:
        raise ValueError(
            f"Expected features [B, num_nodes, ...] for masks [B, num_edges], and without masks all [B, num_nodes, ...]"
            f" with the same B or all [num_nodes, ...] (got {[list(feature.shape) for feature in features]})."
        )
    return counts.pop() if repeated else None


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
