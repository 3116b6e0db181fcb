"""What methods that remove edges have in common: the model behind them, and one game for each explained number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.attribution import Explained
from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.inputs.request import flattened
from captum_goat.inputs.targets import Choice
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.runs import progress_bar
from captum_goat.shapley.games import Players, edge_keys, games_of_columns, group_keys
from captum_goat.shapley.values import EdgeValues
from captum_goat.tracking.program import Program, ProgramStore
from captum_goat.wrapped_model import ExplainedModel


class EdgeAttribution(Attribution):
    """Base class of methods that explain a model by removing edges; ``at=None``: deleted if the model allows it."""

    _option_names: ClassVar[tuple[str, ...]] = ("at",)
    _guides: ClassVar[str]  # the option with attributions of the user's own methods
    _passes: ClassVar[str]  # the option with the number of passes over the model
    margin: bool | None = None  # whether log-odds are explained; None: where there are several classes
    multiplies_by_inputs = True  # attributions have the inputs as a factor: edges with these masks are kept or removed

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
        self.model, self.mask_type = self._explained.model, "edge"

    @property
    def options(self) -> dict[str, Any]:
        """The options that decide the scores, by name."""
        return {name: getattr(self, name) for name in self._option_names}

    def _games(
        self, inputs: Any, choice: Choice, arguments: Any, feature_mask: Any = None, games: Tensor | None = None
    ) -> tuple[EdgeValues, Players]:
        """Return the explained numbers, each of which has a game, as a function of the edges; and the players."""
        request = self._explained.request(inputs, arguments)
        switch_off_autocast(request.device)
        if request.rows_are_examples:
            raise ValueError("Expected a graph with edges among the arguments (got none).")
        values = EdgeValues(request, choice.first, self.at, self.margin, self._programs)
        graph, count = request.graph, values.num_games
        if feature_mask is None:
            keys = edge_keys(graph, len(values.mask))
        else:
            keys = group_keys(flattened(feature_mask, inputs), request.masks)
        games = games_of_columns(graph, request.count, count) if games is None else games
        shared = feature_mask is None and self.has_convergence_delta()
        return values, Players.of(keys, games, count, values.mask.view(-1) != 0, shared)

    @restores_state
    def _explain(
        self,
        inputs: Any,
        choice: Choice,
        arguments: Any,
        feature_mask: Any = None,
        *,
        games: Tensor | None = None,
        show_progress: bool = False,
    ) -> Explained:
        """Explain the chosen targets, given the game of each edge if the arguments do not tell it."""
        with outside_inference_mode():
            first, players = self._games(inputs, choice, arguments, feature_mask, games)
            found = Explained([], [], first.output, [])
            targets, masks = choice(first.output), first.request.masks
            with progress_bar(getattr(self, self._passes) * len(targets), "pass", show_progress) as advance:
                for number, target in enumerate(targets):
                    values = first.of_target(target) if number else first
                    guides = _own_guides(getattr(self, self._guides) or (), values, inputs, arguments)
                    scores, details = self._scores(values, players, guides, advance)
                    delta = players.sums(scores.double()) - (values.whole - values.empty)
                    delta = delta if self.has_convergence_delta() else torch.full_like(delta, torch.nan)
                    found.attributions.append(players.per_mask(scores, masks))
                    found.deltas.append(delta.to(scores.dtype))
                    found.details.append(details)
        return found

    def _scores(
        self, values: EdgeValues, players: Players, guides: Tensor, advance: Callable[[int], object]
    ) -> tuple[Tensor, Any]:
        """Return the scores of players ``[P]`` and details, given what the user's guides say, ``[K, columns]``."""
        raise NotImplementedError


def check_at_least(least: int, **numbers: Any) -> None:
    """Raise ValueError unless numbers are integers from ``least`` on."""
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"Expected {name} to be an integer from {least} on (got {number!r}).")


def check_guides(name: str, guides: Sequence[Any]) -> None:
    """Raise TypeError unless guides are attribution methods or attributions."""
    if not all(isinstance(guide, Attribution | Tensor) for guide in guides):
        got = ", ".join(type(guide).__name__ for guide in guides)
        raise TypeError(f"Expected {name} that are captum Attributions or tensors (got {got}).")


def _own_guides(guides: Sequence[Attribution | Tensor], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return the attributions of the user's own methods, ``[K, columns]``."""
    masks = flattened(inputs)
    rows = [values.mask.new_empty(0, values.mask.numel())]
    for guide in guides:
        attributions: Any = guide
        if isinstance(guide, Attribution):
            given = inputs
            if isinstance(guide, GradientAttribution) and isinstance(inputs, Tensor):
                given = inputs.detach().clone().requires_grad_()  # or Captum warns that it does so itself
            attributions = guide.attribute(given, target=values.target, additional_forward_args=arguments)
        parts, expected = flattened(attributions, inputs), [list(mask.shape) for mask in masks]
        shapes = [list(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
        if shapes != expected:
            raise ValueError(f"Expected guides of the masks' shapes {expected} (got {shapes}).")
        row = torch.cat([part.detach().reshape(len(values.mask), -1) for part in parts], dim=1).view(1, -1)
        if not bool(row.isfinite().all()):
            wrong = int((~row.isfinite()).sum())
            raise ValueError(f"Expected finite guides (got {wrong} numbers that are infinite or nan).")
        rows.append(row.to(values.mask))
    return torch.cat(rows)
