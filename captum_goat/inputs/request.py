"""What one call of ``attribute`` asks for: which inputs are attributed, in which layout, on which graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.inputs.attributed_inputs import AttributedInputs, Metadata
from captum_goat.inputs.edge_sets import has_edges
from captum_goat.inputs.feature_masks import sum_features
from captum_goat.inputs.graph_inputs import GraphInputs, Selector

# The mask ``[E]``, one set of edges after the other (``None`` if edges are constants), and the attributed features.
Part = tuple[Tensor | None, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Request:
    """Edges and features to be attributed, and the graph they belong to."""

    graph: GraphInputs  # the model and its other arguments
    inputs: AttributedInputs  # the edge masks and the attributed features
    count: int | None  # B, if there are B masks (or features) of one graph; None for inputs as the model takes them
    rows_are_examples: bool  # whether the model has no graph, so that every row of an input is an example
    finish: Callable[[Any], Any] | None  # applied to the model's output
    at: str  # how an edge mask enters: "message" or "adjacency"

    @classmethod
    def of(
        cls,
        model: Module,
        inputs: Any,
        arguments: tuple[Any, ...],
        mask_type: str | None,
        metadata: Metadata | None,
        finish: Callable[[Any], Any] | None,
        at: str,
        output: Selector = None,
    ) -> Request:
        """Read the arguments of ``attribute``, which tell ``mask_type`` and ``metadata`` where these are ``None``."""
        plain = mask_type is None and not has_edges(arguments)
        attributed = AttributedInputs.of(mask_type or ("input" if plain else "edge"), inputs, arguments, metadata)
        count = None if plain else attributed.count
        number = len(attributed.features) - attributed.has_attributes
        leading = number if attributed.node_types is None else attributed.node_types
        options: dict[str, Any] = {"leading": leading, "count": count or 1, "output": output}
        options["attributes"] = attributed.has_attributes
        graph = GraphInputs.of(model, arguments, num_edges=attributed.num_edges, **options)
        return cls(graph, attributed, count, plain, finish, at)

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return (*self.inputs.features, *self.inputs.masks)[0].device

    @property
    def whole(self) -> Part:
        """The mask and features of all examples side by side."""
        features = self.inputs.features
        if self.count is not None:
            features = tuple(feature.flatten(0, 1) for feature in features)
        return _flat_mask(self.inputs.masks), features

    @property
    def singles(self) -> list[Part]:
        """The mask and features of one example after the other."""
        masks, features = self.inputs.masks, self.inputs.features
        return [
            (_flat_mask([mask[number] for mask in masks]), tuple(feature[number] for feature in features))
            for number in range(self.count or 0)
        ]

    @property
    def one_graph(self) -> GraphInputs:
        """The graph with the features of the first example."""
        features = self.inputs.features if self.count is None else [feature[0] for feature in self.inputs.features]
        return self.graph.with_leading(features)

    def joined(self, edges: Sequence[Tensor], features: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
        """Join the attributions of parts of the examples: one tensor of the shape and dtype of each input."""
        sizes = [mask.numel() // len(edges) for mask in self.inputs.masks]
        of_masks = zip(*(part.split(sizes) for part in edges), strict=True) if sizes else ()
        results = [torch.cat(parts) for parts in (*zip(*features, strict=True), *of_masks)]
        inputs = (*self.inputs.features, *self.inputs.masks)
        results = [result.view_as(given).to(given.dtype) for result, given in zip(results, inputs, strict=True)]
        last = [results.pop(len(self.inputs.features) - 1)] if self.inputs.has_attributes else []
        return *results, *last  # in the order of the user's inputs

    def parts(self, scores: Sequence[Tensor], count: int) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Return scores of the inputs' shapes as edges and features of each of ``count`` parts of the examples."""
        number = len(self.inputs.features) - self.inputs.has_attributes
        end = len(scores) - self.inputs.has_attributes
        features = (*scores[:number], *scores[end:])
        inputs = replace(self.inputs, features=features, masks=tuple(scores[number:end]))
        scored = replace(self, inputs=inputs)
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


def _flat_mask(masks: Sequence[Tensor]) -> Tensor | None:
    """Return masks ``[E]`` or ``[B, E]`` one set of edges after the other; ``None`` if edges are constants."""
    return torch.cat([mask.reshape(-1) for mask in masks]) if masks else None
