"""What one call of ``attribute`` asks for: which inputs are attributed, in which layout, on which graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from captum_goat.explained_model import ExplainedModel
from captum_goat.feature_groups import sum_features
from captum_goat.graph_explanation import Attributions, GraphExplanation
from captum_goat.graph_inputs import GraphInputs
from captum_goat.masked_model import check_mask, copies_agree


@dataclass(frozen=True)
class Request:
    """Edges and features to be attributed, and the graph they belong to.

    Attributes:
        graph: The other arguments of the model.
        mask: The edge mask, ``[E]`` or ``[B, E]``; ``None`` if edges are not attributed.
        features: The attributed first arguments of the model.
        count: B, if there are B masks (or features) of one graph; ``None`` for inputs as the model takes them.
        rows_are_examples: Whether the model has no graph, so that every row of an input is an example.
        finish: Applied to the model's output.
    """

    graph: GraphInputs
    mask: Tensor | None
    features: tuple[Tensor, ...]
    count: int | None
    rows_are_examples: bool
    finish: Callable[[Any], Any] | None

    @classmethod
    def of(cls, explained: ExplainedModel, inputs: Any, arguments: Any) -> Request:
        """Read the arguments of ``attribute``."""
        explained.check_evaluating()
        model, mask_type, finish = explained
        tensors = tuple(_detached(each) for each in (inputs if isinstance(inputs, tuple) else (inputs,)))
        arguments = arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)
        plain = mask_type is None and not _has_edges(arguments)
        kind = mask_type or ("input" if plain else "edge")
        expected = {"edge": 1, "node": 1, "node_and_edge": 2}.get(kind, len(tensors))
        if len(tensors) != expected or not tensors:
            what = {"edge": "the edge mask", "node": "the node features"}.get(kind, "(x, edge_mask)")
            raise ValueError(f"Expected {expected} input(s), {what} (got {len(tensors)} inputs).")
        mask = tensors[-1] if kind in ("edge", "node_and_edge") else None
        features = tensors[:-1] if mask is not None else tensors
        if mask is not None:
            check_mask(mask)
        for each in features:
            if not each.is_floating_point() or each.dim() < (1 if plain else 2):
                raise ValueError(
                    f"Expected inputs of floating point numbers, one row per {'example' if plain else 'node'} (got "
                    f"{each.dtype} {list(each.shape)})."
                )
        num_edges = None if mask is None else mask.size(-1)
        graph = GraphInputs.of(model, (*[None] * len(features), *arguments), num_edges=num_edges)
        count = _count(kind, mask, features)
        return cls(graph, mask, features, count, plain, finish)

    def explanations(self, target: Any, *, repeated: bool = False) -> list[GraphExplanation]:
        """Record the model: once for inputs as they are or for copies side by side, else once per mask."""
        if self.count is None:
            graph = self.graph.with_leading(self.features)
            return [self._explain(graph, target, self.mask, self.features, repeated=repeated)]
        singles = self._singles()
        targets = _targets_of(target, self.count)
        if len(targets) != self.count:
            raise ValueError(f"Expected one target per mask (got {len(targets)} targets for {self.count} masks).")
        if self.count > 1 and self.finish is None:
            together = self._together(target, targets, singles, repeated)
            if together is not None:
                return [together]
        return [
            self._explain(self.graph.with_leading(features), each, mask, features, copies=1, repeated=repeated)
            for each, (mask, features) in zip(targets, singles, strict=True)
        ]

    def joined(self, found: Sequence[Attributions]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return attributions of the inputs' shapes and dtypes, and the completeness errors."""
        features = [torch.cat(each) for each in zip(*(part.features for part in found), strict=True)]
        results = [*features, *([torch.cat([part.edges for part in found])] if self.mask is not None else [])]
        inputs = self._inputs()
        shaped = tuple(each.view_as(given).to(given.dtype) for each, given in zip(results, inputs, strict=True))
        return shaped, torch.cat([part.delta for part in found])

    def parts(self, scores: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Return scores of the inputs' shapes as edges and features of each of ``count`` explanations."""
        features = scores[: len(self.features)]
        if self.count is not None:
            features = tuple(each.flatten(0, 1) for each in features)
        edges = scores[-1].reshape(-1) if self.mask is not None else features[0].new_empty(0)
        per_feature = [each.chunk(count) for each in features]
        return [
            (part, tuple(each[number] for each in per_feature))
            for number, part in enumerate(edges.view(count, -1).unbind())
        ]

    def grouped(self, attributions: tuple[Tensor, ...], feature_mask: Any) -> tuple[Tensor, ...]:
        """Return attributions in which every entry has the sum over its feature."""
        masks = feature_mask if isinstance(feature_mask, tuple) else (feature_mask,)
        if len(masks) != len(attributions):
            raise ValueError(f"Expected one feature mask per input (got {len(masks)} for {len(attributions)} inputs).")
        if self.count is not None or self.rows_are_examples:
            return tuple(sum_features(attributions, masks))
        found = sum_features([each.unsqueeze(0) for each in attributions], masks)
        return tuple(each.squeeze(0) for each in found)

    def _explain(
        self, graph: GraphInputs, target: Any, mask: Tensor | None, features: Sequence[Tensor], **options: Any
    ) -> GraphExplanation:
        return GraphExplanation(graph, target, mask=mask, features=features, finish=self.finish, **options)

    def _inputs(self) -> tuple[Tensor, ...]:
        return self.features if self.mask is None else (*self.features, self.mask)

    def _singles(self) -> list[tuple[Tensor | None, tuple[Tensor, ...]]]:
        """Return mask and features of one example after the other."""
        assert self.count is not None
        masks = [None] * self.count if self.mask is None else list(self.mask)
        return [(mask, tuple(each[number] for each in self.features)) for number, mask in enumerate(masks)]

    def _together(
        self,
        target: Any,
        targets: Sequence[Any],
        singles: list[tuple[Tensor | None, tuple[Tensor, ...]]],
        repeated: bool,
    ) -> GraphExplanation | None:
        """Explain copies of the graph side by side; ``None`` if the model mixes the graphs of a batch."""
        assert self.count is not None
        mask, features = singles[-1]
        alone = self.graph.with_leading(features)
        flat = tuple(each.flatten(0, 1) for each in self.features)
        flat_mask = None if self.mask is None else self.mask.reshape(-1)
        # Copies may not fit a model (that mixes graphs, or has an embedding per node) which takes the graph alone. An
        # error that is not due to the copies comes again when the last one is explained.
        last = self._explain(alone, targets[-1], mask, features, copies=1)
        try:
            together = self._explain(
                alone.copies(self.count).with_leading(flat),
                target,
                flat_mask,
                flat,
                copies=self.count,
                repeated=repeated,
            )
        except Exception:
            return None
        return together if copies_agree(together.output, last.output, self.count) else None


def _detached(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"Expected inputs that are tensors (got {type(value).__name__}).")
    tensor: Tensor = value.detach()
    return tensor.clone() if tensor.is_inference() else tensor


def _has_edges(arguments: tuple[Any, ...]) -> bool:
    """Return whether some argument looks like edges; a model that takes them but passes no messages is refused."""
    return any(
        isinstance(each, Tensor) and each.dim() == 2 and each.size(0) == 2 and each.dtype == torch.long
        for each in arguments
    )


def _count(kind: str, mask: Tensor | None, features: tuple[Tensor, ...]) -> int | None:
    """Return how many masks or features of one graph there are; ``None`` for inputs as the model takes them."""
    if kind == "input":
        return None
    if mask is None:
        return len(features[0]) if features[0].dim() == 3 else None
    if mask.dim() == 1:
        if any(each.dim() > 2 for each in features):
            raise ValueError(
                f"Expected a mask [B, num_edges] for features [B, num_nodes, ...] (got {list(mask.shape)} for "
                f"{[list(each.shape) for each in features]})."
            )
        return None
    if any(each.dim() < 2 or len(each) != len(mask) for each in features):
        shapes = [list(each.shape) for each in features]
        raise ValueError(f"Expected features [B, num_nodes, ...] for masks [B, num_edges] (got {shapes}).")
    return len(mask)


def _targets_of(target: Any, count: int) -> Sequence[Any]:
    """Return one target per mask."""
    per_mask = isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1)
    targets = list(target) if per_mask else [target]
    return targets * count if len(targets) == 1 else targets
