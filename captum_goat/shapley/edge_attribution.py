"""What methods that remove edges have in common: the model behind them, and the games of one call."""

from __future__ import annotations

from typing import Any

from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.hooks.global_state import switch_off_autocast
from captum_goat.inputs.request import flattened
from captum_goat.inputs.targets import Choice
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.shapley.players import Players, edge_keys, games_of_columns, group_keys
from captum_goat.shapley.values import EdgeValues
from captum_goat.tracking.program import Program, ProgramStore
from captum_goat.wrapped_model import ExplainedModel


class EdgeAttribution(Attribution):
    """Base class of methods that explain a model by removing edges.

    Args:
        forward_func: The model, or a wrapper that makes it a function of an edge mask.
        at: Where edges are removed; ``None`` where the wrapper tells, else they are deleted if the model allows it.
    """

    def __init__(self, forward_func: Any, at: str | None = None) -> None:
        super().__init__(forward_func)
        self._explained = ExplainedModel.of(forward_func, at=at)
        if self._explained.mask_type not in ("edge", None):
            raise ValueError(f"Expected a model whose edges are attributed (got {self._explained.mask_type!r}).")
        wrapped = getattr(forward_func, "_orig_mod", forward_func)  # the module behind torch.compile
        if isinstance(wrapped, EdgeMaskedModel):
            at = wrapped.at
        self.at = "message" if isinstance(wrapped, CaptumModel) else at
        self._programs = ProgramStore[Program]()

    @property
    def model(self) -> Module:
        """The user's own model, without what was wrapped around it."""
        return self._explained.model

    @property
    def mask_type(self) -> str:
        """What is attributed: ``"edge"``."""
        return "edge"

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether attributions have the inputs as a factor: edges with these masks are kept or removed."""
        return True

    def _games(
        self,
        inputs: Any,
        choice: Choice,
        arguments: Any,
        feature_mask: Any = None,
        *,
        margin: bool | None = False,
        games: Tensor | None = None,
    ) -> tuple[EdgeValues, Players]:
        """Read the arguments of ``attribute``, given the game of each edge if they do not tell it.

        Returns:
            The explained numbers, each of which has a game, as a function of the edges that are kept; and the players.
        """
        request = self._explained.request(inputs, arguments)
        switch_off_autocast(request.device)
        if request.rows_are_examples:
            raise ValueError("Expected a graph with edges among the arguments (got none).")
        values = EdgeValues(request, choice.first, self.at, margin=margin, programs=self._programs)
        graph, count = request.graph, values.num_games
        if feature_mask is None:
            keys = edge_keys(graph, len(values.mask))
        else:
            keys = group_keys(flattened(feature_mask, inputs), request.masks)
        games = games_of_columns(graph, request.count, count) if games is None else games
        return values, Players.of(keys, games, count, values.mask.view(-1) != 0)


def check_at_least(least: int, **numbers: Any) -> None:
    """Raise ValueError unless numbers are integers from ``least`` on."""
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"Expected {name} to be an integer from {least} on (got {number!r}).")
