"""Shapley values of edges, by a regression that cheap attributions guide."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.inputs.attributed_inputs import flattened, restored
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.runs.progress import progress_bar
from captum_goat.shapley.coalitions import Coalitions, draw_coalitions
from captum_goat.shapley.guides import default_guides, own_guides
from captum_goat.shapley.players import Players, edge_keys, game_signatures, games_of_columns, group_keys
from captum_goat.shapley.regression import exact_values, guided_values
from captum_goat.shapley.values import EdgeValues
from captum_goat.wrapped_model import ExplainedModel


class ShapleyExplanation(NamedTuple):
    """Shapley values and what is known about them.

    Attributes:
        attributions: The values, one tensor per edge mask.
        errors: Their standard errors, in the same form.
        delta: The completeness error of each graph or mask.
    """

    attributions: list[Tensor]
    errors: list[Tensor]
    delta: Tensor


class GuidedShapley(Attribution):
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
    coalitions and a regression of its own. A softmax or sigmoid that is the model's last step is left out, as in GOAt.

    Args:
        forward_func: The trained model itself, in evaluation mode; or :class:`~captum_goat.EdgeMaskedModel` around it,
            which decides where edges are removed; or PyG's ``to_captum_model(model, "edge")``.
        guides: Attribution methods of the same edge mask, or attributions as tensors of its shape; any number. By
            default, GOAt and the gradients on four parts of the path of integrated gradients, at the adjacency where
            the model allows that, else at the messages.
        n_samples: The number of coalitions, each of which takes a forward pass.
        regularization: The penalty on what guides do not explain. More of it trusts the guides more.
        at: ``"adjacency"``: edges are deleted; ``"message"``: their messages are masked to 0. By default, they are
            deleted if the model runs without edges.
        margin: Whether to explain the margin of the target class, its log-odds (its logit minus the log-sum-exp of the
            others), instead of its logit. With three classes or more it finds better what a *prediction* rests on.
        random_state: The seed. The same seed, model and graph have the same attributions, alone or in a batch.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GuidedShapley
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3).eval()
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> shapley = GuidedShapley(model, n_samples=16)  # 4 edges have 16 coalitions, so the values are exact
        >>> attributions, delta, errors = shapley.attribute(
        ...     torch.ones(4),
        ...     target=(2, 0),
        ...     additional_forward_args=(x, edge_index),
        ...     return_convergence_delta=True,
        ...     return_standard_errors=True,
        ... )
        >>> lost = model(x, edge_index)[2, 0] - model(x, edge_index[:, :0])[2, 0]
        >>> torch.allclose(attributions.sum(), lost), bool(delta.abs() < 1e-6), errors
        (True, True, tensor([0., 0., 0., 0.]))
        >>> bool(attributions[3].abs() < 1e-7)  # an edge that cannot reach node 2
        True
    """

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
        _check_samples(n_samples)
        if not (isinstance(regularization, int | float) and 0.0 < regularization < math.inf):
            raise ValueError(f"Expected regularization to be a positive number (got {regularization!r}).")
        if guides is not None and not all(isinstance(guide, Attribution | Tensor) for guide in guides):
            names = [type(guide).__name__ for guide in guides]
            raise TypeError(f"Expected guides that are captum Attributions or tensors (got {', '.join(names)}).")
        super().__init__(forward_func)
        self._explained = ExplainedModel.of(forward_func, at=at)
        if self._explained.mask_type not in ("edge", None):
            raise ValueError(f"Expected a model whose edges are attributed (got {self._explained.mask_type!r}).")
        wrapped = getattr(forward_func, "_orig_mod", forward_func)
        self.at = self._explained.at if isinstance(wrapped, EdgeMaskedModel | CaptumModel) else at
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
            inputs: The edge mask, usually ones, as for :class:`~captum_goat.GOAtAttribution`: ``[E]`` for a graph or a
                batch of graphs, ``[B, E]`` for B masks of one graph; a dictionary or a tuple of them for heterogeneous
                graphs. Edges with mask 0 are absent.
            target: What to explain, as for :class:`~captum_goat.GOAtAttribution`.
            additional_forward_args: The model's other arguments, as there. The argument ``batch``, or a ``Batch``,
                tells which graph a node belongs to.
            feature_mask: The player of each edge, as integers from 0 on: edges of a graph with the same number come and
                go together (``torch.arange(E)`` for directed edges in an undirected graph; functional groups; edge
                types). As in Captum, every edge is given the whole value of its player.
            n_samples: The number of coalitions; ``None`` for that of the constructor.
            show_progress: Whether to show a progress bar (if tqdm is installed).
            return_convergence_delta: Whether to return the completeness error too.
            return_standard_errors: Whether to return standard errors too: 0 for exact values, else estimates from the
                regression.

        Returns:
            The attributions in the form of ``inputs``; with ``return_convergence_delta`` then the delta, sum minus
            difference, one per graph or mask; with ``return_standard_errors`` then the errors, in the form of
            ``inputs``.

        Raises:
            ValueError: If the model is in training mode or the arguments do not fit together.
            UnsupportedModelError: If the model's edges can neither be deleted nor masked.
        """
        samples = self.n_samples if n_samples is None else n_samples
        _check_samples(samples)
        explanation = self._explain(inputs, target, additional_forward_args, feature_mask, samples, show_progress)
        results = [restored(inputs, explanation.attributions)]
        results += [explanation.delta] if return_convergence_delta else []
        results += [restored(inputs, explanation.errors)] if return_standard_errors else []
        return tuple(results) if len(results) > 1 else results[0]

    @restores_state
    def _explain(
        self, inputs: Any, target: Any, arguments: Any, feature_mask: Any, n_samples: int, show_progress: bool
    ) -> ShapleyExplanation:
        with outside_inference_mode():
            request = self._explained.request(inputs, arguments)
            switch_off_autocast(request.device)
            if request.rows_are_examples:
                raise ValueError("Expected a graph with edges among the arguments (got none).")
            graph, masks = request.graph, request.inputs.masks
            values = EdgeValues(request, target, self.at, margin=self.margin)
            games = games_of_columns(graph, request.count, values.num_games)
            if feature_mask is None:
                keys = edge_keys(graph, len(values.mask))
            else:
                keys = group_keys(flattened(feature_mask, inputs), masks)
            players = Players.of(keys, games, values.num_games, values.mask.view(-1) != 0)
            position = players.shuffled(game_signatures(graph, games, values.num_games))
            if self.guides is None:
                columns = default_guides(self._explained, values, inputs, target, arguments)
            else:
                columns = own_guides(self.guides, values, inputs, target, arguments)
            game = _Games(players, position, n_samples, self.random_state)
            with progress_bar(2 * game.num_pairs, "coalition", show_progress) as advance:
                differences = game.differences(values, advance)
            totals = values.whole - values.empty
            found, errors = game.solve(differences, totals, columns.t().double(), self.regularization)
            dtype = masks[0].dtype
            delta = totals.new_zeros(len(totals)).index_add_(0, players.game, found.to(dtype).double()) - totals
            sizes = [mask.size(-1) for mask in masks]

            def per_mask(per_player: Tensor) -> list[Tensor]:
                parts = players.per_column(per_player, shared=feature_mask is None).view(len(values.mask), -1)
                return [
                    part.reshape(mask.shape).to(dtype)
                    for part, mask in zip(parts.split(sizes, dim=1), masks, strict=True)
                ]

            return ShapleyExplanation(per_mask(found), per_mask(errors), delta.to(dtype))

    @property
    def model(self) -> Module:
        """The user's own model, without what was wrapped around it."""
        return self._explained.model

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether attributions have the inputs as a factor: they are what edges with these masks add."""
        return True

    def has_convergence_delta(self) -> bool:
        """Return whether there is a completeness error to return: there is."""
        return True

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name."""
        return "Guided Shapley"


class _Games:
    """The coalitions of all games. Games with as many players have the same ones, with players in other orders."""

    def __init__(self, players: Players, position: Tensor, n_samples: int, seed: int) -> None:
        self._players = players
        counts = players.counts
        self._drawn: list[tuple[Coalitions, Tensor, Tensor]] = []  # with the games, and their players [games, M]
        for count in counts.unique().tolist():
            games = (counts == count).nonzero().view(-1)
            mine = (counts == count)[players.game].nonzero().view(-1)
            place = players.game[mine] * max(count, 1) + position[mine]
            drawn = draw_coalitions(count, n_samples // 2, seed)
            self._drawn.append((drawn, games, mine[place.argsort()].view(len(games), count)))
        self.num_pairs = max((len(drawn.members) for drawn, _, _ in self._drawn), default=0)

    def differences(self, values: EdgeValues, advance: Callable[[int], object]) -> Tensor:
        """Evaluate all coalitions; return what each is worth more than its complement, ``[pairs, G]``."""
        players = self._players
        device = players.number.device
        # A game with fewer pairs than others repeats the one of no players; the last column is for absent edges.
        members = torch.zeros(self.num_pairs, len(players.game) + 1, dtype=torch.bool, device=device)
        for drawn, _, mine in self._drawn:
            rows = torch.arange(len(drawn.members), device=device)
            members[rows.view(-1, 1, 1), mine] = drawn.members.to(device).unsqueeze(1)
        kept = members[:, players.number]
        pairs = torch.stack([kept, ~kept & (players.number >= 0)], dim=1)
        if not self.num_pairs:
            return values.whole.new_zeros(0, len(values.whole))
        return -values(pairs.flatten(0, 1), advance).view(self.num_pairs, 2, -1).diff(dim=1).squeeze(1)

    def solve(
        self, differences: Tensor, totals: Tensor, columns: Tensor, regularization: float
    ) -> tuple[Tensor, Tensor]:
        """Return the values of all players and their standard errors, ``[P]``.

        Args:
            differences: What coalitions are worth more than their complements, ``[pairs, G]``.
            totals: What all players of a game are worth, ``[G]``.
            columns: The guides, ``[columns, K]``.
            regularization: The penalty.
        """
        of_players = self._players.totals(columns)
        values = totals.new_zeros(len(of_players))
        errors = torch.zeros_like(values)
        for drawn, games, mine in self._drawn:
            own = differences[: len(drawn.members), games].t()
            if not mine.numel():
                continue
            if drawn.is_complete:
                values[mine] = exact_values(drawn, own, totals[games])
                continue
            guides = of_players[mine]
            norms = guides.norm(dim=1, keepdim=True)
            guides = torch.where(norms > 0, guides / norms, 0.0)
            solution = guided_values(drawn, own, totals[games], guides, regularization)
            values[mine], errors[mine] = solution.values, solution.errors
        return values, errors


def _check_samples(n_samples: Any) -> None:
    """Raise ValueError unless this is a number of coalitions."""
    if not isinstance(n_samples, int) or isinstance(n_samples, bool) or n_samples < 2:
        raise ValueError(f"Expected n_samples to be an integer from 2 on (got {n_samples!r}).")
