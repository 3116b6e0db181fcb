"""Shapley values of edges, by a regression that cheap attributions guide."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Literal

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from captum_goat.inputs.request import restored
from captum_goat.inputs.targets import Choice
from captum_goat.shapley.edge_attribution import EdgeAttribution, EdgeValues, check_at_least, check_guides
from captum_goat.shapley.games import Games, Players, structure_of_columns
from captum_goat.tracking import UnsupportedModelError

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
