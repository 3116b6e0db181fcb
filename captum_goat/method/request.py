"""What one call of ``attribute`` asks for: which inputs are attributed, in which layout, on which graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from captum_goat.adjacency.masked_output import check_deletion
from captum_goat.inputs.attributed_inputs import GivenInputs
from captum_goat.inputs.edge_masks import copies_agree
from captum_goat.inputs.edge_sets import has_edges
from captum_goat.inputs.feature_masks import sum_features
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Choice
from captum_goat.method.explain import Attributions, GraphExplanation
from captum_goat.method.graph_cache import Memory
from captum_goat.wrapped_model import ExplainedModel


@dataclass(frozen=True)
class Request:
    """Edges and features to be attributed, and the graph they belong to.

    Attributes:
        graph: The other arguments of the model.
        given: The edge masks and the attributed features.
        count: B, if there are B masks (or features) of one graph; ``None`` for inputs as the model takes them.
        rows_are_examples: Whether the model has no graph, so that every row of an input is an example.
        finish: Applied to the model's output.
        adjacency: Whether an edge mask is the presence of the edges, else a factor of their messages.
    """

    graph: GraphInputs
    given: GivenInputs
    count: int | None
    rows_are_examples: bool
    finish: Callable[[Any], Any] | None
    adjacency: bool = False

    @classmethod
    def of(cls, explained: ExplainedModel, inputs: Any, arguments: Any) -> Request:
        """Read the arguments of ``attribute``."""
        explained.check_evaluating()
        arguments = arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)
        plain = explained.mask_type is None and not has_edges(arguments)
        kind = explained.mask_type or ("input" if plain else "edge")
        given = GivenInputs.of(kind, inputs, arguments, explained.metadata)
        given.check(rows_are_examples=plain)
        count = None if plain else given.count
        leading = len(given.features) if given.node_types is None else given.node_types
        graph = GraphInputs.of(explained.model, arguments, num_edges=given.num_edges, leading=leading, count=count or 1)
        return cls(graph, given, count, plain, explained.finish, explained.at == "adjacency")

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return (*self.given.features, *self.given.masks)[0].device

    def check_deletion(self) -> bool:
        """Check that masking edges is deleting them; return whether that proves something of the model."""
        features = self.given.features if self.count is None else [each[0] for each in self.given.features]
        return check_deletion(self.graph.with_leading(features))

    def explanations(
        self, choice: Choice, *, repeated: bool = False, proportional: bool = False, memory: Memory | None = None
    ) -> list[GraphExplanation]:
        """Record the model: once for inputs as they are or for copies side by side, else once per mask."""
        options: dict[str, Any] = {"repeated": repeated, "proportional": proportional}
        if self.count is None:
            mask, features = self._flat_mask(self.given.masks), self.given.features
            memory = None if self.adjacency else memory
            return [self._explain(self.graph.with_leading(features), choice, mask, features, memory=memory, **options)]
        singles = self._singles()
        choices = [choice.of_mask(number, self.count) for number in range(self.count)]
        if self.count > 1 and self.finish is None:
            together = self._together(choice, choices, singles, options)
            if together is not None:
                return [together]
        return [
            self._explain(self.graph.with_leading(features), each, mask, features, copies=1, **options)
            for each, (mask, features) in zip(choices, singles, strict=True)
        ]

    def joined(self, found: Sequence[Attributions]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return attributions of the inputs' shapes and dtypes, features first, and the completeness errors.

        Args:
            found: The parts of one target, of one explanation after the other.
        """
        features = [torch.cat(each) for each in zip(*(part.features for part in found), strict=True)]
        sizes = [mask.numel() // len(found) for mask in self.given.masks]
        edges = zip(*(part.edges.split(sizes) for part in found), strict=True) if sizes else ()
        results = [*features, *(torch.cat(each) for each in edges)]
        inputs = (*self.given.features, *self.given.masks)
        shaped = tuple(each.view_as(given).to(given.dtype) for each, given in zip(results, inputs, strict=True))
        return shaped, torch.cat([part.delta for part in found])

    def parts(self, scores: Sequence[Tensor], count: int) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Return scores of the inputs' shapes as edges and features of each of ``count`` explanations."""
        features, masks = scores[: len(self.given.features)], scores[len(self.given.features) :]
        if self.count is not None:
            features = [each.flatten(0, 1) for each in features]
        per_feature = [each.chunk(count) for each in features]
        edges = [each.reshape(count, each.numel() // count) for each in masks] or [features[0].new_empty(count, 0)]
        return [
            (part, tuple(each[number] for each in per_feature))
            for number, part in enumerate(torch.cat(edges, dim=1).unbind())
        ]

    def grouped(self, attributions: tuple[Tensor, ...], masks: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return attributions in which every entry has the sum over its feature."""
        if len(masks) != len(attributions):
            raise ValueError(f"Expected one feature mask per input (got {len(masks)} for {len(attributions)} inputs).")
        if self.count is not None or self.rows_are_examples:
            return tuple(sum_features(attributions, masks))
        found = sum_features([each.unsqueeze(0) for each in attributions], masks)
        return tuple(each.squeeze(0) for each in found)

    def _explain(
        self, graph: GraphInputs, choice: Choice, mask: Tensor | None, features: Sequence[Tensor], **options: Any
    ) -> GraphExplanation:
        options |= {"finish": self.finish, "adjacency": self.adjacency}
        return GraphExplanation(graph, choice, mask=mask, features=features, **options)

    @staticmethod
    def _flat_mask(masks: Sequence[Tensor]) -> Tensor | None:
        """Return masks ``[E]`` or ``[B, E]`` one set of edges after the other; ``None`` if edges are constants."""
        return torch.cat([mask.reshape(-1) for mask in masks]) if masks else None

    def _singles(self) -> list[tuple[Tensor | None, tuple[Tensor, ...]]]:
        """Return mask and features of one example after the other."""
        assert self.count is not None
        return [
            (
                self._flat_mask([mask[number] for mask in self.given.masks]),
                tuple(each[number] for each in self.given.features),
            )
            for number in range(self.count)
        ]

    def _together(
        self,
        choice: Choice,
        choices: Sequence[Choice],
        singles: list[tuple[Tensor | None, tuple[Tensor, ...]]],
        options: dict[str, Any],
    ) -> GraphExplanation | None:
        """Explain copies of the graph side by side; ``None`` if the model mixes the graphs of a batch."""
        assert self.count is not None
        mask, features = singles[-1]
        alone = self.graph.with_leading(features)
        flat = tuple(each.flatten(0, 1) for each in self.given.features)
        # Copies may not fit a model (that mixes graphs, or has an embedding per node) which takes the graph alone. An
        # error that is not due to the copies comes again when the last one is explained.
        last = self._explain(alone, choices[-1], mask, features, copies=1)
        try:
            together = self._explain(
                alone.copies(self.count).with_leading(flat),
                choice,
                self._flat_mask(self.given.masks),
                flat,
                copies=self.count,
                **options,
            )
        except Exception:
            return None
        return together if copies_agree(together.output, last.output, self.count) else None
