"""All games of a call: their coalitions are evaluated together, and games of the same size are solved together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.metrics.counted_edges import numbered_by_first
from captum_goat.shapley.coalitions import Coalitions, draw_coalitions
from captum_goat.shapley.players import Players, mixed
from captum_goat.shapley.regression import exact_values, guided_values
from captum_goat.shapley.values import EdgeValues

_MOST_PLAYERS, _GROUPS = 1000, 256  # of a game, before players are put into groups; and how many groups then
_SAME_SCORE = 0.01  # guides that differ by less, relative to their norm, do not order edges that are alike


class Ordered(NamedTuple):
    """The players of games whose coalitions are drawn, in an order that does not depend on how they are numbered."""

    players: Players
    groups: Tensor  # which of them each edge, or group of the feature mask, is part of, ``[P]``
    position: Tensor  # in its game, ``[groups]``

    @classmethod
    def of(cls, players: Players, guides: Tensor, structure: Tensor) -> Ordered:
        """Order players; those of very large games are put into groups of neighbours in the order of their guides.

        Args:
            players: The players.
            guides: What guides say of them, ``[P, K]``.
            structure: Where they are in the graph, integers ``[P]``.
        """
        counts, game = players.counts, players.game
        norms = guides.new_zeros(players.num_games, guides.size(1)).index_add_(0, game, guides.square()).sqrt()
        scores = torch.where(norms[game] > 0, guides / norms[game], 0.0).sum(dim=1)
        scores = -(scores / _SAME_SCORE).round()
        by_guides, by_structure = players.ranks(scores, structure), players.ranks(structure, scores)
        size = counts[game]
        number = torch.where(size > _MOST_PLAYERS, by_guides * _GROUPS // size, by_structure)
        groups, first = numbered_by_first(game * (int(counts.max()) + 1 if len(counts) else 1) + number)
        columns = torch.cat([groups, groups.new_full((1,), -1)])[players.number]
        # Games with as many players have the same coalitions, so players are shuffled, by the structure of the game.
        signatures = torch.zeros_like(counts).index_add_(0, game, structure)[game[first]]
        grouped = Players(columns, game[first], players.num_games)
        return cls(grouped, groups, grouped.ranks(mixed(signatures + mixed(number[first] + 1))))


class Games:
    """The coalitions of all games. Games with as many players have the same ones, with players in other orders."""

    def __init__(self, ordered: Ordered, n_samples: int, seed: int) -> None:
        self._groups, self._players = ordered.groups, ordered.players
        players = ordered.players
        counts = players.counts
        self._drawn: list[tuple[Coalitions, Tensor, Tensor]] = []  # with the games, and their players [games, M]
        for count in counts.unique().tolist():
            games = (counts == count).nonzero().view(-1)
            mine = (counts == count)[players.game].nonzero().view(-1)
            place = players.game[mine] * max(count, 1) + ordered.position[mine]
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
        self, differences: Tensor, totals: Tensor, guides: Tensor, regularization: float
    ) -> tuple[Tensor, Tensor]:
        """Return the values of all members of groups and their standard errors, ``[P]``.

        The groups are the players here. What guides ``[P, K]`` do not explain of a group's value is shared equally.
        """
        groups, count = self._groups, len(self._players.game)
        of_groups = guides.new_zeros(count, guides.size(1)).index_add_(0, groups, guides)
        sizes = groups.bincount(minlength=count)
        own, errors = totals.new_zeros(count), totals.new_zeros(count)
        scaled = torch.zeros_like(of_groups)  # what a guide has to be multiplied with, for each group
        for drawn, games, mine in self._drawn:
            if not mine.numel():
                continue
            measured = differences[: len(drawn.members), games].t()
            if drawn.is_complete:
                own[mine] = exact_values(drawn, measured, totals[games])
                continue
            norms = of_groups[mine].norm(dim=1, keepdim=True)
            normed = torch.where(norms > 0, of_groups[mine] / norms, 0.0)
            solution = guided_values(drawn, measured, totals[games], normed, regularization)
            own[mine], errors[mine] = solution.own, solution.errors
            factors = torch.where(norms > 0, solution.coefficients.unsqueeze(1) / norms, 0.0)
            scaled[mine] = factors.expand(-1, mine.size(1), -1)
        return (guides * scaled[groups]).sum(dim=1) + (own / sizes)[groups], (errors / sizes)[groups]
