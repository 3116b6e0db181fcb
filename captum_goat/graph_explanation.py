"""One recorded forward pass, what is to be explained of it, and the explanation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from captum_goat.activation_pattern import record
from captum_goat.contributions import contributions
from captum_goat.graph_inputs import GraphInputs
from captum_goat.receptive_field import ReceptiveFields
from captum_goat.targets import Target, find_target
from captum_goat.tracking import UnsupportedModelError


class SharedEdgesError(ValueError):
    """Some edge reaches several of the explained numbers, so it has no graph of its own."""


class GraphExplanation:
    """The explanation of one number per graph.

    Args:
        graph: The graph or batch of graphs.
        mask: The edge mask, ``[E]``.
        target: What to explain, in any form that :func:`~captum_goat.targets.find_target` knows.
        finish: Applied to the model's output.
        copies: How many copies of one graph ``graph`` is made of; ``None`` for a graph as the user has it.
        repeated: Whether receptive fields list an edge once per hop.

    Raises:
        SharedEdgesError: If some edge reaches several of the explained numbers.
    """

    def __init__(
        self,
        graph: GraphInputs,
        mask: Tensor,
        target: Any,
        *,
        finish: Callable[[Any], Any] | None = None,
        copies: int | None = None,
        repeated: bool = False,
    ) -> None:
        def forward() -> Any:
            output = graph() if finish is None else finish(graph())
            return output.view(1) if isinstance(output, Tensor) and output.dim() == 0 else output

        self._pattern = record(graph.model, forward, graph.edge_index, mask)
        if copies is not None and self.output.size(0) % copies:
            raise SharedEdgesError(f"Expected {copies} times the rows of one graph (got {self.output.size(0)} rows).")
        self._target: Target = find_target(self.output, target, copies)
        self._fields = ReceptiveFields(self._pattern.graph, mask.numel(), repeated=repeated)
        self._owner = self._find_owners()

    @property
    def output(self) -> Tensor:
        """The model's output."""
        return self._pattern.output

    @property
    def value(self) -> Tensor:
        """The explained numbers, one per graph."""
        return self._target(self.output)

    def attribute(self) -> tuple[Tensor, Tensor]:
        """Return the attributions ``[E]`` and the completeness error of each graph.

        Raises:
            UnsupportedModelError: If the attributions do not add up.
        """
        pattern = self._pattern
        base = pattern.without_edges()
        shares = contributions(pattern, self._target)
        calibration = contributions(base, self._target, edges=False)
        gates = frozenset[int]().union(*(each.rows.sources for each in pattern.gates if each is not None))
        spread = self._fields.spread(shares.rows - calibration.rows, gates)
        attributions = shares.edges + spread
        value, value_base = self.value, self._target(base.output)
        delta = self.sums(attributions) - (value - value_base)
        size = value.abs() + value_base.abs() + self.sums(attributions.abs())
        rounding = shares.rows.abs().sum() + calibration.rows.abs().sum()
        self._check(delta, size, rounding, torch.finfo(value.dtype).eps)
        return attributions, delta

    def sums(self, scores: Tensor) -> Tensor:
        """Return the sum of the scores of each graph's own edges."""
        owned = self._owner >= 0
        return scores.new_zeros(self._target.rows.numel()).index_add(0, self._owner[owned], scores[owned])

    def _find_owners(self) -> Tensor:
        """Return the position of the one explained number that each edge reaches (-1: none)."""
        rows, mask, target = self._pattern.rows, self._pattern.mask, self._target
        if target.rows.numel() == 1 or rows is None:
            return torch.full(mask.shape, 0 if rows is not None else -1, dtype=torch.long, device=mask.device)
        owner = self._fields.owners(rows.ids.expand(self.output.shape)[target.index], rows.sources)
        if owner is None:
            raise SharedEdgesError(
                f"Expected a target such as (node, class): the model's output {list(self.output.shape)} has "
                f"rows that share edges, as rows of nodes do, so one of them must be chosen."
            )
        return owner

    @staticmethod
    def _check(delta: Tensor, size: Tensor, rounding: Tensor, eps: float) -> None:
        """Raise if the attributions miss the output by more than what rounding explains."""
        if (delta.abs() > eps**0.5 * size + 100 * eps * rounding).any():
            raise UnsupportedModelError(
                f"The attributions do not add up to the output (the sum is off by {float(delta.abs().max()):.2g}), so "
                f"the model does something between its ReLUs that is not linear and was not noticed. Please report it "
                f"with the model."
            )
