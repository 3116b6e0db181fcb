"""A graph's edges as players of a game, for shapiq and other code that works on games."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

from captum_goat.hooks.global_state import outside_inference_mode, restores_state
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Choice
from captum_goat.shapley.edge_attribution import EdgeAttribution, EdgeValues
from captum_goat.wrapped_model import floating_tensor


class EdgeGame:
    """The game in which edges of one graph play for a model's output, in the form that shapiq has for games.

    Its exact computer and its approximators take it (``pip install 'captum-goat[shapiq]'``):
    ``shapiq.ExactComputer(game, n_players=game.n_players)("k-SII", order=2)`` are interactions of pairs of edges.

    Args:
        model: The model, in evaluation mode; or :class:`~captum_goat.EdgeMaskedModel` around it.
        data: The graph: a :class:`~torch_geometric.data.Data`, or a tuple of the model's arguments.
        target: What is explained, as for :class:`~captum_goat.GuidedShapley`, as are ``at`` and ``margin``.
        feature_mask: The player of each edge, ``[E]``; by default, both directions are one player if all edges have
        two. normalize: Whether the value without edges, ``normalization_value``, is subtracted from all values.

    The number of players is ``n_players``, the player of each edge is in ``players``, ``[E]``.

    Examples:
        >>> import numpy as np
        >>> from torch_geometric.data import Data
        >>> from captum_goat import EdgeGame
        >>> from captum_goat.models import GraphClassifier
        >>> _ = torch.manual_seed(0)
        >>> model = GraphClassifier("gin", in_channels=4, hidden_channels=8, num_classes=2).eval()
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # 0 - 1 - 2 - 3
        >>> game = EdgeGame(model, Data(x=torch.randn(4, 4), edge_index=edge_index), target=1)
        >>> game.n_players, game.players
        (3, tensor([0, 0, 1, 1, 2, 2]))
        >>> game(np.array([[False, False, False], [True, False, True]])).shape
        (2,)
        >>> float(game(game.empty_coalition)[0])
        0.0
    """

    def __init__(
        self,
        model: Any,
        data: BaseData | tuple[Any, ...],
        target: Any = None,
        *,
        feature_mask: Tensor | None = None,
        at: Literal["message", "adjacency"] | None = None,
        margin: bool = False,
        normalize: bool = True,
    ) -> None:
        self._values, self.players = self._start(EdgeAttribution(model, at), data, target, feature_mask, margin)
        self.n_players = int(self.players.max()) + 1 if self.players.numel() else 0
        self.normalization_value = float(self._values.empty) if normalize else 0.0
        self.empty_coalition, self.grand_coalition = np.repeat([[False], [True]], self.n_players, axis=1)
        ends = self._values.empty, self._values.whole
        self.empty_coalition_value, self.grand_coalition_value = (float(end) - self.normalization_value for end in ends)

    @staticmethod
    @restores_state
    def _start(method: EdgeAttribution, data: Any, target: Any, groups: Any, margin: bool) -> tuple[EdgeValues, Tensor]:
        arguments = data if isinstance(data, tuple) else (data,)
        edges = GraphInputs.of(method.model, arguments).edge_sets
        if len(edges) != 1:
            raise ValueError(f"Expected a graph with one set of edges (got {len(edges)} sets).")
        mask = torch.ones(edges[0].size(1), dtype=floating_tensor(method.model).dtype, device=edges[0].device)
        method.margin = margin
        with outside_inference_mode():
            values, players = method._games(mask, Choice([target]), arguments, groups, torch.zeros_like(edges[0][0]))
        if values.num_games != 1:
            raise ValueError(
                f"Expected a target that selects one number (got {values.num_games}). Pass one graph, and for a "
                "model with a row per node a target such as (node, class)."
            )
        return values, players.number

    @restores_state
    def value_function(self, coalitions: np.ndarray) -> np.ndarray:
        """Return the values of coalitions, bool ``[K, M]``, as they are: ``[K]``."""
        members = torch.as_tensor(np.asarray(coalitions, dtype=bool))
        if members.dim() != 2 or members.size(1) != self.n_players:
            shape = f"[count, {self.n_players}], one entry per player (got {list(members.shape)})"
            raise ValueError(f"Expected coalitions of shape {shape}.")
        with outside_inference_mode():
            values: np.ndarray = self._values(members.to(self.players.device)[:, self.players])[:, 0].cpu().numpy()
            return values

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """Return the values of coalitions, bool ``[K, M]`` or ``[M]``, less ``normalization_value``: ``[K]``."""
        members = np.atleast_2d(np.asarray(coalitions, dtype=bool))
        return self.value_function(members) - self.normalization_value

    def player_names(self, edge_index: Tensor) -> list[str]:
        """Return a name for each player: the nodes of its first edge."""
        first = [int((self.players == player).nonzero()[0]) for player in range(self.n_players)]
        return [f"{int(edge_index[0, column])}-{int(edge_index[1, column])}" for column in first]
