"""All games of a call: their coalitions are evaluated together, and games of the same size are solved together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from captum_goat.shapley.coalitions import Coalitions, draw_coalitions
from captum_goat.shapley.players import Players
from captum_goat.shapley.regression import exact_values, guided_values
from captum_goat.shapley.values import EdgeValues


class Games:
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
