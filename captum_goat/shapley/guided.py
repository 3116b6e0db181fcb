"""Shapley values of edges: by a regression that cheap attributions guide, or by shapiq's methods on a game of edges."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor
from torch_geometric.data.data import BaseData

from captum_goat.hooks.global_state import outside_inference_mode, restores_state
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.request import restored
from captum_goat.inputs.targets import Choice
from captum_goat.shapley.edge_attribution import EdgeAttribution, EdgeValues, check_at_least, check_guides
from captum_goat.shapley.games import Games, Players, structure_of_columns
from captum_goat.tracking import UnsupportedModelError
from captum_goat.wrapped_model import floating_tensor

_logger = logging.getLogger(__name__)

_PATH_POINTS = 5


class GuidedShapley(EdgeAttribution):
    r"""Estimate the Shapley values of a graph's edges from few forward passes.

    The Shapley value of an edge is what it adds to the target's output, on average over all orders in which the edges
    come in: with v(S) the output for the graph with the edges S only,

    .. math:: \varphi_e = \sum_{S \not\ni e} \frac{|S|!\,(M - |S| - 1)!}{M!}\,\big(v(S \cup e) - v(S)\big).

    The method evaluates ``n_samples`` coalitions S, in pairs of a set and its complement, and regresses their values on
    *guides*, cheap attributions that say roughly where values are large, and on a penalised part of each edge's own.
    With few coalitions guides decide; as ``n_samples`` grows the result tends to the Shapley values, whatever the
    guides say. If ``n_samples`` covers all coalitions of a graph, the values are exact. They always add up:

    .. math:: \sum_e \mathrm{attribution}_e = v(\text{all edges}) - v(\emptyset).

    Edges are really deleted, so they no longer count in degrees either. Both directions of an edge are one player in
    graphs in which every edge has its reverse, and share its value equally; each graph of a batch has players,
    coalitions and a regression of its own. In graphs of more than 1,000 players, 256 groups of players that are
    neighbours in the guides' order take their place, and a group's value is shared in it as the guides say. A softmax
    or sigmoid that is the model's last step is left out, as in GOAt.

    Args:
        forward_func: The trained model itself, in evaluation mode; or :class:`~captum_goat.EdgeMaskedModel` around it,
            which decides where edges are removed; or PyG's ``to_captum_model(model, "edge")``.
        guides: Attribution methods of the same edge mask, or attributions as tensors of its shape; any number. By
            default, a constant and the gradients at five points of the path of integrated gradients, at the adjacency
            where the model allows that, else at the messages.
        n_samples: The number of coalitions, each of which takes a forward pass.
        regularization: The penalty on what guides do not explain. More of it trusts the guides more.
        at: ``"adjacency"``: edges are deleted; ``"message"``: their messages are masked to 0. By default, they are
            deleted if the model runs without edges.
        margin: Whether to explain the margin of the target class, its log-odds (its logit minus the log-sum-exp of the
            others), instead of its logit. With several classes try both: neither always finds the better sets.
        random_state: The seed. The same seed, model and graph have the same attributions, alone or in a batch and
            however nodes and edges are numbered; only edges alike in the graph and to the guides go by number.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GuidedShapley
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3).eval()
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> shapley = GuidedShapley(model, n_samples=16)  # 4 edges have 16 coalitions, so the values are exact
        >>> values, errors = shapley.attribute(torch.ones(4), (2, 0), (x, edge_index), return_standard_errors=True)
        >>> lost = model(x, edge_index)[2, 0] - model(x, edge_index[:, :0])[2, 0]
        >>> torch.allclose(values.sum(), lost), errors
        (True, tensor([0., 0., 0., 0.]))
    """

    _option_names = ("guides", "n_samples", "regularization", "at", "margin", "random_state")
    _guides, _passes = "guides", "n_samples"

    def __init__(
        self,
        forward_func: Any,
        guides: Sequence[Attribution | Tensor] | None = None,
        n_samples: int = 64,
        regularization: float = 20.0,
        *,
        at: Literal["message", "adjacency"] | None = None,
        margin: bool = False,
        random_state: int = 0,
    ) -> None:
        check_at_least(2, n_samples=n_samples)
        if not (isinstance(regularization, int | float) and 0.0 < regularization < math.inf):
            raise ValueError(f"Expected regularization to be a positive number (got {regularization!r}).")
        check_guides("guides", guides or ())
        super().__init__(forward_func, at)
        self.guides = None if guides is None else tuple(guides)
        self.n_samples, self.regularization = n_samples, float(regularization)
        self.margin, self.random_state = margin, random_state

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Any, ...] | dict[Any, Tensor],
        target: Any = None,
        additional_forward_args: Any = None,
        feature_mask: Tensor | tuple[Any, ...] | dict[Any, Tensor] | None = None,
        n_samples: int | None = None,
        show_progress: bool = False,
        return_convergence_delta: bool = False,
        return_standard_errors: bool = False,
    ) -> Any:
        r"""Attribute the target's output to the edges.

        Args:
            inputs: The edge mask, usually ones, as for :class:`~captum_goat.GOAtAttribution`; edges with mask 0 are
                absent.
            target: What to explain, as there.
            additional_forward_args: The model's other arguments, as there.
            feature_mask: The player of each edge, as integers from 0 on: edges of a graph with the same number come and
                go together (``torch.arange(E)`` for directed edges in an undirected graph; functional groups; edge
                types). As in Captum, every edge is given the whole value of its player.
            n_samples: The number of coalitions; ``None`` for that of the constructor.
            show_progress: Whether to show a progress bar.
            return_convergence_delta: Whether to return the completeness error too.
            return_standard_errors: Whether to return standard errors too, from the regression; 0 for exact values.

        Returns:
            The attributions in the form of ``inputs``; with ``return_convergence_delta`` then the delta, sum minus
            difference, one per graph or mask; with ``return_standard_errors`` then the errors, in the form of
            ``inputs``.

        Raises:
            ValueError: If the model is in training mode or the arguments do not fit together.
            UnsupportedModelError: If the model's edges can neither be deleted nor masked.
        """
        method = copy(self)
        if n_samples is not None:
            check_at_least(2, n_samples=n_samples)
            method.n_samples = n_samples
        choice, arguments = Choice([target]), additional_forward_args
        explanation = method._explain(inputs, choice, arguments, feature_mask, show_progress=show_progress)
        results = [restored(inputs, explanation.attributions[0])]
        results += explanation.deltas if return_convergence_delta else []
        results += [restored(inputs, explanation.details[0])] if return_standard_errors else []
        return tuple(results) if len(results) > 1 else results[0]

    def _scores(
        self, values: EdgeValues, players: Players, guides: Tensor, advance: Callable[[int], object]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the values of players ``[P]``, and the standard errors in the form of the masks."""
        of_players = players.totals(guides.t().double())
        if self.guides is None:
            of_players = of_players.new_ones(len(players.game), 1)
            try:
                gradients, *_ = values.path_gradients(_PATH_POINTS)
                of_players = torch.cat([of_players, players.totals(gradients.t().double())], dim=1)
            except UnsupportedModelError as error:
                _logger.info("No gradients guide: %s", error)
        structure = players.totals(structure_of_columns(values.request.graph, len(values.mask)))
        games = Games(players, of_players, structure, self.n_samples, self.random_state)
        differences = games.differences(values, advance)
        estimates, errors = games.solve(differences, values.whole - values.empty, self.regularization)
        masks = values.request.masks
        return estimates.to(masks[0].dtype), players.per_mask(errors.to(masks[0].dtype), masks)

    def has_convergence_delta(self) -> bool:
        """Return whether there is a completeness error to return: there is."""
        return True


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
